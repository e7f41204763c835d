// SPDX-License-Identifier: Apache-2.0
/// \file  Expressions: a tensor as a tree over stored tensors.
/// Two kinds of nodes. *Movement* nodes (reshape, transpose, reverse, concat, slice, pad) only place elements;
/// their inverse is derived by walking from the root to a leaf (Inverse), never written by hand. *Compute* nodes
/// change values: elementwise ones (cast, scale, offset) declare their inverse and what they do to moments;
/// quantization makes a pair of outputs (q, s) from one input; dequantize joins a pair.
/// A *shard* mark on a node says that tensor-parallel ranks cut it along an axis (ShardBoxes). It moves nothing.
/// Invariants: shapes are checked when a node is made, with Errors where the sizes come from input; every leaf
/// occurs at most once in a tree. Trees are immutable and shared; Expr is safe to use from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/box.h"
#include "tensor/dtype.h"
#include "tensor/slot.h"

namespace crossdock::expr {

enum class Op : std::uint8_t {
  kLeaf,
  // movement
  kReshape, kTranspose, kReverse, kConcat, kSlice, kPad,
  // compute, elementwise
  kCast, kScale, kOffset,
  // compute, pairs
  kQuantizeValues,   ///< inputs {w}: the q of blockwise quantization
  kQuantizeScales,   ///< inputs {w}: the s that belongs to it
  kDequantize,       ///< inputs {q, s}
};

class Node;
using Expr = std::shared_ptr<const Node>;

/// Blockwise FP8: q = round(w / s), s = amax(block) / max, s of shape ceil(n / block). F8_E4M3 and F32 scales.
struct BlockFormat {
  std::int64_t rows = 128;
  std::int64_t cols = 128;
  bool operator==(const BlockFormat&) const = default;
};

class Node {
 public:
  Op op = Op::kLeaf;
  std::vector<Expr> inputs;
  Shape shape;
  DType dtype = DType::kF32;
  int leaf = -1;                 ///< kLeaf: an ordinal that the owner of the tree gives meaning
  std::vector<int> axes;         ///< kTranspose: output axis i is input axis axes[i]
  int axis = 0;                  ///< kReverse, kConcat
  Dims offsets;                  ///< kSlice: start of the box; kPad: elements before the input on each axis
  double factor = 1.0;           ///< kScale, kOffset
  BlockFormat block;             ///< kQuantize*, kDequantize
  std::optional<int> shard_axis; ///< tensor-parallel cut, see ShardBoxes
};

// ---- builders ----
[[nodiscard]] Expr Leaf(int ordinal, DType dtype, Shape shape);
/// Row-major reshape; the element counts must agree.
[[nodiscard]] Result<Expr> Reshape(Expr in, Shape shape);
[[nodiscard]] Result<Expr> Transpose(Expr in, std::vector<int> axes);
[[nodiscard]] Result<Expr> Reverse(Expr in, int axis);
/// Equal dtypes; equal shapes but for `axis`; at least one input.
[[nodiscard]] Result<Expr> Concat(std::vector<Expr> in, int axis);
/// Concat of inputs with a new axis of size 1 inserted at `axis`.
[[nodiscard]] Result<Expr> Stack(const std::vector<Expr>& in, int axis);
[[nodiscard]] Result<Expr> Slice(Expr in, Box box);
/// Slice of extent 1 with the axis removed.
[[nodiscard]] Result<Expr> Index(Expr in, int axis, std::int64_t at);
/// Surrounds the input with zeros: the output has `shape` and the input starts at `before`.
[[nodiscard]] Result<Expr> Pad(Expr in, Dims before, Shape shape);
/// No node when the dtype is the same already. Floating to floating only.
[[nodiscard]] Result<Expr> Cast(Expr in, DType dtype);
[[nodiscard]] Result<Expr> Scale(Expr in, double factor);
[[nodiscard]] Result<Expr> Offset(Expr in, double addend);
[[nodiscard]] Result<Expr> QuantizeValues(Expr in, BlockFormat block);
[[nodiscard]] Result<Expr> QuantizeScales(Expr in, BlockFormat block);
[[nodiscard]] Result<Expr> Dequantize(Expr q, Expr s, BlockFormat block, DType to);
/// The same node, marked: tensor-parallel ranks cut it along `axis`.
[[nodiscard]] Expr Shard(const Expr& in, int axis);

// ---- whole trees ----
[[nodiscard]] std::vector<int> LeafOrdinals(const Expr& root);  ///< in tree order
/// `root` with every leaf i replaced by make(i) (same shape; the dtype of everything above follows).
[[nodiscard]] Result<Expr> Substitute(const Expr& root, const std::function<Result<Expr>(int)>& make);
/// The leaf `ordinal` as an expression over one new leaf (ordinal 0, shape and dtype of `root`): the inverse of
/// `root` for that leaf. kUnsupported when a node on the way has none (quantize).
[[nodiscard]] Result<Expr> Inverse(const Expr& root, int ordinal);
/// Removes what does nothing: reshape of reshape, identity transposes, slice of concat where it hits whole
/// inputs, slice of slice, slice of pad inside the input, casts back. Same value on every element.
[[nodiscard]] Expr Simplify(const Expr& root);
/// The tree that applies to a slot when `root` applies to params: movement unchanged; Scale s becomes 1/s for
/// mu and 1/s^2 for nu; Offset vanishes for moments; casts of params are dropped for other slots.
[[nodiscard]] Result<Expr> ForSlot(const Expr& root, Slot slot);
/// True when some node may not be bit-exact both ways (scale, offset, narrowing cast, quantize).
[[nodiscard]] bool IsInexact(const Expr& root);
/// One line for `manifest` and `--dry-run`, e.g. "qkv = concat(reshape(0), ...)".
[[nodiscard]] std::string Describe(const Expr& root);

/// The boxes of the root that rank `rank` of `size` holds, following the shard marks: gate_up gives two, a stack
/// one a layer. One whole box when nothing is marked (replicated). kUsage when an axis does not divide.
[[nodiscard]] Result<std::vector<Box>> ShardBoxes(const Expr& root, int size, int rank);

}  // namespace crossdock::expr
