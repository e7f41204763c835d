// SPDX-License-Identifier: Apache-2.0
#include "convert/momentum.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "convert/kinds.h"
#include "dialects/hf/full_state.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

constexpr const char* kSetting = "muon_momentum";

const char* InWords(const std::string& convention) { return convention == "sum" ? "a plain sum" : "an exponential average"; }

bool HasMuon(const dialects::HubState& hub) {
  return std::ranges::any_of(hub.tensors, [](const dialects::HubTensor& t) { return t.slot == Slot::kMuonMu; });
}

/// b, from what was set, what the source records, or the groups of its optimizer.
Result<std::optional<double>> BetaOf(const ConvertOptions& options, const dialects::HubState& hub) {
  for (const auto& [key, text] : options.set_args) {
    if (key != kSetting) continue;
    double beta = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), beta);
    if (error == std::errc() && end == text.data() + text.size() && beta >= 0 && beta < 1) return std::optional(beta);
    return MakeError(ErrorCode::kUsage, "`--set muon_momentum` takes a number from 0 to below 1").WithFound("`" + Printable(text) + "`");
  }
  if (hub.muon_beta) return hub.muon_beta;
  const Value* groups = hub.extras.Find("param_groups");
  const ValueList* list = groups == nullptr ? nullptr : groups->as_sequence();
  if (list == nullptr) return std::optional<double>();
  for (const Value& group : *list) {
    if (const auto beta = group.GetFloat("momentum"); beta && *beta >= 0 && *beta < 1) return beta;
  }
  return std::optional<double>();
}

bool IsPowerOfTwo(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

Status Scale(double factor, Momentum* momentum, dialects::HubState* hub) {
  for (dialects::HubTensor& tensor : hub->tensors) {
    if (tensor.slot != Slot::kMuonMu) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr wide, expr::Cast(tensor.expr, DType::kF32));
    CROSSDOCK_ASSIGN_OR_RETURN(wide, expr::Scale(std::move(wide), factor));
    CROSSDOCK_ASSIGN_OR_RETURN(wide, expr::Cast(std::move(wide), tensor.dtype));
    tensor.expr = expr::Simplify(wide);
    ++momentum->scaled;
  }
  momentum->factor = factor;
  momentum->exact = IsPowerOfTwo(factor);
  return OkStatus();
}

Error NothingOpen(const Momentum& known, const std::string& said) {
  return MakeError(ErrorCode::kUsage, "`--muon-momentum` says what is not open: both sides are known")
      .WithExpected(fmt::format("{} in the source, {} in the target", InWords(known.source), InWords(known.target)))
      .WithFound("--muon-momentum " + said)
      .WithHint("leave it out; where they differ the momentum is converted");
}

/// `said` is what the option says: of the source where that is open, else of the target.
Result<Momentum> Decide(const std::string& source, const std::string& target, const std::string& said) {
  Momentum out{.source = source, .target = target};
  if (said.empty()) {
    if (target.empty()) out.target = source;  // carried as it is
    return out;
  }
  if (!source.empty() && !target.empty() && (source != said || target != said)) return NothingOpen(out, said);
  if (source.empty()) {
    out.source = said;
    out.said_of_source = true;
    if (target.empty()) out.target = said;
  } else if (target.empty()) {
    out.target = said;
    out.said_of_target = true;
  }
  return out;
}

}  // namespace

std::string MomentumOfTarget(Kind to, std::string_view consumer) {
  if (WritesMegatron(to) || to == Kind::kDcp) return "ema";
  const std::string_view name = consumer.substr(0, consumer.find('@'));
  return formats::IsOrbax(to) && name != "maxtext-linen" ? "ema" : "";
}

Status SettleMomentum(Kind to, const ConvertOptions& options, Source* source) {
  dialects::HubState& hub = source->hub;
  const bool held = HasMuon(hub) && HoldsOptimizer(to);
  if (!held) {
    if (options.muon_momentum.empty()) return OkStatus();
    return MakeError(ErrorCode::kUsage, "`--muon-momentum` means nothing here: no momentum of Muon is carried").WithHint("leave it out");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Momentum momentum, Decide(hub.muon_momentum, MomentumOfTarget(to, options.consumer), options.muon_momentum));
  CROSSDOCK_ASSIGN_OR_RETURN(momentum.beta, BetaOf(options, hub));
  const bool set = std::ranges::any_of(options.set_args, [](const auto& pair) { return pair.first == kSetting; });
  const bool differ = !momentum.source.empty() && !momentum.target.empty() && momentum.source != momentum.target;
  if (set && !differ && !WritesMegatron(to) && to != Kind::kDcp) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--set muon_momentum` means nothing for a target of format `{}` unless the momentum is converted", formats::KindName(to)))
        .WithHint("leave it out, or say with --muon-momentum what the side is that does not say it");
  }
  if (differ) {
    if (!momentum.beta) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("Muon's momentum is {} in the source and {} in the target: they differ by 1 - b, and the source does not say b",
                                                           InWords(momentum.source), InWords(momentum.target)))
          .WithHint("say it with --set muon_momentum=0.95 or whatever the run had");
    }
    const double ema = 1.0 - *momentum.beta;
    CROSSDOCK_RETURN_IF_ERROR(Scale(momentum.source == "sum" ? ema : 1.0 / ema, &momentum, &hub));
    hub.notices.push_back(fmt::format("Muon's momentum is converted from {} to {}: {} tensors times {} (b = {}){}", InWords(momentum.source), InWords(momentum.target), momentum.scaled,
                                      momentum.factor, *momentum.beta, momentum.exact ? ", exactly" : ", which rounds them"));
  } else if (momentum.source.empty()) {
    hub.notices.push_back(fmt::format("Muon's momentum is carried as it is: nothing says whether the source keeps an exponential average or a plain sum, which is 1 / (1 - b) times as large{} (--muon-momentum)",
                                      momentum.target.empty() ? "" : fmt::format("; the target keeps {}", InWords(momentum.target))));
  } else {
    hub.notices.push_back(fmt::format("Muon's momentum is {} on both sides", InWords(momentum.source)));
  }
  hub.muon_momentum = momentum.target.empty() ? momentum.source : momentum.target;
  if (momentum.source.empty()) hub.muon_momentum.clear();  // nobody knows what is written
  hub.muon_beta = momentum.beta;
  source->momentum = std::move(momentum);
  return OkStatus();
}

Value MomentumJson(const Momentum& momentum) {
  const auto known = [](const std::string& convention) { return convention.empty() ? Value() : Value(convention); };
  Value out = Value::MakeDict();
  out.Set("source", known(momentum.source));
  out.Set("target", known(momentum.target));
  out.Set("stated_of", momentum.said_of_source ? Value("source") : momentum.said_of_target ? Value("target") : Value());
  out.Set("beta", momentum.beta ? Value(*momentum.beta) : Value());
  out.Set("factor", momentum.factor);
  out.Set("exact", momentum.exact);
  out.Set("tensors_scaled", momentum.scaled);
  return out;
}

}  // namespace crossdock::convert
