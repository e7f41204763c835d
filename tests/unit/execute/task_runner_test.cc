// SPDX-License-Identifier: Apache-2.0
/// \file  Tasks that quantize: whole tensors in bands that are read twice, blocks in many tasks, values that are not finite. What is
/// announced before it is read.
#include "execute/task_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "execute/executor.h"
#include "io/observed_storage.h"
#include "result_matchers.h"
#include "unit/execute/small_job.h"

namespace crossdock::execute {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMatrixRows = 300;
constexpr std::int64_t kMatrixCols = 500;
constexpr std::size_t kMatrixCount = kMatrixRows * kMatrixCols;

/// E4M3 codes whose largest is 448: the scale of their products with 0.5 is 0.5, and each code comes out again.
std::vector<std::uint8_t> CodesUpTo448() {
  std::vector<std::uint8_t> codes(kMatrixCount);
  for (std::size_t i = 0; i < kMatrixCount; ++i) codes[i] = static_cast<std::uint8_t>(i * 13 % 0x7E + (i % 3 == 0 ? 0x80U : 0U));
  codes[kMatrixCount - 7] = 0xFE;  // -448, in the last band
  return codes;
}

/// Without zero's sign and subnormals: exponent 0 stands for m / 8 * 2^-6.
float ValueOf(std::uint8_t code) {
  const int exponent = (code & 0x7F) / 8, mantissa = code % 8;
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(1.0F + static_cast<float>(mantissa) / 8.0F, exponent - 7);
  return code >= 0x80 ? -value : value;
}

struct TensorJob {
  plan::Plan plan;
  std::unique_ptr<RawReader> reader;
  RawWriter writer{true};
  formats::Placement placement;
};

/// The catalog of a source that has one tensor in one file.
Result<Catalog> StoreTensor(io::MemoryStorage& storage, DType dtype, const Shape& shape, const std::string& bytes) {
  CROSSDOCK_RETURN_IF_ERROR(storage.MakeDir("/source"));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, "/source/w", bytes));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat("/source/w"));
  Catalog source;
  source.root = "/source";
  source.files.push_back({"w", {info.size, info.mtime_ns, info.inode}});
  Entry stored;
  stored.name = "w";
  stored.dtype = dtype;
  stored.shape = shape;
  stored.chunks.emplace_back();
  stored.chunks.front().box = Box::Whole(stored.shape);
  stored.chunks.front().file = 0;
  stored.chunks.front().bytes = {0, info.size};
  source.entries.push_back(stored);
  return source;
}

Result<TensorJob> PlanJob(Catalog source, const std::vector<std::pair<std::string, expr::Expr>>& outputs, const plan::PlanOptions& options) {
  TensorJob job;
  Catalog target;
  std::vector<expr::Expr> exprs;
  for (const auto& [name, e] : outputs) {
    Entry entry;
    entry.name = name;
    entry.dtype = e->dtype;
    entry.shape = e->shape;
    entry.chunks.emplace_back().box = Box::Whole(e->shape);
    target.entries.push_back(std::move(entry));
    exprs.push_back(e);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(job.placement, job.writer.LayOut(std::move(target)));
  job.reader = std::make_unique<RawReader>(std::move(source));
  CROSSDOCK_ASSIGN_OR_RETURN(job.plan, plan::MakePlan(job.reader->catalog(), job.placement.catalog, exprs, options));
  return job;
}

/// A source of one F32 tensor, and the plan of its FP8 form.
Result<TensorJob> MakeQuantizeJob(io::MemoryStorage& storage, const std::vector<float>& values, const expr::Fp8Format& format, std::int64_t task_bytes) {
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog source, StoreTensor(storage, DType::kF32, {kMatrixRows, kMatrixCols}, bytes));
  const expr::Expr leaf = expr::Leaf(0, DType::kF32, source.entries.front().shape);
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr q, expr::QuantizeValues(leaf, format));
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr s, expr::QuantizeScales(leaf, format));
  plan::PlanOptions options;
  options.memory = task_bytes * 16;
  options.task_bytes = task_bytes;
  options.contiguous_outputs = true;
  return PlanJob(std::move(source), {{"w", q}, {"w_scale", s}}, options);
}

struct QuantizedBytes {
  std::string q, s, q_crc, s_crc;
  ExecuteReport report;
};

Result<QuantizedBytes> RunQuantizeJob(const TensorJob& job, io::MemoryStorage& source, const ExecuteOptions& options) {
  io::MemoryStorage target;
  CROSSDOCK_RETURN_IF_ERROR(target.MakeDir("/out"));
  QuantizedBytes out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.report, Execute(job.plan, source, *job.reader, target, "/out", job.placement, job.placement.frames, job.writer, options));
  const std::string file = target.Files("/out").at(job.placement.catalog.files.front().path);
  const auto cut = [&](std::size_t entry, std::string* bytes, std::string* crc) {
    const ByteRange range = job.placement.catalog.entries[entry].chunks.front().bytes;
    *bytes = file.substr(static_cast<std::size_t>(range.offset), static_cast<std::size_t>(range.length));
    *crc = file.substr(static_cast<std::size_t>(range.end()), 8);
  };
  cut(0, &out.q, &out.q_crc);
  cut(1, &out.s, &out.s_crc);
  return out;
}

std::string CrcOf(const std::string& bytes) { return fmt::format("{:08x}", Crc32(0, std::as_bytes(std::span(bytes)))); }

float ScaleAt(const std::string& scales, std::size_t at) {
  float scale = 0;
  std::memcpy(&scale, scales.data() + 4 * at, 4);
  return scale;
}

expr::Fp8Format WholeTensor() {
  expr::Fp8Format format;
  format.block = {kMatrixRows, kMatrixCols};
  format.whole = true;
  return format;
}

class QuantizingTask : public ::testing::Test {
 protected:
  QuantizingTask() : codes_(CodesUpTo448()) {
    for (const std::uint8_t code : codes_) values_.push_back(0.5F * ValueOf(code));
  }
  std::vector<std::uint8_t> codes_;
  std::vector<float> values_;
};

TEST_F(QuantizingTask, BandsGiveTheBytesOfTheWholeTensorAndOneScale) {
  for (const std::int64_t task_bytes : {16 << 10, 40'000, 4 << 20}) {
    io::MemoryStorage source;
    ASSERT_OK_AND_ASSIGN(const TensorJob job, MakeQuantizeJob(source, values_, WholeTensor(), task_bytes));
    ASSERT_EQ(job.plan.tasks.size(), 1U);
    const std::size_t bands = job.plan.tasks.front().quantize->bands.size();
    if (task_bytes < 1 << 20) {
      EXPECT_GT(bands, 10U);
      EXPECT_EQ(job.plan.bytes_read, 2 * static_cast<std::int64_t>(kMatrixCount) * 4) << "a tensor in bands is read twice, and the plan says so";
    } else {
      EXPECT_EQ(bands, 0U);
    }
    for (const int threads : {1, 3}) {
      ExecuteOptions options;
      options.threads = threads;
      options.memory = task_bytes * 16;
      options.digests = true;
      ASSERT_OK_AND_ASSIGN(const QuantizedBytes written, RunQuantizeJob(job, source, options));
      ASSERT_EQ(written.q.size(), kMatrixCount);
      EXPECT_TRUE(std::equal(codes_.begin(), codes_.end(), written.q.begin(), [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }));
      ASSERT_EQ(written.s.size(), 4U);
      EXPECT_EQ(ScaleAt(written.s, 0), 0.5F);
      EXPECT_EQ(written.q_crc, CrcOf(written.q));
      EXPECT_EQ(written.s_crc, CrcOf(written.s));
      ASSERT_EQ(written.report.digests.size(), 2U);
      EXPECT_EQ(written.report.digests[0], DigestOf(std::as_bytes(std::span(written.q))));
      EXPECT_EQ(written.report.nonfinite, 0);
      EXPECT_LE(written.report.peak_buffer_bytes, options.memory);
    }
  }
}

/// All that are not finite are counted, wherever they lie, and the first is named by its place in the tensor.
TEST_F(QuantizingTask, ValuesThatAreNotFiniteAreCountedOverAllBandsAndTasks) {
  const std::size_t first = 120 * kMatrixCols + 7, second = 121 * kMatrixCols + 499, third = 299 * kMatrixCols;
  values_[third] = std::numeric_limits<float>::infinity();
  values_[second] = -std::numeric_limits<float>::infinity();
  values_[first] = std::numeric_limits<float>::quiet_NaN();
  expr::Fp8Format blocks;
  blocks.block = {64, 32};
  for (const expr::Fp8Format& format : {WholeTensor(), blocks}) {
    for (const std::int64_t task_bytes : {40'000, 4 << 20}) {
      io::MemoryStorage source;
      ASSERT_OK_AND_ASSIGN(const TensorJob job, MakeQuantizeJob(source, values_, format, task_bytes));
      ExecuteOptions options;
      options.memory = task_bytes * 16;
      options.threads = 3;
      const auto refused = RunQuantizeJob(job, source, options);
      ASSERT_THAT(refused, IsError(ErrorCode::kUnsupported, HasSubstr("NaN or infinite")));
      EXPECT_EQ(refused.error().tensor, "w");
      EXPECT_THAT(refused.error().found, HasSubstr("3 that are not, the first at [120, 7]"));
      options.allow_nonfinite = true;
      ASSERT_OK_AND_ASSIGN(const QuantizedBytes written, RunQuantizeJob(job, source, options));
      EXPECT_EQ(written.report.nonfinite, 3);
      for (const std::size_t at : {first, second, third}) EXPECT_EQ(static_cast<std::uint8_t>(written.q[at]) & 0x7FU, 0x7FU) << at;
      // One scale is spoilt; of blocks those of the three values, of which the first two share none.
      const std::size_t across = (kMatrixCols + 31) / 32;
      std::size_t spoilt = 0;
      for (std::size_t i = 0; i < written.s.size() / 4; ++i) spoilt += std::isfinite(ScaleAt(written.s, i)) ? 0U : 1U;
      EXPECT_EQ(spoilt, format.whole ? 1U : 3U);
      if (!format.whole) {
        EXPECT_FALSE(std::isfinite(ScaleAt(written.s, 120 / 64 * across)));
        EXPECT_FALSE(std::isfinite(ScaleAt(written.s, 121 / 64 * across + 499 / 32)));
        EXPECT_FALSE(std::isfinite(ScaleAt(written.s, 299 / 64 * across)));
      }
    }
  }
}

// ---- announced reads ----

/// Keeps what its files were told to make ready.
class AnnouncedReads final : public io::ObservedStorage {
 public:
  AnnouncedReads(io::Storage& inner, io::CallObserver& observer) : ObservedStorage(inner, observer) {}
  Result<std::unique_ptr<io::ReadFile>> OpenRead(const std::string& path) override {
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, ObservedStorage::OpenRead(path));
    return std::unique_ptr<io::ReadFile>(std::make_unique<File>(std::move(file), ranges_));
  }
  [[nodiscard]] const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  class File final : public io::ReadFile {
   public:
    File(std::unique_ptr<io::ReadFile> file, std::vector<ByteRange>& ranges) : file_(std::move(file)), ranges_(ranges) {}
    Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override { return file_->ReadAt(offset, out); }
    Result<io::FileInfo> Info() const override { return file_->Info(); }
    void DropCache(std::int64_t offset, std::int64_t length) const override { file_->DropCache(offset, length); }
    void WillNeed(std::int64_t offset, std::int64_t length) const override { ranges_.push_back({offset, length}); }
    const std::string& path() const override { return file_->path(); }

   private:
    std::unique_ptr<io::ReadFile> file_;
    std::vector<ByteRange>& ranges_;
  };
  std::vector<ByteRange> ranges_;
};

class NoObserver final : public io::CallObserver {
 public:
  Verdict OnCall(const io::CallInfo& /*info*/) override { return {}; }
};

/// Layers of a stack lie in rows that are far apart: the first of them announces the whole, but not where other processes read the rest.
TEST(ReadAhead, AStackIsAnnouncedAsAWhole) {
  constexpr std::int64_t kRows = 300, kLayers = 4, kRow = 8192;
  io::MemoryStorage memory;
  ASSERT_OK_AND_ASSIGN(Catalog source, StoreTensor(memory, DType::kU8, {kRows, kLayers, kRow}, std::string(kRows * kLayers * kRow, 'x')));
  const expr::Expr leaf = expr::Leaf(0, DType::kU8, source.entries.front().shape);
  std::vector<std::pair<std::string, expr::Expr>> layers;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr slice, expr::Slice(leaf, {{0, i, 0}, {kRows, 1, kRow}}));
    ASSERT_OK_AND_ASSIGN(const expr::Expr layer, expr::Reshape(slice, {kRows, kRow}));
    layers.emplace_back(fmt::format("layer{}", i), layer);
  }
  ASSERT_OK_AND_ASSIGN(const TensorJob job, PlanJob(std::move(source), layers, {}));
  for (const bool exact : {false, true}) {
    NoObserver nobody;
    AnnouncedReads announced(memory, nobody);
    io::MemoryStorage target;
    ASSERT_THAT(target.MakeDir("/out"), IsOk());
    ExecuteOptions options;
    options.exact_reads = exact;
    ASSERT_THAT(Execute(job.plan, announced, *job.reader, target, "/out", job.placement, job.placement.frames, job.writer, options), IsOk());
    ASSERT_EQ(announced.ranges().size(), exact ? 0U : 4U);
    if (exact) continue;
    EXPECT_EQ(announced.ranges().front().offset, 0);
    EXPECT_EQ(announced.ranges().front().length, ((kRows - 1) * kLayers + 1) * kRow);
  }
}

}  // namespace
}  // namespace crossdock::execute
