// SPDX-License-Identifier: Apache-2.0
/// \file  A family bound to MaxText's tree for one model: which tensors there are, arranged in one form of layers.
/// Routed biases (buffers of the family: no gradient) come apart where the consumer keeps them as variables, stacked along axis 0.
/// Errors: kUnsupported when hub tensors have no place in MaxText's tree (multi-token prediction), and those of layers.h.
#pragma once

#include <string_view>
#include <vector>

#include "dialects/maxtext/layers.h"
#include "family/bind.h"

namespace crossdock::dialects::maxtext {

struct TreeBinding {
  family::Binding numbered;                       ///< as the family has it: every layer on its own
  std::vector<family::DialectTensor> tensors;     ///< arranged
  std::vector<family::DialectTensor> biases;      ///< those of them that have no gradient, stacked along axis 0
};
[[nodiscard]] Result<TreeBinding> BindTree(const family::FamilyFile& family, const family::Model& model, const LayerForm& form);

/// True when every hub tensor of it is a buffer of the family.
[[nodiscard]] bool IsBuffer(const family::FamilyFile& family, const family::Binding& binding, const family::DialectTensor& tensor);


/// The axis of a tensor that counts the vocabulary, or -1: MaxText's vocab_size may exceed the model's.
[[nodiscard]] int VocabularyAxis(std::string_view name);

}  // namespace crossdock::dialects::maxtext
