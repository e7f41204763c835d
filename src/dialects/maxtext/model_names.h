// SPDX-License-Identifier: Apache-2.0
/// \file  MaxText's own names of models (`model_name=llama3.1-8b`) and the families that they belong to.
/// Reference: MaxText 0.2.5, configs/models/*.yml. A name says a family and a size; the size is the source's own business.
/// Errors: none. Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crossdock::dialects::maxtext {

struct ModelName {
  std::string_view name;
  std::string_view family;
};
[[nodiscard]] std::span<const ModelName> ModelNames();

/// The family of a model that MaxText names so, or empty.
[[nodiscard]] std::string_view FamilyOfModelName(std::string_view name);

/// The names that begin with the same letters (`llama9-1b`: all of Llama's), sorted.
[[nodiscard]] std::vector<std::string_view> RelatedModelNames(std::string_view name);

}  // namespace crossdock::dialects::maxtext
