// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A source of the given entries, filled with numbers.
MemoryCheckpoint Filled(std::vector<Entry> entries, int files) {
  MemoryCheckpoint out = Place(std::move(entries), files);
  for (std::size_t i = 0; i < out.catalog.entries.size(); ++i) {
    const Entry& e = out.catalog.entries[i];
    StoreArray(out, i, Numbered(e.dtype, e.shape, 1000 + i));
  }
  return out;
}

expr::Expr LeafOf(const MemoryCheckpoint& source, int i) {
  const Entry& e = source.catalog.entries[static_cast<std::size_t>(i)];
  return expr::Leaf(i, e.dtype, e.shape);
}

PlanOptions Small(std::int64_t task_bytes, bool contiguous = false) {
  PlanOptions options;
  options.task_bytes = task_bytes;
  options.contiguous_outputs = contiguous;
  return options;
}

/// Contiguous runs that a plan reads: what an executor without tricks would ask of the system.
std::int64_t ReadRuns(const Plan& plan, const Catalog& source) {
  std::int64_t runs = 0;
  for (const Task& t : plan.tasks) {
    for (const Read& r : t.reads) {
      const Entry& entry = source.entries[static_cast<std::size_t>(r.entry)];
      const Box& chunk = entry.chunks[static_cast<std::size_t>(r.chunk)].box;
      std::size_t axis = r.box.rank();
      while (axis > 0 && r.box.sizes[axis - 1] == chunk.sizes[axis - 1]) --axis;
      std::int64_t n = 1;
      for (std::size_t i = 0; i + 1 < axis; ++i) n *= r.box.sizes[i];
      runs += n;
    }
  }
  return runs;
}

/// An Adam slot of four layers' query, key and value, saved at TP4 x PP1 and written at TP2 x PP2: column cuts of the
/// output projection, and row cuts of the fused one whose query groups are interleaved.
TEST(MakePlan, ReshardsAnAdamSlotFromTp4ToTp2Pp2) {
  constexpr std::int64_t kLayers = 4, kHidden = 32, kGroups = 4, kGroupRows = 24;
  const Shape qkv = {kLayers, kGroups * kGroupRows, kHidden};
  const Shape proj = {kLayers, kHidden, 64};
  const MemoryCheckpoint source = Filled({MakeEntry("proj", DType::kF32, proj, Grid(proj, {1, 1, 4}), Slot::kAdamMu),
                                          MakeEntry("qkv", DType::kF32, qkv, Grid(qkv, {1, 4, 1}), Slot::kAdamMu)},
                                         4);
  MemoryCheckpoint target = Place({MakeEntry("proj", DType::kF32, proj, Grid(proj, {2, 1, 2}), Slot::kAdamMu),
                                   MakeEntry("qkv", DType::kF32, qkv, Grid(qkv, {2, 2, 1}), Slot::kAdamMu)},
                                  4);
  const std::vector<expr::Expr> exprs = {LeafOf(source, 0), LeafOf(source, 1)};
  for (const bool contiguous : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, Small(4096, contiguous)));
    ExpectPlanGives(plan, source, target, exprs);
    EXPECT_EQ(plan.bytes_read, plan.bytes_written);
    EXPECT_GT(plan.tasks.size(), 10U);
    EXPECT_EQ(ReadRuns(plan, source.catalog), [&] {
      std::int64_t boxes = 0;
      for (const Task& t : plan.tasks) boxes += static_cast<std::int64_t>(t.reads.size());
      return boxes;
    }()) << "every read is one run of its chunk";
    if (contiguous) ExpectContiguousOutputs(plan, target.catalog);
  }
}

/// The scanned stack of MaxText: [hidden, layers, ffn] from a [ffn, hidden] matrix a layer, cast on the way.
TEST(MakePlan, StacksTransposedLayersInBalancedTiles) {
  constexpr std::int64_t kLayers = 3, kHidden = 96, kFfn = 128;
  std::vector<Entry> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back(MakeEntry("w" + std::to_string(i), DType::kBF16, {kFfn, kHidden}));
  const MemoryCheckpoint source = Filled(std::move(layers), 2);
  std::vector<expr::Expr> parts;
  for (int i = 0; i < kLayers; ++i) {
    ASSERT_OK_AND_ASSIGN(expr::Expr t, expr::Transpose(LeafOf(source, i), {1, 0}));
    parts.push_back(t);
  }
  ASSERT_OK_AND_ASSIGN(const expr::Expr same, expr::Stack(parts, 1));
  ASSERT_OK_AND_ASSIGN(const expr::Expr cast, expr::Cast(same, DType::kF32));
  for (const expr::Expr& root : {same, cast}) {
    const Shape shape = {kHidden, kLayers, kFfn};
    MemoryCheckpoint target = Place({MakeEntry("stack", root->dtype, shape)});
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, std::vector{root}, Small(8192)));
    ExpectPlanGives(plan, source, target, {root});
    EXPECT_EQ(plan.bytes_read, kLayers * kHidden * kFfn * 2);
    for (const Task& t : plan.tasks) {
      for (const Output& o : t.outputs) {
        EXPECT_EQ(o.box.sizes[1], 1) << "one layer a tile";
        EXPECT_GE(o.box.sizes[0], 12);  // neither side is cut to slivers
        EXPECT_GE(o.box.sizes[2], 12);
      }
    }
  }
  const Shape shape = {kHidden, kLayers, kFfn};
  MemoryCheckpoint target = Place({MakeEntry("stack", DType::kBF16, shape)});
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, std::vector{same}, Small(8192, true)));
  ExpectPlanGives(plan, source, target, {same});
  ExpectContiguousOutputs(plan, target.catalog);
}

/// Values and scales in blocks of 8 x 16 over a concatenation, with ragged edges; q and s are cut differently.
TEST(MakePlan, QuantizesAPairInWholeBlocks) {
  const MemoryCheckpoint source =
      Filled({MakeEntry("a", DType::kBF16, {21, 70}), MakeEntry("b", DType::kBF16, {40, 70})}, 1);
  ASSERT_OK_AND_ASSIGN(const expr::Expr w, expr::Concat({LeafOf(source, 0), LeafOf(source, 1)}, 0));
  const expr::Fp8Format block{{8, 16}};
  ASSERT_OK_AND_ASSIGN(const expr::Expr q, expr::QuantizeValues(w, block));
  ASSERT_OK_AND_ASSIGN(const expr::Expr s, expr::QuantizeScales(w, block));
  const std::vector<Box> halves = {{{0, 0}, {24, 70}}, {{24, 0}, {37, 70}}};
  const std::vector<Box> scale_columns = {{{0, 0}, {8, 2}}, {{0, 2}, {8, 3}}};
  MemoryCheckpoint target = Place(
      {MakeEntry("w", DType::kF8E4M3, {61, 70}, halves), MakeEntry("w_scale_inv", DType::kF32, {8, 5}, scale_columns)});
  const std::vector<expr::Expr> exprs = {q, s};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, Small(2048)));
  ExpectPlanGives(plan, source, target, exprs);
  EXPECT_EQ(plan.bytes_read, 61 * 70 * 2);
  for (const Task& t : plan.tasks) {
    ASSERT_NE(t.quantize, nullptr);
    EXPECT_EQ(t.outputs.size(), 2U);
  }
  EXPECT_GT(plan.tasks.size(), 4U);
}

TEST(MakePlan, ReadsABandOnceForAllColumnCuts) {
  const Shape shape = {64, 128};
  const MemoryCheckpoint source = Filled({MakeEntry("w", DType::kBF16, shape)}, 1);
  MemoryCheckpoint target = Place({MakeEntry("w", DType::kBF16, shape, Grid(shape, {1, 8}))}, 8);
  const std::vector<expr::Expr> exprs = {LeafOf(source, 0)};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, Small(4096, true)));
  ExpectPlanGives(plan, source, target, exprs);
  ExpectContiguousOutputs(plan, target.catalog);
  for (const Task& t : plan.tasks) {
    EXPECT_EQ(t.reads.size(), 1U);
    EXPECT_EQ(t.outputs.size(), 8U);
  }
}

TEST(MakePlan, TakesAFusedTensorApartWithoutReadingTwice) {
  constexpr std::int64_t kGroups = 4, kQ = 6, kHead = 16, kHidden = 24;
  const std::int64_t rows = kGroups * (kQ + 2) * kHead;
  const MemoryCheckpoint source = Filled({MakeEntry("qkv", DType::kBF16, {rows, kHidden})}, 1);
  ASSERT_OK_AND_ASSIGN(const expr::Expr groups, expr::Reshape(LeafOf(source, 0), {kGroups, (kQ + 2) * kHead, kHidden}));
  std::vector<expr::Expr> exprs;
  std::vector<Entry> entries;
  const auto part = [&](std::string name, std::int64_t at, std::int64_t heads) {
    auto slice = expr::Slice(groups, {{0, at * kHead, 0}, {kGroups, heads * kHead, kHidden}});
    ASSERT_THAT(slice, IsOk());
    auto flat = expr::Reshape(*slice, {kGroups * heads * kHead, kHidden});
    ASSERT_THAT(flat, IsOk());
    exprs.push_back(*flat);
    entries.push_back(MakeEntry(std::move(name), DType::kBF16, (*flat)->shape));
  };
  part("k", kQ, 1);
  part("q", 0, kQ);
  part("v", kQ + 1, 1);
  MemoryCheckpoint target = Place(std::move(entries));
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, Small(8192)));
  ExpectPlanGives(plan, source, target, exprs);
  EXPECT_EQ(plan.bytes_read, rows * kHidden * 2);
}

TEST(MakePlan, JoinsSmallTensorsAndReadsThemInTheOrderOfTheirFile) {
  const MemoryCheckpoint source = Filled(
      {MakeEntry("a", DType::kF32, {6, 8}), MakeEntry("b", DType::kF32, {10, 8}), MakeEntry("c", DType::kF32, {4})}, 1);
  ASSERT_OK_AND_ASSIGN(const expr::Expr both, expr::Concat({LeafOf(source, 1), LeafOf(source, 0)}, 0));
  MemoryCheckpoint target = Place({MakeEntry("both", DType::kF32, {16, 8}), MakeEntry("c", DType::kF32, {4})});
  const std::vector<expr::Expr> exprs = {both, LeafOf(source, 2)};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, {}));
  ExpectPlanGives(plan, source, target, exprs);
  ASSERT_EQ(plan.tasks.size(), 1U);
  std::vector<std::int32_t> read;
  for (const Read& r : plan.tasks[0].reads) read.push_back(r.entry);
  EXPECT_THAT(read, testing::ElementsAre(0, 1, 2));
}

TEST(MakePlan, PadsWithZerosAndCopiesScalarsIntegersAndEmptyTensors) {
  const MemoryCheckpoint source = Filled({MakeEntry("embedding", DType::kBF16, {5, 6}),
                                          MakeEntry("empty", DType::kF32, {0, 4}), MakeEntry("step", DType::kI64, {})},
                                         1);
  ASSERT_OK_AND_ASSIGN(const expr::Expr padded, expr::Pad(LeafOf(source, 0), {0, 0}, {8, 6}));
  const Shape shape = {8, 6};
  MemoryCheckpoint target = Place({MakeEntry("embedding", DType::kBF16, shape, Grid(shape, {2, 1})),
                                   MakeEntry("empty", DType::kF32, {0, 4}), MakeEntry("step", DType::kI64, {})});
  const std::vector<expr::Expr> exprs = {padded, LeafOf(source, 1), LeafOf(source, 2)};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, {}));
  ExpectPlanGives(plan, source, target, exprs);
  EXPECT_EQ(plan.bytes_read, 5 * 6 * 2 + 8);
}

TEST(MakePlan, DoesNotDependOnThreads) {
  const MemoryCheckpoint source = Filled({MakeEntry("w", DType::kF32, {1024, 600})}, 1);
  MemoryCheckpoint target = Place({MakeEntry("w", DType::kF32, {1024, 600})});
  const std::vector<expr::Expr> exprs = {LeafOf(source, 0)};
  PlanOptions options;
  options.memory = std::int64_t{8} << 20U;
  ASSERT_OK_AND_ASSIGN(const Plan one, MakePlan(source.catalog, target.catalog, exprs, options));
  options.threads = 7;
  ASSERT_OK_AND_ASSIGN(const Plan seven, MakePlan(source.catalog, target.catalog, exprs, options));
  EXPECT_EQ(one.hash, seven.hash);
  EXPECT_EQ(one.tasks.size(), seven.tasks.size());
  EXPECT_LT(one.peak_memory, seven.peak_memory);
  EXPECT_LE(seven.peak_memory, options.memory);
  EXPECT_EQ(one.task_bytes, std::int64_t{512} << 10U);
}

TEST(MakePlan, ExpectsDecodedChunksInMemoryAsFarAsThereIsRoom) {
  MemoryCheckpoint source = Filled({MakeEntry("w", DType::kF32, {1024, 600})}, 1);
  MemoryCheckpoint target = Place({MakeEntry("w", DType::kF32, {1024, 600})});
  const std::vector<expr::Expr> exprs = {LeafOf(source, 0)};
  PlanOptions options;
  options.memory = std::int64_t{8} << 20U;
  ASSERT_OK_AND_ASSIGN(const Plan plain, MakePlan(source.catalog, target.catalog, exprs, options));
  source.catalog.entries[0].chunks[0].encoding = ChunkEncoding::kEncoded;
  source.catalog.entries[0].chunks[0].bytes.length = 1000;
  ASSERT_OK_AND_ASSIGN(const Plan encoded, MakePlan(source.catalog, target.catalog, exprs, options));
  EXPECT_EQ(encoded.peak_memory, plain.peak_memory + 1024 * 600 * 4);
  options.memory = std::int64_t{2} << 20U;
  ASSERT_OK_AND_ASSIGN(const Plan small, MakePlan(source.catalog, target.catalog, exprs, options));
  EXPECT_EQ(small.peak_memory, options.memory);
}

TEST(MakePlan, ChangesItsHashWithEverythingThatDecidesTheOutput) {
  const MemoryCheckpoint source = Filled({MakeEntry("w", DType::kF32, {8, 8})}, 1);
  MemoryCheckpoint target = Place({MakeEntry("w", DType::kF32, {8, 8})});
  const std::vector<expr::Expr> exprs = {LeafOf(source, 0)};
  ASSERT_OK_AND_ASSIGN(const Plan base, MakePlan(source.catalog, target.catalog, exprs, {}));
  Catalog touched = source.catalog;
  touched.files[0].identity.mtime_ns += 1;
  Catalog elsewhere = source.catalog;
  elsewhere.root = "/somewhere/else";
  ASSERT_OK_AND_ASSIGN(const expr::Expr turned, expr::Transpose(LeafOf(source, 0), {1, 0}));
  ASSERT_OK_AND_ASSIGN(const Plan other_time, MakePlan(touched, target.catalog, exprs, {}));
  ASSERT_OK_AND_ASSIGN(const Plan other_expr, MakePlan(source.catalog, target.catalog, std::vector{turned}, {}));
  ASSERT_OK_AND_ASSIGN(const Plan other_bound, MakePlan(source.catalog, target.catalog, exprs, Small(256)));
  ASSERT_OK_AND_ASSIGN(const Plan other_root, MakePlan(elsewhere, target.catalog, exprs, {}));
  EXPECT_THAT((std::vector{other_time.hash, other_expr.hash, other_bound.hash}), testing::Each(Not(base.hash)));
  EXPECT_EQ(other_root.hash, base.hash);
}

/// Channels are blocks of one row, a tensor is one block; rows are read right into the place where they are quantized.
TEST(MakePlan, QuantizesRowsAndWholeTensors) {
  const MemoryCheckpoint source = Filled({MakeEntry("a", DType::kBF16, {21, 70}), MakeEntry("b", DType::kF32, {40, 70})}, 2);
  const expr::Fp8Format row{{1, 70}};
  expr::Fp8Format whole{{40, 70}};
  whole.whole = true;
  const std::vector<expr::Expr> exprs = {*expr::QuantizeValues(LeafOf(source, 0), row), *expr::QuantizeScales(LeafOf(source, 0), row),
                                         *expr::QuantizeValues(LeafOf(source, 1), whole), *expr::QuantizeScales(LeafOf(source, 1), whole)};
  MemoryCheckpoint target = Place({MakeEntry("a", DType::kF8E4M3, {21, 70}), MakeEntry("a_scale", DType::kF32, {21, 1}),
                                   MakeEntry("b", DType::kF8E4M3, {40, 70}), MakeEntry("b_scale", DType::kF32, {1})});
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, Small(2048)));
  ExpectPlanGives(plan, source, target, exprs);
  std::int64_t whole_tasks = 0;
  for (const Task& t : plan.tasks) {
    EXPECT_TRUE(t.moves.empty());
    if (t.quantize->fp8.whole) ++whole_tasks;
  }
  EXPECT_EQ(whole_tasks, 1);
  EXPECT_GT(plan.tasks.size(), 2U);
}

/// One scale over more than a quarter of the memory: bands of rows, all of them read twice, in one task that holds one at a time.
TEST(MakePlan, ReadsATensorTwiceThatHasOneScaleAndDoesNotFit) {
  const MemoryCheckpoint source = Filled({MakeEntry("a", DType::kBF16, {30, 64}), MakeEntry("b", DType::kBF16, {34, 64})}, 3);
  ASSERT_OK_AND_ASSIGN(const expr::Expr joined, expr::Concat({LeafOf(source, 0), LeafOf(source, 1)}, 0));
  ASSERT_OK_AND_ASSIGN(const expr::Expr w, expr::Cast(joined, DType::kF32));
  expr::Fp8Format whole{{64, 64}};
  whole.whole = true;
  const std::vector<expr::Expr> exprs = {*expr::QuantizeValues(w, whole), *expr::QuantizeScales(w, whole)};
  MemoryCheckpoint target = Place({MakeEntry("w", DType::kF8E4M3, {64, 64}), MakeEntry("w_scale", DType::kF32, {1})});
  PlanOptions options = Small(4096);
  options.memory = 64 << 10;
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, options));
  ExpectPlanGives(plan, source, target, exprs);
  ASSERT_EQ(plan.tasks.size(), 1U);
  EXPECT_GT(plan.tasks[0].quantize->bands.size(), 4U);
  EXPECT_LE(plan.tasks[0].buffer_bytes, 4096);
  EXPECT_EQ(plan.bytes_read, 2 * 64 * 64 * 2);
}

TEST(MakePlan, RefusesMemoryThatHoldsNotOneBlock) {
  const MemoryCheckpoint source = Filled({MakeEntry("w", DType::kF32, {64, 64})}, 1);
  const expr::Fp8Format block{{64, 64}};
  ASSERT_OK_AND_ASSIGN(const expr::Expr q, expr::QuantizeValues(LeafOf(source, 0), block));
  ASSERT_OK_AND_ASSIGN(const expr::Expr s, expr::QuantizeScales(LeafOf(source, 0), block));
  MemoryCheckpoint target = Place({MakeEntry("q", DType::kF8E4M3, {64, 64}), MakeEntry("s", DType::kF32, {1, 1})});
  PlanOptions options = Small(4096);
  options.memory = 16384;
  EXPECT_THAT(MakePlan(source.catalog, target.catalog, std::vector{q, s}, options),
              IsError(ErrorCode::kUsage, HasSubstr("pass `--memory 1MiB`")));
}

}  // namespace
}  // namespace crossdock::plan
