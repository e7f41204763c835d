// SPDX-License-Identifier: Apache-2.0
#include "convert/lora_merge.h"

#include <cmath>
#include <cstring>

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

const std::string kGolden = std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/tunix/checkpoints/";

SourceRequest AdaptersInto(const std::string& base) {
  SourceRequest request;
  request.path = kGolden + "lora";
  request.lora_base = base;
  return request;
}

/// An array of one chunk, whole.
std::vector<float> Read(io::Storage& storage, const formats::CheckpointReader& reader, const std::string& name, std::size_t piece = 0) {
  const Catalog& catalog = reader.catalog();
  const std::int32_t at = catalog.Find(name);
  EXPECT_GE(at, 0) << name;
  if (at < 0) return {};
  const Entry& entry = catalog.entries[static_cast<std::size_t>(at)];
  EXPECT_EQ(entry.chunks.size(), 1U);
  const auto file = storage.OpenRead(io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(entry.chunks[0].file)].path));
  std::vector<float> out(static_cast<std::size_t>(CheckedCount(entry.shape)));
  const auto stream = reader.OpenEncoded(at, 0, **file);
  EXPECT_TRUE(stream.has_value());
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t n = piece == 0 ? bytes.size() : std::min(piece, bytes.size() - done);
    EXPECT_THAT((*stream)->Read(bytes.subspan(done, n)), IsOk());
    done += n;
  }
  return out;
}

TEST(LoraMerge, AddsTheProductOfTheFactorsToEachLayersKernel) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const Source merged, OpenSource(*storage, AdaptersInto(kGolden + "sft")));
  SourceRequest plain;
  plain.path = kGolden + "sft";
  ASSERT_OK_AND_ASSIGN(const Source base, OpenSource(*storage, plain));
  plain.path = kGolden + "lora";
  ASSERT_OK_AND_ASSIGN(const Source adapters, OpenSource(*storage, plain));
  const std::string out = "decoder.layers.self_attention.out.kernel";     // [heads 2, layers 2, head 4, hidden 8]
  const std::string query = "decoder.layers.self_attention.query.kernel";  // [hidden 8, layers 2, heads 2, head 4]
  for (const std::string& name : {out, query}) {
    const std::vector<float> w = Read(*storage, *base.reader, "model_params." + name + ".value");
    const std::vector<float> a = Read(*storage, *adapters.reader, "model_params." + name + "_lora_a.value");   // [8, layers 2, rank 2]
    const std::vector<float> b = Read(*storage, *adapters.reader, "model_params." + name + "_lora_b.value");   // [rank 2, layers 2, 8]
    const std::vector<float> found = Read(*storage, *merged.reader, "params.params." + name, 5);
    ASSERT_EQ(found.size(), 128U);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t x0 = i / (name == out ? 64 : 16), l = i / (name == out ? 32 : 8) % 2, rest = i % (name == out ? 32 : 8);
      const std::size_t row = name == out ? x0 * 4 + rest / 8 : x0;
      const std::size_t column = name == out ? rest % 8 : rest;
      double sum = 0;
      for (std::size_t r = 0; r < 2; ++r) sum += static_cast<double>(a[(row * 2 + l) * 2 + r]) * static_cast<double>(b[(r * 2 + l) * 8 + column]);
      ASSERT_EQ(found[i], static_cast<float>(static_cast<double>(w[i]) + 2.0 * sum)) << name << " " << i;  // alpha 4 by its metadata, rank 2
    }
    EXPECT_NE(found, w);
  }
  EXPECT_EQ(Read(*storage, *merged.reader, "params.params.decoder.decoder_norm.scale"), Read(*storage, *base.reader, "model_params.decoder.decoder_norm.scale.value"));
  EXPECT_LT(merged.reader->catalog().Find("opt_state.0.mu.params." + out), 0);
  EXPECT_EQ(merged.also_read, kGolden + "lora/20");
}

TEST(LoraMerge, AlphaMayBeSaid) {
  const auto storage = io::MakeLocalStorage();
  SourceRequest request = AdaptersInto(kGolden + "sft");
  request.set_args = {{"lora_alpha", "0"}};
  ASSERT_OK_AND_ASSIGN(const Source merged, OpenSource(*storage, request));
  SourceRequest plain;
  plain.path = kGolden + "sft";
  ASSERT_OK_AND_ASSIGN(const Source base, OpenSource(*storage, plain));
  EXPECT_EQ(Read(*storage, *merged.reader, "params.params.decoder.layers.mlp.wo.kernel"), Read(*storage, *base.reader, "model_params.decoder.layers.mlp.wo.kernel.value"));
  request.set_args = {{"lora_alpha", "much"}};
  EXPECT_THAT(OpenSource(*storage, request), IsError(ErrorCode::kUsage, HasSubstr("takes a number")));
}

TEST(LoraMerge, RefusesWhatIsNoPair) {
  const auto storage = io::MakeLocalStorage();
  EXPECT_THAT(OpenSource(*storage, AdaptersInto(kGolden + "lora")), IsError(ErrorCode::kIncomplete, HasSubstr("weights that are not there")));
  SourceRequest request;
  request.path = kGolden + "sft";
  request.lora_base = kGolden + "sft";
  request.set_args = {{"lora_alpha", "4"}};
  EXPECT_THAT(OpenSource(*storage, request), IsError(ErrorCode::kUsage, HasSubstr("no adapters")));
  request.set_args = {};
  EXPECT_THAT(OpenSource(*storage, request), IsError(ErrorCode::kUsage, HasSubstr("--set lora_alpha=VALUE")));
}

}  // namespace
}  // namespace crossdock::convert
