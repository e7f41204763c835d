// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_export.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "dialects/hf/fp8_choice.h"
#include "dialects/hf/fp8_config.h"
#include "dialects/hf/fp8_experts.h"
#include "dialects/hf/fp8_loaders.h"
#include "dialects/hf/fp8_stored.h"
#include "dialects/hf/fp8_tp.h"
#include "expr/dequantize.h"

namespace crossdock::dialects::hf {
namespace {

using Strategy = Fp8Options::Strategy;

bool PatternFits(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), std::string(ModuleOf(name)).c_str(), 0) == 0;
}

bool FitsAnyPattern(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return PatternFits(pattern, name); });
}

/// A pattern that matches nothing is a typing error.
Status CheckPatterns(const std::vector<std::string>& patterns, const char* option, const Draft& draft) {
  for (const std::string& pattern : patterns) {
    const auto matches = [&](const auto& tensor) { return IsLinearWeight(tensor.first) && PatternFits(pattern, tensor.first.name); };
    if (std::ranges::any_of(draft.tensors, matches)) continue;
    return MakeError(ErrorCode::kUsage, fmt::format("`{}` matches no weight of two axes", option))
        .WithFound(fmt::format("`{}`", Printable(pattern)))
        .WithHint(fmt::format("patterns are matched against whole names, with or without `.weight`: `{} '*.down_proj'`", option));
  }
  return OkStatus();
}

expr::Fp8Format FormatFor(const Fp8Options& fp8, const Shape& shape) {
  expr::Fp8Format out;
  out.scales = fp8.ue8m0 ? expr::ScaleFormat::kUe8m0 : expr::ScaleFormat::kFloat;
  switch (fp8.strategy) {
    case Strategy::kBlock: out.block = fp8.block; break;
    case Strategy::kChannel: out.block = {1, shape[1]}; break;
    case Strategy::kTensor:
      out.block = {shape[0], shape[1]};
      out.whole = true;
      if (fp8.relax) out.arithmetic = expr::Arithmetic::kRelax;
      break;
  }
  return out;
}

/// A weight on its way into FP8.
struct Choice {
  std::size_t at = 0;                  ///< in the draft
  expr::Fp8Format format;
  std::optional<StoredFp8> stored;     ///< goes over as it is
};

class Exporter {
 public:
  Exporter(const HubState& hub, const TargetOptions& options, Draft* draft) : hub_(hub), fp8_(*options.fp8), draft_(*draft), border_(hub.layout.GetInt(kTemplateEntries)) {}

  Result<Fp8Export> Run() {
    CROSSDOCK_RETURN_IF_ERROR(SplitExperts(*hub_.family, &draft_));
    CROSSDOCK_RETURN_IF_ERROR(CheckPatterns(fp8_.skip, "--fp8-skip", draft_));
    CROSSDOCK_RETURN_IF_ERROR(CheckPatterns(fp8_.only, "--fp8-only", draft_));
    FindStored();
    Choose();
    KeepJoinedTogether();
    if (choices_.empty()) return Nothing();
    std::vector<Entry> quantized;
    for (const Choice& choice : choices_) {
      quantized.push_back(draft_.tensors[choice.at].first);
      CROSSDOCK_RETURN_IF_ERROR(Quantize(choice));
    }
    Tell(quantized);
    std::vector<Entry> written;
    for (const auto& [entry, expr] : draft_.tensors) written.push_back(entry);
    out_.quantization_config = QuantizationConfig(fp8_, fp8_.ue8m0 || AllExponents(), UnquantizedModules(hub_, written));
    return std::move(out_);
  }

 private:
  /// config.json of an FP8 source says that its scales are powers of two.
  [[nodiscard]] bool SourceIsUe8m0() const {
    return hub_.config.words == "hf" && hub_.config.values.GetString("quantization_config.scale_fmt").value_or("") == "ue8m0";
  }

  /// Whether a tensor is one of those that --mtp template adds to the source's own.
  [[nodiscard]] bool IsOfTemplate(const expr::Expr& expr) const {
    return border_ && std::ranges::any_of(expr::LeafOrdinals(expr), [&](int leaf) { return leaf >= *border_; });
  }

  /// The source keeps its own choice of weights (the template likewise), where it holds some by this rule.
  [[nodiscard]] bool Mirrors(std::size_t at) const { return IsOfTemplate(draft_.tensors[at].second) ? mirrors_template_ : mirrors_; }

  /// All scales go over as they are, and are powers of two.
  [[nodiscard]] bool AllExponents() const {
    return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.stored && choice.stored->exponents; });
  }

  /// Weights that the source holds by this very rule. Powers of two are floats as well, but not the other way round.
  void FindStored() {
    const bool said = SourceIsUe8m0();
    for (std::size_t at = 0; at < draft_.tensors.size(); ++at) {
      const auto& [entry, expr] = draft_.tensors[at];
      if (!IsLinearWeight(entry)) continue;
      const bool is_fp8 = expr::DequantizedType(expr).has_value();
      std::optional<StoredFp8> stored = AsStored(expr, FormatFor(fp8_, entry.shape).block);
      if (stored && said && !IsOfTemplate(expr)) stored->exponents = true;
      if (stored && (stored->exponents || !fp8_.ue8m0)) {
        stored_.emplace(at, *std::move(stored));
      } else if (is_fp8) {
        again_.insert(at);
      }
    }
    for (const auto& [at, stored] : stored_) (IsOfTemplate(draft_.tensors[at].second) ? mirrors_template_ : mirrors_) = true;
  }

  void Choose() {
    for (std::size_t at = 0; at < draft_.tensors.size(); ++at) {
      const Entry& entry = draft_.tensors[at].first;
      if (!IsLinearWeight(entry)) continue;
      const auto stored = stored_.find(at);
      const bool is_fp8 = stored != stored_.end() || again_.contains(at);
      const bool mirrors = Mirrors(at);
      if (mirrors && !is_fp8) {
        own_choice_.insert(at);
        continue;
      }
      if (FitsAnyPattern(fp8_.skip, entry.name) || (!fp8_.only.empty() && !FitsAnyPattern(fp8_.only, entry.name))) continue;
      if (!mirrors && StaysUnquantized(*hub_.family, entry.name)) continue;
      Choice choice{at, FormatFor(fp8_, entry.shape), std::nullopt};
      if (stored != stored_.end()) choice.stored = stored->second;
      choices_.push_back(std::move(choice));
    }
  }

  /// A loader that joins layers takes them quantized all together or not at all. A group that an FP8 source itself has in parts goes
  /// over as it is.
  void KeepJoinedTogether() {
    std::set<std::size_t> chosen;
    for (const Choice& choice : choices_) chosen.insert(choice.at);
    std::set<std::string> broken;
    for (std::size_t at = 0; at < draft_.tensors.size(); ++at) {
      const Entry& entry = draft_.tensors[at].first;
      const bool weight = entry.shape.size() == 2 && std::string_view(entry.name).ends_with(".weight");
      if (!weight || chosen.contains(at) || own_choice_.contains(at)) continue;
      if (std::string group = JoinedAs(entry.name); !group.empty()) broken.insert(std::move(group));
    }
    std::string first;
    const auto taken = std::erase_if(choices_, [&](const Choice& choice) {
      const std::string& name = draft_.tensors[choice.at].first.name;
      if (!broken.contains(JoinedAs(name))) return false;
      if (first.empty()) first = name;
      return true;
    });
    if (taken == 0) return;
    out_.notices.push_back(fmt::format("{} weights stay as they are because loaders join them with others that do: `{}`{}", taken, first, taken > 1 ? ", ..." : ""));
  }

  Error Nothing() const {
    return MakeError(ErrorCode::kUsage, "no weight is left to be quantized")
        .WithExpected("linear layers or experts in BF16, F16 or F32 that `--fp8-skip` and `--fp8-only` leave")
        .WithFound(fmt::format("{} tensors, none of them", draft_.tensors.size()))
        .WithHint("leave `--fp8` out, or the patterns");
  }

  Status Quantize(const Choice& choice) {
    auto& [entry, expr] = draft_.tensors[choice.at];
    expr::Expr values, scales;
    if (choice.stored) {
      values = choice.stored->values;
      scales = choice.stored->scales;
      if (choice.format.whole) {
        CROSSDOCK_ASSIGN_OR_RETURN(scales, expr::Reshape(scales, {1}));
      }
    } else {
      auto q = expr::QuantizeValues(expr, choice.format);
      if (!q) return std::move(q).error().WithTensor(entry.name);
      values = *std::move(q);
      CROSSDOCK_ASSIGN_OR_RETURN(scales, expr::QuantizeScales(expr, choice.format));
    }
    Entry beside;
    beside.name = entry.name + (fp8_.strategy == Strategy::kBlock && !fp8_.compressed_tensors ? "_scale_inv" : "_scale");
    beside.dtype = DType::kF32;
    beside.shape = scales->shape;
    beside.chunks.emplace_back().box = Box::Whole(beside.shape);
    out_.scale_of.emplace(beside.name, entry.name);
    entry.dtype = DType::kF8E4M3;
    expr = std::move(values);
    draft_.tensors.emplace_back(std::move(beside), std::move(scales));  // `entry` and `expr` are gone from here on
    return OkStatus();
  }

  void Tell(const std::vector<Entry>& quantized) {
    std::string how;
    switch (fp8_.strategy) {
      case Strategy::kBlock: how = fmt::format("blocks of {} x {}", fp8_.block.rows, fp8_.block.cols); break;
      case Strategy::kChannel: how = "one scale a row"; break;
      case Strategy::kTensor: how = "one scale a tensor"; break;
    }
    std::int64_t kept = 0;
    for (const auto& [entry, expr] : draft_.tensors) kept += IsLinearWeight(entry) ? 1 : 0;
    const auto passed = static_cast<std::int64_t>(std::ranges::count_if(choices_, [](const Choice& c) { return c.stored.has_value(); }));
    const auto made = static_cast<std::int64_t>(choices_.size()) - passed;
    if (made > 0) {
      out_.notices.push_back(fmt::format("{} weights are quantized to FP8 ({}{}{}), {} of two axes stay as they are", made, how, fp8_.ue8m0 ? ", scales are powers of two" : "",
                                         fp8_.relax ? ", arithmetic of relax" : "", kept));
    }
    if (passed > 0) {
      out_.notices.push_back(fmt::format("{} weights are FP8 already ({}): codes and scales go over bit for bit, and {} weights that are not FP8 there stay as they are", passed, how, kept));
    }
    if (!again_.empty()) out_.notices.push_back(fmt::format("{} weights are stored in FP8 by another rule: what is quantized of them is rounded a second time", again_.size()));
    if (std::optional<NotByTransformers> why = WhyNotTransformers(*hub_.family, fp8_)) {
      out_.notices.push_back(std::move(why->notice));
      out_.load_line = std::move(why->load_line);
    }
    for (std::string& line : ServingNotices(fp8_, hub_.model, quantized)) out_.notices.push_back(std::move(line));
  }

  const HubState& hub_;
  const Fp8Options& fp8_;
  Draft& draft_;
  std::optional<std::int64_t> border_; ///< kTemplateEntries
  std::map<std::size_t, StoredFp8> stored_;
  bool mirrors_ = false;               ///< the source's own choice of weights is kept
  bool mirrors_template_ = false;      ///< that of a template that adds layers
  std::set<std::size_t> own_choice_;   ///< no FP8 in a source whose choice is kept
  std::set<std::size_t> again_;        ///< FP8 weights of another rule
  std::vector<Choice> choices_;
  Fp8Export out_;
};

}  // namespace

Result<Fp8Export> ExportFp8(const HubState& hub, const TargetOptions& options, Draft* draft) { return Exporter(hub, options, draft).Run(); }

}  // namespace crossdock::dialects::hf
