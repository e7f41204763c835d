// SPDX-License-Identifier: Apache-2.0
#include "plan/fingerprint.h"

#include <iterator>

#include <fmt/format.h>

#include "base/hash.h"

namespace crossdock::plan {
namespace {

/// Raised whenever the same inputs would be cut into other tasks: an old journal must then not be taken over.
constexpr int kPlannerVersion = 1;

void Append(std::string& out, const Dims& dims) {
  for (const std::int64_t v : dims) fmt::format_to(std::back_inserter(out), "{},", v);
}

void AppendKey(std::string& out, const expr::Expr& node) {
  fmt::format_to(std::back_inserter(out), "({}:{}:", static_cast<int>(node->op), static_cast<int>(node->dtype));
  Append(out, node->shape);
  fmt::format_to(std::back_inserter(out), ":{}:{}:", node->leaf, static_cast<int>(node->axis));
  if (node->op == expr::Op::kTranspose) {
    for (const int axis : node->axes()) fmt::format_to(std::back_inserter(out), "{},", axis);
  }
  out += ':';
  if (node->op == expr::Op::kSlice || node->op == expr::Op::kPad) Append(out, node->offsets());
  const expr::Fp8Format fp8 = expr::IsQuantize(node) ? node->fp8() : expr::Fp8Format{};
  const expr::BlockFormat block = node->op == expr::Op::kDequantize ? node->block() : fp8.block;
  fmt::format_to(std::back_inserter(out), ":{:a}:{}x{}", node->factor(), block.rows, block.cols);
  if (expr::IsQuantize(node)) {
    fmt::format_to(std::back_inserter(out), ":{:d}{}{}", fp8.whole, static_cast<int>(fp8.scales), static_cast<int>(fp8.arithmetic));
  }
  for (const expr::Expr& in : node->inputs) AppendKey(out, in);
  out += ')';
}

/// Joins piece by piece: the whole text of a catalog with a million chunks would be a hundred megabytes.
class Folder {
 public:
  void Add(std::string_view text) { hash_ = Fingerprint(hash_ + std::string(text)); }
  void Add(const Catalog& catalog) {
    Add(fmt::format("files {} entries {}", catalog.files.size(), catalog.entries.size()));
    for (const FileRef& f : catalog.files) {
      Add(fmt::format("{} {} {} {}", f.identity.size, f.identity.mtime_ns, f.identity.inode, f.path));
    }
    for (const Entry& e : catalog.entries) {
      std::string text = fmt::format("{} {} ", static_cast<int>(e.slot), static_cast<int>(e.dtype));
      Append(text, e.shape);
      for (const Chunk& c : e.chunks) {
        fmt::format_to(std::back_inserter(text), "[{} {} {} {} ", c.file, c.bytes.offset, c.bytes.length,
                       static_cast<int>(c.encoding));
        Append(text, c.box.offsets);
        Append(text, c.box.sizes);
        text += ']';
      }
      Add(text + e.name);
    }
  }
  [[nodiscard]] const std::string& hash() const { return hash_; }

 private:
  std::string hash_;
};

}  // namespace

std::string ExprKey(const expr::Expr& root) {
  std::string out;
  AppendKey(out, root);
  return out;
}

std::string PlanHash(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                     std::span<const Task> tasks) {
  Folder folder;
  folder.Add(fmt::format("plan {} tasks {}", kPlannerVersion, tasks.size()));
  folder.Add(source);
  folder.Add(target);
  for (const expr::Expr& e : exprs) folder.Add(ExprKey(e));
  std::string text;
  for (const Task& t : tasks) {
    text.clear();
    for (const Output& o : t.outputs) {
      fmt::format_to(std::back_inserter(text), "[{} {} ", o.entry, o.chunk);
      Append(text, o.box.offsets);
      Append(text, o.box.sizes);
    }
    folder.Add(text);
  }
  return folder.hash();
}

}  // namespace crossdock::plan
