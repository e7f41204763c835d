// SPDX-License-Identifier: Apache-2.0
/// \file  Small arrays by value: counters and constants of an optimizer, which a program computes and no tensor of a source holds.
/// In a catalog: objects["scalars"], a Dict of rows by name: {"dtype": "I32", "shape": [..], "values": [..]}, row-major.
/// A reader lists arrays without axes of an integer or bool type there, besides their entries. A writer stores what it is given: arrays
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
/// The row of an array of one element, by its little-endian bytes. REQUIRES: IsCounter, as many bytes as the type has.
[[nodiscard]] Value CounterRow(const Entry& entry, std::span<const std::byte> bytes);

/// A row to be written: an entry of one chunk, and its elements as they are stored.
struct Constant {
  Entry entry;
  std::string bytes;
};
[[nodiscard]] Result<Constant> ConstantOf(const std::string& name, const Value& row);

}  // namespace crossdock::formats::orbax
