// SPDX-License-Identifier: Apache-2.0
/// \file  The configuration of the text part of a larger model. transformers 5 keeps it in a dictionary of its own
/// (`text_config`), older files at the top: read as one. Threads: functions are pure.
#pragma once

#include "family/family_file.h"
#include "family/model_config.h"

namespace crossdock::family {

/// `config` with what FamilyFile::text_config names laid over the top; itself for a family without one, and in Megatron's words.
/// `tie_word_embeddings` stays as the top has it: the head belongs to the whole model, and the part's own is a default.
[[nodiscard]] ModelConfig TextConfig(const FamilyFile& family, const ModelConfig& config);

}  // namespace crossdock::family
