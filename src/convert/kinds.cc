// SPDX-License-Identifier: Apache-2.0
#include "convert/kinds.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "crossdock/nearest.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

constexpr std::array kKinds = {
    KindSpec{Kind::kHf, "safetensors", "hf", "Hugging Face directory", true, true},
    KindSpec{Kind::kFullState, "safetensors", "hub", "full-state safetensors", true, true},
    KindSpec{Kind::kMegatron, "dcp", "mcore", "Megatron-Core torch_dist", true, true},
    KindSpec{Kind::kMegatronLegacy, "mp_rank", "mcore", "Megatron legacy, per-rank files", true, true},
    KindSpec{Kind::kMegatronZarr, "zarr", "mcore", "Megatron's retired zarr format", true, false},
    KindSpec{Kind::kDcp, "dcp", "hf", "plain PyTorch DCP of a Hugging Face model", true, true},
    KindSpec{Kind::kMaxText, "orbax", "maxtext", "MaxText Orbax checkpoint", true, true},
    KindSpec{Kind::kTunix, "orbax", "tunix", "Tunix post-training checkpoint", true, true},
};

std::string Names(bool KindSpec::*able) {
  std::string out;
  for (const KindSpec& spec : kKinds) {
    if (spec.*able) out += fmt::format("{}`{}`", out.empty() ? "" : ", ", formats::KindName(spec.kind));
  }
  return out;
}

Result<Kind> Parse(const char* option, const std::string& name, bool KindSpec::*able, const char* verb) {
  const std::optional<Kind> kind = formats::KindFromName(name);
  if (!kind) {
    std::vector<std::string_view> known;
    for (const KindSpec& spec : kKinds) {
      if (spec.*able) known.push_back(formats::KindName(spec.kind));
    }
    return MakeError(ErrorCode::kUsage, fmt::format("`{}` takes a format", option))
        .WithExpected("one of " + Names(able))
        .WithFound(fmt::format("`{}`", Printable(name)))
        .WithHint(DidYouMean(name, known));
  }
  if (!(SpecOf(*kind).*able)) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("this version cannot {} `{}`", verb, name))
        .WithExpected("one of " + Names(able));
  }
  return *kind;
}

}  // namespace

std::span<const KindSpec> KindTable() { return kKinds; }

const KindSpec& SpecOf(Kind kind) {
  for (const KindSpec& spec : kKinds) {
    if (spec.kind == kind) return spec;
  }
  CROSSDOCK_CHECK(false);
}

Result<Kind> ParseTargetKind(const std::string& name) { return Parse("--to", name, &KindSpec::writes, "write"); }

Result<std::optional<Kind>> ParseSourceKind(const std::optional<std::string>& name) {
  if (!name) return std::optional<Kind>();
  CROSSDOCK_ASSIGN_OR_RETURN(const Kind kind, Parse("--from", *name, &KindSpec::reads, "read"));
  return std::optional<Kind>(kind);
}

bool WritesMegatron(Kind kind) { return kind == Kind::kMegatron || kind == Kind::kMegatronLegacy; }
bool IsMegatron(Kind kind) { return SpecOf(kind).dialect == "mcore"; }

bool HoldsOptimizer(Kind kind) { return kind != Kind::kHf; }

bool HoldsMasters(Kind kind) { return kind != Kind::kHf && kind != Kind::kDcp && !formats::IsOrbax(kind); }

}  // namespace crossdock::convert
