// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/checked_math.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::int64_t kUsualBlock = 128;

const Entry& EntryAt(const Catalog& source, std::int32_t at) { return source.entries[static_cast<std::size_t>(at)]; }

expr::Expr LeafOf(const Catalog& source, std::int32_t at) {
  const Entry& entry = EntryAt(source, at);
  return expr::Leaf(at, entry.dtype, entry.shape);
}

DType DTypeOfConfig(const Value& config) {
  for (const char* path : {"dtype", "torch_dtype", "text_config.dtype", "text_config.torch_dtype"}) {
    std::string name = config.GetString(path).value_or("");
    if (name.starts_with("torch.")) name.erase(0, 6);
    if (name == "bfloat16") return DType::kBF16;
    if (name == "float16") return DType::kF16;
    if (name == "float32") return DType::kF32;
  }
  return DType::kBF16;
}

/// Two numbers; absent and null are no block.
Result<std::optional<expr::BlockFormat>> BlockAt(const Value& parent, std::string_view key) {
  const Value* value = parent.Find(key);
  if (value == nullptr || value->is_null()) return std::optional<expr::BlockFormat>();
  const ValueList* list = value->as_sequence();
  const std::int64_t* rows = list != nullptr && list->size() == 2 ? (*list)[0].as_int() : nullptr;
  const std::int64_t* cols = rows != nullptr ? (*list)[1].as_int() : nullptr;
  if (cols == nullptr || *rows <= 0 || *cols <= 0) {
    return MakeError(ErrorCode::kCorrupt, fmt::format("`{}` of the quantization_config is no block", key))
        .WithPath("config.json")
        .WithExpected("two positive integers")
        .WithFound(Printable(ToJson(*value, 0)));
  }
  return std::optional(expr::BlockFormat{*rows, *cols});
}

Error NotRead(const std::string& found) {
  return MakeError(ErrorCode::kUnsupported, "the weights are quantized in a way that is not read")
      .WithPath("config.json")
      .WithExpected("`fp8`, `compressed-tensors` with 8-bit floats, or `mxfp4`")
      .WithFound("quantization_config " + Printable(found))
      .WithHint("convert the unquantized checkpoint");
}

/// One block for all groups of compressed-tensors, if they have one.
Result<std::optional<expr::BlockFormat>> BlockOfGroups(const Value& config) {
  std::optional<expr::BlockFormat> block;
  const Value* groups = config.Find("config_groups");
  if (groups == nullptr || groups->as_dict() == nullptr) return block;
  for (const auto& [name, group] : groups->as_dict()->items) {
    const Value* weights = group.Find("weights");
    if (weights == nullptr || weights->is_null()) continue;
    const std::int64_t bits = weights->GetInt("num_bits").value_or(8);
    const std::string type = weights->GetString("type").value_or("float");
    if (type != "float" || bits != 8) return NotRead(fmt::format("compressed-tensors with {} bits of type {}", bits, type));
    if (!weights->GetBool("symmetric").value_or(true)) return NotRead("compressed-tensors with a zero point");
    CROSSDOCK_ASSIGN_OR_RETURN(std::optional<expr::BlockFormat> mine, BlockAt(*weights, "block_structure"));
    const std::int64_t group_size = weights->GetInt("group_size").value_or(0);
    if (!mine && group_size > 0) mine = expr::BlockFormat{1, group_size};
    if (mine) block = mine;
  }
  return block;
}

/// Scales that no config.json explains: a block that they fit.
struct Guess {
  expr::BlockFormat block;
  bool assumed = false;
};
std::optional<Guess> BlockOfShapes(const Shape& values, const Shape& scales) {
  if (scales.size() != values.size()) return std::nullopt;
  const std::size_t r = values.size() - 2, c = values.size() - 1;
  const bool usual = CeilDiv(values[r], kUsualBlock) == scales[r] && CeilDiv(values[c], kUsualBlock) == scales[c];
  const bool even = scales[r] > 0 && scales[c] > 0 && values[r] % scales[r] == 0 && values[c] % scales[c] == 0;
  const expr::BlockFormat divided = even ? expr::BlockFormat{values[r] / scales[r], values[c] / scales[c]} : expr::BlockFormat{};
  if (usual) return Guess{{kUsualBlock, kUsualBlock}, !even || !(divided == expr::BlockFormat{kUsualBlock, kUsualBlock})};
  if (even) return Guess{divided, false};
  return std::nullopt;
}

bool IsSingle(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t n) { return n == 1; });
}

bool IsPerRow(const Shape& values, Shape scales) {
  if (scales.size() == values.size() && scales.back() == 1) scales.erase(scales.size() - 1);
  Shape rows = values;
  rows.erase(rows.size() - 1);
  return scales == rows;
}

}  // namespace

Result<Quantization> ReadQuantization(const Value& config) {
  Quantization out;
  out.dtype = DTypeOfConfig(config);
  const Value* said = config.Find("quantization_config");
  if (said == nullptr || said->is_null()) said = config.Find("compression_config");  // older compressed-tensors
  if (said == nullptr || said->is_null()) return out;
  out.method = said->GetString("quant_method").value_or("");
  if (out.method == "fp8") {
    CROSSDOCK_ASSIGN_OR_RETURN(out.block, BlockAt(*said, "weight_block_size"));
  } else if (out.method == "compressed-tensors") {
    const std::string format = said->GetString("format").value_or("float-quantized");
    if (format != "float-quantized" && format != "naive-quantized") return NotRead("compressed-tensors " + format);
    CROSSDOCK_ASSIGN_OR_RETURN(out.block, BlockOfGroups(*said));
  } else if (out.method != "mxfp4") {
    return NotRead(out.method.empty() ? "without a method" : out.method);
  }
  return out;
}

bool IsFp8Weight(const Entry& entry) { return entry.dtype == DType::kF8E4M3 || entry.dtype == DType::kF8E5M2; }

Result<Dequantized> ReadFp8(const Catalog& source, std::int32_t at, const Quantization& how) {
  const Entry& values = EntryAt(source, at);
  const std::string stem = values.name.ends_with(kWeight) ? values.name.substr(0, values.name.size() - kWeight.size()) : values.name;
  const std::array<std::string, 3> names = {values.name + "_scale_inv", values.name + "_scale", stem + ".scale"};
  std::int32_t scale = -1;
  for (std::size_t i = 0; i < names.size() && scale < 0; ++i) scale = source.Find(names[i]);
  if (scale < 0 && how.allow_unscaled) {
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr cast, expr::Cast(LeafOf(source, at), how.dtype));
    return Dequantized{std::move(cast), {at}, std::string(DTypeName(values.dtype)) + " without scales, taken as 1: --allow unscaled-fp8"};
  }
  if (scale < 0) {
    return MakeError(ErrorCode::kIncomplete, "an FP8 weight has no scales: its codes alone are no values")
        .WithTensor(values.name)
        .WithExpected(fmt::format("one of `{}`, `{}`, `{}`", Printable(names[0]), Printable(names[1]), Printable(names[2])))
        .WithFound("none of them")
        .WithHint("the shard with the scales is missing, or they go by another name; `--allow unscaled-fp8` takes scales of 1");
  }
  const Shape& scales = EntryAt(source, scale).shape;
  Dequantized out;
  out.entries = {at, scale};
  std::string_view dtype = DTypeName(values.dtype);
  expr::BlockFormat block{kUsualBlock, kUsualBlock};
  const std::size_t rank = values.shape.size();
  if (rank < 2 || CheckedCount(scales) == 0) {
    out.form = std::string(dtype);  // refused below, or without elements
  } else if (IsSingle(scales)) {
    block = {values.shape[rank - 2], values.shape[rank - 1]};
    out.form = fmt::format("{}, one scale a tensor", dtype);
  } else if (IsPerRow(values.shape, scales)) {
    block = {1, values.shape[rank - 1]};
    out.form = fmt::format("{}, one scale a row", dtype);
  } else {
    if (how.block) {
      block = *how.block;
    } else if (const std::optional<Guess> guess = BlockOfShapes(values.shape, scales)) {
      block = guess->block;
      out.assumed_block = guess->assumed;
    }
    out.form = fmt::format("{}, blocks of {} x {}", dtype, block.rows, block.cols);
  }
  block.rows = std::max<std::int64_t>(block.rows, 1);
  block.cols = std::max<std::int64_t>(block.cols, 1);
  Result<expr::Expr> made = expr::Dequantize(LeafOf(source, at), LeafOf(source, scale), block, how.dtype);
  if (!made) return std::move(made).error().WithTensor(EntryAt(source, scale).name);
  out.expr = std::move(made).value();
  return out;
}

Result<std::optional<Dequantized>> ReadMxfp4(const Catalog& source, const std::string& name, const Quantization& how) {
  const std::int32_t blocks = source.Find(name + "_blocks");
  if (blocks < 0) return std::optional<Dequantized>();
  const std::int32_t scales = source.Find(name + "_scales");
  if (scales < 0) {
    return MakeError(ErrorCode::kIncomplete, "blocks of MXFP4 have no scales")
        .WithTensor(name + "_blocks")
        .WithExpected("`" + Printable(name) + "_scales` beside them")
        .WithFound("no such tensor");
  }
  Result<expr::Expr> made = expr::DequantizeMxfp4(LeafOf(source, blocks), LeafOf(source, scales), how.dtype);
  if (!made) return std::move(made).error().WithTensor(name + "_blocks");
  Dequantized out{std::move(made).value(), {blocks, scales}, "MXFP4, groups of 32"};
  if (out.expr->shape.size() == 3) {
    CROSSDOCK_ASSIGN_OR_RETURN(out.expr, expr::Transpose(out.expr, {0, 2, 1}));
  }
  return std::optional(std::move(out));
}

std::string_view ActivationScaleReason(std::string_view name) {
  for (const char* end : {".input_scale", ".activation_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale"}) {
    if (name.ends_with(end)) return "a scale of activations or of the KV cache, which only FP8 arithmetic uses";
  }
  return {};
}

}  // namespace crossdock::dialects::hf
