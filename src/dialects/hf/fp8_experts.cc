// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kExperts = ".experts.";

/// Which fused tensor this is; nothing when it is none.
struct Fused {
  std::string prefix;     ///< "model.layers.3.mlp.experts."
  bool gate_up = false;
  bool bias = false;
};
std::optional<Fused> FusedOf(std::string_view name, const Shape& shape) {
  const std::size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kExperts.size());
  Fused out{std::string(name.substr(0, at + kExperts.size())), rest.starts_with("gate_up_proj"), rest.ends_with("_bias")};
  const std::string_view plain = out.bias ? rest.substr(0, rest.size() - 5) : rest;
  const bool known = plain == "gate_up_proj" || plain == "down_proj";
  return known && shape.size() == (out.bias ? 2U : 3U) ? std::optional(std::move(out)) : std::nullopt;
}

/// The operation that brings a fused tensor to Megatron's [E, 2m, h] or [E, h, m].
std::string OperationOf(const family::FamilyFile& family, std::string_view name) {
  for (const family::Group& group : family.groups) {
    for (const family::Row& row : group.rows) {
      if (!name.ends_with("." + row.hub)) continue;
      const auto target = row.targets.find("mcore");
      if (target == row.targets.end()) continue;
      for (const std::vector<std::string>& ops : target->second.ops) {
        if (!ops.empty()) return ops.front();
      }
    }
  }
  return {};
}

/// One half of [2m, ...], or every second row of it.
Result<expr::Expr> Half(const expr::Expr& both, int which, bool alternate) {
  const std::int64_t m = both->shape[0] / 2;
  if (!alternate) {
    Box box = Box::Whole(both->shape);
    box.offsets[0] = which * m;
    box.sizes[0] = m;
    return expr::Slice(both, box);
  }
  Shape pairs = both->shape;
  pairs[0] = m;
  pairs.insert(1, 2);
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr split, expr::Reshape(both, pairs));
  return expr::Index(std::move(split), 1, which);
}

struct Part {
  std::string_view name;
  expr::Expr expr;
};

/// Whether the fused matrices are [in, out], the other way round than a linear layer's.
bool IsTurned(std::string_view op) { return op == "gate_up_T" || op == "gate_up_pair" || op == "row_T"; }

/// Whether `op` says how the experts lie in a fused tensor.
bool IsKnown(std::string_view op, bool gate_up) {
  constexpr std::array kGateUp = {"gate_up_E", "gate_up_T", "gate_up_pair"};
  constexpr std::array kOther = {"row_E", "row_T", "id_E"};
  return gate_up ? std::ranges::find(kGateUp, op) != kGateUp.end() : std::ranges::find(kOther, op) != kOther.end();
}

std::string PartName(const Fused& fused, std::int64_t expert, std::string_view layer) {
  return fmt::format("{}{}.{}.{}", fused.prefix, expert, layer, fused.bias ? "bias" : "weight");
}

/// The layers of one expert, each [out, in] (biases [out]).
Result<std::vector<Part>> PartsOf(const expr::Expr& all, std::int64_t expert, const Fused& fused, std::string_view op) {
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr one, expr::Index(all, 0, expert));
  if (IsTurned(op) && !fused.bias) {
    CROSSDOCK_ASSIGN_OR_RETURN(one, expr::Transpose(one, {1, 0}));
  }
  if (!fused.gate_up) return std::vector<Part>{{"down_proj", std::move(one)}};
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr gate, Half(one, 0, op == "gate_up_pair"));
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr up, Half(one, 1, op == "gate_up_pair"));
  return std::vector<Part>{{"gate_proj", std::move(gate)}, {"up_proj", std::move(up)}};
}

Status Split(const family::FamilyFile& family, const Entry& entry, const expr::Expr& all, const Fused& fused, Draft* draft) {
  const std::string op = OperationOf(family, entry.name);
  const bool known = IsKnown(op, fused.gate_up);
  const std::size_t halved = fused.bias || op == "gate_up_E" ? 1 : 2;
  if (!known || (fused.gate_up && entry.shape[halved] % 2 != 0)) {
    return MakeError(ErrorCode::kUnsupported, "the family's rules do not say how gate and up lie in the fused experts, which FP8 takes apart")
        .WithTensor(entry.name)
        .WithFound(op.empty() ? "no rule for Megatron" : fmt::format("the operation `{}`", op));
  }
  for (std::int64_t e = 0; e < entry.shape[0]; ++e) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsOf(all, e, fused, op));
    for (const Part& part : parts) {
      Entry out;
      out.name = PartName(fused, e, part.name);
      out.dtype = entry.dtype;
      out.shape = part.expr->shape;
      out.chunks.emplace_back().box = Box::Whole(out.shape);
      draft->tensors.emplace_back(std::move(out), expr::Simplify(part.expr));
    }
  }
  return OkStatus();
}

/// One expert of a fused tensor from its layers: PartsOf the other way round.
Result<expr::Expr> JoinParts(std::vector<expr::Expr> layers, const Fused& fused, std::string_view op) {
  expr::Expr one = layers.front();
  if (layers.size() == 2 && op == "gate_up_pair") {
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr pairs, expr::Stack(layers, 1));
    Shape shape = pairs->shape;
    shape.erase(1);
    shape[0] *= 2;
    CROSSDOCK_ASSIGN_OR_RETURN(one, expr::Reshape(std::move(pairs), shape));
  } else if (layers.size() == 2) {
    CROSSDOCK_ASSIGN_OR_RETURN(one, expr::Concat(std::move(layers), 0));
  }
  return IsTurned(op) && !fused.bias ? expr::Transpose(std::move(one), {1, 0}) : std::move(one);
}

/// (expert, layer of it) of "...experts.12.up_proj.weight" behind a prefix.
std::tuple<std::int64_t, int, std::string_view> PlaceOf(std::string_view name, std::string_view prefix) {
  const std::string_view rest = name.substr(prefix.size());
  std::int64_t expert = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  int layer = 3;
  constexpr std::array kLayers = {".gate_proj.", ".up_proj.", ".down_proj."};
  for (std::size_t i = 0; i < kLayers.size(); ++i) {
    if (rest.find(kLayers[i]) != std::string_view::npos) layer = static_cast<int>(i);
  }
  return {expert, layer, name};
}

}  // namespace

Status SplitExperts(const family::FamilyFile& family, Draft* draft) {
  std::vector<std::pair<Entry, expr::Expr>> before = std::move(draft->tensors);
  draft->tensors.clear();
  for (auto& [entry, expr] : before) {
    const std::optional<Fused> fused = FusedOf(entry.name, entry.shape);
    if (!fused) {
      draft->tensors.emplace_back(std::move(entry), std::move(expr));
      continue;
    }
    CROSSDOCK_RETURN_IF_ERROR(Split(family, entry, expr, *fused, draft));
  }
  return OkStatus();
}

Result<std::optional<Dequantized>> JoinExperts(const family::FamilyFile& family, const Catalog& source, const std::string& name, const Shape& shape,
                                               const Quantization& how) {
  const std::optional<Fused> fused = FusedOf(name, shape);
  const std::string op = fused ? OperationOf(family, name) : std::string();
  if (!fused || !IsKnown(op, fused->gate_up)) return std::optional<Dequantized>();
  std::vector<std::string_view> layers = {"down_proj"};
  if (fused->gate_up) layers = {"gate_proj", "up_proj"};
  Dequantized out;
  std::vector<expr::Expr> parts;   // expert by expert, layer by layer
  for (std::int64_t e = 0; e < shape[0]; ++e) {
    for (const std::string_view layer : layers) {
      const std::int32_t at = source.Find(PartName(*fused, e, layer));
      if (at < 0) return std::optional<Dequantized>();
      const Entry& entry = source.entries[static_cast<std::size_t>(at)];
      if (!IsFp8Weight(entry)) {
        if (!IsFloating(entry.dtype) || BitsOf(entry.dtype) < 16) {
          return MakeError(ErrorCode::kUnsupported, "an expert of this type is not carried in this version").WithTensor(entry.name)
              .WithExpected("F64, F32, F16 or BF16, or F8_E4M3 or F8_E5M2 with scales").WithFound(std::string(DTypeName(entry.dtype)));
        }
        parts.push_back(expr::Leaf(at, entry.dtype, entry.shape));
        out.entries.push_back(at);
        continue;
      }
      CROSSDOCK_ASSIGN_OR_RETURN(Dequantized one, ReadFp8(source, at, how));
      parts.push_back(std::move(one.expr));
      out.entries.insert(out.entries.end(), one.entries.begin(), one.entries.end());
      out.form = std::move(one.form);
      out.assumed_block = out.assumed_block || one.assumed_block;
    }
  }
  std::vector<expr::Expr> experts;
  for (std::size_t first = 0; first < parts.size(); first += layers.size()) {
    std::vector<expr::Expr> of_one;
    for (std::size_t i = first; i < first + layers.size(); ++i) {
      const DType dtype = out.form.empty() ? parts[i]->dtype : how.dtype;
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr part, expr::Cast(parts[i], dtype));
      of_one.push_back(std::move(part));
    }
    Result<expr::Expr> one = JoinParts(std::move(of_one), *fused, op);
    if (!one) return std::move(one).error().WithTensor(PartName(*fused, static_cast<std::int64_t>(experts.size()), layers.front()));
    experts.push_back(*std::move(one));
  }
  Result<expr::Expr> all = expr::Stack(experts, 0);
  if (!all) return std::move(all).error().WithTensor(name).WithHint("its experts are of different sizes or types");
  out.expr = *std::move(all);
  return std::optional(std::move(out));
}

std::vector<std::string> OrderOfExperts(const std::vector<std::string>& order, const Draft& draft) {
  std::set<std::string_view> written;
  for (const auto& [entry, expr] : draft.tensors) written.insert(entry.name);
  std::vector<std::string> out;
  std::set<std::string> done;
  for (const std::string& name : order) {
    const std::size_t at = name.find(kExperts);
    if (at == std::string::npos || written.contains(name)) {
      out.push_back(name);
      continue;
    }
    const std::string prefix = name.substr(0, at + kExperts.size());
    if (!done.insert(prefix).second) continue;
    std::vector<std::string_view> parts;
    for (auto part = written.lower_bound(prefix); part != written.end() && part->starts_with(prefix); ++part) parts.push_back(*part);
    std::ranges::sort(parts, {}, [&](std::string_view part) { return PlaceOf(part, prefix); });
    out.insert(out.end(), parts.begin(), parts.end());
  }
  return out;
}

}  // namespace crossdock::dialects::hf
