// SPDX-License-Identifier: Apache-2.0
#include "convert/convert_source.h"

#include <algorithm>
#include <array>

#include "formats/safetensors/safetensors.h"

namespace crossdock::convert {

DType DTypeOf(const std::string& name) { return name == "bf16" ? DType::kBF16 : name == "fp16" ? DType::kF16 : DType::kF32; }

SourceRequest RequestOf(const ConvertOptions& options) {
  SourceRequest request;
  request.path = options.source;
  request.from = options.from;
  request.step = options.step;
  request.family = options.family;
  request.rules = options.rules;
  request.hf_template = options.hf_template;
  request.set_args = options.set_args;
  request.scan_axis = options.scan_axis;
  request.lora_base = options.lora_base;
  request.no_optim = options.no_optim;
  request.drop_mtp = options.mtp == "drop";
  request.mtp_of_template = options.mtp == "template";
  if (options.dtype) request.dequantized = DTypeOf(*options.dtype);
  request.keep_dtype = options.keep_dtype;
  request.allow = options.allow;
  return request;
}

bool IsTokenizerFile(std::string_view path) {
  constexpr std::array kNames = {"special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
                                 "spiece.model", "tekken.json"};
  const std::string name = io::BaseName(path);
  return name.starts_with("tokenizer") || name.starts_with("chat_template") || name.ends_with(".tiktoken") ||
         path.starts_with("additional_chat_templates/") || std::ranges::find(kNames, name) != kNames.end();
}

Result<std::vector<SideFile>> TokenizerFiles(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(path));
  std::vector<SideFile> files;
  if (info.kind == io::FileKind::kFile) {
    SideFile file;
    file.path = io::BaseName(path);
    file.copy_from = path;
    file.size = info.size;
    files.push_back(std::move(file));
    return files;
  }
  std::vector<std::string> notices;
  CROSSDOCK_ASSIGN_OR_RETURN(files, formats::safetensors::ListSideFiles(storage, path, &notices));
  std::erase_if(files, [](const SideFile& file) { return !IsTokenizerFile(file.path); });
  if (!files.empty()) return files;
  return MakeError(ErrorCode::kIncomplete, "there are no tokenizer files")
      .WithPath(path)
      .WithExpected("tokenizer.json, tokenizer.model, vocab.json or the like");
}

}  // namespace crossdock::convert
