// SPDX-License-Identifier: Apache-2.0
#include "plan/check.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/checked_math.h"
#include "expr/dequantize.h"
#include "plan/problems.h"

namespace crossdock::plan {

Status Problems::ToStatus() const {
  if (count_ == 0) return OkStatus();
  if (count_ == 1) return named_[0];
  std::string list;
  for (const Error& e : named_) {
    list += fmt::format("{}`{}`: {}", list.empty() ? "" : "; ", Printable(e.tensor), e.message);
    if (!e.expected.empty()) list += ", expected " + e.expected;
    if (!e.found.empty()) list += ", found " + e.found;
  }
  if (count_ > named_.size()) list += fmt::format("; and {} more", count_ - named_.size());
  Error out = MakeError(named_[0].code, fmt::format("{} contradictions between the checkpoint and what is to be "
                                                    "written: {}",
                                                    count_, list));
  out.hint = named_[0].hint;
  return out;
}

namespace {

std::string Describe(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", DTypeName(dtype), ToString(shape));
}

/// Chunks that cover the shape, lie in files that exist, and hold as many bytes as their box asks for.
Status CheckEntry(const Catalog& catalog, const Entry& entry) {
  if (BitsOf(entry.dtype) % 8 != 0) {
    return MakeError(ErrorCode::kUnsupported, "elements that share bytes cannot be moved one by one")
        .WithTensor(entry.name)
        .WithFound(std::string(DTypeName(entry.dtype)));
  }
  std::vector<Box> boxes;
  boxes.reserve(entry.chunks.size());
  for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
  if (Status cover = CheckCover(entry.shape, boxes); !cover) return std::move(cover).error().WithTensor(entry.name);
  for (const Chunk& chunk : entry.chunks) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, chunk.box.sizes));
    if (bytes == 0) continue;
    if (chunk.file < 0 || static_cast<std::size_t>(chunk.file) >= catalog.files.size()) {
      return MakeError(ErrorCode::kCorrupt, "a chunk lies in no file")
          .WithTensor(entry.name)
          .WithFound("chunk " + ToString(chunk.box));
    }
    const FileRef& file = catalog.files[static_cast<std::size_t>(chunk.file)];
    const auto end = CheckedAdd(chunk.bytes.offset, chunk.bytes.length);
    const bool fits = chunk.bytes.offset >= 0 && chunk.bytes.length >= 0 && end && *end <= file.identity.size;
    const bool right = chunk.encoding != ChunkEncoding::kRaw || chunk.bytes.length == bytes;
    if (!fits || !right) {
      return MakeError(ErrorCode::kCorrupt, "the byte range of a chunk does not fit")
          .WithTensor(entry.name)
          .WithPath(file.path)
          .WithExpected(fmt::format("{} bytes within {}", bytes, file.identity.size))
          .WithFound(fmt::format("{} bytes at {}", chunk.bytes.length, chunk.bytes.offset));
    }
  }
  return OkStatus();
}

/// A group of MXFP4 is one unit of work: chunks hold its 16 bytes together.
void CheckGroups(const Catalog& source, int leaf, Problems& problems) {
  if (leaf < 0 || static_cast<std::size_t>(leaf) >= source.entries.size()) return;  // told by CheckLeaves
  const Entry& entry = source.entries[static_cast<std::size_t>(leaf)];
  for (const Chunk& chunk : entry.chunks) {
    if (chunk.box.rank() != entry.shape.size() || chunk.box.sizes.back() == entry.shape.back()) continue;
    problems.Add(MakeError(ErrorCode::kUnsupported, "a chunk cuts the groups of an MXFP4 tensor")
                     .WithTensor(entry.name)
                     .WithExpected("chunks that hold the last axis whole")
                     .WithFound("chunk " + ToString(chunk.box)));
    return;
  }
}

/// Quantization stands at the root only; below it everything is movement and elementwise, and dequantization over leaves.
void CheckLeaves(const Catalog& source, const expr::Expr& node, const Entry& entry, std::vector<bool>& used,
                 Problems& problems) {
  if (node->op != expr::Op::kLeaf) {
    for (const expr::Expr& in : node->inputs) CheckLeaves(source, in, entry, used, problems);
    if (node->op == expr::Op::kDequantizeMxfp4) CheckGroups(source, node->inputs[0]->leaf, problems);
    return;
  }
  if (node->leaf < 0 || static_cast<std::size_t>(node->leaf) >= source.entries.size()) {
    problems.Add(MakeError(ErrorCode::kIncomplete, "the source has no tensor for it").WithTensor(entry.name));
    return;
  }
  const auto i = static_cast<std::size_t>(node->leaf);
  used[i] = true;
  const Entry& from = source.entries[i];
  if (from.dtype != node->dtype || from.shape != node->shape) {
    problems.Add(MakeError(ErrorCode::kCorrupt, "a source tensor is not what the rules for `" + entry.name + "` expect")
                     .WithTensor(from.name)
                     .WithExpected(Describe(node->dtype, node->shape))
                     .WithFound(Describe(from.dtype, from.shape)));
  }
}

}  // namespace

Status CheckInputs(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs) {
  if (exprs.size() != target.entries.size()) {
    return MakeError(ErrorCode::kIncomplete, "tensors to be written and expressions for them do not agree in number")
        .WithExpected(std::to_string(target.entries.size()))
        .WithFound(std::to_string(exprs.size()));
  }
  Problems problems;
  std::vector<bool> used(source.entries.size(), false);
  for (std::size_t i = 0; i < exprs.size(); ++i) {
    const Entry& entry = target.entries[i];
    if (exprs[i] == nullptr) {
      problems.Add(MakeError(ErrorCode::kIncomplete, "nothing says where it comes from").WithTensor(entry.name));
      continue;
    }
    if (exprs[i]->dtype != entry.dtype || exprs[i]->shape != entry.shape) {
      problems.Add(MakeError(ErrorCode::kCorrupt, "what the rules give is not what is to be written")
                       .WithTensor(entry.name)
                       .WithExpected(Describe(entry.dtype, entry.shape))
                       .WithFound(Describe(exprs[i]->dtype, exprs[i]->shape)));
    }
    if (Status status = CheckEntry(target, entry); !status) problems.Add(std::move(status).error());
    CheckLeaves(source, exprs[i], entry, used, problems);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    if (Status status = CheckEntry(source, source.entries[i]); !status) problems.Add(std::move(status).error());
  }
  return problems.ToStatus();
}

}  // namespace crossdock::plan
