// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_ranks.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "dialects/mcore/legacy_names.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::string_view kPrefix = "mp_rank_";
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20U;  // sizes come from a file

struct RankFile {
  LegacyRank rank;
  std::vector<int> numbers;
};

/// The numbers of "mp_rank_00_001"; empty for another name.
std::vector<int> NumbersOf(std::string_view name) {
  std::vector<int> numbers;
  if (!name.starts_with(kPrefix)) return numbers;
  std::string_view rest = name.substr(kPrefix.size());
  while (!rest.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || number < 0 || number >= kMostRanks) return {};
    numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) break;
    if (rest.front() != '_') return {};
    rest.remove_prefix(1);
  }
  return numbers;
}

std::vector<RankFile> List(const Catalog& catalog) {
  std::vector<RankFile> out;
  for (const auto& [name, value] : catalog.objects) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos || name.substr(slash + 1) != kLegacyModelFile) continue;
    const std::string dir = name.substr(0, slash);
    std::vector<int> numbers = NumbersOf(dir);
    if (numbers.empty() || numbers.size() > 3) continue;
    const auto distributed = catalog.objects.find(fmt::format("{}/{}", dir, kLegacyDistributedFile));
    out.push_back({{dir, numbers[0], 0, 0, &value, distributed == catalog.objects.end() ? nullptr : &distributed->second}, std::move(numbers)});
  }
  return out;
}

std::int64_t SizeOf(const Value& args, std::string_view name) { return std::max<std::int64_t>(args.GetInt(name).value_or(1), 1); }

Error Contradiction(const std::string& dir, std::string expected, std::string found) {
  return MakeError(ErrorCode::kCorrupt, "a rank's directory contradicts the arguments that are stored in it")
      .WithPath(dir)
      .WithExpected(std::move(expected))
      .WithFound(std::move(found));
}

/// Gives the numbers of the names their meaning.
Status Assign(std::vector<RankFile>* all, const LegacyRanks& sizes) {
  const std::size_t wanted = 1U + (sizes.pp > 1 ? 1U : 0U) + (sizes.ep > 1 ? 1U : 0U);
  for (RankFile& one : *all) {
    const std::vector<int>& n = one.numbers;
    if (n.size() != wanted) {
      return Contradiction(one.rank.dir, fmt::format("{} numbers in the name for pipeline_model_parallel_size {} and expert_model_parallel_size {}", wanted, sizes.pp, sizes.ep),
                           fmt::format("{}", n.size()));
    }
    if (sizes.pp > 1) one.rank.pipeline = n[1];
    if (sizes.ep > 1) one.rank.expert = n.back();
    if (one.rank.tensor >= sizes.tp || one.rank.pipeline >= sizes.pp || one.rank.expert >= sizes.ep) {
      return Contradiction(one.rank.dir, fmt::format("ranks below TP {}, PP {}, EP {}", sizes.tp, sizes.pp, sizes.ep), one.rank.dir);
    }
  }
  return OkStatus();
}

/// Parts of another run or another save would be put together without a word.
Status CheckSameSave(const std::vector<RankFile>& all, const LegacyRanks& sizes) {
  const Value& first = *all.front().rank.file;
  for (const RankFile& one : all) {
    const Value& file = *one.rank.file;
    if (file.GetInt("iteration") != first.GetInt("iteration")) {
      return MakeError(ErrorCode::kCorrupt, "the ranks of a checkpoint are of different iterations")
          .WithPath(one.rank.dir)
          .WithExpected(fmt::format("{} as in {}", first.GetInt("iteration").value_or(0), all.front().rank.dir))
          .WithFound(fmt::format("{}", file.GetInt("iteration").value_or(0)));
    }
    if (file.GetFloat("checkpoint_version") != first.GetFloat("checkpoint_version")) {
      return MakeError(ErrorCode::kCorrupt, "the ranks of a checkpoint are of different versions")
          .WithPath(one.rank.dir)
          .WithExpected(fmt::format("checkpoint_version {} as in {}", first.GetFloat("checkpoint_version").value_or(0), all.front().rank.dir))
          .WithFound(fmt::format("{}", file.GetFloat("checkpoint_version").value_or(0)));
    }
    const Value* args = file.Find("args");
    if (args == nullptr) continue;
    for (const auto& [name, size] : {std::pair{"tensor_model_parallel_size", sizes.tp}, std::pair{"pipeline_model_parallel_size", sizes.pp}, std::pair{"expert_model_parallel_size", sizes.ep}}) {
      if (SizeOf(*args, name) == size) continue;
      return Contradiction(one.rank.dir, fmt::format("{} = {} as in {}", name, size, all.front().rank.dir), fmt::format("{}", SizeOf(*args, name)));
    }
  }
  return OkStatus();
}

Error Impossible(const std::vector<RankFile>& all, std::int64_t tp, std::int64_t pp, std::int64_t ep) {
  return Contradiction(all.front().rank.dir, "parallel sizes of a run", fmt::format("TP {}, PP {}, EP {}", tp, pp, ep));
}

/// Brings the ranks, sorted, into the order that LegacyRanks promises. Returns names of missing directories, a few of them.
std::vector<std::string> Sort(LegacyRanks* out) {
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> missing;
  const auto miss = [&](int tensor, int pipeline, int expert) {
    if (missing.size() < kMostNamed) missing.push_back(RankDirName(tensor, pipeline, out->pp, expert, out->ep));
  };
  // Dense weights are the same on all expert ranks of a tensor rank: the first stands for them.
  std::vector<LegacyRank> first, others;
  for (LegacyRank& rank : out->ranks) {
    const bool known = !first.empty() && first.back().pipeline == rank.pipeline && first.back().tensor == rank.tensor;
    (known ? others : first).push_back(std::move(rank));
  }
  std::size_t at = 0;
  for (int pipeline = 0; pipeline < out->pp; ++pipeline) {
    for (int tensor = 0; tensor < out->tp; ++tensor) {
      if (at < first.size() && first[at].pipeline == pipeline && first[at].tensor == tensor) {
        ++at;
      } else {
        miss(tensor, pipeline, 0);
      }
    }
  }
  out->ranks = std::move(first);
  for (LegacyRank& rank : others) out->ranks.push_back(std::move(rank));
  if (!missing.empty() || out->tp % out->etp != 0) return missing;
  const auto place = [&](int pipeline, int expert, int within) {
    return static_cast<std::size_t>(pipeline * out->ep + expert) * static_cast<std::size_t>(out->etp) + static_cast<std::size_t>(within);
  };
  const std::size_t nobody = out->ranks.size();
  out->experts.assign(place(out->pp, 0, 0), nobody);
  for (std::size_t i = out->ranks.size(); i-- > 0;) {
    const LegacyRank& rank = out->ranks[i];
    out->experts[place(rank.pipeline, rank.expert, rank.tensor % out->etp)] = i;
  }
  for (int pipeline = 0; pipeline < out->pp; ++pipeline) {
    for (int expert = 0; expert < out->ep; ++expert) {
      for (int within = 0; within < out->etp; ++within) {
        if (out->experts[place(pipeline, expert, within)] == nobody) miss(within, pipeline, expert);
      }
    }
  }
  return missing;
}

/// Without arguments the names have to do: a second number is taken for the stage.
void SizesByNames(const std::vector<RankFile>& all, LegacyRanks* out) {
  for (const RankFile& one : all) {
    out->tp = std::max(out->tp, one.numbers[0] + 1);
    if (one.numbers.size() > 1) out->pp = std::max(out->pp, one.numbers[1] + 1);
    if (one.numbers.size() > 2) out->ep = std::max(out->ep, one.numbers[2] + 1);
  }
}

}  // namespace

bool IsLegacy(const Catalog& catalog) { return catalog.format == "mp_rank"; }

bool IsByTorchDcp(const Catalog& catalog) { return catalog.objects.contains("torch_dcp"); }

Result<LegacyRanks> FindLegacyRanks(const Catalog& catalog) {
  std::vector<RankFile> all = List(catalog);
  if (all.empty()) return MakeError(ErrorCode::kIncomplete, "a legacy checkpoint has no rank's file").WithExpected("mp_rank_00/model_optim_rng.pt");
  LegacyRanks out;
  const Value* args = all.front().rank.file->Find("args");
  if (args != nullptr) {
    const Value* values = args->as_opaque() != nullptr ? args->as_opaque()->state.get() : args;
    if (values != nullptr && values->as_dict() != nullptr) out.args = *values;
  }
  if (out.args.as_dict()->items.empty()) {
    SizesByNames(all, &out);
  } else {
    const std::int64_t tp = SizeOf(out.args, "tensor_model_parallel_size");
    const std::int64_t pp = SizeOf(out.args, "pipeline_model_parallel_size");
    const std::int64_t ep = SizeOf(out.args, "expert_model_parallel_size");
    if (tp > kMostRanks || pp > kMostRanks || ep > kMostRanks) return Impossible(all, tp, pp, ep);
    out.tp = static_cast<int>(tp);
    out.pp = static_cast<int>(pp);
    out.ep = static_cast<int>(ep);
  }
  const std::int64_t etp = out.args.GetInt("expert_tensor_parallel_size").value_or(out.tp);
  if (etp < 1 || etp > kMostRanks || std::int64_t{out.tp} * out.pp > kMostRanks || std::int64_t{out.ep} * out.pp * etp > kMostRanks) {
    return Impossible(all, out.tp, out.pp, out.ep);
  }
  out.etp = static_cast<int>(etp);
  CROSSDOCK_RETURN_IF_ERROR(Assign(&all, out));
  CROSSDOCK_RETURN_IF_ERROR(CheckSameSave(all, out));
  for (RankFile& one : all) out.ranks.push_back(std::move(one.rank));
  std::ranges::sort(out.ranks, [](const LegacyRank& a, const LegacyRank& b) {
    return std::tie(a.pipeline, a.tensor, a.expert) < std::tie(b.pipeline, b.tensor, b.expert);
  });
  const std::vector<std::string> missing = Sort(&out);
  if (missing.empty()) return out;
  std::string expected = fmt::format("directories for TP {} and PP {}", out.tp, out.pp);
  if (out.ep > 1) expected += fmt::format(", EP {} and ETP {}", out.ep, out.etp);
  return MakeError(ErrorCode::kIncomplete, fmt::format("ranks of a legacy checkpoint are missing: {}", fmt::join(missing, ", ")))
      .WithPath(catalog.root)
      .WithExpected(std::move(expected))
      .WithFound(fmt::format("{} directories", out.ranks.size()))
      .WithHint("copy the missing directories from where the checkpoint was saved");
}

}  // namespace crossdock::dialects::mcore
