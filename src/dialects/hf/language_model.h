// SPDX-License-Identifier: Apache-2.0
/// \file  The language model of a vision-language model alone: what `--family qwen3` means for a source whose family includes Qwen3's
/// rules as a part. All slots go along; the tower, the projector and the files of an image processor are left behind by name.
/// Errors: those of family/bind.h; kUnsupported for a family without such a part. Threads: functions are pure.
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

/// True when `whole` includes `text` as its language model.
[[nodiscard]] bool IsLanguageModelOf(const family::FamilyFile& text, const family::FamilyFile& whole);

/// The whole model's configuration as one of `text`: its part lifted to the top, named as the family has it. Rotary sections, which only
/// tell positions in a picture apart, go.
[[nodiscard]] family::ModelConfig LanguageModelConfig(const family::FamilyFile& text, const family::FamilyFile& whole, const family::ModelConfig& config);

/// Names of the whole model as those of the part; the others go.
[[nodiscard]] std::vector<std::string> LanguageModelNames(const family::FamilyFile& whole, const std::vector<std::string>& names);

/// Removes what belongs to an image processor.
void LeaveProcessorFiles(std::vector<SideFile>* files, std::vector<LeftOut>* left_out);

/// Makes `hub`, a whole model, its language model. REQUIRES: IsLanguageModelOf(text, *hub->family).
[[nodiscard]] Status TakeLanguageModel(const family::FamilyFile& text, HubState* hub);

}  // namespace crossdock::dialects::hf
