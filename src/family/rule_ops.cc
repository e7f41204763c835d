// SPDX-License-Identifier: Apache-2.0
#include "family/rule_ops.h"

#include <array>

#include "base/checked_math.h"
#include "family/formula.h"
#include "family/row_syntax.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::family {
namespace {

using Argument = OpInfo::Argument;
using expr::Expr;

constexpr std::array kOps = {
    OpInfo{"id", 0, 0, Argument::kNone},           OpInfo{"col", 0, 0, Argument::kNone},
    OpInfo{"row", 0, 0, Argument::kNone},          OpInfo{"vocab", 0, 0, Argument::kNone},
    OpInfo{"qkv", 3, 0, Argument::kOptional},      OpInfo{"gate_up", 2, 0, Argument::kNone},
    OpInfo{"qkv_cat", 0, 0, Argument::kOptional},  OpInfo{"gate_up_E", 0, 0, Argument::kNone},
    OpInfo{"gate_up_T", 0, 0, Argument::kNone},    OpInfo{"gate_up_pair", 0, 0, Argument::kNone},
    OpInfo{"row_E", 0, 0, Argument::kNone},        OpInfo{"row_T", 0, 0, Argument::kNone},
    OpInfo{"id_E", 0, 0, Argument::kNone},         OpInfo{"halves", 0, 0, Argument::kNone},
    OpInfo{"pair", 0, 2, Argument::kNone},         OpInfo{"plus1", 0, 0, Argument::kNone},
    OpInfo{"minus1", 0, 0, Argument::kNone},       OpInfo{"qgkv", 3, 0, Argument::kOptional},
    OpInfo{"gdn_qkvz", 0, 4, Argument::kNone},     OpInfo{"gdn_ba", 0, 2, Argument::kNone},
    OpInfo{"gdn_qkv", 0, 3, Argument::kNone},
    OpInfo{"T", 0, 0, Argument::kNone},            OpInfo{"heads", 0, 0, Argument::kOptional},
    OpInfo{"heads_out", 0, 0, Argument::kOptional}, OpInfo{"heads_b", 0, 0, Argument::kOptional},
    OpInfo{"rope_pair", 0, 0, Argument::kOptional}, OpInfo{"scale", 0, 0, Argument::kRequired},
    OpInfo{"conv", 0, 0, Argument::kNone},         OpInfo{"conv_T", 0, 0, Argument::kNone},
    OpInfo{"split", 0, 2, Argument::kNone},        OpInfo{"gdn_join_qkvz", 2, 0, Argument::kNone},
    OpInfo{"gdn_join_ba", 2, 0, Argument::kNone},
};

struct Call {
  std::string name;
  std::string argument;
};

Call SplitCall(std::string_view op) {
  const std::size_t colon = op.find(':');
  if (colon == std::string_view::npos) return {Trim(op), {}};
  return {Trim(op.substr(0, colon)), Trim(op.substr(colon + 1))};
}

Error WrongShape(std::string_view op, const Shape& shape, std::string expected) {
  return MakeError(ErrorCode::kUsage, fmt::format("the operation {} does not fit the tensor", op))
      .WithExpected(std::move(expected))
      .WithFound(ToString(shape));
}

/// `axis` of size n*d as two axes [n, d].
Result<Expr> SplitHeads(std::string_view op, const Expr& in, std::size_t axis, std::int64_t d) {
  const Shape& shape = in->shape;
  if (shape.size() <= axis || d < 1 || shape[axis] % d != 0) {
    return WrongShape(op, shape, fmt::format("axis {} to be a multiple of {}", axis, d));
  }
  Shape split = shape;
  split[axis] = shape[axis] / d;
  split.insert(axis + 1, d);
  return expr::Reshape(in, split);
}

Result<Expr> Vocab(const Expr& in, const OpContext& context) {
  if (in->shape.empty()) return WrongShape("vocab", in->shape, "at least one axis");
  if (!context.padded_vocab) {
    return MakeError(ErrorCode::kUsage, "the padded size of the vocabulary is not known");
  }
  Shape shape = in->shape;
  if (*context.padded_vocab < shape[0]) {
    return MakeError(ErrorCode::kUsage, "the padded vocabulary is smaller than the vocabulary")
        .WithExpected(fmt::format("at least {}", shape[0]))
        .WithFound(fmt::format("{}", *context.padded_vocab));
  }
  shape[0] = *context.padded_vocab;
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr padded, expr::Pad(in, Dims::Filled(shape.size(), 0), shape));
  return expr::Shard(padded, 0);
}

/// Group by group: the query heads of a key head, the key head, the value head. Weights [n d, h] and biases [n d].
Result<Expr> Qkv(const std::vector<Expr>& in, std::int64_t d) {
  const Shape& key = in[1]->shape;
  if (d < 1 || key.empty() || key[0] % d != 0 || key[0] == 0 || in[0]->shape.empty() || in[0]->shape[0] % key[0] != 0) {
    return WrongShape("qkv", in[0]->shape, fmt::format("query rows to be a multiple of the key rows of {}", ToString(key)));
  }
  const std::int64_t groups = key[0] / d;
  std::vector<Expr> grouped;
  for (const Expr& one : in) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr split, SplitHeads("qkv", one, 0, one->shape[0] / groups));
    grouped.push_back(std::move(split));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr joined, expr::Concat(std::move(grouped), 1));
  Shape flat = key;
  flat[0] = joined->shape[0] * joined->shape[1];
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr whole, expr::Reshape(joined, flat));
  return expr::Shard(whole, 0);
}

/// Gated attention: the hub's q has a head of queries and one of gates in turn, [2 q d, h]; Megatron-Core has of each key head first its
/// query heads, then their gates, then key and value.
Result<Expr> Qgkv(const std::vector<Expr>& in, std::int64_t d) {
  const Shape& gated = in[0]->shape;
  const Shape& key = in[1]->shape;
  if (d < 1 || key.empty() || key[0] % d != 0 || key[0] == 0 || gated.empty() || gated[0] % (2 * key[0]) != 0) {
    return WrongShape("qgkv", gated, fmt::format("twice as many query rows as a multiple of the key rows of {}", ToString(key)));
  }
  const std::int64_t groups = key[0] / d;
  const std::int64_t heads = gated[0] / (2 * key[0]);   // of queries, one key head's
  Shape split = gated;
  split[0] = groups;
  split.insert(1, heads);
  split.insert(2, 2);
  split.insert(3, d);
  std::vector<int> axes;
  for (int i = 0; i < static_cast<int>(split.size()); ++i) axes.push_back(i);
  std::swap(axes[1], axes[2]);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr in_turn, expr::Reshape(in[0], split));
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr apart, expr::Transpose(in_turn, std::move(axes)));
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr query, expr::Reshape(apart, gated));
  return Qkv({query, in[1], in[2]}, d);
}

/// [Q; K; V] whole, as some hubs keep it, to the order of `qkv`. `heads`: of q, k and v alike; 0 = the letters q and k.
Result<Expr> QkvCat(const Expr& in, std::int64_t heads, const Letters& letters) {
  std::int64_t query = heads;
  std::int64_t key = heads;
  if (heads == 0) {
    CROSSDOCK_ASSIGN_OR_RETURN(query, EvaluateInteger("q", letters));
    CROSSDOCK_ASSIGN_OR_RETURN(key, EvaluateInteger("k", letters));
  }
  const std::int64_t all = query + 2 * key;
  if (in->shape.empty() || all < 1 || in->shape[0] % all != 0) {
    return WrongShape("qkv_cat", in->shape, fmt::format("axis 0 to hold {} query heads and twice {} key heads", query, key));
  }
  const std::int64_t d = in->shape[0] / all;
  std::vector<Expr> parts;
  std::int64_t at = 0;
  for (const std::int64_t count : {query, key, key}) {
    Box box = Box::Whole(in->shape);
    box.offsets[0] = at;
    box.sizes[0] = count * d;
    at += count * d;
    CROSSDOCK_ASSIGN_OR_RETURN(Expr part, expr::Slice(in, std::move(box)));
    parts.push_back(std::move(part));
  }
  return Qkv(parts, d);
}

/// Two halves along `axis`, each cut on its own; `exchange` swaps the last two axes of each half, which lies along the other one then.
/// The slices come first: an inverse puts slices of a leaf together, not of what was made of it.
Result<Expr> Halves(std::string_view op, const Expr& in, std::size_t axis, bool exchange = false) {
  if (in->shape.size() <= axis || in->shape[axis] % 2 != 0) return WrongShape(op, in->shape, fmt::format("axis {} to be two halves", axis));
  std::vector<Expr> halves;
  for (const std::int64_t half : {0, 1}) {
    Box box = Box::Whole(in->shape);
    box.sizes[axis] /= 2;
    box.offsets[axis] = half * box.sizes[axis];
    CROSSDOCK_ASSIGN_OR_RETURN(Expr part, expr::Slice(in, std::move(box)));
    if (exchange) {
      CROSSDOCK_ASSIGN_OR_RETURN(part, expr::Transpose(part, {0, 2, 1}));
    }
    halves.push_back(expr::Shard(part, static_cast<int>(exchange ? axis - 1 : axis)));
  }
  return expr::Concat(std::move(halves), static_cast<int>(exchange ? axis - 1 : axis));
}

/// gpt-oss: gate and up alternate along the last axis. [E, h, 2m] -> [E, 2m, h], biases [E, 2m] -> [E, 2m]; gate first.
Result<Expr> Pairs(const Expr& in) {
  const std::size_t rank = in->shape.size();
  if (rank < 2 || rank > 3 || in->shape[rank - 1] % 2 != 0) return WrongShape("gate_up_pair", in->shape, "[E, h, 2m] or [E, 2m]");
  const std::int64_t m = in->shape[rank - 1] / 2;
  Shape split = in->shape;
  split[rank - 1] = m;
  split.push_back(2);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr pairs, expr::Reshape(in, split));
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr apart, expr::Transpose(pairs, rank == 3 ? std::vector<int>{0, 3, 2, 1} : std::vector<int>{0, 2, 1}));
  Shape joined = apart->shape;
  joined[1] = 2 * m;
  joined.erase(2);
  return expr::Reshape(expr::Shard(apart, 2), joined);
}

/// Experts in one tensor: axis 0 counts them.
Result<Expr> Experts(const std::string& op, const Expr& in) {
  if (op == "gate_up_pair") return Pairs(in);
  if (op == "id_E") return in;
  if (op == "gate_up_E") return Halves(op, in, 1);
  if (in->shape.size() != 3) return WrongShape(op, in->shape, "3 axes");
  if (op == "gate_up_T") return Halves(op, in, 2, true);
  Expr matrix = in;
  if (op == "row_T") {
    CROSSDOCK_ASSIGN_OR_RETURN(matrix, expr::Transpose(in, {0, 2, 1}));
  }
  return expr::Shard(matrix, 2);
}

/// Half order -> pairs inside each head: out[2j] = x[j], out[2j + 1] = x[d/2 + j], along an axis of whole heads.
Result<Expr> RopePair(const Expr& in, std::size_t axis, std::int64_t d) {
  if (d < 2 || d % 2 != 0 || in->shape.size() <= axis || in->shape[axis] % d != 0) {
    return WrongShape("rope_pair", in->shape, fmt::format("axis {} to be a multiple of an even head size, not of {}", axis, d));
  }
  Shape split = in->shape;
  split[axis] /= d;
  split.insert(axis + 1, 2);
  split.insert(axis + 2, d / 2);
  std::vector<int> axes;
  for (int i = 0; i < static_cast<int>(split.size()); ++i) axes.push_back(i);
  std::swap(axes[axis + 1], axes[axis + 2]);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr halves, expr::Reshape(in, split));
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr pairs, expr::Transpose(halves, std::move(axes)));
  return expr::Reshape(pairs, in->shape);
}

/// The state of a chain: where the elements of one head lie, for rope_pair.
struct Chain {
  Expr expr;
  std::size_t head_axis = 0;
  bool padded_rows = false;
  bool experts = false;
};

Status ApplyHeads(const Call& call, std::int64_t d, Chain& chain) {
  const std::size_t rank = call.name == "heads_b" ? 1U : 2U;
  if (chain.expr->shape.size() != rank) return WrongShape(call.name, chain.expr->shape, fmt::format("{} axes", rank));
  if (rank == 2) {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Transpose(chain.expr, {1, 0}));
  }
  const std::size_t axis = call.name == "heads" ? 1 : 0;
  CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, SplitHeads(call.name, chain.expr, axis, d));
  chain.head_axis = axis + 1;
  return OkStatus();
}

Status ApplyOne(const Call& call, const OpContext& context, Chain& chain) {
  const std::size_t rank = chain.expr->shape.size();
  if (call.name == "id" || call.name == "pair" || call.name == "split") return OkStatus();
  if (call.name.starts_with("gdn_")) {
    if (rank == 0) return WrongShape(call.name, chain.expr->shape, "at least one axis");
    chain.expr = expr::Shard(chain.expr, 0);
    return OkStatus();
  }
  if (call.name == "col" || call.name == "row") {
    const std::size_t axis = call.name == "col" ? 0 : 1;
    if (rank <= axis) return WrongShape(call.name, chain.expr->shape, fmt::format("an axis {}", axis));
    chain.expr = expr::Shard(chain.expr, static_cast<int>(axis));
    return OkStatus();
  }
  if (call.name == "vocab") {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, Vocab(chain.expr, context));
    chain.padded_rows = true;
    return OkStatus();
  }
  if (call.name == "T") {
    if (rank != 2) return WrongShape("T", chain.expr->shape, "2 axes");
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Transpose(chain.expr, {1, 0}));
    return OkStatus();
  }
  if (call.name == "conv") {
    const Shape& shape = chain.expr->shape;
    if (rank != 3 || shape[1] != 1) return WrongShape("conv", shape, "[channels, 1, width]");
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Reshape(chain.expr, {shape[0], shape[2]}));
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Transpose(chain.expr, {1, 0}));
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Reverse(chain.expr, 0));
    return OkStatus();
  }
  if (call.name == "conv_T") {
    if (rank != 3 || chain.expr->shape[1] != 1) return WrongShape("conv_T", chain.expr->shape, "[channels, 1, width]");
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Transpose(chain.expr, {2, 1, 0}));
    return OkStatus();
  }
  if (call.name == "scale") {
    CROSSDOCK_ASSIGN_OR_RETURN(const double factor, EvaluateReal(call.argument, *context.letters));
    if (factor == 0) return MakeError(ErrorCode::kUsage, "a scale of 0 has no inverse");
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Scale(chain.expr, factor));
    return OkStatus();
  }
  if (call.name == "plus1" || call.name == "minus1") {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, expr::Offset(chain.expr, call.name == "plus1" ? 1.0 : -1.0));
    return OkStatus();
  }
  if (call.name == "halves") {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, Halves(call.name, chain.expr, 0));
    return OkStatus();
  }
  if (call.name == "qkv_cat") {
    std::int64_t heads = 0;
    if (!call.argument.empty()) {
      CROSSDOCK_ASSIGN_OR_RETURN(heads, EvaluateInteger(call.argument, *context.letters));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, QkvCat(chain.expr, heads, *context.letters));
    return OkStatus();
  }
  if (call.name.starts_with("gate_up_") || call.name.ends_with("_E") || call.name == "row_T") {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, Experts(call.name, chain.expr));
    chain.experts = true;
    return OkStatus();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t d, EvaluateInteger(call.argument.empty() ? "d" : call.argument, *context.letters));
  if (call.name == "rope_pair") {
    CROSSDOCK_ASSIGN_OR_RETURN(chain.expr, RopePair(chain.expr, chain.head_axis, d));
    return OkStatus();
  }
  return ApplyHeads(call, d, chain);
}

/// How a tensor of a gated delta net is divided along its first axis: `groups` times the parts' rows one after the other.
struct RowParts {
  std::int64_t groups = 1;
  std::vector<std::int64_t> rows;      ///< of each part, in one group
};

Result<RowParts> RowPartsOf(std::string_view op, const Letters& letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t keys, EvaluateInteger("nk", letters));
  if (op == "gdn_qkv") {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t key_rows, EvaluateInteger("nk*dk", letters));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t value_rows, EvaluateInteger("nv*dv", letters));
    return RowParts{1, {key_rows, key_rows, value_rows}};
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t values, EvaluateInteger("nv/nk", letters));   // value heads of a key head
  if (op == "gdn_ba") return RowParts{keys, {values, values}};
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t key_size, EvaluateInteger("dk", letters));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t value_size, EvaluateInteger("dv", letters));
  return RowParts{keys, {key_size, key_size, values * value_size, values * value_size}};
}

Result<Expr> SplitRows(std::string_view op, const Expr& whole, std::size_t at, const Letters& letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const RowParts parts, RowPartsOf(op, letters));
  std::int64_t rows = 0;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parts.rows.size(); ++i) {
    if (i == at) before = rows;
    rows += parts.rows[i];
  }
  Shape split = whole->shape;
  if (split.empty() || split.size() >= kMaxRank || split[0] != parts.groups * rows) {
    return WrongShape(op, whole->shape, fmt::format("{} rows: {} times {}", parts.groups * rows, parts.groups, fmt::join(parts.rows, " + ")));
  }
  split[0] = parts.groups;
  split.insert(1, rows);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr groups, expr::Reshape(whole, split));
  Box box = Box::Whole(split);
  box.offsets[1] = before;
  box.sizes[1] = parts.rows[at];
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr part, expr::Slice(groups, std::move(box)));
  Shape flat = whole->shape;
  flat[0] = parts.groups * parts.rows[at];
  return expr::Reshape(part, flat);
}

Result<Expr> JoinRows(std::string_view op, const std::vector<Expr>& all, const Letters& letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const RowParts parts, RowPartsOf(op, letters));
  std::vector<Expr> grouped;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < all.size() && i < parts.rows.size(); ++i) {
    Shape split = all[i]->shape;
    if (split.empty() || split.size() >= kMaxRank || split[0] != parts.groups * parts.rows[i]) {
      return WrongShape(op, all[i]->shape, fmt::format("{} rows", parts.groups * parts.rows[i]));
    }
    split[0] = parts.groups;
    split.insert(1, parts.rows[i]);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr groups, expr::Reshape(all[i], split));
    grouped.push_back(std::move(groups));
    rows += all[i]->shape[0];
  }
  if (all.size() != parts.rows.size()) return WrongShape(op, all.front()->shape, fmt::format("{} parts", parts.rows.size()));
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr joined, expr::Concat(std::move(grouped), 1));
  Shape flat = all.front()->shape;
  flat[0] = rows;
  return expr::Reshape(joined, flat);
}

/// Two parts of the last axis: in turn (`pair`), or one after the other (`split`).
bool IsOfLastAxis(std::string_view op) { return op == "pair" || op == "split"; }

/// What Qwen3.5 keeps in two tensors, as Qwen3-Next has it: queries, keys and values, then z; or beta and alpha.
Result<Expr> JoinDeltaNet(std::string_view op, const std::vector<Expr>& in, const Letters& letters) {
  if (op == "gdn_join_ba") return JoinRows("gdn_ba", in, letters);
  CROSSDOCK_ASSIGN_OR_RETURN(const RowParts parts, RowPartsOf("gdn_qkv", letters));
  std::vector<Expr> all;
  std::int64_t at = 0;
  for (const std::int64_t rows : parts.rows) {  // slices of the leaf itself: an inverse puts these together
    Box box = Box::Whole(in[0]->shape);
    if (in[0]->shape.empty() || at + rows > in[0]->shape[0]) return WrongShape(op, in[0]->shape, fmt::format("{} rows", fmt::join(parts.rows, " + ")));
    box.offsets[0] = at;
    box.sizes[0] = rows;
    at += rows;
    CROSSDOCK_ASSIGN_OR_RETURN(Expr part, expr::Slice(in[0], std::move(box)));
    all.push_back(std::move(part));
  }
  if (at != in[0]->shape[0]) return WrongShape(op, in[0]->shape, fmt::format("{} rows", fmt::join(parts.rows, " + ")));
  all.push_back(in[1]);
  return JoinRows("gdn_qkvz", all, letters);
}

Result<std::vector<Chain>> Start(const Call& call, const std::vector<Expr>& inputs, const OpContext& context, bool split_halves) {
  const std::string& op = call.name;
  if (op == "qkv" || op == "qgkv") {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t d, EvaluateInteger(call.argument.empty() ? "d" : call.argument, *context.letters));
    CROSSDOCK_ASSIGN_OR_RETURN(Expr joined, op == "qkv" ? Qkv(inputs, d) : Qgkv(inputs, d));
    return std::vector<Chain>{{std::move(joined)}};
  }
  if (op.starts_with("gdn_join_")) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr joined, JoinDeltaNet(op, inputs, *context.letters));
    return std::vector<Chain>{{std::move(joined)}};
  }
  std::vector<Expr> halves;
  for (const Expr& one : inputs) {
    if (one->shape.empty()) return WrongShape(op, one->shape, "at least one axis");
    halves.push_back(expr::Shard(one, 0));
  }
  if (split_halves) return std::vector<Chain>{{halves[0]}, {halves[1]}};
  CROSSDOCK_ASSIGN_OR_RETURN(Expr joined, expr::Concat(std::move(halves), 0));
  return std::vector<Chain>{{std::move(joined)}};
}

}  // namespace

std::span<const OpInfo> AllOps() { return kOps; }

Result<OpInfo> FindOp(std::string_view op) {
  const Call call = SplitCall(op);
  for (const OpInfo& info : kOps) {
    if (info.name != call.name) continue;
    if (info.argument == Argument::kNone && !call.argument.empty()) {
      return MakeError(ErrorCode::kUsage, fmt::format("the operation {} takes no argument", info.name));
    }
    if (info.argument == Argument::kRequired && call.argument.empty()) {
      return MakeError(ErrorCode::kUsage, fmt::format("the operation {} needs an argument", info.name));
    }
    return info;
  }
  std::string known;
  for (const OpInfo& info : kOps) known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  return MakeError(ErrorCode::kUsage, fmt::format("\"{}\" is no operation", Printable(call.name))).WithExpected(fmt::format("one of {}", known));
}

Result<Expr> SplitPart(std::string_view op, const Expr& whole, std::int64_t at, const Letters& letters) {
  if (!IsOfLastAxis(op)) return SplitRows(op, whole, static_cast<std::size_t>(at), letters);
  const std::size_t rank = whole->shape.size();
  if (rank == 0 || rank >= kMaxRank || whole->shape[rank - 1] % 2 != 0) return WrongShape(op, whole->shape, "a last axis of pairs");
  if (op == "split") {
    Box box = Box::Whole(whole->shape);
    box.sizes[rank - 1] /= 2;
    box.offsets[rank - 1] = at * box.sizes[rank - 1];
    return expr::Slice(whole, std::move(box));
  }
  Shape split = whole->shape;
  split[rank - 1] /= 2;
  split.push_back(2);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr pairs, expr::Reshape(whole, split));
  return expr::Index(pairs, static_cast<int>(rank), at);
}

Result<Expr> JoinParts(std::string_view op, const std::vector<Expr>& parts, const Letters& letters) {
  if (!IsOfLastAxis(op)) return JoinRows(op, parts, letters);
  const Shape& part = parts.front()->shape;
  if (parts.size() != 2 || part.empty()) return WrongShape(op, part, "two parts with an axis");
  if (op == "split") return expr::Concat(parts, static_cast<int>(part.size()) - 1);
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr pairs, expr::Stack(parts, static_cast<int>(part.size())));
  Shape whole = part;
  whole[part.size() - 1] *= 2;
  return expr::Reshape(pairs, whole);
}

Result<std::vector<OpOutput>> ApplyOps(const std::vector<std::string>& ops, const std::vector<Expr>& inputs, const OpContext& context,
                                       bool split_halves) {
  std::vector<Chain> chains;
  std::size_t next = 0;
  CROSSDOCK_ASSIGN_OR_RETURN(const OpInfo first, FindOp(ops.front()));
  if (first.joins != 0) {
    CROSSDOCK_ASSIGN_OR_RETURN(chains, Start(SplitCall(ops.front()), inputs, context, split_halves && first.name == "gate_up"));
    next = 1;
  } else {
    CROSSDOCK_CHECK(inputs.size() == 1);
    chains = {{inputs.front()}};
  }
  std::vector<OpOutput> outputs;
  for (Chain& chain : chains) {
    for (std::size_t i = next; i < ops.size(); ++i) {
      CROSSDOCK_RETURN_IF_ERROR(ApplyOne(SplitCall(ops[i]), context, chain));
    }
    outputs.push_back({std::move(chain.expr), chain.padded_rows, chain.experts});
  }
  return outputs;
}

}  // namespace crossdock::family
