// SPDX-License-Identifier: Apache-2.0
#include "convert/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "convert/convert_source.h"
#include "convert/kinds.h"
#include "convert/summary.h"
#include "dialects/hf/config.h"

namespace crossdock::convert {
namespace {

/// Keys that change what the model computes; all others may be told in passing.
constexpr std::array kChangesOutput = {
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act", "tie_word_embeddings",
    "attention_bias", "mlp_bias", "sliding_window", "use_sliding_window", "layer_types", "model_type",
    "partial_rotary_factor"};
constexpr std::array kMayChange = {"max_position_embeddings", "max_window_layers", "bos_token_id", "eos_token_id", "pad_token_id", "attention_dropout",
                                   "architectures", "dtype", "torch_dtype"};
/// Written by whoever saved last; says nothing of the model.
constexpr std::array kIgnored = {"transformers_version", "_name_or_path", "use_cache", "initializer_range"};

template <typename List>
bool Has(const List& list, std::string_view key) {
  return std::ranges::find(list, key) != list.end();
}

/// In the words of config.json, whatever the side speaks.
Result<Value> HfWords(const dialects::HubState& hub) {
  if (hub.config.words == "hf" || hub.family == nullptr) return hub.config.values;
  return dialects::hf::ConfigFromMcoreArgs(*hub.family, hub.config.values);
}

/// rope_theta and rope_scaling stand at the top in old files and under rope_parameters in new ones: one spelling.
Value OneSpelling(const Value& config) {
  Value out = Value::MakeDict();
  if (config.as_dict() == nullptr) return out;
  for (const auto& [key, value] : config.as_dict()->items) {
    if (key.as_string() != nullptr) out.Set(*key.as_string(), value);
  }
  if (const Value* rope = config.Find("rope_parameters"); rope != nullptr && rope->as_dict() != nullptr) {
    if (const Value* theta = rope->Find("rope_theta")) out.Set("rope_theta", *theta);
    Value scaling = Value::MakeDict();
    for (const auto& [key, value] : rope->as_dict()->items) {
      if (key.as_string() != nullptr && *key.as_string() != "rope_theta") scaling.Set(*key.as_string(), value);
    }
    if (rope->GetString("rope_type").value_or("default") != "default") out.Set("rope_scaling", std::move(scaling));
  }
  out.Erase("rope_parameters");
  if (const Value* dtype = out.Find("dtype"); dtype != nullptr && out.Find("torch_dtype") == nullptr) out.Set("torch_dtype", *dtype);
  out.Erase("dtype");
  return out;
}

/// What transformers takes where a config.json of these families is silent (5.0: configuration_llama, mistral, qwen2, qwen3).
void SayDefaults(Value* config) {
  const auto say = [&](const char* key, const Value& value) {
    const Value* there = config->Find(key);
    if (there == nullptr || there->is_null()) config->Set(key, value);
  };
  const std::optional<std::int64_t> heads = config->GetInt("num_attention_heads");
  const std::optional<std::int64_t> hidden = config->GetInt("hidden_size");
  const std::string type = config->GetString("model_type").value_or("");
  if (heads && type != "mistral") say("num_key_value_heads", Value(*heads));
  if (heads && *heads > 0 && hidden && type != "qwen3") say("head_dim", Value(*hidden / *heads));
  say("rope_theta", Value(10000.0));
  say("rms_norm_eps", Value(1e-6));
  say("hidden_act", Value("silu"));
  say("partial_rotary_factor", Value(1.0));
  for (const char* off : {"tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"}) say(off, Value(false));
  if (type.starts_with("qwen") && !config->GetBool("use_sliding_window").value_or(false)) config->Erase("sliding_window");
  // A list that only says what its absence means.
  const Value* types = config->Find("layer_types");
  const ValueList* list = types != nullptr ? types->as_sequence() : nullptr;
  if (list != nullptr && std::ranges::all_of(*list, [](const Value& v) { return v.Equals(Value("full_attention")); })) config->Erase("layer_types");
}

/// A whole number is equal to the float of the same value: `10000` and `10000.0`.
bool SameValue(const Value& a, const Value& b) {
  if ((a.as_int() != nullptr || a.as_float() != nullptr) && (b.as_int() != nullptr || b.as_float() != nullptr)) {
    const double x = a.as_int() != nullptr ? static_cast<double>(*a.as_int()) : *a.as_float();
    const double y = b.as_int() != nullptr ? static_cast<double>(*b.as_int()) : *b.as_float();
    return !(x < y) && !(y < x);
  }
  return a.Equals(b);
}

Result<std::string> ContentOf(const Source& source, const SideFile& file) {
  if (file.bytes) return *file.bytes;
  return io::ReadSmallFile(*source.storage, file.copy_from, std::int64_t{1} << 30U);
}

std::string ConsequenceWord(int consequence) {
  return consequence == 2 ? "changes the output" : consequence == 1 ? "may change the output" : "for information";
}

std::string CountsLine(const std::string& name, const verify::Counts& c) {
  return fmt::format("{:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", name, c.num_baseline, c.num_roundtrip, c.num_bit_identical,
                     c.num_exact_matches, c.num_close_matches, c.num_different);
}

/// Equal weights do not make equal models.
bool OtherModel(const verify::Comparison& c) {
  return std::ranges::any_of(c.config_differences, [](const auto& d) { return d.consequence == 2; });
}

/// "58 tensors: F32 against BF16" for a cast of all; the names where only some differ.
std::vector<std::string> DTypeLines(const std::vector<std::string>& mismatches) {
  std::map<std::string, std::vector<std::string>> by_pair;
  for (const std::string& line : mismatches) {
    const std::size_t at = line.rfind(": ");
    by_pair[at == std::string::npos ? "" : line.substr(at + 2)].push_back(line);
  }
  std::vector<std::string> lines;
  for (const auto& [pair, names] : by_pair) {
    if (names.size() > 3) {
      lines.push_back(fmt::format("{} tensors: {}", names.size(), pair));
    } else {
      for (const std::string& line : names) lines.push_back(Printable(line));
    }
  }
  return lines;
}

/// "[5, 7]" for a row-major element of a shape.
std::string PlaceOf(std::int64_t index, const Shape& shape) {
  if (shape.empty() || index < 0) return fmt::format("element {}", index);
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    place[i] = shape[i] > 0 ? index % shape[i] : 0;
    index = shape[i] > 0 ? index / shape[i] : 0;
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string ComparisonText(const verify::Comparison& c) {
  std::string out = !c.passed ? "DIFFERENT\n" : OtherModel(c) ? "DIFFERENT: equal tensors, but the configuration changes the output\n" : "equal\n";
  out += fmt::format("{:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "slot", "A", "B", "identical", "exact", "close", "different");
  for (const auto& [slot, counts] : c.slots) out += CountsLine(slot, counts);
  out += CountsLine("total", c.total);
  if (c.total.num_different != 0) {
    out += "identical: the same bytes; exact: |a-b| <= 1e-6 + 1e-4 |b|; close: |a-b| <= 1e-4 + 1e-3 |b|, in every element;\n"
           "different: not identical, or with --exact close not close\n";
  }
  if (!c.dtype_mismatches.empty() && !c.passed) {
    out += "a cast is proven while it is made: `crossdock convert ... --dtype D --verify`; afterwards --exact close compares across dtypes\n";
  }
  const auto escaped = [](const std::vector<std::string>& names) {
    std::vector<std::string> lines;
    for (const std::string& name : names) lines.push_back(Printable(name));
    return lines;
  };
  out += Section("missing in B", escaped(c.missing_keys), 20);
  out += Section("only in B", escaped(c.extra_keys), 20);
  out += Section("other shape", escaped(c.shape_mismatches), 20);
  out += Section("other dtype", DTypeLines(c.dtype_mismatches), 20);
  out += Section("other values", escaped(c.mismatched_keys), 20);
  out += Section("not finite", escaped(c.nonfinite), 20);
  out += Section("counters", c.counter_differences, 20);
  std::vector<std::string> config;
  for (const verify::ConfigDifference& d : c.config_differences) {
    config.push_back(fmt::format("{}: {} against {} ({})", Printable(d.key), Printable(d.a), Printable(d.b), ConsequenceWord(d.consequence)));
  }
  out += Section("configuration", config, 40);
  out += fmt::format("largest difference {}, mean {}\n", c.max_abs_diff, c.mean_abs_diff);
  return out;
}

}  // namespace

Result<std::vector<verify::ConfigDifference>> CompareConfigs(const dialects::HubState& a, const dialects::HubState& b) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value left_words, HfWords(a));
  CROSSDOCK_ASSIGN_OR_RETURN(const Value right_words, HfWords(b));
  Value left = OneSpelling(left_words);
  Value right = OneSpelling(right_words);
  // What one side's words cannot say is no difference: Megatron's arguments have no bos_token_id.
  const bool both_full = a.config.words == b.config.words;
  if (both_full) {
    SayDefaults(&left);
    SayDefaults(&right);
  }
  std::map<std::string, std::pair<const Value*, const Value*>> keys;
  for (const auto& [key, value] : left.as_dict()->items) keys[*key.as_string()].first = &value;
  for (const auto& [key, value] : right.as_dict()->items) keys[*key.as_string()].second = &value;
  std::vector<verify::ConfigDifference> out;
  for (const auto& [key, values] : keys) {
    const auto& [x, y] = values;
    if (Has(kIgnored, key)) continue;
    // null and absent are the same to every reader of config.json.
    if ((x == nullptr || x->is_null()) && (y == nullptr || y->is_null())) continue;
    if (x != nullptr && y != nullptr && SameValue(*x, *y)) continue;
    if ((x == nullptr || y == nullptr) && !both_full) continue;
    const int consequence = Has(kChangesOutput, key) ? 2 : Has(kMayChange, key) ? 1 : 0;
    out.push_back({key, x == nullptr ? "absent" : ToJson(*x, 0), y == nullptr ? "absent" : ToJson(*y, 0), consequence});
  }
  std::ranges::stable_sort(out, [](const auto& p, const auto& q) { return p.consequence > q.consequence; });
  return out;
}

Result<std::vector<std::string>> CompareTokenizers(const Source& a, const Source& b) {
  std::map<std::string, std::pair<const SideFile*, const SideFile*>> files;
  for (const SideFile& file : a.hub.side_files) {
    if (IsTokenizerFile(file.path)) files[file.path].first = &file;
  }
  for (const SideFile& file : b.hub.side_files) {
    if (IsTokenizerFile(file.path)) files[file.path].second = &file;
  }
  std::vector<std::string> out;
  for (const auto& [path, pair] : files) {
    if (pair.first == nullptr || pair.second == nullptr) {
      out.push_back(fmt::format("{}: only in {}", path, pair.first != nullptr ? "A" : "B"));
      continue;
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string left, ContentOf(a, *pair.first));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string right, ContentOf(b, *pair.second));
    if (left != right) out.push_back(fmt::format("{}: other bytes", path));
  }
  return out;
}

Result<verify::Comparison> CompareSources(const Source& a, const Source& b, const CompareOptions& options, const Hooks& hooks) {
  verify::Options how;
  how.exact = options.exact;
  // A side that cannot hold optimizer state is not compared in what it cannot hold.
  how.params_only = !HoldsOptimizer(a.found.kind) || !HoldsOptimizer(b.found.kind);
  how.memory = options.memory;
  how.stop = hooks.stop;
  how.on_progress = [&hooks](std::int64_t done, std::int64_t total) {
    if (hooks.on_progress) hooks.on_progress({"comparing", done, total, ""});
  };
  // Nor are masters, where one side has no place for them.
  const bool masters = options.masters && HoldsMasters(a.found.kind) && HoldsMasters(b.found.kind);
  dialects::HubState left, right;
  const auto side = [&](const Source& source, dialects::HubState* copy) -> const dialects::HubState* {
    if (masters) return &source.hub;
    *copy = source.hub;
    std::erase_if(copy->tensors, [](const auto& t) { return t.slot == Slot::kMaster; });
    return copy;
  };
  CROSSDOCK_ASSIGN_OR_RETURN(verify::Comparison out, verify::Compare({a.storage, a.reader.get(), side(a, &left), a.label},
                                                                     {b.storage, b.reader.get(), side(b, &right), b.label}, how));
  CROSSDOCK_ASSIGN_OR_RETURN(out.config_differences, CompareConfigs(a.hub, b.hub));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> tokenizers, CompareTokenizers(a, b));
  const bool told = std::ranges::any_of(out.config_differences, [](const auto& d) { return d.key == "model_type"; });
  if (a.hub.family != nullptr && b.hub.family != nullptr && a.hub.family->name != b.hub.family->name && !told) {
    out.config_differences.push_back({"family", a.hub.family->name, b.hub.family->name, 2});
  }
  for (const std::string& line : tokenizers) {
    const std::size_t colon = line.find(": ");
    out.config_differences.push_back({line.substr(0, colon), "its own bytes", line.substr(colon + 2), 1});
  }
  std::ranges::stable_sort(out.config_differences, [](const auto& p, const auto& q) { return p.consequence > q.consequence; });
  return out;
}

Report ComparisonReport(const verify::Comparison& comparison, const std::vector<std::string>& notices) {
  Report report;
  verify::Comparison judged = comparison;
  judged.passed = comparison.passed && !OtherModel(comparison);
  report.equal = judged.passed;
  report.text = ComparisonText(comparison) + Section("notices", notices);
  report.json = verify::ToJsonReport(judged);
  for (const verify::Difference& d : comparison.worst) {
    report.remarks.push_back(fmt::format("[DIFF] {}: {} at {}", Printable(d.name), d.max_abs, PlaceOf(d.first_index, d.shape)));
  }
  return report;
}

}  // namespace crossdock::convert
