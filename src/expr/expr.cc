// SPDX-License-Identifier: Apache-2.0
#include "expr/expr.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "expr/pull_back.h"

namespace crossdock::expr {
namespace {

Error Mismatch(std::string what, std::string expected, std::string found) {
  return MakeError(ErrorCode::kCorrupt, std::move(what)).WithExpected(std::move(expected)).WithFound(std::move(found));
}

/// Every builder but Shard starts here: what is quantized is final, nothing rearranges (q, s) pairs.
Status CheckInput(const Expr& in) {
  CROSSDOCK_CHECK(in != nullptr);
  if (!IsQuantize(in)) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "a quantized tensor cannot be rearranged or computed with")
      .WithHint("quantize last");
}

Status CheckAxis(const Expr& in, int axis) {
  if (axis >= 0 && static_cast<std::size_t>(axis) < in->shape.size()) return OkStatus();
  return MakeError(ErrorCode::kUsage, "an operation names an axis that the tensor has not")
      .WithExpected("an axis of " + ToString(in->shape))
      .WithFound(std::to_string(axis));
}

Status CheckFloating(const Expr& in, std::string_view operation) {
  if (IsFloating(in->dtype)) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, std::string(operation) + " applies to floating types only")
      .WithFound(std::string(DTypeName(in->dtype)));
}

/// A node over one input that keeps shape and dtype; the caller changes what differs.
std::shared_ptr<Node> NodeOver(Op op, Expr in) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->shape = in->shape;
  node->dtype = in->dtype;
  node->inputs.push_back(std::move(in));
  return node;
}

bool HasPad(const Expr& root) {
  return root->op == Op::kPad || std::any_of(root->inputs.begin(), root->inputs.end(), HasPad);
}

/// Padding may lie below and yet be trimmed away again, so look at what can be seen from the root.
bool ShowsPadding(const Expr& root) {
  if (!HasPad(root)) return false;
  const std::vector<Piece> pieces = PullBack(root, Box::Whole(root->shape));
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.leaf < 0; });
}

Status CheckQuantizable(const Expr& in, const Fp8Format& format) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  const BlockFormat& block = format.block;
  if (block.rows <= 0 || block.cols <= 0) {
    return MakeError(ErrorCode::kUsage, "a quantization block has no extent")
        .WithFound(std::to_string(block.rows) + " x " + std::to_string(block.cols));
  }
  const bool type_fits = in->dtype == DType::kBF16 || in->dtype == DType::kF16 || in->dtype == DType::kF32;
  if (in->shape.size() != 2 || !type_fits) {
    return MakeError(ErrorCode::kUnsupported, "this tensor cannot be quantized")
        .WithExpected("two axes of BF16, F16 or F32")
        .WithFound(std::string(DTypeName(in->dtype)) + " " + ToString(in->shape));
  }
  if (!format.whole || (block.rows >= in->shape[0] && block.cols >= in->shape[1])) return OkStatus();
  return MakeError(ErrorCode::kUsage, "one block is to hold a tensor that is larger")
      .WithExpected("a block of " + ToString(in->shape))
      .WithFound(std::to_string(block.rows) + " x " + std::to_string(block.cols));
}

/// CeilDiv without the overflow of a block size near the limit of the type.
std::int64_t BlocksOf(std::int64_t extent, std::int64_t block) {
  return extent / block + (extent % block != 0 ? 1 : 0);
}

}  // namespace

Expr Leaf(int ordinal, DType dtype, Shape shape) {
  auto node = std::make_shared<Node>();
  node->leaf = ordinal;
  node->dtype = dtype;
  node->shape = std::move(shape);
  return node;
}

Result<Expr> Reshape(Expr in, Shape shape) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t before, ElementCount(in->shape));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t after, ElementCount(shape));
  if (before != after) {
    return Mismatch("a tensor cannot be reshaped", ToString(shape), ToString(in->shape));
  }
  auto node = NodeOver(Op::kReshape, std::move(in));
  node->shape = shape;
  return Expr(std::move(node));
}

Result<Expr> Transpose(Expr in, std::vector<int> axes) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  std::vector<int> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == in->shape.size();
  for (std::size_t i = 0; permutation && i < sorted.size(); ++i) permutation = sorted[i] == static_cast<int>(i);
  if (!permutation) {
    return MakeError(ErrorCode::kUsage, "a transpose does not name each axis once")
        .WithExpected("a permutation of the axes of " + ToString(in->shape));
  }
  auto node = NodeOver(Op::kTranspose, std::move(in));
  const Shape from = node->shape;
  for (std::size_t i = 0; i < axes.size(); ++i) node->shape[i] = from[static_cast<std::size_t>(axes[i])];
  node->detail = std::move(axes);
  return Expr(std::move(node));
}

Result<Expr> Reverse(Expr in, int axis) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_RETURN_IF_ERROR(CheckAxis(in, axis));
  auto node = NodeOver(Op::kReverse, std::move(in));
  node->axis = static_cast<std::int8_t>(axis);
  return Expr(std::move(node));
}

Result<Expr> Concat(std::vector<Expr> in, int axis) {
  if (in.empty()) return MakeError(ErrorCode::kUsage, "a concat has no inputs");
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in.front()));
  CROSSDOCK_RETURN_IF_ERROR(CheckAxis(in.front(), axis));
  auto node = std::make_shared<Node>();
  node->op = Op::kConcat;
  node->axis = static_cast<std::int8_t>(axis);
  node->dtype = in.front()->dtype;
  node->shape = in.front()->shape;
  const auto at = static_cast<std::size_t>(axis);
  std::int64_t end = 0;
  std::vector<std::int64_t> starts;
  starts.reserve(in.size());
  for (const Expr& e : in) {
    CROSSDOCK_RETURN_IF_ERROR(CheckInput(e));
    Shape fitted = node->shape;
    if (e->shape.size() == fitted.size()) fitted[at] = e->shape[at];
    if (e->shape != fitted) {
      return Mismatch("tensors to join disagree in shape", ToString(fitted), ToString(e->shape));
    }
    if (e->dtype != node->dtype) {
      return MakeError(ErrorCode::kUnsupported, "tensors to join disagree in dtype")
          .WithExpected(std::string(DTypeName(node->dtype)))
          .WithFound(std::string(DTypeName(e->dtype)));
    }
    starts.push_back(end);
    const auto sum = CheckedAdd(end, e->shape[at]);
    if (!sum) return Mismatch("tensors to join are too large", "a size below 2^63", ToString(e->shape));
    end = *sum;
  }
  node->shape[at] = end;
  CROSSDOCK_RETURN_IF_ERROR(ElementCount(node->shape));
  node->inputs = std::move(in);
  node->detail = std::move(starts);
  return Expr(std::move(node));
}

Result<Expr> Stack(const std::vector<Expr>& in, int axis) {
  std::vector<Expr> widened;
  widened.reserve(in.size());
  for (const Expr& e : in) {
    if (axis < 0 || static_cast<std::size_t>(axis) > e->shape.size() || e->shape.size() >= kMaxRank) {
      return MakeError(ErrorCode::kUsage, "a tensor cannot be stacked along this axis")
          .WithExpected("an axis of the result, and at most " + std::to_string(kMaxRank) + " axes")
          .WithFound("axis " + std::to_string(axis) + " over " + ToString(e->shape));
    }
    Shape shape = e->shape;
    shape.insert(static_cast<std::size_t>(axis), 1);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr wide, Reshape(e, shape));
    widened.push_back(std::move(wide));
  }
  return Concat(std::move(widened), axis);
}

Result<Expr> Slice(Expr in, Box box) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  if (!box.FitsIn(in->shape)) {
    return Mismatch("a slice reaches outside the tensor", "a box in " + ToString(in->shape),
                    "offsets " + ToString(box.offsets) + ", sizes " + ToString(box.sizes));
  }
  auto node = NodeOver(Op::kSlice, std::move(in));
  node->detail = box.offsets;
  node->shape = box.sizes;
  return Expr(std::move(node));
}

Result<Expr> Index(Expr in, int axis, std::int64_t at) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_RETURN_IF_ERROR(CheckAxis(in, axis));
  Box box = Box::Whole(in->shape);
  box.offsets[static_cast<std::size_t>(axis)] = at;
  box.sizes[static_cast<std::size_t>(axis)] = 1;
  CROSSDOCK_ASSIGN_OR_RETURN(Expr slice, Slice(std::move(in), box));
  Shape shape = slice->shape;
  shape.erase(static_cast<std::size_t>(axis));
  return Reshape(std::move(slice), shape);
}

Result<Expr> Pad(Expr in, Dims before, Shape shape) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_RETURN_IF_ERROR(ElementCount(shape));
  if (!Box{before, in->shape}.FitsIn(shape)) {
    return Mismatch("a tensor does not fit the shape it is padded to", ToString(shape),
                    ToString(in->shape) + " at " + ToString(before));
  }
  auto node = NodeOver(Op::kPad, std::move(in));
  node->detail = std::move(before);
  node->shape = shape;
  return Expr(std::move(node));
}

Result<Expr> Cast(Expr in, DType dtype) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  if (in->dtype == dtype) return in;
  CROSSDOCK_RETURN_IF_ERROR(CheckFloating(in, "a cast"));
  if (!IsFloating(dtype)) {
    return MakeError(ErrorCode::kUnsupported, "a cast applies to floating types only")
        .WithFound(std::string(DTypeName(dtype)));
  }
  auto node = NodeOver(Op::kCast, std::move(in));
  node->dtype = dtype;
  return Expr(std::move(node));
}

Result<Expr> Scale(Expr in, double factor) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_RETURN_IF_ERROR(CheckFloating(in, "a scale"));
  // The inverse and the moments divide by the factor and its square: these must be numbers, too.
  if (!std::isfinite(factor) || !std::isfinite(1.0 / factor) || !std::isfinite(1.0 / (factor * factor))) {
    return MakeError(ErrorCode::kUsage, "a scale must be finite and not 0").WithFound(std::to_string(factor));
  }
  if (factor == 1.0) return in;
  auto node = NodeOver(Op::kScale, std::move(in));
  node->detail = factor;
  return Expr(std::move(node));
}

Result<Expr> Offset(Expr in, double addend) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInput(in));
  CROSSDOCK_RETURN_IF_ERROR(CheckFloating(in, "an offset"));
  if (!std::isfinite(addend)) {
    return MakeError(ErrorCode::kUsage, "an offset must be finite").WithFound(std::to_string(addend));
  }
  if (addend == 0.0) return in;
  if (ShowsPadding(in)) {
    return MakeError(ErrorCode::kUnsupported, "an offset over padding would change the padding")
        .WithHint("pad after the offset");
  }
  auto node = NodeOver(Op::kOffset, std::move(in));
  node->detail = addend;
  return Expr(std::move(node));
}

Result<Expr> QuantizeValues(Expr in, Fp8Format format) {
  CROSSDOCK_RETURN_IF_ERROR(CheckQuantizable(in, format));
  auto node = NodeOver(Op::kQuantizeValues, std::move(in));
  node->dtype = DType::kF8E4M3;
  node->detail = format;
  return Expr(std::move(node));
}

Result<Expr> QuantizeScales(Expr in, Fp8Format format) {
  CROSSDOCK_RETURN_IF_ERROR(CheckQuantizable(in, format));
  auto node = NodeOver(Op::kQuantizeScales, std::move(in));
  node->dtype = DType::kF32;
  const Shape grid = {BlocksOf(node->shape[0], format.block.rows), BlocksOf(node->shape[1], format.block.cols)};
  node->shape = format.whole ? Shape{1} : grid;
  node->detail = format;
  return Expr(std::move(node));
}

Expr Shard(const Expr& in, int axis) {
  CROSSDOCK_CHECK(axis >= 0 && static_cast<std::size_t>(axis) < in->shape.size());
  auto node = std::make_shared<Node>(*in);
  node->shard_axis = static_cast<std::int8_t>(axis);
  return node;
}

bool IsQuantize(const Expr& root) { return root->op == Op::kQuantizeValues || root->op == Op::kQuantizeScales; }

}  // namespace crossdock::expr
