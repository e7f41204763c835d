// SPDX-License-Identifier: Apache-2.0
#include "cli/convert_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/values.h"

namespace crossdock::cli {
namespace {

/// Sets *slot from an option; kUsage when two spellings name different things.
Status Take(std::optional<std::string> value, std::string_view what, std::optional<std::string>* slot) {
  if (!value) return OkStatus();
  if (*slot && **slot != *value) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} is given twice", what))
        .WithFound(fmt::format("`{}` and `{}`", Printable(**slot), Printable(*value)));
  }
  *slot = std::move(value);
  return OkStatus();
}

Result<std::string> FormatOfSaver(const std::string& saver) {
  if (ListHas("llama_mistral llama-mistral hf", saver)) return std::string("hf");
  if (ListHas("core mcore megatron", saver)) return std::string("megatron");
  return MakeError(ErrorCode::kUsage, "`--saver` takes one of: llama_mistral, hf, core, mcore, megatron")
      .WithFound(fmt::format("`{}`", Printable(saver)));
}

Result<std::string> FormatOfLoader(const std::string& loader) {
  if (ListHas("llama_mistral llama-mistral mixtral_hf hf", loader)) return std::string("hf");
  if (ListHas("core mcore megatron", loader)) return std::string("megatron");
  return MakeError(ErrorCode::kUsage, "`--loader` takes one of: llama_mistral, hf, core, mcore, megatron")
      .WithFound(fmt::format("`{}`", Printable(loader)));
}

/// convert.py names sizes ("llama3-8B", "qwen2.5-7B"); the part before the digits is the family's. Nothing for a size alone ("7B", "13Bf").
std::optional<std::string> FamilyOfModelSize(const std::string& size) {
  if (!size.empty() && size.front() >= '0' && size.front() <= '9') return std::nullopt;
  std::string lower(size);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* family : {"qwen3", "qwen2", "mixtral", "mistral", "llama"}) {
    if (lower.starts_with(family)) return family;
  }
  return lower.starts_with("yi-") ? "llama" : lower;   // Yi has Llama's configuration and names
}

/// One optional value through a parser of values.h.
template <typename T, typename Parse>
Status Get(const Request& request, std::string_view name, const Parse& parse, T* out) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> text, request.One(name));
  if (!text) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(*out, parse(name, *text));
  return OkStatus();
}

Result<std::string> Verbatim(std::string_view, const std::string& text) { return text; }

auto IntFrom(std::int64_t least, std::int64_t most = INT64_MAX) {
  return [=](std::string_view name, const std::string& text) { return ParseInt(name, text, least, most); };
}

Status SmallInt(const Request& request, std::string_view name, std::int64_t least, int* out) {
  std::int64_t value = *out;
  CROSSDOCK_RETURN_IF_ERROR(Get(request, name, IntFrom(least, 65536), &value));
  *out = static_cast<int>(value);
  return OkStatus();
}

Status TakeFlag(const Request& request, std::string_view name, bool* out) {
  *out = request.Flag(name);
  return OkStatus();
}

/// The options of the layout: each with what reads it, so that none is forgotten in `given`.
struct LayoutOption {
  const char* name;
  Status (*read)(const Request&, std::string_view name, LayoutOptions*);
};
const std::array layout_options = {
    LayoutOption{"tp", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 1, &o->tp); }},
    LayoutOption{"pp", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 1, &o->pp); }},
    LayoutOption{"ep", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 1, &o->ep); }},
    LayoutOption{"etp", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 1, &o->etp); }},
    LayoutOption{"encoder-tp", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 0, &o->encoder_tp); }},
    LayoutOption{"vpp", [](const Request& r, std::string_view n, LayoutOptions* o) { return SmallInt(r, n, 1, &o->vpp); }},
    LayoutOption{"pipeline-layers", [](const Request& r, std::string_view n, LayoutOptions* o) { return Get(r, n, ParseList, &o->pipeline_layers); }},
    LayoutOption{"first-stage-layers", [](const Request& r, std::string_view n, LayoutOptions* o) { return Get(r, n, IntFrom(0), &o->first_stage_layers); }},
    LayoutOption{"last-stage-layers", [](const Request& r, std::string_view n, LayoutOptions* o) { return Get(r, n, IntFrom(0), &o->last_stage_layers); }},
    LayoutOption{"num-layers-per-virtual-pipeline-stage",
                 [](const Request& r, std::string_view n, LayoutOptions* o) { return Get(r, n, IntFrom(1), &o->layers_per_virtual_stage); }},
    LayoutOption{"pipeline-layout", [](const Request& r, std::string_view n, LayoutOptions* o) { return Get(r, n, Verbatim, &o->pipeline_layout); }},
    LayoutOption{"account-for-embedding", [](const Request& r, std::string_view n, LayoutOptions* o) { return TakeFlag(r, n, &o->account_for_embedding); }},
    LayoutOption{"account-for-loss", [](const Request& r, std::string_view n, LayoutOptions* o) { return TakeFlag(r, n, &o->account_for_loss); }},
};

Status FillLayout(const Request& request, LayoutOptions* layout) {
  for (const LayoutOption& option : layout_options) {
    CROSSDOCK_RETURN_IF_ERROR(option.read(request, option.name, layout));
    layout->given = layout->given || request.values.contains(option.name);
  }
  return OkStatus();
}

Status FillDType(const Request& request, std::optional<std::string>* dtype) {
  // Every spelling may come several times; what counts is that all say the same.
  std::vector<std::string> all = request.All("dtype");
  for (const char* name : {"bf16", "fp16", "fp32"}) {
    if (request.Flag(name)) all.emplace_back(name);
  }
  for (const std::string& text : all) {
    CROSSDOCK_ASSIGN_OR_RETURN(std::string parsed, ParseDType("dtype", text));
    if (*dtype && **dtype != parsed) {
      return MakeError(ErrorCode::kUsage, "two different dtypes are asked for")
          .WithFound(fmt::format("`{}` and `{}`", **dtype, parsed));
    }
    *dtype = std::move(parsed);
  }
  return OkStatus();
}

Status FillNames(const Request& request, ConvertOptions* options) {
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "from", Verbatim, &options->from));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> loader, request.One("loader"));
  if (loader) {
    CROSSDOCK_ASSIGN_OR_RETURN(std::string from, FormatOfLoader(*loader));
    CROSSDOCK_RETURN_IF_ERROR(Take(std::move(from), "the source's format", &options->from));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> type, request.One("model-type"));
  if (type && *type != "GPT" && *type != "gpt") {
    return MakeError(ErrorCode::kUnsupported, "`--model-type` other than GPT is not available in this version")
        .WithFound(fmt::format("`{}`", Printable(*type)));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> form, request.One("checkpoint-type"));
  if (form && *form != "hf") {
    return MakeError(ErrorCode::kUnsupported, "`--checkpoint-type` other than hf is not available in this version")
        .WithFound(fmt::format("`{}`", Printable(*form)))
        .WithHint("take the model's Hugging Face directory");
  }
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "family", Verbatim, &options->family));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> size, request.One("model-size"));
  if (size && !options->family) options->family = FamilyOfModelSize(*size);
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "rules", Verbatim, &options->rules));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "tokenizer-model", Verbatim, &options->tokenizer));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "for", Verbatim, &options->consumer));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "tunix-template", Verbatim, &options->tunix_template));
  return OkStatus();
}

Status FillState(const Request& request, ConvertOptions* options) {
  CROSSDOCK_RETURN_IF_ERROR(FillDType(request, &options->dtype));
  options->keep_dtype = request.All("keep-dtype");
  CROSSDOCK_ASSIGN_OR_RETURN(options->allow, AllowedThings(request));
  for (const std::string& text : request.All("set")) {
    CROSSDOCK_ASSIGN_OR_RETURN(auto pair, ParsePair("set", text));
    options->set_args.push_back(std::move(pair));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(options->step, WantedStep(request));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "iteration", IntFrom(0), &options->iteration));
  const auto copy = [](std::string_view name, const std::string& text) { return ParseChoice(name, text, "model master"); };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "params-from", copy, &options->params_from));
  const auto mtp = [](std::string_view name, const std::string& text) { return ParseChoice(name, text, "keep drop template"); };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "mtp", mtp, &options->mtp));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "experts", Verbatim, &options->experts));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "make-vocab-size-divisible-by", IntFrom(1, 1 << 30), &options->vocab_divisor));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "padded-vocab-size", IntFrom(1), &options->padded_vocab));
  const bool scanned = request.values.contains("scan-layers");
  if (scanned) options->scan_layers = request.Flag("scan-layers");
  if (request.Flag("no-scan-layers")) {
    if (scanned && *options->scan_layers) return MakeError(ErrorCode::kUsage, "`--scan-layers` and `--no-scan-layers` contradict each other");
    options->scan_layers = false;
  }
  std::optional<std::int64_t> axis;
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "scan-axis", IntFrom(0, 3), &axis));
  if (axis) options->scan_axis = static_cast<int>(*axis);
  const auto type = [](std::string_view name, const std::string& text) { return ParseChoice(name, text, "adamw adam_pax muon adam"); };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "opt-type", type, &options->opt_type));
  const auto convention = [](std::string_view name, const std::string& text) { return ParseChoice(name, text, "ema sum"); };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "muon-momentum", convention, &options->muon_momentum));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "compression", [](std::string_view name, const std::string& text) { return ParseCompression(name, text); }, &options->zstd_level));
  options->no_commit_marker = request.Flag("no-commit-marker");
  options->no_optim = request.Flag("no-optim");
  options->no_rng = request.Flag("no-rng");
  options->require_optim = request.Flag("require-optim");
  options->release = request.Flag("release");
  if (options->no_optim && options->require_optim) {
    return MakeError(ErrorCode::kUsage, "`--no-optim` and `--require-optim` contradict each other");
  }
  if (options->release && options->iteration) {
    return MakeError(ErrorCode::kUsage, "`--release` and `--iteration` contradict each other");
  }
  return OkStatus();
}

Result<std::pair<std::int64_t, std::int64_t>> ParseBlock(std::string_view name, const std::string& text) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31U;
  const Result<std::vector<std::int64_t>> sizes = ParseList(name, text);
  const bool fits = sizes && sizes->size() == 2 && (*sizes)[0] > 0 && (*sizes)[1] > 0 && (*sizes)[0] <= kLargest && (*sizes)[1] <= kLargest;
  if (fits) return std::pair((*sizes)[0], (*sizes)[1]);
  return MakeError(ErrorCode::kUsage, fmt::format("`--{}` takes rows and columns, two whole numbers of at least 1", name))
      .WithFound(fmt::format("`{}`", Printable(text)));
}

/// `--fp8 [S]` and `--fp8-strategy S` say the same; a word for none switches it off, and `--fp8` alone names none ("").
Status FillStrategy(const Request& request, std::optional<std::string>* out) {
  std::optional<std::string> asked;
  bool unnamed = false;
  for (const char* name : {"fp8", "fp8-strategy"}) {
    CROSSDOCK_ASSIGN_OR_RETURN(std::optional<std::string> text, request.One(name));
    if (text && ListHas("true 1", *text)) {
      unnamed = true;
      text.reset();
    }
    CROSSDOCK_RETURN_IF_ERROR(Take(std::move(text), "the FP8 strategy", &asked));
  }
  if (!asked && unnamed) *out = "";
  if (!asked || ListHas("none off false 0", *asked)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(*out, ParseChoice("fp8", *asked, "block channel tensor"));
  return OkStatus();
}

Status FillFp8(const Request& request, Fp8Request* fp8) {
  CROSSDOCK_RETURN_IF_ERROR(FillStrategy(request, &fp8->strategy));
  const auto one_of = [](std::string_view choices) {
    return [choices](std::string_view name, const std::string& text) { return ParseChoice(name, text, choices); };
  };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "fp8-block-size", ParseBlock, &fp8->block));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "scale-fmt", one_of("ue8m0"), &fp8->scale_format));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "fp8-format", one_of("native compressed-tensors"), &fp8->format));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "fp8-arith", one_of("reference relax"), &fp8->arithmetic));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "fp8-device", one_of("cpu cuda"), &fp8->device));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "check-tp", IntFrom(1, 65536), &fp8->check_tp));
  fp8->skip = request.All("fp8-skip");
  fp8->only = request.All("fp8-only");
  return OkStatus();
}

Status FillWork(const Request& request, ConvertOptions* options) {
  const auto size = [](std::string_view name, const std::string& text) { return ParseSize(name, text); };
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "max-shard-size", size, &options->max_shard_bytes));
  std::optional<std::int64_t> mebibytes;
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "fp8-max-shard-size-mb", IntFrom(1, 1 << 30), &mebibytes));
  if (mebibytes) options->max_shard_bytes = *mebibytes << 20U;
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "memory", size, &options->memory));
  CROSSDOCK_RETURN_IF_ERROR(SmallInt(request, "threads", 0, &options->threads));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "receipt", Verbatim, &options->receipt));
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "emit-manifest", Verbatim, &options->emit_manifest));
  options->force = request.Flag("force");
  options->resume = request.Flag("resume");
  options->dry_run = request.Flag("dry-run") || request.command->bit == kPlan;
  options->verify = request.Flag("verify");
  options->manifest_only = request.Flag("manifest-only");
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string>> AllowedThings(const Request& request) {
  const bool converting = (request.command->bit & kConverting) != 0;
  std::vector<std::string> allow = request.All("allow");
  for (const std::string& what : allow) {
    const Result<std::string> checked = ParseChoice("allow", what, converting ? "unknown-tensors unscaled-fp8 missing-optimizer nonfinite inexact" : "unknown-tensors unscaled-fp8");
    if (!checked) return checked.error();
  }
  return allow;
}

Result<std::optional<StepChoice>> WantedStep(const Request& request) {
  std::optional<StepChoice> step;
  CROSSDOCK_RETURN_IF_ERROR(Get(request, "step", ParseStep, &step));
  return step;
}

Status CheckLocal(const std::string& path) {
  const std::size_t scheme = path.find("://");
  if (scheme == std::string::npos || scheme == 0 || path.find('/') < scheme) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, fmt::format("`{}` URLs are not available in this version", Printable(path.substr(0, scheme + 3))))
      .WithPath(path)
      .WithHint("copy the checkpoint to a local path first");
}

Result<std::string> ResolvePath(const std::string& word, const Machine& machine) {
  CROSSDOCK_RETURN_IF_ERROR(CheckLocal(word));
  const std::size_t slash = word.find('/');
  const bool id = slash != std::string::npos && slash != 0 && slash + 1 < word.size() &&
                  word.find('/', slash + 1) == std::string::npos && word[0] != '.' && word[0] != '~';
  if (!id || machine.exists(word)) return word;
  const auto variable = [&](const char* name) {
    const char* text = machine.environment(name);
    return std::string(text == nullptr ? "" : text);
  };
  std::string cache = variable("HF_HUB_CACHE");
  if (cache.empty() && !variable("HF_HOME").empty()) cache = variable("HF_HOME") + "/hub";
  if (cache.empty() && !variable("HOME").empty()) cache = variable("HOME") + "/.cache/huggingface/hub";
  const std::string folder = fmt::format("{}/models--{}--{}", cache, word.substr(0, slash), word.substr(slash + 1));
  if (!cache.empty() && machine.exists(folder)) return folder;
  // A folder of that name tells a path with a typing error from the name of a model.
  if (machine.exists(word.substr(0, slash))) return word;
  return MakeError(ErrorCode::kIncomplete, "there is no such path, and no model of this name in the local hub cache")
      .WithPath(word)
      .WithExpected(fmt::format("`{}`", Printable(folder, 4096)))
      .WithHint("nothing is downloaded: fetch the model first, or give the path of its directory");
}

Result<Ends> ResolveEnds(const Request& request, const Machine& machine) {
  std::optional<std::string> source, target, to, hf_template;
  CROSSDOCK_ASSIGN_OR_RETURN(to, request.One("to"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> saver, request.One("saver"));
  if (saver) {
    CROSSDOCK_ASSIGN_OR_RETURN(std::string format, FormatOfSaver(*saver));
    if (to && *to != format) {
      return MakeError(ErrorCode::kUsage, "`--saver` and `--to` name two formats")
          .WithFound(fmt::format("`--saver {}`, which is `{}`, and `--to {}`", Printable(*saver), format, Printable(*to)))
          .WithHint("leave one of them out");
    }
    to = std::move(format);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(source, request.One("source"));
  CROSSDOCK_ASSIGN_OR_RETURN(target, request.One("target"));
  CROSSDOCK_ASSIGN_OR_RETURN(hf_template, request.One("hf-template"));
  CROSSDOCK_ASSIGN_OR_RETURN(std::optional<std::string> megatron_path, request.One("megatron-path"));
  CROSSDOCK_ASSIGN_OR_RETURN(std::optional<std::string> hf_path, request.One("hf-path"));
  CROSSDOCK_ASSIGN_OR_RETURN(std::optional<std::string> hf_model, request.One("hf-model"));
  const bool to_megatron = to && to->starts_with("megatron");
  CROSSDOCK_RETURN_IF_ERROR(to_megatron ? Take(std::move(megatron_path), "TARGET", &target)
                                        : Take(std::move(megatron_path), "SOURCE", &source));
  CROSSDOCK_RETURN_IF_ERROR(to == "hf" ? Take(std::move(hf_path), "TARGET", &target)
                                       : Take(std::move(hf_path), "SOURCE", &source));
  std::vector<std::string> words = request.positionals;
  // A model beside one free word: the word is the target, and the model the source.
  if (hf_model && !source && (words.empty() || (words.size() == 1 && !target))) source = std::exchange(hf_model, {});
  for (std::optional<std::string>* slot : {&source, &target}) {
    if (*slot || words.empty()) continue;
    *slot = words.front();
    words.erase(words.begin());
  }
  if (!words.empty()) {
    return MakeError(ErrorCode::kUsage, fmt::format("`crossdock {}` has one word too many", request.command->name))
        .WithFound(fmt::format("`{}`", Printable(words.front())))
        .WithHint(fmt::format("usage: crossdock {} {}", request.command->name, request.command->usage));
  }
  CROSSDOCK_RETURN_IF_ERROR(Take(std::move(hf_model), "the template", &hf_template));
  Ends ends{source.value_or(""), target.value_or(""), to.value_or(""), hf_template};
  CROSSDOCK_ASSIGN_OR_RETURN(ends.source, ResolvePath(ends.source, machine));
  CROSSDOCK_RETURN_IF_ERROR(CheckLocal(ends.target));
  if (ends.hf_template) {
    CROSSDOCK_ASSIGN_OR_RETURN(ends.hf_template, ResolvePath(*ends.hf_template, machine));
  }
  return ends;
}

Error MissingWord(const Request& request, const std::string& what) {
  return MakeError(ErrorCode::kUsage, fmt::format("`crossdock {}` needs {}", request.command->name, what))
      .WithHint(fmt::format("usage: crossdock {} {}", request.command->name, request.command->usage));
}

Result<ConvertOptions> BuildConvertOptions(const Request& request, const Machine& machine) {
  ConvertOptions options;
  CROSSDOCK_ASSIGN_OR_RETURN(Ends ends, ResolveEnds(request, machine));
  options.source = std::move(ends.source);
  options.target = std::move(ends.target);
  options.to = std::move(ends.to);
  options.hf_template = std::move(ends.hf_template);
  CROSSDOCK_ASSIGN_OR_RETURN(options.lora_base, request.One("lora-base"));
  if (options.source.empty()) return MissingWord(request, "SOURCE");
  CROSSDOCK_RETURN_IF_ERROR(FillNames(request, &options));
  CROSSDOCK_RETURN_IF_ERROR(FillLayout(request, &options.layout));
  CROSSDOCK_RETURN_IF_ERROR(FillState(request, &options));
  CROSSDOCK_RETURN_IF_ERROR(FillWork(request, &options));
  CROSSDOCK_RETURN_IF_ERROR(FillFp8(request, &options.fp8));
  return options;
}

}  // namespace crossdock::cli
