// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_form.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "dialects/hf/fp8_export.h"
#include "dialects/hf/quantized.h"

namespace crossdock::dialects::hf {
namespace {

using Strategy = Fp8Options::Strategy;

/// A stored matrix, and its block, no larger than that.
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  expr::BlockFormat block;
};

expr::BlockFormat Within(const expr::BlockFormat& block, const Matrix& matrix) { return {std::min(block.rows, matrix.rows), std::min(block.cols, matrix.cols)}; }

/// The FP8 matrices below `node`; false when one of them cannot go over as it is.
bool AddMatrices(const expr::Node& node, std::vector<Matrix>* out) {
  if (node.op != expr::Op::kDequantize) return std::ranges::all_of(node.inputs, [&](const expr::Expr& input) { return AddMatrices(*input, out); });
  if (node.inputs[0]->dtype != DType::kF8E4M3 || !IsFloating(node.inputs[1]->dtype)) return false;
  Matrix matrix{node.shape[node.shape.size() - 2], node.shape.back(), {}};
  matrix.block = Within(node.block(), matrix);
  out->push_back(matrix);
  return true;
}

bool Fits(const Fp8Form& form, const Matrix& matrix) {
  switch (form.strategy) {
    case Strategy::kBlock: return matrix.block == Within(form.block, matrix);
    case Strategy::kChannel: return matrix.block == Within({1, matrix.cols}, matrix);
    case Strategy::kTensor: return matrix.block == Within({matrix.rows, matrix.cols}, matrix);
  }
  return false;
}

std::vector<Fp8Form> FormsToTry(const HubState& hub, const std::vector<Matrix>& matrices) {
  std::vector<Fp8Form> forms = {{Strategy::kBlock, {}}, {Strategy::kTensor, {}}, {Strategy::kChannel, {}}};
  const Result<Quantization> said = ReadQuantization(hub.config.words == "hf" ? hub.config.values : Value::MakeDict());
  if (said && said->block) {
    forms.insert(forms.begin(), {Strategy::kBlock, *said->block});
  } else if (said && !said->method.empty()) {
    std::swap(forms[0], forms[1]);  // it declares no block
  }
  std::set<std::pair<std::int64_t, std::int64_t>> blocks;
  for (const Matrix& matrix : matrices) blocks.emplace(matrix.block.rows, matrix.block.cols);
  for (const auto& [rows, cols] : blocks) forms.push_back({Strategy::kBlock, {rows, cols}});
  return forms;
}

}  // namespace

std::optional<Fp8Form> FormOfSource(const HubState& hub) {
  const std::optional<std::int64_t> border = hub.layout.GetInt(kTemplateEntries);
  std::vector<Matrix> matrices;
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.slot != Slot::kParam) continue;
    if (border && std::ranges::any_of(expr::LeafOrdinals(tensor.expr), [&](int leaf) { return leaf >= *border; })) continue;
    if (!AddMatrices(*tensor.expr, &matrices)) return std::nullopt;
  }
  if (matrices.empty()) return std::nullopt;
  for (const Fp8Form& form : FormsToTry(hub, matrices)) {
    if (std::ranges::all_of(matrices, [&](const Matrix& matrix) { return Fits(form, matrix); })) return form;
  }
  return std::nullopt;
}

}  // namespace crossdock::dialects::hf
