// SPDX-License-Identifier: Apache-2.0
/// \file  Expressions: a tensor as a tree over stored tensors.
/// Two kinds of nodes. *Movement* nodes (reshape, transpose, reverse, concat, slice, pad) only place elements;
/// their inverse is derived by walking from the root to a leaf (Inverse), never written by hand. *Compute* nodes
/// change values: elementwise ones (cast, scale, offset) declare their inverse and what they do to moments;
/// quantization makes a pair of outputs (q, s) from one input and stands at the root only: every other builder refuses
/// a quantized input, so that nothing below a root is quantized. Dequantization (dequantize.h) makes one output of two
/// stored tensors and stands right over these leaves.
/// A *shard* mark on a node says that tensor-parallel ranks cut it along an axis (ShardBoxes). It moves nothing.
/// Invariants: shapes are checked when a node is made; no node has a negative axis or an element count that overflows.
/// A tree that is to be inverted names each leaf once; composed trees (Substitute) may name one more often.
/// Errors: kCorrupt when sizes disagree, kUnsupported when an operation does not apply to the tensor, kUsage for axes
/// and factors that make no sense. Threads: trees are immutable and shared; Expr is safe to use from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "tensor/box.h"
#include "tensor/dtype.h"
#include "tensor/slot.h"

namespace crossdock::expr {

enum class Op : std::uint8_t {
  kLeaf,
  // movement
  kReshape,
  kTranspose,
  kReverse,
  kConcat,
  kSlice,
  kPad,
  // compute, elementwise
  kCast,
  kScale,
  kOffset,
  // compute, pairs
  kQuantizeValues,  ///< inputs {w}: the q of FP8 quantization
  kQuantizeScales,  ///< inputs {w}: the s that belongs to it
  kDequantize,       ///< inputs {q, s}, both leaves: see dequantize.h
  kDequantizeMxfp4,  ///< inputs {blocks, scales}, both leaves
};

class Node;
using Expr = std::shared_ptr<const Node>;

/// Elements of the last two axes that share a scale: ceil(n / block) of them on each.
struct BlockFormat {
  std::int64_t rows = 128;
  std::int64_t cols = 128;
  bool operator==(const BlockFormat&) const = default;
};

/// What a scale may be: any positive F32, or a power of two that is not below the one of kFloat (stored as F32).
enum class ScaleFormat : std::uint8_t { kFloat, kUe8m0 };
/// kRelax rounds the quotient to the input's dtype before it is rounded to FP8, as one exporter does for whole tensors.
enum class Arithmetic : std::uint8_t { kReference, kRelax };

/// FP8: q = round(w / s) in F8_E4M3, s = amax(block) / 448 in F32. A row ("channel") is a block of 1 x cols, a whole tensor one of
/// rows x cols. `whole`: one block holds the tensor, and s has the shape [1]; else s has the shape ceil(n / block).
struct Fp8Format {
  BlockFormat block;
  bool whole = false;
  ScaleFormat scales = ScaleFormat::kFloat;
  Arithmetic arithmetic = Arithmetic::kReference;
  bool operator==(const Fp8Format&) const = default;
};

/// What one or two operations have and the others have not lies in `detail`: a plan of a large model holds a million
/// nodes. REQUIRES of the accessors: the node is of an operation that they name.
class Node {
 public:
  Op op = Op::kLeaf;
  DType dtype = DType::kF32;
  std::int8_t axis = 0;                   ///< kReverse, kConcat
  std::optional<std::int8_t> shard_axis;  ///< tensor-parallel cut, see ShardBoxes
  int leaf = -1;                          ///< kLeaf: an ordinal that the owner of the tree gives meaning
  std::vector<Expr> inputs;
  Shape shape;
  std::variant<std::monostate, std::vector<int>, std::vector<std::int64_t>, Dims, double, BlockFormat, Fp8Format> detail;

  /// kTranspose: output axis i is input axis axes()[i]
  [[nodiscard]] const std::vector<int>& axes() const { return Detail<std::vector<int>>(); }
  /// kConcat: where each input begins on `axis`, ascending
  [[nodiscard]] const std::vector<std::int64_t>& starts() const { return Detail<std::vector<std::int64_t>>(); }
  /// kSlice: start of the box; kPad: elements before the input on each axis
  [[nodiscard]] const Dims& offsets() const { return Detail<Dims>(); }
  /// kScale, kOffset; 1 for the others
  [[nodiscard]] double factor() const {
    const double* found = std::get_if<double>(&detail);
    return found != nullptr ? *found : 1.0;
  }
  /// kDequantize
  [[nodiscard]] const BlockFormat& block() const { return Detail<BlockFormat>(); }
  /// kQuantize*
  [[nodiscard]] const Fp8Format& fp8() const { return Detail<Fp8Format>(); }

 private:
  template <typename T>
  [[nodiscard]] const T& Detail() const {
    const T* found = std::get_if<T>(&detail);
    CROSSDOCK_CHECK(found != nullptr);
    return *found;
  }
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
/// Finite and not 0; no node for 1.
[[nodiscard]] Result<Expr> Scale(Expr in, double factor);
/// Finite; no node for 0. kUnsupported over visible padding, which must stay zero: pad last.
[[nodiscard]] Result<Expr> Offset(Expr in, double addend);
/// Two axes of BF16, F16 or F32. Values are F8_E4M3 of the same shape, scales F32 of shape ceil(n / block), or [1] of a whole tensor.
[[nodiscard]] Result<Expr> QuantizeValues(Expr in, Fp8Format format);
[[nodiscard]] Result<Expr> QuantizeScales(Expr in, Fp8Format format);
/// The same node, marked: tensor-parallel ranks cut it along `axis`. A mark that was there is replaced.
/// REQUIRES: 0 <= axis < rank.
[[nodiscard]] Expr Shard(const Expr& in, int axis);

// ---- whole trees ----
[[nodiscard]] std::vector<int> LeafOrdinals(const Expr& root);  ///< in tree order, repeated where a leaf is
/// True for QuantizeValues and QuantizeScales: the planner works on inputs[0] then.
[[nodiscard]] bool IsQuantize(const Expr& root);
/// `root` with every leaf i replaced by make(i) (same shape; the dtype of everything above follows).
[[nodiscard]] Result<Expr> Substitute(const Expr& root, const std::function<Result<Expr>(int)>& make);
/// The leaf `ordinal` as an expression over one new leaf (ordinal 0, shape and dtype of `root`): the inverse of
/// `root` for that leaf. kUnsupported when a node on the way has none (quantize, dequantize, a slice that drops elements), when
/// the leaf does not occur, or more than once but for slices along one axis that make it up. Marks are not carried over.
[[nodiscard]] Result<Expr> Inverse(const Expr& root, int ordinal);
/// The inverse for every leaf, in one walk. Errors as Inverse.
[[nodiscard]] Result<std::map<int, Expr>> Inverses(const Expr& root);
/// Removes what does nothing: reshape of reshape, identity transposes, slice of concat, slice of slice, slice of pad
/// inside the input, concat of adjacent slices of one tensor, casts back. Same value on every element, same shape and
/// dtype; marked nodes and their boxes stay.
[[nodiscard]] Expr Simplify(const Expr& root);
/// The tree that applies to a slot when `root` applies to params: movement unchanged; Scale s becomes 1/s for
/// mu and 1/s^2 for nu (1/s for Muon's momentum); Offset vanishes for moments; masters are scaled and offset like
/// params; casts of params are dropped for other slots. kUnsupported: quantization of another slot than param.
[[nodiscard]] Result<Expr> ForSlot(const Expr& root, Slot slot);
/// True when some node may not be bit-exact both ways (scale, offset, narrowing cast, quantize). Dequantization is not one:
/// what is stored has one meaning, bit for bit.
[[nodiscard]] bool IsInexact(const Expr& root);
/// True when values are computed with on the way: scaled or offset, not only moved and cast.
[[nodiscard]] bool HasArithmetic(const Expr& root);
/// True when some of that rounds values. A sum that is computed in F32 is exact where one side of it is of 16 bits: what is added to
/// was just widened from them, or what comes out is narrowed at once to them (for values of at least 2^-16 beside 1).
[[nodiscard]] bool RoundsValues(const Expr& root);
/// One line for `manifest` and `--dry-run`, leaves by ordinal: "concat(reshape[2, 4](0), 1; axis 0)". Long
/// concats are shortened in the middle.
[[nodiscard]] std::string Describe(const Expr& root);

/// The boxes of the root that rank `rank` of `size` holds, sorted, following the shard marks: gate_up gives two, a
/// stack one a layer. The outermost mark on a way counts. One whole box when nothing is marked (replicated); elements
/// under no mark beside marked ones are held by every rank. kUsage when an axis does not divide, when rank or size is
/// out of range, or when a cut falls inside a quantized block.
[[nodiscard]] Result<std::vector<Box>> ShardBoxes(const Expr& root, int size, int rank);

}  // namespace crossdock::expr
