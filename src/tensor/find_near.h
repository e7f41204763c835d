// SPDX-License-Identifier: Apache-2.0
/// \file  Looking up many names of a catalog one after the other, where each lies near the last one: a model's tensors, layer by layer.
/// Names of one model begin alike, so that each comparison costs, and to search all 100,000 of them anew takes 17.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/catalog.h"

namespace crossdock {

/// As catalog.Find(name), sought from `*near` on, where the last name was; it is set to where this one is or would be.
/// Comparisons: twice the logarithm of the distance. REQUIRES: sorted entries, 0 <= *near.
[[nodiscard]] std::int32_t FindNear(const Catalog& catalog, std::string_view name, std::int32_t* near);

}  // namespace crossdock
