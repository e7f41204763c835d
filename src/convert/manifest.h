// SPDX-License-Identifier: Apache-2.0
/// \file  The mapping of a prepared target as JSON: a row a tensor with shape, slot, hub names, rule line, expression and
/// the optimizer that owns it. Fields may be added, never changed.
#pragma once

#include <string>

#include "convert/source.h"
#include "convert/target.h"

namespace crossdock::convert {

[[nodiscard]] std::string MakeManifest(const Source& source, const Target& target);

}  // namespace crossdock::convert
