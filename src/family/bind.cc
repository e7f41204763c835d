// SPDX-License-Identifier: Apache-2.0
#include "family/bind.h"

#include <algorithm>

#include "family/formula.h"
#include "family/row_syntax.h"
#include "family/rule_ops.h"
#include "fmt/format.h"

namespace crossdock::family {
namespace {

using expr::Expr;

/// No checkpoint has as many layers or experts; keeps a hostile configuration from filling memory.
constexpr std::int64_t kMaxIndex = 16384;
constexpr std::size_t kMaxTensors = std::size_t{1} << 22U;

using IndexValues = std::map<std::string, std::int64_t>;

class Binder {
 public:
  Binder(const FamilyFile& family, const Letters& letters, const std::vector<std::string>& conditions, const BindOptions& options)
      : family_(family), letters_(letters), conditions_(conditions), options_(options) {}

  Result<Binding> Run() {
    for (const Group& group : family_.groups) {
      Result<void> bound = OneGroup(group);
      if (!bound) {
        Error error = std::move(bound).error();
        if (error.path.empty()) error.path = family_.path;
        return std::move(error).WithContext(fmt::format("binding the family {} to {}", family_.name, options_.dialect));
      }
    }
    if (binding_.tensors.empty()) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("the family {} has no tensors in {}", family_.name, options_.dialect));
    }
    return std::move(binding_);
  }

 private:
  struct Range {
    std::int64_t first = 0;
    std::int64_t last = 1;
  };
  /// One hub tensor of a row, the same for every index tuple but for the numbers in its name.
  struct RowSource {
    std::string pattern;
    Shape shape;
  };
  /// The hub indices of one row for one index tuple.
  using RowHub = std::vector<std::int32_t>;

  Error InRow(Error error, const Row& row) const {
    return std::move(error).WithContext(fmt::format("line {}, \"{}\"", row.line, row.hub));
  }

  bool Holds(const Row& row) const {
    if (row.condition.empty()) return true;
    const bool negated = row.condition.starts_with('!');
    const std::string word = negated ? row.condition.substr(1) : row.condition;
    return (std::find(conditions_.begin(), conditions_.end(), word) != conditions_.end()) != negated;
  }

  Result<std::vector<IndexValues>> Tuples(const Group& group) const {
    std::vector<IndexValues> tuples = {{}};
    for (const Group::IndexRange& range : group.index) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t first, EvaluateInteger(range.first, letters_));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t last, EvaluateInteger(range.last, letters_));
      if (first < 0 || last < first || last > kMaxIndex) {
        return MakeError(ErrorCode::kUsage, fmt::format("the range {}..{} of the index {} is not possible", first, last, range.letter))
            .WithExpected(fmt::format("at most {}", kMaxIndex));
      }
      std::vector<IndexValues> longer;
      for (const IndexValues& tuple : tuples) {
        for (std::int64_t i = first; i < last; ++i) {
          longer.push_back(tuple);
          longer.back()[range.letter] = i;
        }
      }
      tuples = std::move(longer);
      if (tuples.size() * std::max<std::size_t>(group.rows.size(), 1) > kMaxTensors) return MakeError(ErrorCode::kUsage, "a group has too many tensors");
    }
    return tuples;
  }

  Result<Shape> ShapeOf(const Row& row, std::int64_t at) const {
    Shape shape;
    const std::vector<std::string> axes = SplitOutside(ExpandGroups(row.shape, at), ',');
    if (axes.size() > kMaxRank) return MakeError(ErrorCode::kUsage, "a row's shape has too many axes");
    for (const std::string& axis : axes) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, EvaluateInteger(axis, letters_));
      if (size < 1) return MakeError(ErrorCode::kUsage, fmt::format("the axis {} has the size {}", axis, size));
      shape.push_back(size);
    }
    CROSSDOCK_RETURN_IF_ERROR(ElementCount(shape));
    return shape;
  }

  Result<std::vector<RowSource>> SourcesOf(const Group& group, const Row& row) const {
    std::vector<RowSource> sources;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, GroupCount(row.hub));
    for (std::int64_t i = 0; i < count; ++i) {
      CROSSDOCK_ASSIGN_OR_RETURN(Shape shape, ShapeOf(row, i));
      sources.push_back({group.hub_prefix + ExpandGroups(row.hub, i), std::move(shape)});
    }
    return sources;
  }

  RowHub AddHub(const std::vector<RowSource>& sources, const Row& row, const IndexValues& indices) {
    RowHub hub;
    for (const RowSource& source : sources) {
      HubTensor tensor{FillIndices(source.pattern, indices), source.shape, std::nullopt, row.line};
      if (const auto layer = indices.find("l"); layer != indices.end()) tensor.layer = layer->second;
      hub.push_back(static_cast<std::int32_t>(binding_.hub.size()));
      binding_.hub.push_back(std::move(tensor));
    }
    return hub;
  }

  std::vector<Expr> Leaves(const RowHub& hub) const {
    std::vector<Expr> leaves;
    for (std::int32_t index : hub) leaves.push_back(expr::Leaf(index, DType::kF32, binding_.hub[static_cast<std::size_t>(index)].shape));
    return leaves;
  }

  /// The dialect's prefix; without {l} layers are stacked, with it they are numbered.
  std::string PrefixOf(const Group& group) const {
    const auto found = group.prefixes.find(options_.dialect);
    std::string prefix = found == group.prefixes.end() ? "" : found->second;
    if (group.index.empty()) return prefix;
    const std::size_t number = prefix.find("{l}.");
    if (options_.stacked_layers) {
      if (number != std::string::npos) prefix.erase(number, 4);
    } else if (number == std::string::npos && prefix.ends_with('.')) {
      prefix.replace(prefix.size() - 1, 1, "_{l}.");
    }
    return prefix;
  }

  Status OneGroup(const Group& group) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<IndexValues> tuples, Tuples(group));
    std::vector<const Row*> rows;
    for (const Row& row : group.rows) {
      if (Holds(row)) rows.push_back(&row);
    }
    if (tuples.empty()) return OkStatus();
    std::vector<std::vector<RowSource>> sources;
    for (const Row* row : rows) {
      Result<std::vector<RowSource>> of = SourcesOf(group, *row);
      if (!of) return InRow(std::move(of).error(), *row);
      sources.push_back(*std::move(of));
    }
    std::vector<std::vector<RowHub>> hub(rows.size());
    for (const IndexValues& indices : tuples) {
      for (std::size_t r = 0; r < rows.size(); ++r) hub[r].push_back(AddHub(sources[r], *rows[r], indices));
    }
    if (options_.dialect == "hf") return Identity(rows, hub, tuples);
    const std::string prefix = PrefixOf(group);
    const bool stacked = !group.index.empty() && IndicesOf(prefix).empty();
    if (stacked && group.index.size() > 1) return MakeError(ErrorCode::kUnsupported, "a group with more than one index cannot be stacked yet");
    if (stacked) {
      for (std::size_t r = 0; r < rows.size(); ++r) CROSSDOCK_RETURN_IF_ERROR(Target(prefix, *rows[r], hub[r], tuples, true));
      return OkStatus();
    }
    for (std::size_t t = 0; t < tuples.size(); ++t) {
      for (std::size_t r = 0; r < rows.size(); ++r) CROSSDOCK_RETURN_IF_ERROR(Target(prefix, *rows[r], {hub[r][t]}, {tuples[t]}, false));
    }
    return OkStatus();
  }

  Status Identity(const std::vector<const Row*>& rows, const std::vector<std::vector<RowHub>>& hub, const std::vector<IndexValues>& tuples) {
    for (std::size_t t = 0; t < tuples.size(); ++t) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        for (std::int32_t index : hub[r][t]) {
          const HubTensor& source = binding_.hub[static_cast<std::size_t>(index)];
          DialectTensor tensor{source.name, source.shape, {index}, expr::Leaf(index, DType::kF32, source.shape), -1, source.layer, false, source.row_line};
          binding_.tensors.push_back(std::move(tensor));
        }
      }
    }
    return OkStatus();
  }

  /// The targets of one row: for one index tuple, or stacked over all of them.
  Status Target(const std::string& prefix, const Row& row, const std::vector<RowHub>& hub, const std::vector<IndexValues>& tuples, bool stacked) {
    const auto found = row.targets.find(options_.dialect);
    if (found == row.targets.end() || found->second.name == "-") return OkStatus();
    const RowTarget& target = found->second;
    const bool joined = target.ops.size() == 1;
    for (std::size_t at = 0; at < target.ops.size(); ++at) {
      Status made = OneTarget(prefix, row, target, joined ? std::optional<std::size_t>() : at, hub, tuples, stacked);
      if (!made) return InRow(std::move(made).error(), row);
    }
    return OkStatus();
  }

  Status OneTarget(const std::string& prefix, const Row& row, const RowTarget& target, std::optional<std::size_t> source,
                   const std::vector<RowHub>& hub, const std::vector<IndexValues>& tuples, bool stacked) {
    const OpContext context{&letters_, options_.padded_vocab};
    const std::size_t at = source.value_or(0);
    std::vector<std::vector<OpOutput>> layers;
    std::vector<std::int32_t> used;
    for (const RowHub& one : hub) {
      const RowHub inputs = source ? RowHub{one[at]} : one;
      CROSSDOCK_ASSIGN_OR_RETURN(std::vector<OpOutput> outputs, ApplyOps(target.ops[at], Leaves(inputs), context, options_.split_gate_up));
      layers.push_back(std::move(outputs));
      used.insert(used.end(), inputs.begin(), inputs.end());
    }
    const std::size_t halves = layers.front().size();
    for (std::size_t half = 0; half < halves; ++half) {
      DialectTensor tensor;
      tensor.name = FillIndices(prefix + ExpandGroups(target.name, static_cast<std::int64_t>(at)), tuples.front());
      if (halves == 2) tensor.name += half == 0 ? "_w" : "_v";
      tensor.padded_rows = layers.front()[half].padded_rows;
      tensor.row_line = row.line;
      if (const auto layer = tuples.front().find("l"); layer != tuples.front().end()) tensor.first_layer = layer->second;
      if (stacked) {
        std::vector<Expr> parts;
        for (const std::vector<OpOutput>& layer : layers) parts.push_back(layer[half].expr);
        const int axis = std::min(options_.stack_axis, static_cast<int>(parts.front()->shape.size()));
        CROSSDOCK_ASSIGN_OR_RETURN(tensor.forward, expr::Stack(parts, axis));
        tensor.stack_axis = axis;
      } else {
        tensor.forward = layers.front()[half].expr;
      }
      tensor.shape = tensor.forward->shape;
      for (int ordinal : expr::LeafOrdinals(tensor.forward)) tensor.hub.push_back(ordinal);
      binding_.tensors.push_back(std::move(tensor));
    }
    return OkStatus();
  }

  const FamilyFile& family_;
  const Letters& letters_;
  const std::vector<std::string>& conditions_;
  const BindOptions& options_;
  Binding binding_;
};

}  // namespace

Result<Binding> Bind(const FamilyFile& family, const Letters& letters, const std::vector<std::string>& conditions, const BindOptions& options) {
  return Binder(family, letters, conditions, options).Run();
}

}  // namespace crossdock::family
