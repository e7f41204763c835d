// SPDX-License-Identifier: Apache-2.0
/// \file  Random trees for the property tests, grown from the root down, so that every tree is valid.
/// Deterministic in the seed; a failing test prints the seed of its tree (RandomTrees names it in a trace).
#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "expr/expr.h"

namespace crossdock::expr {

struct TreeOptions {
  bool slices = true;    ///< nodes that drop elements
  bool compute = false;  ///< cast, scale, offset
  bool marks = false;
  int depth = 6;
};

class RandomTree {
 public:
  RandomTree(std::uint64_t seed, TreeOptions options) : random_(seed), options_(options) {}

  [[nodiscard]] Expr Grow();
  /// Movements over `flat` inputs of one axis, each used once: the other side of a composition.
  [[nodiscard]] Expr GrowOver(std::vector<Expr> inputs);
  [[nodiscard]] Box RandomBox(const Shape& shape);
  [[nodiscard]] std::int64_t Between(std::int64_t lo, std::int64_t hi);

 private:
  Expr GrowTo(const Shape& shape, DType dtype, int depth);
  Expr GrowReshape(const Shape& shape, DType dtype, int depth);
  Expr GrowTranspose(const Shape& shape, DType dtype, int depth);
  Expr GrowConcat(const Shape& shape, DType dtype, int depth);
  Expr GrowSlice(const Shape& shape, DType dtype, int depth);
  Expr GrowPad(const Shape& shape, DType dtype, int depth);
  Expr GrowCompute(const Shape& shape, DType dtype, int depth);
  Shape RandomShape();
  Shape Refactor(std::int64_t count);

  std::mt19937_64 random_;
  TreeOptions options_;
  int leaves_ = 0;
};

/// Runs `test` on `count` seeds from CROSSDOCK_TEST_SEED (default 1) on; stops at the first that fails.
void ForSeeds(int count, const std::function<void(std::uint64_t seed)>& test);

}  // namespace crossdock::expr
