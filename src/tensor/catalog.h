// SPDX-License-Identifier: Apache-2.0
/// \file  Catalog: what a checkpoint holds and where: names, shapes, byte ranges; never tensor data.
/// A reader returns one; a dialect makes one for the target, a writer's LayOut places its chunks; `inspect`
/// prints one. Invariants: entries are sorted by (name, slot) and unique; the chunks of an entry do not
/// overlap and cover its shape, each within its file (checked by the reader, see CheckCover).
/// Threads: immutable once returned.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/box.h"
#include "tensor/dtype.h"
#include "tensor/slot.h"
#include "tensor/value.h"

namespace crossdock {

/// What identifies the content of a file while it is being read: any change is an error, not a mixture.
struct FileIdentity {
  std::int64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

struct FileRef {
  std::string path;         ///< relative to the checkpoint's directory, '/'-separated
  FileIdentity identity;    ///< of a source; for a target only `size` is set
};

struct ByteRange {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  [[nodiscard]] std::int64_t end() const { return offset + length; }
  bool operator==(const ByteRange&) const = default;
};

enum class ChunkEncoding : std::uint8_t {
  kRaw,        ///< `bytes` are the chunk's elements, row-major
  kTorchBlob,  ///< `bytes` are a torch zip holding one contiguous tensor; its data is found when read
  kEncoded,    ///< `bytes` are the elements encoded (compressed, padded, or within a larger record): only the reader decodes them
};

struct Chunk {
  Box box;
  std::int32_t file = -1;   ///< index into Catalog::files
  ByteRange bytes;
  ChunkEncoding encoding = ChunkEncoding::kRaw;
  /// Targets only, before LayOut: which output file the chunk wants to be in (for Megatron the rank that
  /// would have written it). Chunks with equal shards lie in one file.
  std::int32_t shard = 0;
};

struct Entry {
  std::string name;
  Slot slot = Slot::kParam;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<Chunk> chunks;
};

/// A file that is no tensor data: config.json, tokenizer files, common.pt, markers.
struct SideFile {
  enum class Role : std::uint8_t {
    kSide,      ///< belongs to the checkpoint
    kMarker,    ///< written after everything else is durable, in the order listed
  };
  std::string path;                  ///< relative, '/'-separated
  Role role = Role::kSide;
  std::optional<std::string> bytes;  ///< the content; else it is copied from `copy_from`
  std::string copy_from;             ///< absolute path of the source of a copy; size in `size`
  std::int64_t size = 0;
};

/// A non-tensor item inside the checkpoint's own files, e.g. Megatron's `rng_state/shard_0.0_2.2`.
struct ObjectRef {
  std::string name;
  std::int32_t file = -1;
  ByteRange bytes;
};

struct Catalog {
  std::string format;                      ///< "safetensors", "dcp", ...
  std::string root;                        ///< the directory (source: absolute), for messages and copies
  std::optional<std::int64_t> step;        ///< what the directory or tracker says
  std::vector<FileRef> files;
  std::vector<Entry> entries;
  std::vector<ObjectRef> object_refs;      ///< listed, not loaded
  std::map<std::string, Value> objects;    ///< loaded or to be written: "common", "config.json", "metadata.json", "__metadata__", "run_config.yaml", ...
  std::vector<SideFile> side_files;
  /// Tensors that are there but stored as flattened optimizer shards (Megatron-Core <= 0.15): known by name only.
  std::vector<std::string> flattened_entries;
  std::vector<std::string> notices;        ///< oddities that were accepted, for the summary

  /// Index of an entry, or -1. REQUIRES: sorted entries.
  [[nodiscard]] std::int32_t Find(std::string_view name, Slot slot = Slot::kParam) const;
  void SortEntries();
};

}  // namespace crossdock
