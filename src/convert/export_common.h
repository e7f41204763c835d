// SPDX-License-Identifier: Apache-2.0
/// \file  common.pt of a torch_dist iteration that is saved from inside a run: what the trainer hands over, as it is, or for weights alone
/// what a conversion of them would say.
/// Errors: kUsage for what is no common state of that step. Threads: functions are pure but for the storage.
#pragma once

#include <cstdint>
#include <string>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::convert {

/// Replaces the file that the writer made of `placed`. `given`: the bytes of a file as torch.save writes it; empty: the writer's own, with
/// the number of the step.
[[nodiscard]] Status WriteCommon(io::Storage& storage, const std::string& dir, const Catalog& placed, const std::string& given, std::int64_t step);

/// `read`: the iteration as a reader finds it. `states`: it holds the optimizer's, which Megatron loads with its parameter groups only.
[[nodiscard]] Status CheckCommon(const Catalog& read, std::int64_t step, bool states);

}  // namespace crossdock::convert
