// SPDX-License-Identifier: Apache-2.0
/// \file  Small arrays by value: counters and constants of an optimizer, which a program computes and no tensor of a source holds.
/// In a catalog: objects["scalars"], a Dict of rows by name: {"dtype": "I32", "shape": [..], "values": [..]}, row-major.
/// A reader lists arrays without axes of an integer or bool type there, besides their entries; of Tunix's items also numbers without
/// axes of a floating type and short arrays of unsigned integers (settings of wrappers, random keys), which a record keeps by value. A writer stores what it is given: arrays
/// of the tree that are no entries of the target.
/// Errors: kUnsupported for types and values that have no form here. Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "tensor/catalog.h"

namespace crossdock::formats::orbax {

/// True for what a reader lists.
[[nodiscard]] bool IsCounter(const Entry& entry);
/// True for what a reader of Tunix's items lists beside these.
[[nodiscard]] bool IsRecorded(const Entry& entry);
/// The row of an array, by its little-endian bytes. REQUIRES: IsCounter or IsRecorded, as many bytes as the array has.
[[nodiscard]] Value ValueRow(const Entry& entry, std::span<const std::byte> bytes);

/// A row to be written: an entry of one chunk, and its elements as they are stored.
struct Constant {
  Entry entry;
  std::string bytes;
};
[[nodiscard]] Result<Constant> ConstantOf(const std::string& name, const Value& row);

}  // namespace crossdock::formats::orbax
