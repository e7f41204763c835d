// SPDX-License-Identifier: Apache-2.0
/// \file  Sorting of large elements through their numbers: each element is moved once, not at every exchange. Catalogs
/// have a hundred thousand entries of 150 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace crossdock {

/// As std::stable_sort of `items` by `less`. What is sorted already is left alone.
template <typename T, typename Less>
void SortThrough(std::vector<T>* items, Less less) {
  if (std::is_sorted(items->begin(), items->end(), less)) return;
  std::vector<std::size_t> order(items->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return less((*items)[a], (*items)[b]); });
  std::vector<T> sorted;
  sorted.reserve(items->size());
  for (const std::size_t at : order) sorted.push_back(std::move((*items)[at]));
  *items = std::move(sorted);
}

}  // namespace crossdock
