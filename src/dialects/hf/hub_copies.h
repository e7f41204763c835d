// SPDX-License-Identifier: Apache-2.0
/// \file  Hub tensors that repeat others (families/SCHEMA.md, `copies`), of a source whose format does not store them: a Hugging Face target
/// gets them again. Where the head is tied they repeat the embedding. Threads: the function is pure but for its argument.
#pragma once

#include <string>

#include "dialects/hf/claim.h"

namespace crossdock::dialects::hf {

inline void AddUnstoredCopies(const family::Binding& binding, const family::Model& model, HubState* hub) {
  for (const family::HubCopy& copy : binding.copies) {
    const bool tied = copy.of == kHead && !model.Holds("untied");
    hub->copies.push_back({copy.name, tied ? std::string(kEmbedding) : copy.of, -1, -1});
  }
}

}  // namespace crossdock::dialects::hf
