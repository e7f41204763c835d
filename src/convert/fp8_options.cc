// SPDX-License-Identifier: Apache-2.0
#include "convert/fp8_options.h"

#include <fmt/format.h>

#include "dialects/hf/fp8_form.h"
#include "quantize/cuda/device.h"

namespace crossdock::convert {
namespace {

using Strategy = dialects::Fp8Options::Strategy;

/// An option that says how FP8 is written, when there is one.
const char* Detail(const Fp8Request& fp8) {
  if (fp8.block) return "--fp8-block-size";
  if (fp8.scale_format) return "--scale-fmt";
  if (fp8.format) return "--fp8-format";
  if (fp8.arithmetic) return "--fp8-arith";
  if (fp8.device) return "--fp8-device";
  if (!fp8.skip.empty()) return "--fp8-skip";
  if (!fp8.only.empty()) return "--fp8-only";
  return fp8.check_tp ? "--check-tp" : nullptr;
}

Strategy StrategyOf(const std::string& name) { return name == "channel" ? Strategy::kChannel : name == "tensor" ? Strategy::kTensor : Strategy::kBlock; }

Status CheckTogether(const Fp8Request& fp8) {
  if (fp8.block && !fp8.strategy->empty() && *fp8.strategy != "block") {
    return MakeError(ErrorCode::kUsage, "a block size is for blocks")
        .WithFound(fmt::format("`--fp8-block-size` with `--fp8 {}`", *fp8.strategy))
        .WithHint("leave it out, or write `--fp8 block`");
  }
  if (fp8.format == "native" && *fp8.strategy == "channel") {
    return MakeError(ErrorCode::kUsage, "no loader reads one scale a row that is declared as `fp8`")
        .WithFound("`--fp8-format native` with `--fp8 channel`")
        .WithHint("`--fp8-format compressed-tensors`, the default, is read by vLLM, SGLang and transformers");
  }
  if (fp8.device == "cuda") CROSSDOCK_RETURN_IF_ERROR(quantize::CudaDevice::Open());  // now: not when all is planned and begun
  return OkStatus();
}

/// No form is named: an FP8 source keeps its own, where that can be declared as asked.
void Follow(const dialects::HubState& hub, const Fp8Request& fp8, dialects::Fp8Options* out) {
  const std::optional<dialects::hf::Fp8Form> form = dialects::hf::FormOfSource(hub);
  if (!form || (form->strategy == Strategy::kChannel && fp8.format == "native")) return;
  out->strategy = form->strategy;
  out->block = form->block;
}

}  // namespace

Result<std::optional<dialects::Fp8Options>> Fp8OptionsOf(const ConvertOptions& options, formats::Kind to, const dialects::HubState& hub) {
  const Fp8Request& fp8 = options.fp8;
  if (!fp8.strategy) {
    const char* detail = Detail(fp8);
    if (detail == nullptr) return std::optional<dialects::Fp8Options>();
    return MakeError(ErrorCode::kUsage, fmt::format("`{}` means nothing without `--fp8`", detail))
        .WithHint("add `--fp8`, `--fp8 channel` or `--fp8 tensor`");
  }
  if (to != formats::Kind::kHf) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--fp8` means nothing for a target of format `{}`", formats::KindName(to)))
        .WithHint("FP8 is written as a Hugging Face directory: `--to hf`");
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckTogether(fp8));
  dialects::Fp8Options out;
  out.strategy = StrategyOf(*fp8.strategy);
  if (fp8.block) out.block = {fp8.block->first, fp8.block->second};
  if (fp8.strategy->empty() && !fp8.block) Follow(hub, fp8, &out);
  out.ue8m0 = fp8.scale_format.has_value();
  out.relax = fp8.arithmetic == "relax";
  out.compressed_tensors = fp8.format ? fp8.format == "compressed-tensors" : out.strategy != Strategy::kBlock;
  out.skip = fp8.skip;
  out.only = fp8.only;
  out.check_tp = static_cast<int>(fp8.check_tp.value_or(0));
  return std::optional(std::move(out));
}

}  // namespace crossdock::convert
