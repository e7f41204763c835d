// SPDX-License-Identifier: Apache-2.0
/// \file  What convert.cc needs of a source beside source.h: the request that options make, and tokenizer files.
#pragma once

#include <string>
#include <vector>

#include "convert/source.h"
#include "crossdock/options.h"

namespace crossdock::convert {

/// Of "bf16", "fp16" or "fp32".
[[nodiscard]] DType DTypeOf(const std::string& name);

[[nodiscard]] SourceRequest RequestOf(const ConvertOptions& options);

/// The tokenizer files at `path`: the file itself, or those of a directory. kIncomplete when there are none.
[[nodiscard]] Result<std::vector<SideFile>> TokenizerFiles(io::Storage& storage, const std::string& path);

/// tokenizer.json, vocab.txt, merges.txt, *.tiktoken, chat_template.jinja, ...
[[nodiscard]] bool IsTokenizerFile(std::string_view path);

}  // namespace crossdock::convert
