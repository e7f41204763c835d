// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/model_names.h"

#include <algorithm>
#include <array>

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::array kModelNames = {
    ModelName{"deepseek2-16b", "deepseek_v2"},
    ModelName{"deepseek2-236b", "deepseek_v2"},
    ModelName{"deepseek3-671b", "deepseek_v3"},
    ModelName{"deepseek3-671b-2dfsdp", "deepseek_v3"},
    ModelName{"deepseek3-671b-batchsplit", "deepseek_v3"},
    ModelName{"deepseek3-test", "deepseek_v3"},
    ModelName{"deepseek3-tiny", "deepseek_v3"},
    ModelName{"gemma2-27b", "gemma2"},
    ModelName{"gemma2-2b", "gemma2"},
    ModelName{"gemma2-9b", "gemma2"},
    ModelName{"gemma3-12b", "gemma3"},
    ModelName{"gemma3-27b", "gemma3"},
    ModelName{"gemma3-4b", "gemma3"},
    ModelName{"gpt-oss-120b", "gpt_oss"},
    ModelName{"gpt-oss-20b", "gpt_oss"},
    ModelName{"kimi-k2-1t", "deepseek_v3"},
    ModelName{"llama2-13b", "llama"},
    ModelName{"llama2-70b", "llama"},
    ModelName{"llama2-7b", "llama"},
    ModelName{"llama3-405b", "llama"},
    ModelName{"llama3-70b", "llama"},
    ModelName{"llama3-8b", "llama"},
    ModelName{"llama3.1-405b", "llama"},
    ModelName{"llama3.1-70b", "llama"},
    ModelName{"llama3.1-8b", "llama"},
    ModelName{"llama3.3-70b", "llama"},
    ModelName{"llama4-17b-128e", "llama4"},
    ModelName{"llama4-17b-16e", "llama4"},
    ModelName{"mistral-7b", "mistral"},
    ModelName{"mixtral-8x22b", "mixtral"},
    ModelName{"mixtral-8x7b", "mixtral"},
    ModelName{"olmo3-32b", "olmo3"},
    ModelName{"olmo3-7b", "olmo3"},
    ModelName{"olmo3-7b-pt", "olmo3"},
    ModelName{"qwen2.5-1.5b", "qwen2"},
    ModelName{"qwen2.5-14b", "qwen2"},
    ModelName{"qwen2.5-7b", "qwen2"},
    ModelName{"qwen3-0.6b", "qwen3"},
    ModelName{"qwen3-1.7b", "qwen3"},
    ModelName{"qwen3-1.7b-base", "qwen3"},
    ModelName{"qwen3-14b", "qwen3"},
    ModelName{"qwen3-14b-base", "qwen3"},
    ModelName{"qwen3-235b-a22b", "qwen3_moe"},
    ModelName{"qwen3-30b-a3b", "qwen3_moe"},
    ModelName{"qwen3-30b-a3b-base", "qwen3_moe"},
    ModelName{"qwen3-32b", "qwen3"},
    ModelName{"qwen3-480b-a35b", "qwen3_moe"},
    ModelName{"qwen3-4b", "qwen3"},
    ModelName{"qwen3-4b-base", "qwen3"},
    ModelName{"qwen3-4b-thinking-2507", "qwen3"},
    ModelName{"qwen3-8b", "qwen3"},
    ModelName{"qwen3-8b-base", "qwen3"},
    ModelName{"qwen3-custom-30b-a3b", "qwen3_moe"},
    ModelName{"qwen3-next-80b-a3b", "qwen3_next"},
    ModelName{"qwen3-vl-2b", "qwen3_vl"},
    ModelName{"qwen3-vl-30b-a3b", "qwen3_vl_moe"},
    ModelName{"qwen3-vl-4b", "qwen3_vl"},
};

std::string_view LettersOf(std::string_view name) {
  return name.substr(0, std::min(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), name.size()));
}

}  // namespace

std::span<const ModelName> ModelNames() { return kModelNames; }

std::string_view FamilyOfModelName(std::string_view name) {
  const auto* found = std::ranges::find(kModelNames, name, &ModelName::name);
  return found == kModelNames.end() ? std::string_view() : found->family;
}

std::vector<std::string_view> RelatedModelNames(std::string_view name) {
  std::vector<std::string_view> related;
  const std::string_view letters = LettersOf(name);
  if (letters.empty()) return related;
  for (const ModelName& one : kModelNames) {
    if (LettersOf(one.name) == letters) related.push_back(one.name);
  }
  return related;
}

}  // namespace crossdock::dialects::maxtext
