// SPDX-License-Identifier: Apache-2.0
/// \file  A small conversion that goes through every path of the executor, over a raw format made for tests, with
/// the bytes that must come out: computed element by element, without expressions, plans or kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execute/executor.h"
#include "formats/format.h"
#include "io/memory_storage.h"
#include "plan/planner.h"

namespace crossdock::execute {

/// Reads chunks of raw bytes.
class RawReader final : public formats::CheckpointReader {
 public:
  explicit RawReader(Catalog catalog) : catalog_(std::move(catalog)) {}
  const Catalog& catalog() const override { return catalog_; }
  Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    return catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)].bytes;
  }
  Result<Value> LoadObject(const ObjectRef&) const override {
    return MakeError(ErrorCode::kUnsupported, "raw files hold no objects");
  }

 private:
  Catalog catalog_;
};

/// Writes "shard_N.raw": a magic of 13 bytes, then for each chunk its bytes and the CRC-32 as 8 hex digits; or encoded chunks alone.
class RawWriter final : public formats::CheckpointWriter {
 public:
  explicit RawWriter(bool wants_crc32, bool frames_under_seals = false, bool encodes = false)
      : wants_crc32_(wants_crc32), frames_under_seals_(frames_under_seals), encodes_(encodes) {}
  Result<formats::Placement> LayOut(Catalog target) override;
  Result<std::vector<formats::Frame>> Seal(const Catalog& placed, std::int32_t entry, std::int32_t chunk, std::uint32_t crc32) const override;
  /// The elements, and behind them as many dots as follow from the first.
  Result<std::string> Encode(const Catalog& placed, std::int32_t entry, std::int32_t chunk, std::span<const std::byte> elements) const override;
  Status WriteMetadata(const Catalog& /*placed*/, io::Storage& storage, const std::string& dir) override {
    return io::WriteSmallFile(storage, io::JoinPath(dir, "metadata"), "raw");
  }
  std::vector<FileRef> MetadataFiles() const override { return {}; }

 private:
  bool wants_crc32_;
  bool frames_under_seals_;
  bool encodes_;
};

struct SmallJobOptions {
  bool wants_crc32 = true;
  std::int64_t memory = std::int64_t{1} << 20U;
  std::int64_t task_bytes = 0;  ///< see PlanOptions
  std::int64_t big_bytes = 3'000'000;
  bool encoded = false;             ///< the source's chunks are stored encoded (encoded_reader.h)
  bool encodes = false;             ///< the target's chunks are stored encoded, without magic and sums
  bool frames_under_seals = false;  ///< the room of each seal is written by a frame first, as where sums are patched in
};

class SmallJob {
 public:
  /// Writes the source into `storage` below /source, and plans.
  static Result<std::unique_ptr<SmallJob>> Make(io::Storage& storage, const SmallJobOptions& options);
  [[nodiscard]] Result<ExecuteReport> Run(io::Storage& source, io::Storage& target, const std::string& dir,
                                          const ExecuteOptions& options) const {
    return Execute(plan, source, *reader, target, dir, placement, placement.frames, writer, options);
  }
  /// The files that must come out, by name.
  [[nodiscard]] std::map<std::string, std::string> ExpectedFiles() const;

  plan::Plan plan;
  std::unique_ptr<formats::CheckpointReader> reader;
  RawWriter writer{true};
  formats::Placement placement;
  std::map<std::string, std::string> expected;  ///< row-major bytes of each target tensor

 private:
  Status WriteSource(io::Storage& storage, const SmallJobOptions& options);
  Result<plan::Plan> MakeTarget(const SmallJobOptions& options);
};

}  // namespace crossdock::execute
