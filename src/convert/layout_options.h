// SPDX-License-Identifier: Apache-2.0
/// \file  The layout that the options ask for, in the words of src/layout.
#pragma once

#include "crossdock/options.h"
#include "layout/parallel_layout.h"

namespace crossdock::convert {

[[nodiscard]] layout::ParallelLayout LayoutOf(const LayoutOptions& options);

/// True when the options ask for anything but one rank that holds all.
[[nodiscard]] bool AsksForLayout(const LayoutOptions& options);

}  // namespace crossdock::convert
