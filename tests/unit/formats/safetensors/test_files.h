// SPDX-License-Identifier: Apache-2.0
/// \file  Small safetensors files and directories for tests, and the bytes that a placement stands for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/safetensors/header.h"
#include "formats/safetensors/safetensors.h"
#include "io/memory_storage.h"

namespace crossdock::formats::safetensors {

inline std::string GoldenDir() { return std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden"; }

/// A file with one-byte tensors, in this order.
inline std::string TinyFile(const std::vector<std::string>& names, const Metadata& metadata = {{"format", "pt"}}) {
  std::vector<HeaderTensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, DType::kU8, {1}, {static_cast<std::int64_t>(tensors.size()), 1}});
  }
  return PrintHeader(tensors, metadata) + std::string(names.size(), '*');
}

inline void Put(io::Storage& storage, const std::string& path, const std::string& bytes) {
  Status made = io::MakeDirs(storage, io::ParentPath(path));
  Status written = io::WriteSmallFile(storage, path, bytes);
  if (!made || !written) std::abort();
}

/// The content of each file of a placement, its chunks filled from the source's chunks of the same names.
inline std::map<std::string, std::string> FilesOf(const Placement& placement, io::Storage& storage, const Catalog& source) {
  std::map<std::string, std::string> files;
  const auto& refs = placement.catalog.files;
  for (const FileRef& file : refs) files[file.path] = std::string(static_cast<std::size_t>(file.identity.size), '?');
  const auto put = [&](std::int32_t file, std::int64_t offset, const std::string& bytes) {
    files[refs[static_cast<std::size_t>(file)].path].replace(static_cast<std::size_t>(offset), bytes.size(), bytes);
  };
  for (const Frame& frame : placement.frames) put(frame.file, frame.offset, frame.bytes);
  for (const Entry& entry : placement.catalog.entries) {
    const Chunk& from = source.entries[static_cast<std::size_t>(source.Find(entry.name))].chunks[0];
    auto file = storage.OpenRead(io::JoinPath(source.root, source.files[static_cast<std::size_t>(from.file)].path));
    std::string bytes(static_cast<std::size_t>(from.bytes.length), '\0');
    if (!file || !(*file)->ReadAt(from.bytes.offset, std::as_writable_bytes(std::span(bytes.data(), bytes.size())))) std::abort();
    put(entry.chunks[0].file, entry.chunks[0].bytes.offset, bytes);
  }
  return files;
}

}  // namespace crossdock::formats::safetensors
