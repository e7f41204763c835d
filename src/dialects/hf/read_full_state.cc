// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/sort_through.h"
#include "dialects/hf/claim.h"
#include "dialects/hf/extras.h"
#include "dialects/hf/random_states.h"
#include "dialects/hf/full_state.h"
#include "dialects/hf/hf_dialect.h"

namespace crossdock::dialects::hf {
namespace {

/// Its writer names the model and always Muon.
Status CheckLing(const Value& metadata) {
  for (const auto& [key, wanted] : {std::pair{"model_name", ""}, std::pair{"optimizer", "muon"}}) {
    const auto found = metadata.GetString(key);
    if (found && !found->empty() && (*wanted == 0 || *found == wanted)) continue;
    return MakeError(ErrorCode::kCorrupt, fmt::format("the metadata is not that of {}", kLingFormat))
        .WithTensor(fmt::format("__metadata__.{}", key))
        .WithExpected(*wanted == 0 ? "the model's name" : wanted)
        .WithFound(found ? Printable(*found) : "nothing");
  }
  return OkStatus();
}

/// A model_name that is another family's than the one that config.json tells: one of both files belongs to another model.
Status CheckModelName(const Value& metadata, const HubState& hub) {
  const auto named = metadata.GetString("model_name");
  if (!named || *named == hub.family->name) return OkStatus();
  const auto& known = family::BuiltinFamilies();
  if (std::none_of(known.begin(), known.end(), [&](const family::FamilyFile& file) { return file.name == *named; })) return OkStatus();
  return MakeError(ErrorCode::kCorrupt, "the metadata names another model than config.json")
      .WithTensor("__metadata__.model_name")
      .WithExpected(hub.family->name)
      .WithFound(Printable(*named))
      .WithHint("take the config.json that belongs to these weights");
}

Status CheckFormat(const Value& metadata, HubState* hub) {
  const auto format = metadata.GetString("format");
  if (format == kFullStateFormat) return OkStatus();
  if (format == kLingFormat) return CheckLing(metadata);
  if (!format || *format == "pt") {
    hub->notices.push_back(fmt::format("the metadata names no full-state format; read as {}", kFullStateFormat));
    return OkStatus();
  }
  return MakeError(ErrorCode::kUnsupported, "a full-state format that this version does not know")
      .WithTensor("__metadata__.format")
      .WithExpected(fmt::format("{} or {}", kFullStateFormat, kLingFormat))
      .WithFound(Printable(*format));
}

Result<std::optional<std::int64_t>> MetadataInteger(const Value& metadata, std::string_view key) {
  const auto text = metadata.GetString(key);
  if (!text || text->empty()) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size()) {
    return MakeError(ErrorCode::kCorrupt, "the metadata holds no number where one must be")
        .WithTensor("__metadata__." + std::string(key))
        .WithFound(Printable(*text));
  }
  return std::optional<std::int64_t>(value);
}

Status ReadCounters(const Value& metadata, const Value& meta, HubState* hub) {
  Counters& c = hub->counters;
  for (const auto& [key, value] : meta.as_dict()->items) {
    const std::string& name = *key.as_string();
    std::optional<std::int64_t>* place = name == "meta/step"         ? &c.step
                                         : name == "meta/adam_count" ? &c.adam_count
                                         : name == "meta/muon_count" ? &c.muon_count
                                                                     : nullptr;
    if (place == nullptr) {
      return MakeError(ErrorCode::kUnsupported, "a counter that no place is known for")
          .WithTensor(name)
          .WithExpected("meta/step, meta/adam_count or meta/muon_count");
    }
    if (*value.as_int() < 0) {
      return MakeError(ErrorCode::kCorrupt, "a counter is negative").WithTensor(name).WithFound(std::to_string(*value.as_int()));
    }
    *place = *value.as_int();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto step, MetadataInteger(metadata, "step"));
  if (step && c.step && *step != *c.step) {
    return MakeError(ErrorCode::kCorrupt, "tensor and metadata disagree about the step")
        .WithTensor("meta/step")
        .WithExpected(fmt::format("{} (metadata)", *step))
        .WithFound(std::to_string(*c.step));
  }
  if (!c.step) c.step = step;
  CROSSDOCK_ASSIGN_OR_RETURN(c.consumed_train_samples, MetadataInteger(metadata, "consumed_train_samples"));
  return OkStatus();
}

/// The optimizer's copy of a parameter: its shape, or the same elements in one row.
Result<expr::Expr> InShape(std::int32_t at, const Entry& entry, const Shape& wanted) {
  expr::Expr leaf = expr::Leaf(at, entry.dtype, entry.shape);
  if (entry.shape == wanted) return leaf;
  const std::int64_t count = CheckedCount(wanted);
  if (entry.shape.size() == 1 && entry.shape[0] == count) return expr::Reshape(std::move(leaf), wanted);
  return MakeError(ErrorCode::kCorrupt, "optimizer state does not have its parameter's shape")
      .WithTensor(entry.name)
      .WithExpected(fmt::format("{} or [{}]", ToString(wanted), count))
      .WithFound(ToString(entry.shape));
}

Status ClaimOptimizer(Reading* reading) {
  const Catalog& source = *reading->source;
  std::vector<HubTensor> found;
  for (const family::DialectTensor& param : reading->binding.tensors) {
    if (FindTensor(source, reading->prefix, param.name) < 0) continue;  // told as missing
    for (const Slot slot : kAllSlots) {
      if (slot == Slot::kParam) continue;
      const std::int32_t at = FindTensor(source, FullStateName(slot, ""), param.name);
      if (at < 0) continue;
      const auto index = static_cast<std::size_t>(at);
      const Entry& entry = source.entries[index];
      reading->claimed[index] = true;
      if (!IsFloating(entry.dtype) || BitsOf(entry.dtype) < 16) {
        return MakeError(ErrorCode::kUnsupported, "optimizer state of this type is not carried").WithTensor(entry.name)
            .WithExpected("F64, F32, F16 or BF16").WithFound(std::string(DTypeName(entry.dtype)));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr expr, InShape(at, entry, param.shape));
      CROSSDOCK_RETURN_IF_ERROR(AddHub(reading->binding, param, slot, entry.dtype, expr, &found));
    }
  }
  for (HubTensor& tensor : found) reading->hub.tensors.push_back(std::move(tensor));
  return OkStatus();
}

/// State of a head that is tied to the embedding: the embedding's own counts.
void LeaveTiedOptimizer(Reading* reading) {
  if (!reading->hub.tied) return;
  for (const Slot slot : kAllSlots) {
    if (slot == Slot::kParam) continue;
    const std::int32_t at = reading->source->Find(FullStateName(slot, HeadOf(*reading->hub.family)));
    if (at < 0 || reading->claimed[static_cast<std::size_t>(at)]) continue;
    const Entry& entry = reading->source->entries[static_cast<std::size_t>(at)];
    const auto bytes = ByteSize(entry.dtype, entry.shape);
    reading->claimed[static_cast<std::size_t>(at)] = true;
    AddLeftOut(&reading->hub.left_out, entry.name, "state of a head that is tied: the embedding's own counts", bytes ? *bytes : 0);
  }
}

bool HoldsTiedHead(const Reading& reading) {
  return !reading.hub.model.Holds("untied") && FindHub(reading, HeadOf(*reading.hub.family)) >= 0;
}

void NameOptimizer(const Value& metadata, HubState* hub) {
  if (const auto optimizer = metadata.GetString("optimizer")) hub->optimizer = *optimizer;
  if (!hub->optimizer.empty()) return;
  for (const HubTensor& tensor : hub->tensors) {
    if (tensor.slot == Slot::kMuonMu) hub->optimizer = "muon";
    if (tensor.slot == Slot::kAdamMu && hub->optimizer.empty()) hub->optimizer = "adam";
  }
}

/// What Muon's momentum is: as recorded; else as in the checkpoint whose settings travel along. ling3's form records nothing.
Status ReadMomentum(const Value& metadata, HubState* hub) {
  if (hub->optimizer != "muon") return OkStatus();
  const auto said = metadata.GetString("muon_momentum");
  if (said && *said != "ema" && *said != "sum") {
    return MakeError(ErrorCode::kUnsupported, "a convention of Muon's momentum that is not known").WithTensor("__metadata__.muon_momentum")
        .WithExpected("ema or sum").WithFound(Printable(*said));
  }
  hub->muon_momentum = said.value_or(hub->extras_words == "mcore" ? "ema" : "");
  if (const auto text = metadata.GetString("muon_beta")) {
    double beta = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), beta);
    if (error != std::errc() || end != text->data() + text->size() || !(beta >= 0 && beta < 1)) {
      return MakeError(ErrorCode::kCorrupt, "the momentum of Muon is no number from 0 to below 1").WithTensor("__metadata__.muon_beta").WithFound(Printable(*text));
    }
    hub->muon_beta = beta;
  }
  return OkStatus();
}

}  // namespace

Result<HubState> ReadFullState(const Catalog& source, const ReadOptions& options) {
  const auto object = [&](const char* name) {
    const auto at = source.objects.find(name);
    return at == source.objects.end() ? Value::MakeDict() : at->second;
  };
  const Value metadata = object("__metadata__");
  HubState probe;
  CROSSDOCK_RETURN_IF_ERROR(CheckFormat(metadata, &probe));
  CROSSDOCK_ASSIGN_OR_RETURN(Reading reading, StartReading(source, options, std::string(kParamPrefix)));
  HubState& hub = reading.hub;
  for (std::string& notice : probe.notices) hub.notices.push_back(std::move(notice));
  if (options.family == nullptr) CROSSDOCK_RETURN_IF_ERROR(CheckModelName(metadata, hub));
  hub.model_name = metadata.GetString("model_name").value_or("");
  CROSSDOCK_RETURN_IF_ERROR(ReadCounters(metadata, object("meta"), &hub));
  CROSSDOCK_RETURN_IF_ERROR(ClaimParams(&reading));
  CROSSDOCK_RETURN_IF_ERROR(ClaimOptimizer(&reading));
  if (HoldsTiedHead(reading)) {
    hub.tied = TiedPair{FindHub(reading, EmbeddingOf(*hub.family)), FindHub(reading, HeadOf(*hub.family))};
    LeaveTiedOptimizer(&reading);
  }
  SortOutRest(&reading, options.allow_unknown_tensors);
  if (options.allow_missing_tensors) reading.missing.clear();
  CROSSDOCK_RETURN_IF_ERROR(Report(reading));
  NameOptimizer(metadata, &hub);
  if (const auto text = metadata.GetString("crossdock_extras")) {
    CROSSDOCK_ASSIGN_OR_RETURN(Extras extras, DecodeExtras(*text));
    hub.extras = std::move(extras.values);
    hub.extras_words = std::move(extras.words);
  }
  if (const auto text = metadata.GetString(kRandomStatesKey)) {
    Result<RandomStates> random = DecodeRandomStates(*text);
    if (random) {
      hub.random = *std::move(random);
    } else {
      hub.random.refusal = random.error().message;   // weights and optimizer state are whole without them
    }
    hub.left_out.push_back({"rng_state", random ? "random number generators belong to the ranks of the run that wrote them" : hub.random.refusal, std::max<std::int64_t>(hub.random.count(), 1), 0});
  }
  CROSSDOCK_RETURN_IF_ERROR(ReadMomentum(metadata, &hub));
  SortThrough(&hub.tensors, [](const HubTensor& a, const HubTensor& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
  hub.load_hint = fmt::format("crossdock convert \"{}\" OUT --to hf|megatron", Printable(source.root, 4096));
  return std::move(hub);
}

}  // namespace crossdock::dialects::hf
