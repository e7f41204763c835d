// SPDX-License-Identifier: Apache-2.0
#include "convert/config_family.h"

#include <fmt/format.h>

#include "family/detect.h"

namespace crossdock::convert {

std::string FamilyOfConfig(const Value& config, const dialects::HubState& hub) {
  const family::ModelConfig words{"hf", config};
  // The source's own family first: a rule file of the user's may describe an architecture that is built in too.
  if (hub.family != nullptr && family::DetectByConfig(words, {hub.family})) return hub.family->name;
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  const Result<const family::FamilyFile*> found = family::DetectByConfig(words, families);
  return found ? (*found)->name : std::string();
}

Status CheckTemplateFamily(const Template& reference, const dialects::HubState& hub, bool chosen) {
  if (hub.family == nullptr || !reference.config) return OkStatus();
  const std::string named = FamilyOfConfig(reference.config->values, hub);
  if (named == hub.family->name || (named.empty() && chosen)) return OkStatus();
  if (!named.empty()) {
    return MakeError(ErrorCode::kUsage, fmt::format("the template is a {}, the source a {}: loaders would build another model than the tensors are of",
                                                    named, hub.family->name))
        .WithPath(reference.dir)
        .WithExpected(fmt::format("a template of the family {}", hub.family->name))
        .WithFound(named)
        .WithHint("name the directory of the model that the source was trained from as --hf-template, or leave it out");
  }
  return MakeError(ErrorCode::kUsage, fmt::format("the template names no architecture that is known here, and the source is a {}", hub.family->name))
      .WithPath(reference.dir)
      .WithExpected(fmt::format("a template of the family {}", hub.family->name))
      .WithHint("if its tensors are named and shaped alike, say so with --family NAME or --rules FILE");
}

Status CheckResultFamily(const Catalog& result, const dialects::HubState& hub, bool chosen) {
  const auto config = result.objects.find("config.json");
  if (hub.family == nullptr || config == result.objects.end()) return OkStatus();
  const std::string named = FamilyOfConfig(config->second, hub);
  if (named == hub.family->name || chosen) return OkStatus();
  return MakeError(ErrorCode::kCorrupt, "the result's config.json does not name the family of its tensors")
      .WithPath(result.root)
      .WithExpected(hub.family->name)
      .WithFound(named.empty() ? "no known architecture" : named)
      .WithHint("give a template of that family with --hf-template, or name the family with --family");
}

}  // namespace crossdock::convert
