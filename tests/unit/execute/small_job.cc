// SPDX-License-Identifier: Apache-2.0
#include "unit/execute/small_job.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "execute/box_runs.h"
#include "expr/dequantize.h"
#include "expr/expr.h"
#include "unit/execute/encoded_reader.h"

namespace crossdock::execute {
namespace {

constexpr std::string_view kMagic = "raw format 1\n";

/// Bytes that differ from place to place and from tensor to tensor.
std::string Noise(std::size_t bytes, std::uint64_t seed) {
  std::string out(bytes, '\0');
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (char& c : out) {
    x ^= x << 13U;
    x ^= x >> 7U;
    x ^= x << 17U;
    c = static_cast<char>(x >> 32U);
  }
  return out;
}

/// Small finite values, exact in bfloat16: casts of them change no value.
std::string SmallFloats(std::size_t count) {
  std::string out(4 * count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(i % 61) - 30) / 4.0F;
    std::memcpy(out.data() + 4 * i, &value, 4);
  }
  return out;
}

/// Float32 to bfloat16 by cutting: right for values that are exact.
std::string ToBf16(const std::string& floats) {
  std::string out;
  for (std::size_t i = 0; i < floats.size(); i += 4) out += floats.substr(i + 2, 2);
  return out;
}

std::string Transposed(const std::string& in, std::size_t rows, std::size_t cols, std::size_t element) {
  std::string out;
  for (std::size_t c = 0; c < cols; ++c) {
    for (std::size_t r = 0; r < rows; ++r) out += in.substr((r * cols + c) * element, element);
  }
  return out;
}

constexpr std::int64_t kCodeRows = 130;
constexpr std::int64_t kCodeCols = 140;
constexpr std::int64_t kCodeBlock = 50;

/// E4M3 codes of 1, 1.125, ... 1.875, then 2, 2.25, ..., with either sign.
unsigned CodeAt(std::size_t i) { return 0x38U + static_cast<unsigned>(i * 7 % 24) + (i % 3 == 0 ? 0x80U : 0U); }
std::string Codes(std::size_t count) {
  std::string out(count, '\0');
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<char>(CodeAt(i));
  return out;
}

/// Powers of two: 3 x 3 of them, for blocks whose last row and column are smaller.
float CodeScaleAt(std::size_t block) { return std::ldexp(1.0F, static_cast<int>(block) - 4); }
std::string CodeScales() {
  std::string out(9 * 4, '\0');
  for (std::size_t i = 0; i < 9; ++i) {
    const float scale = CodeScaleAt(i);
    std::memcpy(out.data() + 4 * i, &scale, 4);
  }
  return out;
}

/// Their products as float32, exact in bfloat16.
std::string Decoded() {
  std::string out(static_cast<std::size_t>(kCodeRows * kCodeCols * 4), '\0');
  for (std::size_t i = 0; i < static_cast<std::size_t>(kCodeRows * kCodeCols); ++i) {
    const unsigned magnitude = CodeAt(i) & 0x7FU;
    const float value = std::ldexp(1.0F + static_cast<float>(magnitude % 8) / 8.0F, static_cast<int>(magnitude / 8) - 7);
    const std::size_t block = i / kCodeCols / kCodeBlock * 3 + i % kCodeCols / kCodeBlock;
    const float product = (CodeAt(i) >= 0x80U ? -value : value) * CodeScaleAt(block);
    std::memcpy(out.data() + 4 * i, &product, 4);
  }
  return out;
}

/// The bytes of a box of a row-major tensor.
std::string Cut(const std::string& whole, const Shape& shape, const Box& box, DType dtype) {
  std::string out;
  for (BoxRuns runs(shape, box, ElementSize(dtype)); !runs.done(); runs.Next()) {
    out += whole.substr(static_cast<std::size_t>(runs.offset()), static_cast<std::size_t>(runs.length()));
  }
  return out;
}

struct SourceTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::string bytes;
  std::vector<Box> chunks;  ///< empty: one whole
};

std::vector<SourceTensor> SourceTensors(const SmallJobOptions& options) {
  return {
      {"big", DType::kU8, {options.big_bytes}, Noise(static_cast<std::size_t>(options.big_bytes), 1), {}},
      {"codes", DType::kF8E4M3, {kCodeRows, kCodeCols}, Codes(kCodeRows * kCodeCols), {{{0, 0}, {70, kCodeCols}}, {{70, 0}, {60, kCodeCols}}}},
      {"codes_scale", DType::kF32, {3, 3}, CodeScales(), {}},
      {"emb", DType::kBF16, {100, 512}, Noise(100 * 512 * 2, 2), {}},
      {"empty", DType::kF32, {0, 4}, "", {}},
      {"k", DType::kF32, {32, 48}, Noise(32 * 48 * 4, 3), {}},
      {"norm", DType::kF32, {48}, SmallFloats(48), {}},
      {"q", DType::kF32, {64, 48}, Noise(64 * 48 * 4, 4), {{{0, 0}, {40, 48}}, {{40, 0}, {24, 48}}}},
      {"scalar", DType::kI64, {}, Noise(8, 5), {}},
      {"t", DType::kBF16, {40, 96}, Noise(40 * 96 * 2, 6), {{{0, 0}, {40, 50}}, {{0, 50}, {40, 46}}}},
      {"v", DType::kF32, {32, 48}, Noise(32 * 48 * 4, 7), {}},
      {"w", DType::kF32, {130, 140}, SmallFloats(130 * 140), {}},
  };
}

}  // namespace

Result<formats::Placement> RawWriter::LayOut(Catalog target) {
  formats::Placement placement;
  placement.wants_crc32 = wants_crc32_;
  std::map<std::int32_t, std::int32_t> files;
  for (Entry& entry : target.entries) {
    for (Chunk& chunk : entry.chunks) {
      const auto [it, is_new] = files.try_emplace(chunk.shard, static_cast<std::int32_t>(target.files.size()));
      if (is_new) {
        target.files.push_back({fmt::format("part/shard_{}.raw", chunk.shard), {}});
        target.files.back().identity.size = encodes_ ? 0 : static_cast<std::int64_t>(kMagic.size());
        if (!encodes_) placement.frames.push_back({it->second, 0, std::string(kMagic)});
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, chunk.box.sizes));
      std::int64_t& end = target.files[static_cast<std::size_t>(it->second)].identity.size;
      chunk.file = it->second;
      chunk.bytes = {end, bytes};
      end += bytes + 8;
      if (encodes_) {
        chunk.encoding = ChunkEncoding::kEncoded;
        chunk.bytes.length = bytes + 8;
      }
      if (frames_under_seals_) placement.frames.push_back({it->second, end - 8, std::string(8, '-')});
    }
  }
  placement.catalog = std::move(target);
  return placement;
}

Result<std::vector<formats::Frame>> RawWriter::Seal(const Catalog& placed, std::int32_t entry, std::int32_t chunk, std::uint32_t crc32) const {
  const Chunk& c = placed.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)];
  return std::vector<formats::Frame>{{c.file, c.bytes.end(), fmt::format("{:08x}", crc32)}};
}

Result<std::string> RawWriter::Encode(const Catalog& /*placed*/, std::int32_t /*entry*/, std::int32_t /*chunk*/, std::span<const std::byte> elements) const {
  std::string out(reinterpret_cast<const char*>(elements.data()), elements.size());
  return out + std::string(std::to_integer<std::size_t>(elements.front()) % 7, '.');
}

Result<std::unique_ptr<SmallJob>> SmallJob::Make(io::Storage& storage, const SmallJobOptions& options) {
  auto job = std::make_unique<SmallJob>();
  job->writer = RawWriter(options.wants_crc32, options.frames_under_seals, options.encodes);
  CROSSDOCK_RETURN_IF_ERROR(job->WriteSource(storage, options));
  CROSSDOCK_ASSIGN_OR_RETURN(job->plan, job->MakeTarget(options));
  return job;
}

Status SmallJob::WriteSource(io::Storage& storage, const SmallJobOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(storage.MakeDir("/source"));
  Catalog catalog;
  catalog.root = "/source";
  std::string files[2] = {"some bytes before", ""};
  for (const SourceTensor& tensor : SourceTensors(options)) {
    Entry entry;
    entry.name = tensor.name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    std::vector<Box> boxes = tensor.chunks;
    if (boxes.empty()) boxes.push_back(Box::Whole(tensor.shape));
    for (const Box& box : boxes) {
      const std::size_t file = (catalog.entries.size() + entry.chunks.size()) % 2;
      const std::string cut = Cut(tensor.bytes, tensor.shape, box, tensor.dtype);
      const std::string bytes = options.encoded ? EncodedReader::Encode(cut) : cut;
      Chunk chunk;
      if (options.encoded) chunk.encoding = ChunkEncoding::kEncoded;
      chunk.box = box;
      chunk.file = static_cast<std::int32_t>(file);
      chunk.bytes = {static_cast<std::int64_t>(files[file].size()), static_cast<std::int64_t>(bytes.size())};
      files[file] += bytes;
      entry.chunks.push_back(chunk);
    }
    catalog.entries.push_back(std::move(entry));
  }
  for (const std::string& content : files) {
    const std::string path = fmt::format("part{}", catalog.files.size());
    CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, "/source/" + path, content));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat("/source/" + path));
    catalog.files.push_back({path, {info.size, info.mtime_ns, info.inode}});
  }
  if (options.encoded) {
    reader = std::make_unique<EncodedReader>(std::move(catalog));
  } else {
    reader = std::make_unique<RawReader>(std::move(catalog));
  }
  return OkStatus();
}

Result<plan::Plan> SmallJob::MakeTarget(const SmallJobOptions& options) {
  std::map<std::string, SourceTensor> source;
  std::map<std::string, expr::Expr> leaf;
  int ordinal = 0;
  for (SourceTensor& tensor : SourceTensors(options)) {
    leaf[tensor.name] = expr::Leaf(ordinal++, tensor.dtype, tensor.shape);
    source[tensor.name] = std::move(tensor);
  }
  Catalog target;
  std::vector<expr::Expr> exprs;
  const auto add = [&](const std::string& name, const expr::Expr& e, const std::vector<Box>& boxes, std::string bytes) {
    Entry entry;
    entry.name = name;
    entry.dtype = e->dtype;
    entry.shape = e->shape;
    for (const Box& box : boxes) {
      entry.chunks.push_back({});
      entry.chunks.back().box = box;
      entry.chunks.back().shard = static_cast<std::int32_t>(entry.chunks.size() - 1);
    }
    target.entries.push_back(std::move(entry));
    exprs.push_back(e);
    expected[name] = std::move(bytes);
  };
  const std::int64_t cut = options.big_bytes / 2 + 12'345;
  add("big", leaf["big"], {{{0}, {cut}}, {{cut}, {options.big_bytes - cut}}}, source["big"].bytes);
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr decoded,
                             expr::Dequantize(leaf["codes"], leaf["codes_scale"], {kCodeBlock, kCodeBlock}, DType::kBF16));
  add("codes", decoded, {{{0, 0}, {kCodeRows, 60}}, {{0, 60}, {kCodeRows, 80}}}, ToBf16(Decoded()));
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr padded, expr::Pad(leaf["emb"], {0, 0}, {128, 512}));
  add("emb", padded, {{{0, 0}, {64, 512}}, {{64, 0}, {64, 512}}}, source["emb"].bytes + std::string(28 * 1024, '\0'));
  add("empty", leaf["empty"], {Box::Whole({0, 4})}, "");
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr norm, expr::Cast(leaf["norm"], DType::kBF16));
  add("norm", norm, {Box::Whole({48})}, ToBf16(source["norm"].bytes));
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr qkv, expr::Concat({leaf["q"], leaf["k"], leaf["v"]}, 0));
  // Cut by columns: runs too short to stream.
  add("qkv", qkv, {{{0, 0}, {128, 20}}, {{0, 20}, {128, 28}}},
      source["q"].bytes + source["k"].bytes + source["v"].bytes);
  add("scalar", leaf["scalar"], {Box::Whole({})}, source["scalar"].bytes);
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr turned, expr::Transpose(leaf["t"], {1, 0}));
  add("t", turned, {Box::Whole({96, 40})}, Transposed(source["t"].bytes, 40, 96, 2));
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr w, expr::Cast(leaf["w"], DType::kBF16));
  add("w", w, {{{0, 0}, {130, 70}}, {{0, 70}, {130, 70}}}, ToBf16(source["w"].bytes));
  CROSSDOCK_ASSIGN_OR_RETURN(placement, writer.LayOut(std::move(target)));
  plan::PlanOptions plan_options;
  plan_options.memory = options.memory;
  plan_options.task_bytes = options.task_bytes;
  plan_options.contiguous_outputs = options.wants_crc32;
  return plan::MakePlan(reader->catalog(), placement.catalog, exprs, plan_options);
}

std::map<std::string, std::string> SmallJob::ExpectedFiles() const {
  const Catalog& target = placement.catalog;
  std::map<std::string, std::string> files;
  for (const FileRef& file : target.files) {
    std::string content(static_cast<std::size_t>(file.identity.size), '\0');
    content.replace(0, kMagic.size(), kMagic);
    files[file.path] = std::move(content);
  }
  for (const Entry& entry : target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      std::string& content = files[target.files[static_cast<std::size_t>(chunk.file)].path];
      const std::string bytes = Cut(expected.at(entry.name), entry.shape, chunk.box, entry.dtype);
      content.replace(static_cast<std::size_t>(chunk.bytes.offset), bytes.size(), bytes);
      if (!placement.wants_crc32) continue;
      const std::uint32_t crc = Crc32(0, std::as_bytes(std::span(bytes)));
      content.replace(static_cast<std::size_t>(chunk.bytes.end()), 8, fmt::format("{:08x}", crc));
    }
  }
  return files;
}

}  // namespace crossdock::execute
