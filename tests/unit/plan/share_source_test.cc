// SPDX-License-Identifier: Apache-2.0
#include "plan/share_source.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "naive.h"
#include "result_matchers.h"
#include "unit/expr/random_tree.h"

namespace crossdock::plan {
namespace {

using expr::Expr;

MemoryCheckpoint SharedSource(std::vector<Entry> entries, int files) {
  MemoryCheckpoint out = Place(std::move(entries), files);
  for (std::size_t i = 0; i < out.catalog.entries.size(); ++i) {
    const Entry& e = out.catalog.entries[i];
    StoreArray(out, i, Numbered(e.dtype, e.shape, 70 + i));
  }
  return out;
}

PlanOptions TaskBound(std::int64_t bytes) {
  PlanOptions options;
  options.task_bytes = bytes;
  return options;
}

/// Works off all shares and expects what one process would write, each byte once.
void ExpectSharesGive(const MemoryCheckpoint& source, MemoryCheckpoint target, const std::vector<Expr>& exprs, const OwnerOf& owner,
                      int ranks, std::int64_t task_bytes) {
  std::vector<std::vector<int>> all;
  for (const Bytes& f : target.files) all.emplace_back(f.size(), 0);
  std::string hash;
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Share share, MakeShareOfSource(source.catalog, target.catalog, exprs, owner, {rank, ranks}, TaskBound(task_bytes)));
    if (rank == 0) hash = share.plan.hash;
    EXPECT_EQ(share.plan.hash, hash);
    EXPECT_EQ(share.amaxes, 0);
    for (const Task& task : share.plan.tasks) {
      for (const Read& read : task.reads) {
        const int holds = owner(read.entry, read.chunk);
        EXPECT_TRUE(holds == rank || holds == kAnyRank);
      }
    }
    std::vector<std::vector<int>> written;
    RunPlan(share.plan, source, target, written);
    for (std::size_t f = 0; f < all.size(); ++f) {
      for (std::size_t b = 0; b < all[f].size(); ++b) all[f][b] += written[f][b];
    }
  }
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < source.catalog.entries.size(); ++i) leaves.push_back(LoadArray(source, i));
  for (std::size_t i = 0; i < exprs.size(); ++i) {
    EXPECT_EQ(LoadArray(target, i).bytes, Evaluate(exprs[i], leaves).bytes) << target.catalog.entries[i].name;
    for (const Chunk& c : target.catalog.entries[i].chunks) {
      for (std::int64_t b = c.bytes.offset; b < c.bytes.end(); ++b) {
        ASSERT_EQ(all[static_cast<std::size_t>(c.file)][static_cast<std::size_t>(b)], 1) << "byte " << b;
      }
    }
  }
}

void LeavesOf(const Expr& root, std::map<int, Expr>& out) {
  if (root->leaf >= 0 && root->op == expr::Op::kLeaf) out[root->leaf] = root;
  for (const Expr& input : root->inputs) LeavesOf(input, out);
}

OwnerOf ByFile(const Catalog& catalog, int ranks) {
  return [&catalog, ranks](std::int32_t entry, std::int32_t chunk) {
    return catalog.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)].file % ranks;
  };
}

/// Any movement, over tensors whose chunks lie with several ranks.
TEST(ShareOfSource, SharesOfRandomExpressionsMakeTheWhole) {
  expr::ForSeeds(60, [](std::uint64_t seed) {
    expr::TreeOptions options;
    options.compute = seed % 3 == 0;
    expr::RandomTree tree(seed, options);
    const Expr root = tree.Grow();
    std::map<int, Expr> leaves;
    LeavesOf(root, leaves);
    std::vector<Entry> entries;
    for (int i = 0; i <= (leaves.empty() ? 0 : leaves.rbegin()->first); ++i) {
      const auto leaf = leaves.find(i);
      if (leaf == leaves.end()) {
        entries.push_back(MakeEntry("unused" + std::to_string(i), DType::kF32, {1}));
        continue;
      }
      std::vector<std::int64_t> parts;
      for (const std::int64_t size : leaf->second->shape) {
        const std::int64_t wanted = tree.Between(1, 3);
        parts.push_back(size % wanted == 0 ? wanted : 1);
      }
      entries.push_back(MakeEntry("leaf" + std::to_string(i), leaf->second->dtype, leaf->second->shape, Grid(leaf->second->shape, parts)));
    }
    const MemoryCheckpoint source = SharedSource(std::move(entries), 8);
    const MemoryCheckpoint target = Place({MakeEntry("out", root->dtype, root->shape)});
    for (const int ranks : {1, 2, 4, 8}) ExpectSharesGive(source, target, {root}, ByFile(source.catalog, ranks), ranks, 512);
  });
}

/// Rows of query groups from two ranks, columns of a row-parallel weight, and rows that nobody stores.
TEST(ShareOfSource, CutsRowsColumnsAndPadding) {
  const MemoryCheckpoint source = SharedSource(
      {MakeEntry("qkv", DType::kBF16, {48, 20}, Grid({48, 20}, {2, 1})), MakeEntry("proj", DType::kF32, {12, 32}, Grid({12, 32}, {1, 4})),
       MakeEntry("norm", DType::kF32, {20})}, 4);
  const auto leaf = [&](int i) { return expr::Leaf(i, source.catalog.entries[static_cast<std::size_t>(i)].dtype, source.catalog.entries[static_cast<std::size_t>(i)].shape); };
  ASSERT_OK_AND_ASSIGN(const Expr grouped, expr::Reshape(leaf(0), {4, 12, 20}));
  ASSERT_OK_AND_ASSIGN(const Expr queries, expr::Slice(grouped, {{0, 0, 0}, {4, 8, 20}}));
  ASSERT_OK_AND_ASSIGN(const Expr q, expr::Reshape(queries, {32, 20}));
  ASSERT_OK_AND_ASSIGN(const Expr padded, expr::Pad(leaf(1), {0, 0}, {13, 32}));
  const MemoryCheckpoint target = Place({MakeEntry("q", DType::kBF16, {32, 20}), MakeEntry("proj", DType::kF32, {13, 32}),
                                         MakeEntry("norm", DType::kF32, {20})});
  ExpectSharesGive(source, target, {q, padded, leaf(2)}, ByFile(source.catalog, 4), 4, 700);
  // One box a rank, and its columns are written in one output.
  ASSERT_OK_AND_ASSIGN(const Share share, MakeShareOfSource(source.catalog, target.catalog, std::vector{q, padded, leaf(2)},
                                                            ByFile(source.catalog, 4), {3, 4}, PlanOptions()));
  std::int64_t bytes = 0;
  for (const Task& task : share.plan.tasks) bytes += static_cast<std::int64_t>(task.outputs.size());
  EXPECT_EQ(bytes, 1);
}

/// Chunks with a checksum: what several ranks write of one lies in a row in it, whether rows, columns or a flat part are theirs.
TEST(ShareOfSource, KeepsPartsOfAChunkInARow) {
  const MemoryCheckpoint source = SharedSource(
      {MakeEntry("columns", DType::kF32, {2, 6, 8}, Grid({2, 6, 8}, {1, 1, 4})), MakeEntry("flat", DType::kF32, {96}, {Box{{0}, {37}}, Box{{37}, {31}}, Box{{68}, {28}}}),
       MakeEntry("rows", DType::kBF16, {12, 4}, Grid({12, 4}, {4, 1}))}, 4);
  ASSERT_OK_AND_ASSIGN(const Expr shaped, expr::Reshape(expr::Leaf(1, DType::kF32, {96}), {2, 6, 8}));
  const std::vector<Expr> exprs = {expr::Leaf(0, DType::kF32, {2, 6, 8}), shaped, expr::Leaf(2, DType::kBF16, {12, 4})};
  const MemoryCheckpoint target = Place({MakeEntry("columns", DType::kF32, {2, 6, 8}, Grid({2, 6, 8}, {2, 1, 1})),
                                         MakeEntry("flat", DType::kF32, {2, 6, 8}, Grid({2, 6, 8}, {1, 2, 1})), MakeEntry("rows", DType::kBF16, {12, 4})}, 2);
  PlanOptions options = TaskBound(256);
  options.contiguous_outputs = true;
  std::int64_t bytes = 0;
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Share share, MakeShareOfSource(source.catalog, target.catalog, exprs, ByFile(source.catalog, 4), {rank, 4}, options));
    ExpectContiguousOutputs(share.plan, target.catalog);
    bytes += share.plan.bytes_written;
  }
  EXPECT_EQ(bytes, 2 * 96 * 4 + 48 * 2);
}

/// What every rank can read goes round among them.
TEST(ShareOfSource, DealsOutWhatAllCanRead) {
  std::vector<Entry> entries;
  std::vector<Expr> exprs;
  for (int i = 0; i < 6; ++i) {
    entries.push_back(MakeEntry("t" + std::to_string(i), DType::kF32, {4, 4}));
    exprs.push_back(expr::Leaf(i, DType::kF32, {4, 4}));
  }
  const MemoryCheckpoint source = SharedSource(entries, 1);
  const MemoryCheckpoint target = Place(entries);
  const OwnerOf anyone = [](std::int32_t, std::int32_t) { return kAnyRank; };
  ExpectSharesGive(source, target, exprs, anyone, 3, 0);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Share share, MakeShareOfSource(source.catalog, target.catalog, exprs, anyone, {rank, 3}, PlanOptions()));
    EXPECT_EQ(share.plan.bytes_written, 2 * 64);
  }
}

/// Where every rank has whole blocks nothing needs to be told.
TEST(ShareOfSource, QuantizesWholeBlocksWithoutExchange) {
  const MemoryCheckpoint source = SharedSource({MakeEntry("w", DType::kBF16, {32, 64}, Grid({32, 64}, {1, 4}))}, 4);
  const Expr w = expr::Leaf(0, DType::kBF16, {32, 64});
  const expr::Fp8Format block{{8, 16}};
  const std::vector<Expr> exprs = {*expr::QuantizeValues(w, block), *expr::QuantizeScales(w, block)};
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kF8E4M3, {32, 64}), MakeEntry("w_scale_inv", DType::kF32, {4, 4})});
  for (const int ranks : {1, 2, 4}) ExpectSharesGive(source, target, exprs, ByFile(source.catalog, ranks), ranks, 2048);
}

/// Blocks that are cut: the count is the same for all, and only the lowest writes scales.
TEST(ShareOfSource, CountsTheBlocksThatAreCut) {
  const MemoryCheckpoint source = SharedSource({MakeEntry("w", DType::kBF16, {30, 64}, Grid({30, 64}, {1, 4})), MakeEntry("v", DType::kBF16, {8, 64}, Grid({8, 64}, {1, 4}))}, 4);
  const Expr w = expr::Leaf(0, DType::kBF16, {30, 64});
  const Expr v = expr::Leaf(1, DType::kBF16, {8, 64});
  const expr::Fp8Format block{{8, 24}}, row{{1, 64}};
  const std::vector<Expr> exprs = {*expr::QuantizeValues(w, block), *expr::QuantizeScales(w, block), *expr::QuantizeValues(v, row), *expr::QuantizeScales(v, row)};
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kF8E4M3, {30, 64}), MakeEntry("w_scale_inv", DType::kF32, {4, 3}),
                                         MakeEntry("v", DType::kF8E4M3, {8, 64}), MakeEntry("v_scale", DType::kF32, {8, 1})});
  std::int64_t values = 0;
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Share share, MakeShareOfSource(source.catalog, target.catalog, exprs, ByFile(source.catalog, 4), {rank, 4}, TaskBound(256)));
    EXPECT_EQ(share.amaxes, 4 * 3 + 8);
    std::int64_t scales = 0;
    for (const Task& task : share.plan.tasks) {
      ASSERT_TRUE(task.quantize && task.quantize->part);
      EXPECT_LE(task.buffer_bytes, 256);
      for (const Output& output : task.outputs) (output.entry % 2 == 0 ? values : scales) += output.bytes;
    }
    EXPECT_EQ(scales, rank == 0 ? (12 + 8) * 4 : 0);
  }
  EXPECT_EQ(values, 30 * 64 + 8 * 64);
}

}  // namespace
}  // namespace crossdock::plan
