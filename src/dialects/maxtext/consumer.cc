// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/consumer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace crossdock::dialects::maxtext {
namespace {

std::vector<std::string_view> Parts(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// Words that keep a path from Muon wherever they stand in one of its parts. 0.2.5: EXCLUDED_SUBSTRINGS of utils/muon_utils.py.
constexpr std::array<std::string_view, 9> kSince024 = {"scale", "embedding", "logits_dense", "post_beta", "pre_beta", "res_beta", "hc_base", "sinks", "tid2eid"};
constexpr std::array<std::string_view, 4> kSince025 = {"A_log", "dt_bias", "conv1d", "shared_expert_gate"};
/// The fork with Linen that trains Ling: whole parts.
constexpr std::array<std::string_view, 9> kLinenParts = {"scale", "bias", "embedding", "logits_dense", "A_log", "dt_bias", "q_conv", "k_conv", "v_conv"};

template <typename Words>
bool HoldsOne(std::string_view part, const Words& words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return part.find(word) != std::string_view::npos; });
}

bool Excludes(Release release, std::string_view part) {
  if (release == Release::kLinen) return std::find(kLinenParts.begin(), kLinenParts.end(), part) != kLinenParts.end();
  if (HoldsOne(part, kSince024) || part == "bias") return true;
  if (release == Release::k024) return false;
  return HoldsOne(part, kSince025) || (part.ends_with("bias") && part != "position_bias");
}

}  // namespace

std::string_view Consumer::handler() const {
  return release == Release::k025 ? "orbax.checkpoint.experimental.v1._src.handlers.pytree_handler.PyTreeHandler"
                                  : "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler";
}

std::string Consumer::name() const {
  if (linen()) return "maxtext-linen";
  return release == Release::k024 ? "maxtext 0.2.4" : "maxtext 0.2.5";
}

Result<Consumer> ChooseConsumer(const std::string& name, const std::string& version) {
  if (name == "maxtext-linen") {
    if (version.empty()) return Consumer{Release::kLinen};
    return MakeError(ErrorCode::kUsage, "maxtext-linen has no versions: it is the form of all releases and forks before NNX")
        .WithExpected("--for maxtext-linen")
        .WithFound(fmt::format("--for {}@{}", name, Printable(version)));
  }
  if (name.empty() || name == "maxtext") {
    if (version.empty() || version == "0.2.5") return Consumer{Release::k025};
    if (version == "0.2.4") return Consumer{Release::k024};
    return MakeError(ErrorCode::kUnsupported, "no rule here was made for this release of MaxText")
        .WithExpected("--for maxtext@0.2.5, maxtext@0.2.4 or maxtext-linen")
        .WithFound(fmt::format("--for maxtext@{}", Printable(version)))
        .WithHint("releases after 0.2.5 most likely read what is written for 0.2.5");
  }
  return MakeError(ErrorCode::kUnsupported, fmt::format("this version does not write MaxText checkpoints for {}", Printable(name)))
      .WithExpected("--for maxtext or maxtext-linen");
}

bool GoesToMuon(const Consumer& consumer, std::string_view name, std::size_t axes) {
  if (consumer.release == Release::k025 && axes < 2) return false;
  const std::vector<std::string_view> parts = Parts(name);
  return std::none_of(parts.begin(), parts.end(), [&](std::string_view part) { return Excludes(consumer.release, part); });
}

}  // namespace crossdock::dialects::maxtext
