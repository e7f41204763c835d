// SPDX-License-Identifier: Apache-2.0
/// \file  What reading Hugging Face names and reading full state share: which source tensor is which hub tensor.
/// All that is missing, unknown or of a wrong shape is collected and told in one error (Report).
/// Invariant: an entry is claimed at most once. Ownership: the source catalog and the family outlive a Reading.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/quantized.h"

namespace crossdock::dialects::hf {

inline constexpr std::string_view kHead = "lm_head.weight";
inline constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
/// The same within a larger model: "model.language_model.embed_tokens.weight".
[[nodiscard]] std::string HeadOf(const family::FamilyFile& family);
[[nodiscard]] std::string EmbeddingOf(const family::FamilyFile& family);

struct Reading {
  const Catalog* source = nullptr;
  std::string prefix;                       ///< before each parameter's name: "" or "param/"
  HubState hub;
  family::Binding binding;
  std::vector<std::string> spellings;       ///< of the source (spelling.h)
  std::vector<bool> claimed;                ///< an entry of the source each
  std::vector<std::string> missing, unknown, mismatched;
  Quantization quantization;
  std::optional<DType> dequantized;         ///< of ReadOptions, as the next one
  std::vector<std::string> keep_dtype;
  std::map<std::string, std::int64_t> quantized;  ///< how many weights of each form
};

/// Configuration (the source's own, else the template's with the sizes that the tensors have), family, letters, binding.
[[nodiscard]] Result<Reading> StartReading(const Catalog& source, const ReadOptions& options, std::string prefix);

/// The names that the configuration (the source's own, else the template's) implies, in every spelling, the head's among them also
/// where it is tied. kIncomplete without a configuration.
[[nodiscard]] Result<std::vector<std::string>> NamesOfFamily(const Catalog& source, const ReadOptions& options);

/// The entry `prefix` + hub name, also spelled without `model.`; -1 when absent.
/// `near`: as tensor/find_near.h has it.
[[nodiscard]] std::int32_t FindTensor(const Catalog& source, std::string_view prefix, std::string_view hub_name, std::int32_t* near = nullptr);

/// The entry of a parameter by its hub name, in the source's spelling; -1 when absent or part of another tensor.
[[nodiscard]] std::int32_t FindHub(const Reading& reading, std::string_view hub_name);

/// The way back from a stored tensor, given as a whole and of the spelled tensor's shape, to its hub tensors.
[[nodiscard]] Status AddHub(const family::Binding& binding, const family::DialectTensor& spelled, Slot slot, DType dtype, const expr::Expr& whole,
                            std::vector<HubTensor>* out);

/// Claims the parameters, quantized ones with their scales. Shapes are checked against the binding.
[[nodiscard]] Status ClaimParams(Reading* reading);

/// What nobody claimed: buffers are left out by name and reason, a tied head is remembered, the rest is unknown.
void SortOutRest(Reading* reading, bool allow_unknown);

/// One error for everything that is wrong, or OK.
[[nodiscard]] Status Report(const Reading& reading);

/// Adds to the item of `left` with the same reason, or appends one.
void AddLeftOut(std::vector<LeftOut>* left, std::string name, std::string reason, std::int64_t bytes);

}  // namespace crossdock::dialects::hf
