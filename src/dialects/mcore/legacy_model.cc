// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_model.h"

#include <algorithm>
#include <set>

#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr int kMostNesting = 16;

/// Walks the dict of one model chunk.
class Walker {
 public:
  Walker(const Catalog& source, const LegacyRank& rank, LegacyModel* shard) : source_(source), rank_(rank), shard_(*shard) {}

  Status Walk(const Value& value, const std::string& name, int depth) {
    if (const TensorValue* tensor = value.as_tensor()) return Take(*tensor, name);
    const Value::Dict* dict = value.as_dict();
    if (dict != nullptr && depth > kMostNesting) {
      return MakeError(ErrorCode::kCorrupt, "a model's dict is nested deeper than any module")
          .WithPath(rank_.dir)
          .WithExpected(std::to_string(kMostNesting) + " levels at most");
    }
    if (dict == nullptr) {
      if (name.ends_with("_extra_state")) ++shard_.extra_states;
      return OkStatus();  // None, BytesIO: no parameters
    }
    for (const auto& [key, item] : dict->items) {
      const std::string* text = key.as_string();
      if (text == nullptr) continue;
      CROSSDOCK_RETURN_IF_ERROR(Walk(item, name.empty() ? *text : name + "." + *text, depth + 1));
    }
    return OkStatus();
  }

 private:
  Status Take(const TensorValue& tensor, const std::string& name) {
    if (name.ends_with("_extra_state")) {
      ++shard_.extra_states;
      return OkStatus();
    }
    const std::int32_t entry = source_.Find(tensor.storage);
    if (entry < 0) return MakeError(ErrorCode::kCorrupt, "a parameter of a legacy file has no data").WithPath(rank_.dir).WithTensor(name);
    shard_.chunks.back().push_back({name, ParseLegacyName(name), entry});
    return OkStatus();
  }

  const Catalog& source_;
  const LegacyRank& rank_;
  LegacyModel& shard_;
};

/// The layers that one model chunk numbers, which must be 0, 1, ... without a gap.
Result<std::int64_t> CountLayers(const std::vector<LegacyTensor>& chunk, const LegacyRank& rank) {
  std::set<std::int64_t> numbers;
  for (const LegacyTensor& tensor : chunk) {
    if (tensor.meaning.layer) numbers.insert(*tensor.meaning.layer);
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  if (numbers.empty() || *numbers.rbegin() == count - 1) return count;
  return MakeError(ErrorCode::kCorrupt, "the layers of a stage are not numbered from 0")
      .WithPath(rank.dir)
      .WithExpected(fmt::format("0 to {}", count - 1))
      .WithFound(fmt::format("{} to {}", *numbers.begin(), *numbers.rbegin()));
}

std::set<std::string> NamesOf(const std::vector<LegacyTensor>& chunk) {
  std::set<std::string> names;
  for (const LegacyTensor& tensor : chunk) names.insert(tensor.name);
  return names;
}

/// All ranks of a stage hold parts of the same parameters; experts count within their rank.
Status CheckSameNames(const LegacyRank& a, const std::vector<LegacyTensor>& in_a, const LegacyRank& b, const std::vector<LegacyTensor>& in_b) {
  const std::set<std::string> left = NamesOf(in_a);
  const std::set<std::string> right = NamesOf(in_b);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(left, right, std::back_inserter(differing));
  if (differing.empty() && in_a.size() == in_b.size()) return OkStatus();
  return MakeError(ErrorCode::kCorrupt, "two ranks of a stage hold different parameters")
      .WithPath(b.dir)
      .WithTensor(differing.empty() ? std::string() : differing.front())
      .WithExpected(fmt::format("the {} parameters of {}", in_a.size(), a.dir))
      .WithFound(fmt::format("{}, {} names differ", in_b.size(), differing.size()));
}

}  // namespace

Result<LegacyModel> ReadLegacyModel(const Catalog& source, const LegacyRank& rank) {
  LegacyModel shard;
  const auto read = [&](const Value& model) {
    shard.chunks.emplace_back();
    return Walker(source, rank, &shard).Walk(model, "", 0);
  };
  if (const Value* model = rank.file->Find("model")) {
    CROSSDOCK_RETURN_IF_ERROR(read(*model));
  }
  for (int i = 0; shard.chunks.empty() || i > 0; ++i) {
    const Value* model = rank.file->Find(fmt::format("model{}", i));
    if (model == nullptr) break;
    CROSSDOCK_RETURN_IF_ERROR(read(*model));
  }
  if (shard.chunks.empty()) return MakeError(ErrorCode::kIncomplete, "a rank's file holds no model").WithPath(rank.dir).WithExpected("`model` or `model0`");
  return shard;
}

Result<std::vector<std::int64_t>> FirstLayers(const LegacyRanks& ranks, const std::vector<LegacyModel>& shards, std::int64_t* layers) {
  std::vector<std::int64_t> first;
  *layers = 0;
  const std::size_t chunks = shards.front().chunks.size();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].chunks.size() == chunks) continue;
    return MakeError(ErrorCode::kCorrupt, "the ranks hold different numbers of model chunks")
        .WithPath(ranks.ranks[i].dir)
        .WithExpected(fmt::format("{} as {}", chunks, ranks.ranks.front().dir))
        .WithFound(fmt::format("{}", shards[i].chunks.size()));
  }
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (int stage = 0; stage < ranks.pp; ++stage) {
      const auto at = static_cast<std::size_t>(stage) * static_cast<std::size_t>(ranks.tp);
      for (std::size_t other = at + 1; other < ranks.ranks.size(); ++other) {
        if (ranks.ranks[other].pipeline != stage) continue;
        CROSSDOCK_RETURN_IF_ERROR(CheckSameNames(ranks.ranks[at], shards[at].chunks[chunk], ranks.ranks[other], shards[other].chunks[chunk]));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, CountLayers(shards[at].chunks[chunk], ranks.ranks[at]));
      first.push_back(*layers);
      *layers += count;
    }
  }
  const std::optional<std::int64_t> wanted = ranks.args.GetInt("num_layers");
  if (!wanted || *wanted == *layers) return first;
  return MakeError(ErrorCode::kCorrupt, "the stages hold another number of layers than the arguments say")
      .WithExpected(fmt::format("num_layers = {}", *wanted))
      .WithFound(fmt::format("{} on {} stages of {} model chunks", *layers, ranks.pp, chunks));
}

}  // namespace crossdock::dialects::mcore
