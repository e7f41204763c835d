// SPDX-License-Identifier: Apache-2.0
#include "family/bind.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "family/formula.h"
#include "family/row_syntax.h"
#include "family/rule_ops.h"
#include "fmt/format.h"

namespace crossdock::family {
namespace {

using expr::Expr;

constexpr std::size_t kMaxTensors = std::size_t{1} << 22U;

using IndexValues = std::map<std::string, std::int64_t>;

/// Beside the indices, where layers are numbered in a container of their own: the how-manieth layer of its group.
constexpr const char* kOrdinal = "ordinal";

class Binder {
 public:
  Binder(const FamilyFile& family, const Model& model, const BindOptions& options)
      : family_(family), model_(model), letters_(model.letters), options_(options), consumer_(options.consumer) {}

  Result<Binding> Run() {
    binding_.letters = letters_;
    if (consumer_.empty() && !family_.consumers.empty()) consumer_ = family_.consumers.front();
    for (const Group& group : family_.groups) {
      if ((!group.consumer.empty() && group.consumer != consumer_) || (group.repeats && options_.dialect == "hf")) continue;
      if (!group.dialect.empty() && (group.dialect == "maxtext") != (options_.dialect == "maxtext")) continue;
      const std::size_t before = binding_.tensors.size();
      Result<void> bound = OneGroup(group);
      for (std::size_t i = before; i < binding_.tensors.size(); ++i) binding_.tensors[i].repeats = group.repeats;
      if (!bound) {
        Error error = std::move(bound).error();
        if (error.path.empty()) error.path = family_.path;
        return std::move(error).WithContext(fmt::format("binding the family {} to {}", family_.name, options_.dialect));
      }
    }
    if (binding_.tensors.empty()) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("the family {} has no tensors in {}", family_.name, options_.dialect))
          .WithExpected("a target with Hugging Face names")
          .WithHint("--to hf, full-state or dcp carry it; where a code of yours names its tensors, give those names with --rules FILE");
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
    IndexPattern pattern;
    Shape shape;
  };
  /// The hub indices of one row for one index tuple.
  using RowHub = std::span<const std::int32_t>;

  Error InRow(Error error, const Row& row) const {
    return std::move(error).WithContext(fmt::format("line {}, \"{}\"", row.line, row.hub));
  }

  bool IsOfKind(const std::string& kind, std::int64_t layer) const {
    const auto found = model_.kinds.find(kind);
    return found != model_.kinds.end() && layer < static_cast<std::int64_t>(found->second.size()) && found->second[static_cast<std::size_t>(layer)];
  }

  /// Whether a row counts for a layer, or at all where its group has no layers.
  Result<bool> Holds(const Row& row, std::optional<std::int64_t> layer) const {
    if (row.condition.empty()) return true;
    Value words = Value::MakeDict();
    for (const std::string& word : model_.conditions) words.Set(word, Value(true));
    for (const auto& [kind, layers] : model_.kinds) words.Set(kind, Value(layer && IsOfKind(kind, *layer)));
    return EvaluateCondition(row.condition, words);
  }

  static std::optional<std::int64_t> LayerOf(const IndexValues& indices) {
    const auto layer = indices.find("l");
    return layer == indices.end() ? std::nullopt : std::optional<std::int64_t>(layer->second);
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
          if (!range.kind.empty()) {
            const bool negated = range.kind.starts_with('!');
            if (IsOfKind(negated ? range.kind.substr(1) : range.kind, i) == negated) continue;
          }
          longer.push_back(tuple);
          longer.back()[range.letter] = i;
        }
      }
      tuples = std::move(longer);
      if (tuples.size() * std::max<std::size_t>(group.rows.size(), 1) > kMaxTensors) return MakeError(ErrorCode::kUsage, "a group has too many tensors");
    }
    CountLayers(tuples);
    return tuples;
  }

  /// The layers of a group in their order, each with its number among them.
  static void CountLayers(std::vector<IndexValues>& tuples) {
    std::map<std::int64_t, std::int64_t> ordinals;
    for (const IndexValues& tuple : tuples) {
      if (const std::optional<std::int64_t> layer = LayerOf(tuple)) ordinals[*layer] = 0;
    }
    std::int64_t next = 0;
    for (auto& [layer, ordinal] : ordinals) ordinal = next++;
    for (IndexValues& tuple : tuples) {
      if (const std::optional<std::int64_t> layer = LayerOf(tuple)) tuple[kOrdinal] = ordinals.at(*layer);
    }
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
      sources.push_back({IndexPattern(group.hub_prefix + ExpandGroups(row.hub, i)), std::move(shape)});
    }
    return sources;
  }

  /// Appends the hub indices of a row for one index tuple.
  void AddHub(const std::vector<RowSource>& sources, const Row& row, const IndexValues& indices, bool repeats, std::vector<std::int32_t>* hub) {
    for (const RowSource& source : sources) {
      HubTensor tensor{source.pattern.Fill(indices, letters_), source.shape, LayerOf(indices), row.line};
      if (repeats) {
        const auto known = std::ranges::find(binding_.hub, tensor.name, &HubTensor::name);
        if (known != binding_.hub.end()) {
          hub->push_back(static_cast<std::int32_t>(known - binding_.hub.begin()));
          continue;
        }
      }
      hub->push_back(static_cast<std::int32_t>(binding_.hub.size()));
      binding_.hub.push_back(std::move(tensor));
    }
  }

  std::vector<Expr> Leaves(RowHub hub) const {
    std::vector<Expr> leaves;
    for (std::int32_t index : hub) leaves.push_back(expr::Leaf(index, DType::kF32, binding_.hub[static_cast<std::size_t>(index)].shape));
    return leaves;
  }

  /// The dialect's prefix; without {l} layers are stacked, with it they are numbered. A prefix that has no {l} names a container in its
  /// second part: numbered layers are `container_0`, `container_1`, ..., counted in the container.
  std::string PrefixOf(const Group& group) const {
    const auto found = group.prefixes.find(options_.dialect);
    std::string prefix = found == group.prefixes.end() ? "" : found->second;
    const auto has = [&](std::string_view letter) { return std::any_of(group.index.begin(), group.index.end(), [&](const auto& range) { return range.letter == letter; }); };
    if (has("l")) {
      const std::size_t number = prefix.find("{l}.");
      if (options_.stacked_layers) {
        if (number != std::string::npos) prefix.erase(number, 4);
      } else if (prefix.find('{') == std::string::npos) {
        const std::size_t container = prefix.find('.');
        const std::size_t end = container == std::string::npos ? container : prefix.find('.', container + 1);
        if (end != std::string::npos) prefix.insert(end, fmt::format("_{{{}}}", kOrdinal));
      }
    }
    if (has("e") && !options_.stacked_experts && prefix.find("{e}") == std::string::npos) prefix += "{e}.";
    return prefix;
  }

  /// A Megatron name as the consumer has it.
  std::string ForConsumer(const std::string& name) const {
    const auto prefixes = family_.consumer_prefixes.find(consumer_);
    if (options_.dialect != "mcore" || prefixes == family_.consumer_prefixes.end()) return name;
    const std::pair<const std::string, std::string>* best = nullptr;
    for (const auto& prefix : prefixes->second) {
      if (name.starts_with(prefix.first) && (best == nullptr || prefix.first.size() > best->first.size())) best = &prefix;
    }
    return best == nullptr ? name : best->second + name.substr(best->first.size());
  }

  /// A row and its sources for each index tuple for which it counts.
  struct Bound {
    const Row* row = nullptr;
    std::size_t width = 0;               ///< sources of the row
    std::vector<std::size_t> tuples;     ///< ascending
    std::vector<std::int32_t> hub;       ///< `width` indices for each of them
    [[nodiscard]] RowHub Of(std::size_t use) const { return RowHub(hub).subspan(use * width, width); }
  };

  Status OneGroup(const Group& group) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<IndexValues> tuples, Tuples(group));
    if (tuples.empty()) return OkStatus();
    std::vector<Bound> rows;
    std::vector<std::vector<bool>> holds;
    std::vector<std::vector<RowSource>> sources;
    const LayerSorts sorts = SortLayers(tuples);
    for (const Row& row : group.rows) {
      CROSSDOCK_ASSIGN_OR_RETURN(std::vector<bool> of, HoldsFor(row, sorts));
      if (std::find(of.begin(), of.end(), true) == of.end()) continue;
      Result<std::vector<RowSource>> made = SourcesOf(group, row);
      if (!made) return InRow(std::move(made).error(), row);
      CROSSDOCK_RETURN_IF_ERROR(CheckNamesIndices(group, row, tuples));
      rows.push_back({&row, made->size(), {}, {}});
      holds.push_back(std::move(of));
      sources.push_back(*std::move(made));
    }
    std::size_t more = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) more += rows[r].width * static_cast<std::size_t>(std::ranges::count(holds[r], true));
    binding_.hub.reserve(binding_.hub.size() + more);
    for (std::size_t t = 0; t < tuples.size(); ++t) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (!holds[r][t]) continue;
        rows[r].tuples.push_back(t);
        AddHub(sources[r], *rows[r].row, tuples[t], group.repeats, &rows[r].hub);
      }
    }
    for (const IndexValues& indices : tuples) {
      for (const CopyRule& copy : group.copies) {
        binding_.copies.push_back({FillIndices(group.hub_prefix + copy.hub, indices, letters_), FillIndices(copy.of, indices, letters_)});
      }
    }
    if (options_.dialect == "hf") {
      CROSSDOCK_RETURN_IF_ERROR(Spelled(group, rows, tuples));
      return Identity(group, rows, tuples.size());
    }
    const std::string prefix = PrefixOf(group);
    const std::vector<std::string> named = IndicesOf(prefix);
    for (const std::vector<std::size_t>& together : TogetherUnder(named, tuples)) {
      for (const Bound& bound : rows) CROSSDOCK_RETURN_IF_ERROR(Target(prefix, bound, together, tuples, named));
    }
    return OkStatus();
  }

  /// A hub name without an index of its group is there once: the index must have one value.
  Status CheckNamesIndices(const Group& group, const Row& row, const std::vector<IndexValues>& tuples) const {
    const std::vector<std::string> named = IndicesOf(group.hub_prefix + row.hub);
    for (const Group::IndexRange& range : group.index) {
      if (std::find(named.begin(), named.end(), range.letter) != named.end() || tuples.front().at(range.letter) == tuples.back().at(range.letter)) continue;
      return InRow(MakeError(ErrorCode::kUnsupported, fmt::format("the family {} has one {}{} for all values of {}, of which there are several", family_.name, group.hub_prefix, row.hub, range.letter)), row);
    }
    return OkStatus();
  }

  /// Layers of the same kinds: a condition holds for all of them or for none.
  struct LayerSorts {
    std::vector<std::size_t> of_tuple;                              ///< the sort of each tuple's layer
    std::vector<std::optional<std::int64_t>> example;   ///< a layer of each sort
  };

  LayerSorts SortLayers(const std::vector<IndexValues>& tuples) const {
    LayerSorts sorts;
    std::map<std::vector<bool>, std::size_t> known;
    std::optional<std::int64_t> last;
    for (const IndexValues& indices : tuples) {
      const std::optional<std::int64_t> layer = LayerOf(indices);
      if (!sorts.of_tuple.empty() && layer == last) {
        sorts.of_tuple.push_back(sorts.of_tuple.back());
        continue;
      }
      last = layer;
      std::vector<bool> kinds;
      for (const auto& [kind, layers] : model_.kinds) kinds.push_back(layer && IsOfKind(kind, *layer));
      const auto [sort, fresh] = known.try_emplace(std::move(kinds), known.size());
      if (fresh) sorts.example.push_back(layer);
      sorts.of_tuple.push_back(sort->second);
    }
    return sorts;
  }

  Result<std::vector<bool>> HoldsFor(const Row& row, const LayerSorts& sorts) const {
    std::vector<bool> of_sort;
    for (const std::optional<std::int64_t>& layer : sorts.example) {
      Result<bool> value = Holds(row, layer);
      if (!value) return InRow(std::move(value).error(), row);
      of_sort.push_back(*value);
    }
    std::vector<bool> holds;
    holds.reserve(sorts.of_tuple.size());
    for (const std::size_t sort : sorts.of_tuple) holds.push_back(of_sort[sort]);
    return holds;
  }

  /// The tuples that share a name under a prefix with the indices `named`, in their order.
  static std::vector<std::vector<std::size_t>> TogetherUnder(const std::vector<std::string>& named, const std::vector<IndexValues>& tuples) {
    std::vector<std::vector<std::size_t>> groups;
    std::map<std::vector<std::int64_t>, std::size_t> places;
    for (std::size_t t = 0; t < tuples.size(); ++t) {
      std::vector<std::int64_t> values;
      for (const std::string& letter : named) {
        if (const auto value = tuples[t].find(letter); value != tuples[t].end()) values.push_back(value->second);
      }
      const auto [place, fresh] = places.try_emplace(std::move(values), groups.size());
      if (fresh) groups.emplace_back();
      groups[place->second].push_back(t);
    }
    return groups;
  }

  /// The hub bound to itself, tuple by tuple as AddHub numbered it.
  Status Identity(const Group& group, const std::vector<Bound>& rows, std::size_t tuples) {
    std::vector<std::size_t> next(rows.size(), 0);
    std::vector<bool> released;
    binding_.tensors.reserve(binding_.hub.size());
    for (const Bound& bound : rows) released.push_back(SpellingOf(group, *bound.row) == nullptr);
    for (std::size_t t = 0; t < tuples; ++t) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (!released[r] || next[r] == rows[r].tuples.size() || rows[r].tuples[next[r]] != t) continue;
        for (const std::int32_t index : rows[r].Of(next[r]++)) {
          const HubTensor& source = binding_.hub[static_cast<std::size_t>(index)];
          DialectTensor tensor;
          tensor.name = SpelledName(family_, options_.spellings, source.name);
          tensor.shape = source.shape;
          tensor.hub = {index};
          tensor.forward = expr::Leaf(index, DType::kF32, source.shape);
          tensor.first_layer = source.layer;
          tensor.row_line = source.row_line;
          binding_.tensors.push_back(std::move(tensor));
        }
      }
    }
    return OkStatus();
  }

  /// What a chosen spelling has for a row; null where the row stays as released.
  const RowTarget* SpellingOf(const Group& group, const Row& row) const {
    for (const std::string& name : options_.spellings) {
      const auto spelling = family_.spellings.find(name);
      if (spelling == family_.spellings.end()) continue;
      for (const SpellingRow& one : spelling->second.rows) {
        if (one.hub == group.hub_prefix + row.hub) return &one.target;
      }
    }
    return nullptr;
  }

  /// The rows that a chosen spelling keeps in other tensors.
  Status Spelled(const Group& group, const std::vector<Bound>& rows, const std::vector<IndexValues>& tuples) {
    for (const Bound& bound : rows) {
      const RowTarget* target = SpellingOf(group, *bound.row);
      if (target == nullptr) continue;
      RowTarget spelled = *target;
      spelled.name = SpelledName(family_, options_.spellings, target->name);
      const std::vector<std::string> named = IndicesOf(spelled.name);
      for (const std::vector<std::size_t>& together : TogetherUnder(named, tuples)) CROSSDOCK_RETURN_IF_ERROR(Targets("", bound, spelled, together, tuples, named));
    }
    return OkStatus();
  }

  /// The targets of one row for the tuples that share a name; stacked over the indices that the name lacks.
  Status Target(const std::string& prefix, const Bound& bound, const std::vector<std::size_t>& together, const std::vector<IndexValues>& tuples,
                const std::vector<std::string>& named) {
    const Row& row = *bound.row;
    const auto found = row.targets.find(options_.dialect);
    if (found == row.targets.end() || found->second.name == "-" || Lacks(options_.dialect)) return OkStatus();
    return Targets(prefix, bound, found->second, together, tuples, named);
  }

  Status Targets(const std::string& prefix, const Bound& bound, const RowTarget& target, const std::vector<std::size_t>& together,
                 const std::vector<IndexValues>& tuples, const std::vector<std::string>& named) {
    const Row& row = *bound.row;
    std::vector<Member> members;
    for (const std::size_t t : together) {
      const auto use = std::ranges::lower_bound(bound.tuples, t);
      if (use != bound.tuples.end() && *use == t) members.push_back({&tuples[t], bound.Of(static_cast<std::size_t>(use - bound.tuples.begin()))});
    }
    if (members.empty()) return OkStatus();
    const bool joined = target.ops.size() == 1;
    for (std::size_t at = 0; at < target.ops.size(); ++at) {
      Status made = OneTarget(prefix, row, target, joined ? std::optional<std::size_t>() : at, members, named);
      if (!made) return InRow(std::move(made).error(), row);
    }
    return OkStatus();
  }

  bool Lacks(const std::string& dialect) const { return std::find(family_.without.begin(), family_.without.end(), dialect) != family_.without.end(); }

  /// A part of a hub tensor as a leaf of its own.
  Result<Expr> PartLeaf(std::int32_t hub, std::int64_t at, const OpInfo& op) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr part, SplitPart(op.name, expr::Leaf(0, DType::kF32, binding_.hub[static_cast<std::size_t>(hub)].shape), at, letters_));
    binding_.parts.push_back({hub, at, op.splits, std::string(op.name), part->shape});
    return expr::Leaf(kFirstPart + static_cast<int>(binding_.parts.size()) - 1, DType::kF32, part->shape);
  }

  /// One index tuple of a row.
  struct Member {
    const IndexValues* indices = nullptr;
    RowHub hub;
  };

  Status OneTarget(const std::string& prefix, const Row& row, const RowTarget& target, std::optional<std::size_t> source,
                   const std::vector<Member>& members, const std::vector<std::string>& named) {
    const OpContext context{&letters_, options_.padded_vocab};
    const std::size_t at = source.value_or(0);
    std::vector<std::vector<OpOutput>> outputs;
    CROSSDOCK_ASSIGN_OR_RETURN(const OpInfo first_op, FindOp(target.ops[at].front()));
    for (const Member& member : members) {
      const RowHub inputs = source && first_op.splits == 0 ? member.hub.subspan(at, 1) : member.hub;
      std::vector<Expr> leaves = Leaves(inputs);
      if (first_op.splits != 0) {
        CROSSDOCK_ASSIGN_OR_RETURN(leaves.front(), PartLeaf(inputs.front(), static_cast<std::int64_t>(at), first_op));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(std::vector<OpOutput> made, ApplyOps(target.ops[at], leaves, context, options_.split_gate_up));
      outputs.push_back(std::move(made));
    }
    const std::size_t halves = outputs.front().size();
    for (std::size_t half = 0; half < halves; ++half) {
      DialectTensor tensor;
      tensor.name = FillIndices(ForConsumer(prefix + ExpandGroups(target.name, static_cast<std::int64_t>(at))), *members.front().indices, letters_);
      if (halves == 2) tensor.name += half == 0 ? "_w" : "_v";
      tensor.padded_rows = outputs.front()[half].padded_rows;
      tensor.expert_axis = outputs.front()[half].experts ? 0 : -1;
      tensor.row_line = row.line;
      tensor.first_layer = LayerOf(*members.front().indices);
      std::vector<Expr> parts;
      for (const std::vector<OpOutput>& one : outputs) parts.push_back(one[half].expr);
      CROSSDOCK_RETURN_IF_ERROR(StackParts(std::move(parts), members, named, tensor));
      tensor.shape = tensor.forward->shape;
      for (int ordinal : expr::LeafOrdinals(tensor.forward)) {
        if (tensor.hub.empty() || tensor.hub.back() != ordinal) tensor.hub.push_back(ordinal);  // slices of one tensor follow each other
      }
      if (!names_.insert(tensor.name).second) {
        return MakeError(ErrorCode::kUnsupported, "layers of different kinds cannot lie along one axis").WithTensor(tensor.name);
      }
      binding_.tensors.push_back(std::move(tensor));
    }
    return OkStatus();
  }

  /// The parts of the tuples along new axes for the indices that the name lacks: experts first, layers at the dialect's axis.
  Status StackParts(std::vector<Expr> parts, const std::vector<Member>& members, const std::vector<std::string>& named, DialectTensor& tensor) const {
    const IndexValues& first = *members.front().indices;
    const auto names = [&](const std::string& letter) { return std::find(named.begin(), named.end(), letter) != named.end(); };
    std::vector<std::string> missing;
    for (const auto& [letter, value] : first) {
      const bool layer = letter == "l" || letter == kOrdinal;  // either one tells the other
      if (layer ? letter == "l" && !names("l") && !names(kOrdinal) : !names(letter)) missing.push_back(letter);
    }
    const bool experts = std::find(missing.begin(), missing.end(), "e") != missing.end();
    if (missing.size() > (experts ? 2U : 1U)) return MakeError(ErrorCode::kUnsupported, "a tensor can be stacked over layers and experts only");
    if (missing.empty()) {
      CROSSDOCK_CHECK(parts.size() == 1);
      tensor.forward = std::move(parts.front());
      return OkStatus();
    }
    if (experts) {
      const auto without = [](IndexValues indices) { return indices.erase("e"), indices; };
      std::vector<Expr> layers;
      for (std::size_t begin = 0; begin < parts.size();) {
        const IndexValues layer = without(*members[begin].indices);
        std::size_t end = begin + 1;
        while (end < parts.size() && without(*members[end].indices) == layer) ++end;
        CROSSDOCK_ASSIGN_OR_RETURN(Expr stack, expr::Stack({parts.begin() + static_cast<std::ptrdiff_t>(begin), parts.begin() + static_cast<std::ptrdiff_t>(end)}, 0));
        layers.push_back(std::move(stack));
        begin = end;
      }
      parts = std::move(layers);
      tensor.expert_axis = 0;
    }
    if (missing.size() == (experts ? 1U : 0U)) {
      CROSSDOCK_CHECK(parts.size() == 1);
      tensor.forward = std::move(parts.front());
      return OkStatus();
    }
    const int axis = std::min(options_.stack_axis, static_cast<int>(parts.front()->shape.size()));
    CROSSDOCK_ASSIGN_OR_RETURN(tensor.forward, expr::Stack(parts, axis));
    tensor.stack_axis = axis;
    if (tensor.expert_axis >= axis) ++tensor.expert_axis;
    return OkStatus();
  }

  const FamilyFile& family_;
  const Model& model_;
  const Letters& letters_;
  const BindOptions& options_;
  std::string consumer_;
  std::set<std::string> names_;           ///< of the dialect's tensors so far
  Binding binding_;
};

}  // namespace

std::string SpelledName(const FamilyFile& family, const std::vector<std::string>& spellings, const std::string& hub_name) {
  const std::pair<const std::string, std::string>* best = nullptr;
  for (const std::string& name : spellings) {
    const auto spelling = family.spellings.find(name);
    if (spelling == family.spellings.end()) continue;
    for (const auto& prefix : spelling->second.prefixes) {
      if (hub_name.starts_with(prefix.first) && (best == nullptr || prefix.first.size() > best->first.size())) best = &prefix;
    }
  }
  return best == nullptr ? hub_name : best->second + hub_name.substr(best->first.size());
}

std::int32_t HubOf(const Binding& binding, std::int32_t ordinal) {
  return ordinal < kFirstPart ? ordinal : binding.parts[static_cast<std::size_t>(ordinal - kFirstPart)].hub;
}

const std::string& HubNameOf(const Binding& binding, std::int32_t ordinal) { return binding.hub[static_cast<std::size_t>(HubOf(binding, ordinal))].name; }

Result<Expr> PartOf(const Binding& binding, std::int32_t ordinal, const Expr& hub) {
  if (ordinal < kFirstPart) return hub;
  const HubPart& part = binding.parts[static_cast<std::size_t>(ordinal - kFirstPart)];
  return SplitPart(part.op, hub, part.at, binding.letters);
}

Result<Expr> FromParts(const Binding& binding, std::int32_t hub, const std::map<std::int64_t, Expr>& parts) {
  const auto kind = std::ranges::find(binding.parts, hub, &HubPart::hub);
  if (kind == binding.parts.end() || static_cast<std::int64_t>(parts.size()) != kind->of) return Expr();
  std::vector<Expr> all;
  for (const auto& [at, part] : parts) {
    if (!all.empty() && part->dtype != all.front()->dtype) {
      return MakeError(ErrorCode::kUnsupported, "the parts of one tensor differ in their dtype")
          .WithTensor(binding.hub[static_cast<std::size_t>(hub)].name)
          .WithExpected(std::string(DTypeName(all.front()->dtype)))
          .WithFound(std::string(DTypeName(part->dtype)));
    }
    all.push_back(part);
  }
  return JoinParts(kind->op, all, binding.letters);
}

Result<Binding> Bind(const FamilyFile& family, const Model& model, const BindOptions& options) { return Binder(family, model, options).Run(); }

}  // namespace crossdock::family
