// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/claim.h"

#include <fmt/format.h>

#include <algorithm>

#include "dialects/hf/config_check.h"
#include "dialects/hf/config_patch.h"
#include "dialects/hf/fp8_experts.h"
#include "dialects/hf/infer_letters.h"
#include "dialects/hf/mtp.h"
#include "dialects/hf/spelling.h"
#include "family/detect.h"
#include "family/family_file.h"
#include "tensor/find_near.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::size_t kNamesShown = 20;

std::int64_t BytesOf(const Entry& entry) {
  const auto bytes = ByteSize(entry.dtype, entry.shape);
  return bytes ? *bytes : 0;  // the reader has checked it
}

/// Buffers that old checkpoints carry and models compute anew; "" when the name is none.
std::string_view BufferReason(std::string_view name) {
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with(".inv_freq")) return "computed anew by the model (rotary frequencies)";
  if (name.ends_with("._extra_state")) return "Transformer Engine's own state, no weight";
  if (name.ends_with(".masked_bias") || name.ends_with(".attn.bias") || name.ends_with(".attention.bias") ||
      name.ends_with(".rotary_emb.cos_cached") || name.ends_with(".rotary_emb.sin_cached")) {
    return "a buffer that the model computes anew (masks, cached rotary values)";
  }
  return {};
}

std::string List(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) out += (i == 0 ? "`" : ", `") + Printable(names[i]) + "`";
  if (names.size() > kNamesShown) out += fmt::format(" and {} more", names.size() - kNamesShown);
  return out;
}

Result<const family::FamilyFile*> ChooseFamily(const ReadOptions& options, const family::ModelConfig& config) {
  if (options.family != nullptr) return options.family;
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  return family::DetectByConfig(config, families);
}

/// Copies that the source holds are claimed: they are compared with what they repeat, not carried.
void ClaimCopies(Reading* reading) {
  const bool untied = reading->hub.model.Holds("untied");
  for (const family::HubCopy& copy : reading->binding.copies) {
    HubCopy one{copy.name, copy.of == kHead && !untied ? std::string(kEmbedding) : copy.of, FindHub(*reading, copy.name), -1};
    one.original = FindHub(*reading, one.of);
    one.absent = one.entry < 0 && reading->prefix.empty();   // a full state has no place for copies
    if (one.entry >= 0) {
      const auto index = static_cast<std::size_t>(one.entry);
      reading->claimed[index] = true;
      AddLeftOut(&reading->hub.left_out, reading->source->entries[index].name, "repeats `" + one.of + "`, which stands for both", BytesOf(reading->source->entries[index]));
    }
    reading->hub.copies.push_back(std::move(one));
  }
}

Error NoConfig(const Catalog& source) {
  return MakeError(ErrorCode::kIncomplete, "no config.json beside the weights")
      .WithPath(source.root)
      .WithHint("give the directory of a model with the same architecture as --hf-template");
}

/// How `wanted` is read where it is stored quantized: as the dtype that is asked for, which leaves one rounding, not two.
Quantization QuantizationOf(const Reading& reading, const family::DialectTensor& wanted) {
  Quantization how = reading.quantization;
  const auto kept = [&](std::int32_t at) { return family::FitsAny(reading.keep_dtype, reading.binding.hub[static_cast<std::size_t>(at)].name); };
  if (reading.dequantized && std::ranges::none_of(wanted.hub, kept)) how.dtype = *reading.dequantized;
  return how;
}

/// `hub_name` as blocks of MXFP4, also spelled without `model.`.
Result<std::optional<Dequantized>> FindMxfp4(const Reading& reading, std::string_view hub_name, const Quantization& how) {
  CROSSDOCK_ASSIGN_OR_RETURN(std::optional<Dequantized> found, ReadMxfp4(*reading.source, reading.prefix + std::string(hub_name), how));
  if (found || !hub_name.starts_with("model.")) return found;
  return ReadMxfp4(*reading.source, reading.prefix + std::string(hub_name.substr(6)), how);
}

/// What is told once more for each weight that is made of several stored tensors.
Status AddDequantized(const family::DialectTensor& wanted, Dequantized made, Reading* reading) {
  const Catalog& source = *reading->source;
  for (const std::int32_t entry : made.entries) reading->claimed[static_cast<std::size_t>(entry)] = true;
  if (made.expr->shape != wanted.shape) {
    const std::string& name = source.entries[static_cast<std::size_t>(made.entries.front())].name;
    reading->mismatched.push_back(fmt::format("{}: expected {}, found {}", name, ToString(wanted.shape), ToString(made.expr->shape)));
    return OkStatus();
  }
  const DType dtype = made.expr->dtype;
  if (!made.form.empty()) {
    ++reading->quantized[fmt::format("({}{}) and read as {}", made.form, made.assumed_block ? " (assumed: config.json names no block)" : "", DTypeName(dtype))];
  }
  return AddHub(reading->binding, wanted, Slot::kParam, dtype, made.expr, &reading->hub.tensors);
}

void TellDequantized(Reading* reading) {
  for (const auto& [form, count] : reading->quantized) {
    reading->hub.notices.push_back(fmt::format("{} weights are stored quantized {}; there is no optimizer state for them", count, form));
  }
}

/// The template's configuration with the sizes of the tensors at hand.
Status UseTemplate(Reading* reading, const ReadOptions& options) {
  HubState& hub = reading->hub;
  hub.config = *options.template_config;
  CROSSDOCK_ASSIGN_OR_RETURN(hub.family, ChooseFamily(options, hub.config));
  if (!hub.family->text_config.empty()) {  // sizes in several dictionaries: the tensors must fit them as they are
    hub.notices.push_back("no config.json beside the weights: the template's is taken");
    return OkStatus();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Letters of_template, family::EvaluateLetters(*hub.family, hub.config));
  const auto shape_of = [&](std::string_view name) -> const Shape* {
    const std::int32_t at = FindTensor(*reading->source, reading->prefix, name);
    return at < 0 ? nullptr : &reading->source->entries[static_cast<std::size_t>(at)].shape;
  };
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Letters letters, InferLetters(*hub.family, of_template, shape_of));
  CROSSDOCK_RETURN_IF_ERROR(PatchLetters(*hub.family, letters, &hub.config.values));
  if (shape_of(kEmbedding) != nullptr && shape_of(kHead) == nullptr) hub.config.values.Set("tie_word_embeddings", Value(true));
  hub.notices.push_back("no config.json beside the weights: the template gives the architecture, the tensors the sizes");
  return OkStatus();
}

}  // namespace

std::string HeadOf(const family::FamilyFile& family) { return family.language_model ? family.language_model->Within(std::string(kHead)) : std::string(kHead); }

std::string EmbeddingOf(const family::FamilyFile& family) {
  return family.language_model ? family.language_model->Within(std::string(kEmbedding)) : std::string(kEmbedding);
}

void AddLeftOut(std::vector<LeftOut>* left, std::string name, std::string reason, std::int64_t bytes) {
  for (LeftOut& one : *left) {
    if (one.reason != reason) continue;
    ++one.count;
    one.bytes += bytes;
    return;
  }
  left->push_back({std::move(name), std::move(reason), 1, bytes});
}

Result<Reading> StartReading(const Catalog& source, const ReadOptions& options, std::string prefix) {
  Reading reading;
  reading.source = &source;
  reading.prefix = std::move(prefix);
  reading.claimed.resize(source.entries.size(), false);
  HubState& hub = reading.hub;
  if (const auto config = source.objects.find("config.json"); config != source.objects.end()) {
    hub.config = {"hf", config->second};
    CROSSDOCK_RETURN_IF_ERROR(CheckConfigFields(hub.config.values, source.root + "/config.json"));
    CROSSDOCK_ASSIGN_OR_RETURN(hub.family, ChooseFamily(options, hub.config));
  } else if (options.template_config && options.template_config->words == "hf") {
    CROSSDOCK_RETURN_IF_ERROR(UseTemplate(&reading, options));
  } else {
    return NoConfig(source);
  }
  Result<Quantization> quantization = ReadQuantization(hub.config.values);
  if (!quantization) return std::move(quantization).error().WithPath(source.root + "/config.json");
  reading.quantization = std::move(quantization).value();
  reading.quantization.allow_unscaled = options.allow_unscaled_fp8;
  reading.dequantized = options.dequantized;
  reading.keep_dtype = options.keep_dtype;
  CROSSDOCK_ASSIGN_OR_RETURN(hub.model, family::EvaluateModel(*hub.family, hub.config));
  const auto found = [&](std::string_view name) { return FindTensor(source, reading.prefix, name); };
  const auto shape_of = [&](std::string_view name) {
    const std::int32_t at = found(name);
    return at < 0 ? nullptr : &source.entries[static_cast<std::size_t>(at)].shape;
  };
  CROSSDOCK_ASSIGN_OR_RETURN(reading.spellings, FindSpelling(*hub.family, hub.model, shape_of, source.root));
  const auto has = [&](std::string_view name) { return FindHub(reading, name) >= 0; };
  CROSSDOCK_RETURN_IF_ERROR(AgreeOnMtp(*hub.family, CountMtpLayers(*hub.family, hub.model.letters, has), "config.json", &hub.config, &hub.model, &hub.notices));
  family::BindOptions bind;
  bind.dialect = "hf";
  bind.spellings = reading.spellings;
  CROSSDOCK_ASSIGN_OR_RETURN(reading.binding, family::Bind(*hub.family, hub.model, bind));
  for (const std::string& name : reading.spellings) hub.notices.push_back(fmt::format("the names are spelled as the family's `{}`", name));
  hub.order.reserve(reading.binding.hub.size());
  for (const family::HubTensor& tensor : reading.binding.hub) hub.order.push_back(tensor.name);
  for (const SideFile& file : source.side_files) hub.side_files.push_back(file);
  hub.notices.insert(hub.notices.begin(), source.notices.begin(), source.notices.end());
  return reading;
}

Result<std::vector<std::string>> NamesOfFamily(const Catalog& source, const ReadOptions& options) {
  family::ModelConfig config;
  if (const auto own = source.objects.find("config.json"); own != source.objects.end()) {
    config = {"hf", own->second};
  } else if (options.template_config && options.template_config->words == "hf") {
    config = *options.template_config;
  } else {
    return NoConfig(source);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const family::FamilyFile* family, ChooseFamily(options, config));
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(*family, config));
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesOfAllSpellings(*family, model));
  if (std::find(names.begin(), names.end(), HeadOf(*family)) == names.end()) names.push_back(HeadOf(*family));
  return names;
}

std::int32_t FindTensor(const Catalog& source, std::string_view prefix, std::string_view hub_name, std::int32_t* near) {
  const auto find = [&](std::string_view name) {
    std::string whole;
    if (!prefix.empty()) name = whole.append(prefix).append(name);
    return near != nullptr ? FindNear(source, name, near) : source.Find(name);
  };
  const std::int32_t at = find(hub_name);
  if (at >= 0 || !hub_name.starts_with("model.")) return at;
  return find(hub_name.substr(6));  // a base model saved without its head
}

std::int32_t FindHub(const Reading& reading, std::string_view hub_name) {
  return FindTensor(*reading.source, reading.prefix, family::SpelledName(*reading.hub.family, reading.spellings, std::string(hub_name)));
}

Status AddHub(const family::Binding& binding, const family::DialectTensor& spelled, Slot slot, DType dtype, const expr::Expr& whole, std::vector<HubTensor>* out) {
  const auto hub_of = [&](std::int32_t ordinal) -> const family::HubTensor& { return binding.hub[static_cast<std::size_t>(ordinal)]; };
  if (spelled.forward->op == expr::Op::kLeaf) {
    const family::HubTensor& hub = hub_of(spelled.hub.front());
    out->push_back({hub.name, slot, dtype, hub.shape, whole});
    return OkStatus();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto inverses, expr::Inverses(spelled.forward));
  for (const std::int32_t ordinal : spelled.hub) {
    CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr back, expr::ForSlot(inverses.at(ordinal), slot));
    CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr placed, expr::Substitute(back, [&](int) -> Result<expr::Expr> { return whole; }));
    const family::HubTensor& hub = hub_of(ordinal);
    out->push_back({hub.name, slot, dtype, hub.shape, expr::Simplify(placed)});
  }
  return OkStatus();
}

Status ClaimParams(Reading* reading) {
  const Catalog& source = *reading->source;
  std::int64_t unprefixed = 0;
  std::int32_t near = 0;
  reading->hub.tensors.reserve(reading->binding.tensors.size());
  for (const family::DialectTensor& wanted : reading->binding.tensors) {
    const std::int32_t at = FindTensor(source, reading->prefix, wanted.name, &near);
    if (at < 0) {
      const Quantization how = QuantizationOf(*reading, wanted);
      CROSSDOCK_ASSIGN_OR_RETURN(std::optional<Dequantized> packed, FindMxfp4(*reading, wanted.name, how));
      if (!packed) {
        CROSSDOCK_ASSIGN_OR_RETURN(packed, JoinExperts(*reading->hub.family, source, reading->prefix + wanted.name, wanted.shape, how));
      }
      if (packed) {
        CROSSDOCK_RETURN_IF_ERROR(AddDequantized(wanted, std::move(*packed), reading));
      } else {
        reading->missing.push_back(wanted.name);
      }
      continue;
    }
    const auto index = static_cast<std::size_t>(at);
    const Entry& entry = source.entries[index];
    if (reading->claimed[index]) {
      reading->missing.push_back(wanted.name);  // the family file names one tensor twice
      continue;
    }
    reading->claimed[index] = true;
    if (!entry.name.ends_with(wanted.name)) ++unprefixed;
    if (entry.shape != wanted.shape) {
      reading->mismatched.push_back(fmt::format("{}: expected {}, found {}", entry.name, ToString(wanted.shape), ToString(entry.shape)));
      continue;
    }
    if (IsFp8Weight(entry)) {
      CROSSDOCK_ASSIGN_OR_RETURN(Dequantized made, ReadFp8(source, at, QuantizationOf(*reading, wanted)));
      CROSSDOCK_RETURN_IF_ERROR(AddDequantized(wanted, std::move(made), reading));
      continue;
    }
    if (!IsFloating(entry.dtype) || BitsOf(entry.dtype) < 16) {
      return MakeError(ErrorCode::kUnsupported, "a weight of this type is not carried in this version")
          .WithTensor(entry.name)
          .WithExpected("F64, F32, F16 or BF16, or F8_E4M3 or F8_E5M2 with scales")
          .WithFound(std::string(DTypeName(entry.dtype)));
    }
    CROSSDOCK_RETURN_IF_ERROR(AddHub(reading->binding, wanted, Slot::kParam, entry.dtype, expr::Leaf(at, entry.dtype, entry.shape), &reading->hub.tensors));
  }
  TellDequantized(reading);
  ClaimCopies(reading);
  if (unprefixed > 0) {
    reading->hub.notices.push_back(fmt::format("{} names lack the prefix `model.`, which is added", unprefixed));
  }
  return OkStatus();
}

void SortOutRest(Reading* reading, bool allow_unknown) {
  const Catalog& source = *reading->source;
  const bool untied = reading->hub.model.Holds("untied");
  const std::string head = family::SpelledName(*reading->hub.family, reading->spellings, HeadOf(*reading->hub.family));
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    if (reading->claimed[i]) continue;
    const Entry& entry = source.entries[i];
    std::string_view name = entry.name;
    if (name.starts_with(reading->prefix)) name.remove_prefix(reading->prefix.size());
    std::string_view reason = BufferReason(name);
    if (reason.empty() && !reading->quantized.empty()) reason = ActivationScaleReason(name);
    if (!reason.empty()) {
      AddLeftOut(&reading->hub.left_out, entry.name, std::string(reason), BytesOf(entry));
    } else if (name == head && !untied && FindHub(*reading, EmbeddingOf(*reading->hub.family)) >= 0) {
      reading->hub.tied = TiedPair{FindHub(*reading, EmbeddingOf(*reading->hub.family)), static_cast<std::int32_t>(i)};
      AddLeftOut(&reading->hub.left_out, entry.name, "tied to the embedding, which stands for both", BytesOf(entry));
    } else if (allow_unknown) {
      AddLeftOut(&reading->hub.left_out, entry.name, "no rule of the family names it (--allow unknown-tensors)", BytesOf(entry));
    } else {
      reading->unknown.push_back(entry.name);
    }
  }
}

Status Report(const Reading& reading) {
  if (reading.missing.empty() && reading.unknown.empty() && reading.mismatched.empty()) return OkStatus();
  std::string message;
  const auto add = [&](const std::vector<std::string>& names, std::string_view what) {
    if (names.empty()) return;
    message += fmt::format("{}{} {}: {}", message.empty() ? "" : "; ", names.size(), what, List(names));
  };
  add(reading.missing, "tensors of the model are missing");
  add(reading.mismatched, "tensors have another shape than the configuration says");
  add(reading.unknown, fmt::format("tensors are unknown to the family {}", reading.hub.family->name));
  const ErrorCode code = !reading.missing.empty()      ? ErrorCode::kIncomplete
                         : !reading.mismatched.empty() ? ErrorCode::kCorrupt
                                                       : ErrorCode::kUnsupported;
  const std::string& first = !reading.missing.empty()      ? reading.missing[0]
                             : !reading.mismatched.empty() ? reading.mismatched[0]
                                                           : reading.unknown[0];
  // One model has several spellings on disk ("visual." and "model.visual."): then nearly all is missing and unknown at once.
  const bool part = !reading.hub.family->text_config.empty();
  if (part && !reading.missing.empty() && !reading.unknown.empty()) {
    return MakeError(code, message)
        .WithPath(reading.source->root)
        .WithTensor(first)
        .WithHint("if the names are another spelling of this model's, which this version does not read: load it with transformers, which saves the released one");
  }
  return MakeError(code, message)
      .WithPath(reading.source->root)
      .WithTensor(first.substr(0, first.find(": expected")))
      .WithHint(!reading.missing.empty()      ? "the checkpoint is incomplete, or its config.json is another model's"
                : !reading.mismatched.empty() ? "config.json and weights belong to different models"
                                              : "--allow unknown-tensors leaves them behind; --family or --rules choose other rules");
}

}  // namespace crossdock::dialects::hf
