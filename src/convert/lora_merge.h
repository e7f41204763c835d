// SPDX-License-Identifier: Apache-2.0
/// \file  --lora-base: LoRA's adapters put into the weights that they belong to: W + (alpha / rank) a b, while the weights are read.
/// Adapters and base are steps of Tunix or MaxText of one model, in one form of layers. Adapters are qwix's: beside a kernel [in..., out...] stand
/// `kernel_lora_a` [in..., rank] and `kernel_lora_b` [rank, out...], where `in...` or `out...` may be one axis; scanned layers are axis 1 of all three.
/// Values are computed in F64 and rounded once, to the dtype of the weight. Optimizer state belongs to neither and is left out.
/// Memory: the factors of a few kernels, as F32, beside what the engine takes; chunks of merged kernels are decoded ones (formats/format.h).
/// Errors: kUsage (no adapters, no alpha, another format), kIncomplete (a kernel that the base lacks), kCorrupt (shapes that do not fit).
/// Threads: the reader that takes the source's place is as safe as those under it.
#pragma once

#include "convert/source.h"

namespace crossdock::convert {

/// The adapters of `source` into the base that the request names; or nothing when it names none. Afterwards the source is the base, a MaxText
/// step, with merged kernels. alpha: --set lora_alpha=VALUE, else `lora_alpha` in the custom metadata of the adapters.
[[nodiscard]] Status MergeLora(io::Storage& storage, const SourceRequest& request, Source* source);

}  // namespace crossdock::convert
