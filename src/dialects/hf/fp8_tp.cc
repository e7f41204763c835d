// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_tp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/digits.h"
#include "dialects/hf/fp8_choice.h"

namespace crossdock::dialects::hf {
namespace {

using Strategy = Fp8Options::Strategy;

constexpr std::array<std::string_view, 8> kByColumns = {"o_proj", "down_proj", "w2", "dense", "wo", "out_proj", "fc2", "linear_proj"};
constexpr std::array<std::string_view, 2> kWhole = {"q_a_proj", "kv_a_proj_with_mqa"};

/// Numbers as stars: "model.layers.*.mlp.experts.*.up_proj.weight [768, 2048]".
std::string Alike(const Entry& entry) {
  std::string out;
  std::string_view rest = entry.name;
  while (!rest.empty()) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool number = OnlyDigits(part);
    out += number ? "*" : part;
    if (dot < rest.size()) out += '.';
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  return fmt::format("{} {}", out, ToString(entry.shape));
}

/// Lines that say the same of several layers, in the order of the first of each.
class Lines {
 public:
  void Add(const Entry& entry, const std::string& what) {
    const std::string line = fmt::format("{}: {}", Alike(entry), what);
    const auto [at, is_new] = counts_.try_emplace(line, 0);
    ++at->second;
    if (is_new) order_.push_back(line);
  }
  [[nodiscard]] bool empty() const { return order_.empty(); }
  void AppendTo(std::vector<std::string>* out, const std::string& before) const {
    for (const std::string& line : order_) {
      const std::int64_t count = counts_.at(line);
      out->push_back(before + line + (count > 1 ? fmt::format(" ({} of them)", count) : ""));
    }
  }

 private:
  std::map<std::string, std::int64_t> counts_;
  std::vector<std::string> order_;
};

/// Rows that a rank holds of a projection to key or value heads: whole heads, repeated where there are too few.
std::int64_t KeyRows(const family::Model& model, std::int64_t rows, std::int64_t ranks) {
  const auto heads = model.letters.find("k");
  if (heads == model.letters.end() || heads->second <= 0 || heads->second >= ranks || ranks % heads->second != 0 || rows % heads->second != 0) return 0;
  return rows / heads->second;
}

/// Why a rank cannot hold its part; empty when it can.
std::string Obstacle(const Fp8Options& fp8, const family::Model& model, const Entry& entry) {
  const std::string_view part = LastPart(ModuleOf(entry.name));
  if (std::ranges::find(kWhole, part) != kWhole.end()) return {};
  const std::int64_t ranks = fp8.check_tp;
  const bool columns = std::ranges::find(kByColumns, part) != kByColumns.end();
  const std::int64_t size = entry.shape[columns ? 1 : 0];
  const std::int64_t block = fp8.strategy != Strategy::kBlock ? 1 : columns ? fp8.block.cols : fp8.block.rows;
  const char* what = columns ? "columns" : "rows";
  std::int64_t mine = part == "k_proj" || part == "v_proj" ? KeyRows(model, size, ranks) : 0;
  if (mine == 0 && size % ranks != 0) return fmt::format("{} {} do not divide by {} ranks", size, what, ranks);
  if (mine == 0) mine = size / ranks;
  if (mine % block == 0) return {};
  return fmt::format("a rank holds {} of {} {}, no multiple of {}", mine, size, what, block);
}

std::string Axis(std::int64_t size, std::int64_t block, const char* what) {
  return size % block == 0 ? "" : fmt::format("{} {} end {} into a block of {}", size, what, size % block, block);
}

}  // namespace

std::vector<std::string> ServingNotices(const Fp8Options& fp8, const family::Model& model, const std::vector<Entry>& weights) {
  std::vector<std::string> out;
  Lines partial, cut;
  for (const Entry& entry : weights) {
    if (fp8.strategy == Strategy::kBlock) {
      const std::string rows = Axis(entry.shape[0], fp8.block.rows, "rows");
      const std::string cols = Axis(entry.shape[1], fp8.block.cols, "columns");
      if (!rows.empty() || !cols.empty()) partial.Add(entry, rows + (rows.empty() || cols.empty() ? "" : ", ") + cols);
    }
    if (fp8.check_tp > 1) {
      if (const std::string why = Obstacle(fp8, model, entry); !why.empty()) cut.Add(entry, why);
    }
  }
  if (!partial.empty()) {
    partial.AppendTo(&out, "partial block: ");
    out.emplace_back(
        "partial blocks: transformers 5.24 divides rows by rows of scales and takes other blocks, or fails; vLLM and SGLang load them without tensor parallelism "
        "only (`--fp8 channel` has none; a block that divides, such as `--fp8-block-size 64 64`, neither)");
  }
  if (!cut.empty()) {
    cut.AppendTo(&out, fmt::format("tensor parallel {}: ", fp8.check_tp));
    out.push_back(fmt::format("tensor parallel {}: vLLM and SGLang refuse to load these weights (`--fp8 channel`, or a smaller block, lifts the limit of blocks)", fp8.check_tp));
  } else if (fp8.check_tp > 0) {
    out.push_back(fmt::format("tensor parallel {}: every quantized weight can be divided", fp8.check_tp));
  }
  return out;
}

}  // namespace crossdock::dialects::hf
