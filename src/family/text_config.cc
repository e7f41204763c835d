// SPDX-License-Identifier: Apache-2.0
#include "family/text_config.h"

namespace crossdock::family {

ModelConfig TextConfig(const FamilyFile& family, const ModelConfig& config) {
  if (family.text_config.empty() || config.words != "hf") return config;
  const Value* part = nullptr;
  for (const std::string& name : family.text_config) {
    if (part == nullptr || part->as_dict() == nullptr) part = config.values.Find(name);
  }
  if (part == nullptr || part->as_dict() == nullptr) return config;
  ModelConfig out = config;
  constexpr std::string_view kTied = "tie_word_embeddings";
  const Value* tied = config.values.Find(kTied);
  for (const auto& [key, value] : part->as_dict()->items) {
    const std::string* name = key.as_string();
    if (name == nullptr || (*name == kTied && tied != nullptr && !tied->is_null())) continue;
    out.values.Set(*name, value);
  }
  return out;
}

}  // namespace crossdock::family
