// SPDX-License-Identifier: Apache-2.0
/// \file  The receipt of a conversion: plan hash, version and a digest of every tensor written.
/// A digest is over the row-major bytes of a tensor's chunks in order (base/hash.h): it detects accidents, not forgery.
/// Fields may be added, never changed.
#pragma once

#include <string>

#include "convert/source.h"
#include "convert/target.h"
#include "execute/executor.h"

namespace crossdock::convert {

[[nodiscard]] std::string MakeReceipt(const Source& source, const Target& target, const execute::ExecuteReport& report);

}  // namespace crossdock::convert
