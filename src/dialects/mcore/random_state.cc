// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/random_state.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// What NumPy pickles an array of, by any of its versions, and what stands for bytes in older pickles.
constexpr std::array kOfArrays = {std::string_view("numpy.core.multiarray._reconstruct"), std::string_view("numpy._core.multiarray._reconstruct"),
                                  std::string_view("numpy.ndarray"), std::string_view("numpy.dtype"), std::string_view("_codecs.encode"),
                                  std::string_view("builtins.bytearray"), std::string_view("collections.OrderedDict")};

}  // namespace

std::string RandomStateKey(int stage, int stages, int tensor_rank, int tensor_ranks) {
  return fmt::format("rng_state/shard_{}.{}_{}.{}", stage, tensor_rank, stages, tensor_ranks);
}

Status CheckRandomState(const Value& state) {
  if (const ValueList* items = state.as_sequence()) {
    for (const Value& item : *items) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
  } else if (const Value::Dict* dict = state.as_dict()) {
    for (const auto& [key, item] : dict->items) {
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(key));
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    }
  } else if (const Opaque* object = state.as_opaque()) {
    const std::string name = object->module + "." + object->name;
    if (std::ranges::find(kOfArrays, name) == kOfArrays.end()) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("they hold an object of `{}`, which random states do not need", Printable(name)));
    }
    for (const Value& argument : object->args) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(argument));
    if (object->state != nullptr) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(*object->state));
    for (const Value& item : object->items) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    for (const auto& [key, item] : object->entries) {
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(key));
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    }
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::mcore
