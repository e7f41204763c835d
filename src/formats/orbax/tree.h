// SPDX-License-Identifier: Apache-2.0
/// \file  The tree of a pytree item: which leaves it has, under which keys, and what each was in the program that saved it.
/// On disk (FORMAT.md, 3; Orbax 0.12.8, _src/metadata/tree.py): `_METADATA`, JSON with "tree_metadata": {"('a', '0')":
/// {"key_metadata": [{"key": "a", "key_type": 2}, {"key": "0", "key_type": 1}], "value_metadata": {"value_type": "jax.Array",
/// "skip_deserialize": false, "write_shape": [4]}}}, "use_ocdbt", "use_zarr3", "store_array_data_equal_to_fill_value",
/// "custom_metadata". key_type 1 is an index of a list or tuple, 2 the key of a dict or a field's name.
/// In a catalog: objects["tree"], a List of rows {"path": [str | int], "value_type": str} with "text" for a string's value and
/// "ext_metadata" where a process file has some (typed PRNG keys).
/// Errors: kCorrupt. Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "tensor/dims.h"
#include "tensor/value.h"

namespace crossdock::formats::orbax {

struct Tree {
  Value rows = Value::MakeList();
  std::optional<bool> use_ocdbt, use_zarr3;  ///< absent in files of older versions
  bool stores_zeros = false;                 ///< a missing chunk is damage; else it means zeros
};

[[nodiscard]] Result<Tree> ParseTree(std::string_view json);

/// The array's name in the store: the keys of its path joined by ".". kCorrupt for what is no path.
[[nodiscard]] Result<std::string> NameOfPath(const Value& path);
/// True where a row has an array in the store: neither a placeholder nor a string.
[[nodiscard]] bool HasArray(std::string_view value_type);

/// `_METADATA`; `write_shape` answers an array's name. REQUIRES: rows as a catalog has them.
[[nodiscard]] std::string PrintTree(const Tree& tree, const std::function<Shape(const std::string&)>& write_shape);

/// Python's repr of a tuple of strings: "('a', '0')", "('step',)".
[[nodiscard]] std::string PythonTuple(const std::vector<std::string>& items);

}  // namespace crossdock::formats::orbax
