// SPDX-License-Identifier: Apache-2.0
// Every operation of a family file against its definition in families/SCHEMA.md, element by element, and back.
#include "family/rule_ops.h"

#include <functional>
#include <map>
#include <set>

#include "expr/pull_back.h"
#include "result_matchers.h"

namespace crossdock::family {
namespace {

using ::testing::HasSubstr;
using Place = std::pair<int, Dims>;                      ///< input and element; input -1: padding

/// Sizes that no mistake survives: q = 4 heads, k = 2 groups, heads of d = 6.
const Letters kSizes = {{"q", 4}, {"k", 2}, {"d", 6}, {"h", 5}, {"nk", 2}, {"nv", 6}, {"dk", 3}, {"dv", 5}};

struct Sample {
  std::string op;
  std::vector<Shape> inputs;
  Shape output;
  std::function<Place(const Dims&)> from;                ///< where an element of the output comes from
  int cut = -1;                                          ///< the axis that two ranks divide; -1: none
  bool halves = false;                                   ///< each half of it on its own
};

/// A row of [q; k; v] in the order of groups: (which of the three, its row), for `query` and `key` heads of `d` rows.
std::pair<int, std::int64_t> QkvRow(std::int64_t row, std::int64_t query, std::int64_t key, std::int64_t d) {
  const std::int64_t g = query / key;
  const std::int64_t group = row / ((g + 2) * d);
  const std::int64_t slot = row / d % (g + 2);
  if (slot < g) return {0, (group * g + slot) * d + row % d};
  return {slot == g ? 1 : 2, group * d + row % d};
}

const std::vector<Sample>& Samples() {
  const auto same = [](const Dims& at) { return Place{0, at}; };
  static const std::vector<Sample> kSamples = {
      {"id", {{3, 5}}, {3, 5}, same},
      {"col", {{4, 5}}, {4, 5}, same, 0},
      {"row", {{5, 4}}, {5, 4}, same, 1},
      {"vocab", {{7, 5}}, {8, 5}, [](const Dims& at) { return at[0] < 7 ? Place{0, at} : Place{-1, {}}; }, 0},
      {"T", {{3, 5}}, {5, 3}, [](const Dims& at) { return Place{0, {at[1], at[0]}}; }},
      {"heads", {{24, 5}}, {5, 4, 6}, [](const Dims& at) { return Place{0, {at[1] * 6 + at[2], at[0]}}; }},
      {"heads:3", {{24, 5}}, {5, 8, 3}, [](const Dims& at) { return Place{0, {at[1] * 3 + at[2], at[0]}}; }},
      {"heads_out", {{5, 24}}, {4, 6, 5}, [](const Dims& at) { return Place{0, {at[2], at[0] * 6 + at[1]}}; }},
      {"heads_b", {{24}}, {4, 6}, [](const Dims& at) { return Place{0, {at[0] * 6 + at[1]}}; }},
      {"rope_pair", {{12, 5}}, {12, 5}, [](const Dims& at) { return Place{0, {at[0] / 6 * 6 + at[0] % 6 / 2 + at[0] % 2 * 3, at[1]}}; }},
      {"conv", {{6, 1, 4}}, {4, 6}, [](const Dims& at) { return Place{0, {at[1], 0, 3 - at[0]}}; }},
      {"conv_T", {{6, 1, 4}}, {4, 1, 6}, [](const Dims& at) { return Place{0, {at[2], 0, at[0]}}; }},
      // Of each key head: 3 rows of q, 3 of k, 15 of v, 15 of z; then 3 of beta, 3 of alpha.
      {"gdn_join_qkvz", {{42, 4}, {30, 4}}, {72, 4}, [](const Dims& at) {
         const std::int64_t head = at[0] / 36, row = at[0] % 36;
         if (row < 6) return Place{0, {row / 3 * 6 + head * 3 + row % 3, at[1]}};
         return row < 21 ? Place{0, {12 + head * 15 + row - 6, at[1]}} : Place{1, {head * 15 + row - 21, at[1]}};
       }},
      {"gdn_join_ba", {{6, 4}, {6, 4}}, {12, 4}, [](const Dims& at) { return Place{static_cast<int>(at[0] % 6 / 3), {at[0] / 6 * 3 + at[0] % 3, at[1]}}; }},
      {"scale:1/2", {{3, 5}}, {3, 5}, same},
      {"plus1", {{5}}, {5}, same},
      {"qkv", {{24, 5}, {12, 5}, {12, 5}}, {48, 5}, [](const Dims& at) {
         const auto [which, row] = QkvRow(at[0], 4, 2, 6);
         return Place{which, {row, at[1]}};
       }, 0},
      {"minus1", {{5}}, {5}, same},
      // The hub's q rows are a head of queries and one of gates in turn; here all queries of a key head come before their gates.
      {"qgkv", {{48, 5}, {12, 5}, {12, 5}}, {72, 5}, [](const Dims& at) {
         const std::int64_t group = at[0] / 36, slot = at[0] / 6 % 6, row = at[0] % 6;
         if (slot < 4) return Place{0, {((group * 2 + slot % 2) * 2 + slot / 2) * 6 + row, at[1]}};
         return Place{static_cast<int>(slot) - 3, {group * 6 + row, at[1]}};
       }, 0},
      {"qkv_cat", {{48, 5}}, {48, 5}, [](const Dims& at) {
         const auto [which, row] = QkvRow(at[0], 4, 2, 6);
         return Place{0, {row + (which == 0 ? 0 : which == 1 ? 24 : 36), at[1]}};
       }, 0},
      {"qkv_cat:4", {{36}}, {36}, [](const Dims& at) {
         const auto [which, row] = QkvRow(at[0], 4, 4, 3);
         return Place{0, {row + which * 12}};
       }, 0},
      {"gate_up", {{4, 5}, {4, 5}}, {8, 5}, [](const Dims& at) { return Place{at[0] < 4 ? 0 : 1, {at[0] % 4, at[1]}}; }, 0, true},
      {"halves", {{8, 5}}, {8, 5}, same, 0, true},
      {"gate_up_E", {{3, 8, 5}}, {3, 8, 5}, same, 1, true},
      {"gate_up_T", {{3, 5, 8}}, {3, 8, 5}, [](const Dims& at) { return Place{0, {at[0], at[2], at[1]}}; }, 1, true},
      {"gate_up_pair", {{3, 5, 8}}, {3, 8, 5}, [](const Dims& at) { return Place{0, {at[0], at[2], at[1] % 4 * 2 + at[1] / 4}}; }, 1, true},
      {"gate_up_pair", {{3, 8}}, {3, 8}, [](const Dims& at) { return Place{0, {at[0], at[1] % 4 * 2 + at[1] / 4}}; }, 1, true},
      {"row_E", {{3, 5, 4}}, {3, 5, 4}, same, 2},
      {"row_T", {{3, 4, 5}}, {3, 5, 4}, [](const Dims& at) { return Place{0, {at[0], at[2], at[1]}}; }, 2},
      {"id_E", {{3, 5}}, {3, 5}, same},
  };
  return kSamples;
}

/// Every element of `root` and the leaf element it comes from.
std::map<Dims, Place> Elements(const expr::Expr& root) {
  std::map<Dims, Place> elements;
  for (const expr::Piece& piece : expr::PullBack(root, Box::Whole(root->shape))) {
    std::vector<std::int64_t> at(piece.loops.size(), 0);
    for (std::int64_t n = 0; n < piece.count(); ++n) {
      Dims to = piece.target_origin;
      Dims from = piece.leaf < 0 ? Dims{} : piece.leaf_origin;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const expr::Loop& loop = piece.loops[i];
        to[static_cast<std::size_t>(loop.target_axis)] += at[i] * loop.target_step;
        if (piece.leaf >= 0) from[static_cast<std::size_t>(loop.leaf_axis)] += at[i] * loop.leaf_step;
      }
      EXPECT_TRUE(elements.emplace(to, Place{piece.leaf, from}).second);
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < piece.loops[i].count) break;
        at[i] = 0;
      }
    }
  }
  return elements;
}

std::vector<expr::Expr> Leaves(const Sample& sample) {
  std::vector<expr::Expr> leaves;
  for (const Shape& shape : sample.inputs) leaves.push_back(expr::Leaf(static_cast<int>(leaves.size()), DType::kF32, shape));
  return leaves;
}

Result<expr::Expr> Apply(const Sample& sample) {
  const OpContext context{&kSizes, 8};
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<OpOutput> made, ApplyOps({sample.op}, Leaves(sample), context, false));
  return made.front().expr;
}

TEST(RuleOps, EveryOperationHasASample) {
  std::set<std::string> sampled;
  for (const Sample& sample : Samples()) sampled.insert(sample.op.substr(0, sample.op.find(':')));
  for (const OpInfo& op : AllOps()) {
    if (op.splits == 0) {
      EXPECT_TRUE(sampled.contains(std::string(op.name))) << op.name;
    } else {
      EXPECT_TRUE(op.name == "pair" || op.name == "split" || op.name.starts_with("gdn_")) << op.name;  // tested below
    }
  }
}

/// In turn along the last axis, or one after the other.
TEST(RuleOps, PairsAndHalvesComeApartAndTogether) {
  for (const std::string op : {"pair", "split"}) {
    for (const Shape& shape : {Shape{3, 5, 8}, Shape{8}}) {
      const expr::Expr whole = expr::Leaf(0, DType::kF32, shape);
      std::vector<expr::Expr> parts;
      for (const std::int64_t at : {0, 1}) {
        ASSERT_OK_AND_ASSIGN(expr::Expr part, SplitPart(op, whole, at, {}));
        EXPECT_EQ(part->shape.back(), 4);
        for (const auto& [element, place] : Elements(part)) {
          Dims wanted = element;
          std::int64_t& last = wanted[wanted.size() - 1];
          last = op == "pair" ? 2 * last + at : last + 4 * at;
          EXPECT_EQ(place.second, wanted) << op;
        }
        parts.push_back(std::move(part));
      }
      ASSERT_OK_AND_ASSIGN(const expr::Expr joined, JoinParts(op, parts, {}));
      for (const auto& [element, place] : Elements(joined)) EXPECT_EQ(place.second, element) << op;
    }
    EXPECT_THAT(SplitPart(op, expr::Leaf(0, DType::kF32, {3, 5}), 0, {}), IsError(ErrorCode::kUsage, HasSubstr(op)));
  }
}

TEST(RuleOps, JoinsOfAGatedDeltaNetRefuseOtherSizes) {
  const OpContext context{&kSizes, std::nullopt};
  for (const auto& [op, rows] : {std::pair("gdn_join_qkvz", 43), std::pair("gdn_join_qkvz", 41), std::pair("gdn_join_ba", 7)}) {
    EXPECT_THAT(ApplyOps({op}, {expr::Leaf(0, DType::kF32, {rows, 4}), expr::Leaf(1, DType::kF32, {op == std::string("gdn_join_ba") ? 6 : 30, 4})}, context, false),
                IsError(ErrorCode::kUsage, HasSubstr("rows")));
  }
}

/// 2 key heads of 3 rows, 6 value heads of 5: three of them for each key head.
TEST(RuleOps, PartsOfAGatedDeltaNetComeApartAndTogether) {
  struct Parts {
    std::string op;
    std::int64_t groups;
    std::vector<std::int64_t> rows;      ///< of each part in one group
    Shape rest;
  };
  for (const Parts& sample : {Parts{"gdn_qkvz", 2, {3, 3, 15, 15}, {4}}, Parts{"gdn_ba", 2, {3, 3}, {4}}, Parts{"gdn_qkv", 1, {6, 6, 30}, {4}}, Parts{"gdn_qkv", 1, {6, 6, 30}, {1, 4}}}) {
    std::int64_t all = 0;
    for (const std::int64_t rows : sample.rows) all += rows;
    Shape shape = sample.rest;
    shape.insert(0, sample.groups * all);
    const expr::Expr whole = expr::Leaf(0, DType::kF32, shape);
    std::vector<expr::Expr> parts;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < sample.rows.size(); ++i) {
      ASSERT_OK_AND_ASSIGN(expr::Expr part, SplitPart(sample.op, whole, static_cast<std::int64_t>(i), kSizes));
      EXPECT_EQ(part->shape[0], sample.groups * sample.rows[i]);
      for (const auto& [element, place] : Elements(part)) {
        Dims wanted = element;
        wanted[0] = element[0] / sample.rows[i] * all + before + element[0] % sample.rows[i];
        EXPECT_EQ(place.second, wanted) << sample.op << " " << i;
      }
      before += sample.rows[i];
      parts.push_back(std::move(part));
    }
    ASSERT_OK_AND_ASSIGN(const expr::Expr joined, JoinParts(sample.op, parts, kSizes));
    for (const auto& [element, place] : Elements(joined)) EXPECT_EQ(place.second, element) << sample.op;
    EXPECT_THAT(SplitPart(sample.op, expr::Leaf(0, DType::kF32, {7, 4}), 0, kSizes), IsError(ErrorCode::kUsage, HasSubstr(sample.op)));
    parts.pop_back();
    EXPECT_THAT(JoinParts(sample.op, parts, kSizes), IsError(ErrorCode::kUsage, HasSubstr(sample.op)));
  }
}

TEST(RuleOps, EachElementComesFromWhereItsDefinitionSays) {
  for (const Sample& sample : Samples()) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr made, Apply(sample));
    ASSERT_EQ(made->shape, sample.output) << sample.op;
    const std::map<Dims, Place> elements = Elements(made);
    EXPECT_EQ(static_cast<std::int64_t>(elements.size()), CheckedCount(sample.output)) << sample.op;
    for (const auto& [element, place] : elements) {
      const Place wanted = sample.from(element);
      EXPECT_EQ(place.first, wanted.first) << sample.op << " at " << ToString(element);
      if (wanted.first < 0) continue;
      EXPECT_EQ(place.second, wanted.second) << sample.op << " at " << ToString(element);
    }
  }
}

TEST(RuleOps, EachInputComesBack) {
  for (const Sample& sample : Samples()) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr made, Apply(sample));
    ASSERT_OK_AND_ASSIGN(const auto inverses, expr::Inverses(made));
    ASSERT_EQ(inverses.size(), sample.inputs.size()) << sample.op;
    for (const auto& [ordinal, inverse] : inverses) {
      ASSERT_OK_AND_ASSIGN(const expr::Expr around, expr::Substitute(inverse, [&](int) -> Result<expr::Expr> { return made; }));
      for (const auto& [element, place] : Elements(around)) EXPECT_EQ(place, (Place{ordinal, element})) << sample.op;
    }
  }
}

TEST(RuleOps, RanksDivideWhatTheTableSays) {
  for (const Sample& sample : Samples()) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr made, Apply(sample));
    ASSERT_OK_AND_ASSIGN(const std::vector<Box> second, expr::ShardBoxes(made, 2, 1));
    const std::map<Dims, Place> elements = Elements(made);
    std::set<Dims> held;
    for (const Box& box : second) {
      for (const auto& [element, place] : elements) {
        if (box.Contains(Box{element, Dims::Filled(element.size(), 1)})) held.insert(element);
      }
    }
    for (const auto& [element, place] : elements) {
      bool wanted = true;                                // replicated: both hold it
      if (sample.cut >= 0) {
        const auto axis = static_cast<std::size_t>(sample.cut);
        const std::int64_t part = sample.halves ? sample.output[axis] / 2 : sample.output[axis];
        wanted = element[axis] % part >= part / 2;
      }
      EXPECT_EQ(held.contains(element), wanted) << sample.op << " at " << ToString(element);
    }
  }
}

TEST(RuleOps, OnlyThreeChangeValues) {
  for (const Sample& sample : Samples()) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr made, Apply(sample));
    EXPECT_EQ(expr::HasArithmetic(made), sample.op == "plus1" || sample.op == "minus1" || sample.op.starts_with("scale")) << sample.op;
  }
  // Norms that are one more in the target: their moments are the same.
  ASSERT_OK_AND_ASSIGN(const expr::Expr norm, Apply({"plus1", {{5}}, {5}, nullptr}));
  ASSERT_OK_AND_ASSIGN(const expr::Expr moment, expr::ForSlot(norm, Slot::kAdamNu));
  EXPECT_FALSE(expr::HasArithmetic(moment));
  ASSERT_OK_AND_ASSIGN(const expr::Expr master, expr::ForSlot(norm, Slot::kMaster));
  EXPECT_TRUE(expr::HasArithmetic(master));
}

TEST(RuleOps, WhatDoesNotFitIsRefusedByTheOperationsName) {
  const Sample unfit[] = {
      {"col", {{}}, {}, nullptr},          {"row", {{5}}, {}, nullptr},         {"T", {{5}}, {}, nullptr},
      {"heads", {{23, 5}}, {}, nullptr},   {"heads_b", {{24, 5}}, {}, nullptr}, {"rope_pair:5", {{10, 2}}, {}, nullptr},
      {"qkv", {{24, 5}, {11, 5}, {11, 5}}, {}, nullptr}, {"qgkv", {{36, 5}, {12, 5}, {12, 5}}, {}, nullptr},                        {"qkv_cat", {{47, 5}}, {}, nullptr},
      {"halves", {{7, 5}}, {}, nullptr},   {"gate_up_E", {{3, 7, 5}}, {}, nullptr}, {"gate_up_T", {{3, 8}}, {}, nullptr},
      {"gate_up_pair", {{3, 5, 7}}, {}, nullptr}, {"row_E", {{3, 5}}, {}, nullptr}, {"row_T", {{3, 5}}, {}, nullptr},
  };
  for (const Sample& sample : unfit) {
    const std::string name = sample.op.substr(0, sample.op.find(':'));
    EXPECT_THAT(Apply(sample), IsError(ErrorCode::kUsage, HasSubstr(name))) << sample.op;
  }
}

}  // namespace
}  // namespace crossdock::family
