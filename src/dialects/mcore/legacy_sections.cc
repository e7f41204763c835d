// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_sections.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::string_view kInProjWeight = ".self_attention.in_proj.weight";
constexpr std::string_view kConvWeight = ".self_attention.conv1d.weight";
constexpr std::array<std::string_view, 6> kSectionNames = {"query", "key", "value", "z", "beta", "alpha"};
constexpr std::size_t kOfConv = 3;

/// Where a name ends that is followed by a section's; and that section's number. Nothing for other names.
std::optional<std::pair<std::size_t, std::size_t>> SectionIn(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view before = name.substr(0, dot);
  const std::size_t known = before.ends_with(kInProjWeight) ? kSectionNames.size() : before.ends_with(kConvWeight) ? kOfConv : 0;
  const auto* const end = kSectionNames.begin() + known;
  const auto* const found = std::find(kSectionNames.begin(), end, name.substr(dot + 1));
  if (found == end) return std::nullopt;
  return std::pair{dot, static_cast<std::size_t>(found - kSectionNames.begin())};
}

}  // namespace

std::vector<Section> SectionsOf(std::string_view key, const Value& args) {
  const std::string whole = fmt::format(".{}", key);   // a key of a layer alone begins with the attention
  const bool conv = whole.ends_with(kConvWeight);
  if (!conv && !whole.ends_with(kInProjWeight)) return {};
  const auto said = [&](const char* name, std::int64_t usual) { return args.GetInt(name).value_or(usual); };
  const std::int64_t heads = said("linear_num_value_heads", 32);
  const std::int64_t keys = said("linear_num_key_heads", 16) * said("linear_key_head_dim", 128);
  const std::int64_t values = heads * said("linear_value_head_dim", 128);
  const std::array<std::int64_t, kSectionNames.size()> rows = {keys, keys, values, values, heads, heads};
  std::vector<Section> sections;
  for (std::size_t i = 0; i < (conv ? kOfConv : kSectionNames.size()); ++i) sections.push_back({kSectionNames[i], rows[i]});
  return sections;
}

Result<expr::Expr> SectionOfRank(const expr::Expr& local, const std::vector<Section>& sections, std::size_t at, int ranks) {
  std::int64_t rows = 0;
  std::int64_t before = 0;
  bool whole = ranks > 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    whole = whole && sections[i].rows > 0 && sections[i].rows % ranks == 0;
    if (!whole) break;
    if (i == at) before = rows;
    rows += sections[i].rows / ranks;
  }
  if (!whole || local->shape.empty() || local->shape[0] != rows) {
    return MakeError(ErrorCode::kCorrupt, "the parameter of a gated delta net does not have the rows that the run's arguments say")
        .WithExpected(fmt::format("{} rows on each of {} tensor-parallel ranks", rows, ranks))
        .WithFound(ToString(local->shape));
  }
  Box box = Box::Whole(local->shape);
  box.offsets[0] = before;
  box.sizes[0] = sections[at].rows / ranks;
  return expr::Slice(local, std::move(box));
}

Status FuseSections(TargetState* target) {
  std::map<std::string, std::map<std::size_t, std::size_t>> fused;   // name -> section -> entry
  std::vector<std::pair<Entry, expr::Expr>> made;
  std::vector<Entry>& entries = target->catalog.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (const auto section = SectionIn(entries[i].name)) {
      fused[entries[i].name.substr(0, section->first)][section->second] = i;
    } else {
      made.emplace_back(std::move(entries[i]), std::move(target->exprs[i]));
    }
  }
  for (const auto& [name, sections] : fused) {
    const std::size_t axis = HasLayerAxis(ParseTensorKey(name).model_key) ? 1 : 0;
    Entry whole;
    std::vector<expr::Expr> parts;
    for (const auto& [number, index] : sections) {
      Entry& entry = entries[index];
      if (parts.empty()) {
        whole = {name, entry.slot, entry.dtype, entry.shape, {}};
        whole.shape[axis] = 0;
      }
      for (Chunk& chunk : entry.chunks) {
        chunk.box.offsets[axis] += whole.shape[axis];
        whole.chunks.push_back(std::move(chunk));
      }
      whole.shape[axis] += entry.shape[axis];
      parts.push_back(std::move(target->exprs[index]));
    }
    Result<expr::Expr> joined = expr::Concat(std::move(parts), static_cast<int>(axis));
    if (!joined) return std::move(std::move(joined).error()).WithTensor(name);
    made.emplace_back(std::move(whole), *std::move(joined));
  }
  std::ranges::sort(made, {}, [](const auto& pair) -> const std::string& { return pair.first.name; });
  entries.clear();
  target->exprs.clear();
  for (auto& [entry, expr] : made) {
    entries.push_back(std::move(entry));
    target->exprs.push_back(std::move(expr));
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::mcore
