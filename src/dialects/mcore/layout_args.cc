// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/layout_args.h"

#include <array>
#include <charconv>

#include "fmt/format.h"
#include "layout/pipeline_layout.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::int64_t kLargestSize = 65536;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 20U;

Value Optional(const std::optional<std::int64_t>& value) { return value ? Value(*value) : Value(); }

const Value* Given(const Value& args, const char* name) {
  const Value* value = args.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error Bad(const char* name, const Value& value, std::string expected) {
  return MakeError(ErrorCode::kCorrupt, fmt::format("the argument {} is no size of a layout", name))
      .WithExpected(std::move(expected))
      .WithFound(Printable(ToJson(value, 0)));
}

Result<std::optional<std::int64_t>> Size(const Value& args, const char* name, std::int64_t most) {
  const Value* value = Given(args, name);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::int64_t* number = value->as_int();
  if (number == nullptr || *number < 1 || *number > most) return Bad(name, *value, fmt::format("a number from 1 to {}", most));
  return std::optional<std::int64_t>(*number);
}

Result<int> Ranks(const Value& args, const char* name) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int64_t> size, Size(args, name, kLargestSize));
  return static_cast<int>(size.value_or(1));
}

// ---- the layout string in its four forms: a string, lists of words, lists of LayerType, PipelineParallelLayerLayout ----

/// The letter of one layer of a list: LayerType by name or as the enum (embedding 1, loss 2, decoder 4, mtp 5), or a letter.
std::optional<char> LetterOf(const Value& layer) {
  if (const Opaque* type = layer.as_opaque()) {
    if (type->name != "LayerType" || type->args.size() != 1 || type->args[0].as_int() == nullptr) return std::nullopt;
    switch (*type->args[0].as_int()) {
      case 1: return 'E';
      case 2: return 'L';
      case 4: return 't';
      case 5: return 'm';
      default: return std::nullopt;
    }
  }
  const std::string* word = layer.as_string();
  if (word == nullptr) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, char>, 4> kWords = {{{"embedding", 'E'}, {"loss", 'L'}, {"decoder", 't'}, {"mtp", 'm'}}};
  for (const auto& [name, letter] : kWords) {
    if (*word == name || (word->size() == 1 && word->front() == letter)) return letter;
  }
  return std::nullopt;
}

Result<std::string> LayoutStringOf(const Value& value) {
  constexpr const char* kName = "pipeline_model_parallel_layout";
  const Value* said = &value;
  if (const Opaque* made = value.as_opaque(); made != nullptr && made->state != nullptr) {
    said = made->state->Find("input_data");
    if (said == nullptr) return Bad(kName, value, "an object that keeps its input_data");
  }
  if (const std::string* text = said->as_string()) {
    CROSSDOCK_RETURN_IF_ERROR(layout::ParsePipelineLayout(*text));
    return *text;
  }
  const ValueList* cells = said->as_sequence();
  if (cells == nullptr || cells->empty()) return Bad(kName, *said, "a string, or a list of lists");
  std::string text;
  for (std::size_t i = 0; i < cells->size(); ++i) {
    if (i > 0) text += '|';
    const ValueList* layers = (*cells)[i].as_sequence();
    if (layers == nullptr) return Bad(kName, *said, "a list of lists");
    for (const Value& layer : *layers) {
      const std::optional<char> letter = LetterOf(layer);
      if (!letter) return Bad(kName, layer, "embedding, decoder, mtp or loss");
      text += *letter;
    }
  }
  return text;
}

/// "7,8,8" or [7, 8, 8].
Result<std::vector<std::int64_t>> LayersOfStages(const Value& value) {
  constexpr const char* kName = "custom_pipeline_layers";
  std::vector<std::int64_t> layers;
  if (const ValueList* items = value.as_sequence()) {
    for (const Value& item : *items) layers.push_back(item.as_int() != nullptr ? *item.as_int() : -1);
  } else if (const std::string* text = value.as_string()) {
    for (const char* at = text->data(), *end = at + text->size(); at < end; ++at) {
      std::int64_t number = -1;
      const auto [next, error] = std::from_chars(at, end, number);
      if (error != std::errc() || (next != end && *next != ',')) return Bad(kName, value, "numbers divided by commas");
      layers.push_back(number);
      at = next;
    }
  } else {
    return Bad(kName, value, "numbers divided by commas");
  }
  for (const std::int64_t number : layers) {
    if (number < 1 || number > kMostLayers) return Bad(kName, value, "numbers of layers");
  }
  return layers;
}

}  // namespace

void SetParallelArgs(const layout::ParallelLayout& layout, const layout::StageMap& stages, Value* args) {
  args->Set("tensor_model_parallel_size", Value(layout.tp));
  args->Set("pipeline_model_parallel_size", Value(layout.pp));
  args->Set("world_size", Value(static_cast<std::int64_t>(layout.ranks_per_stage()) * layout.pp));
  args->Set("data_parallel_size", Value(layout.ranks_per_stage() / layout.tp));
  args->Set("context_parallel_size", Value(1));
  args->Set("expert_model_parallel_size", Value(layout.ep));
  // As many as tp: the run's word for it is None, or that number once its arguments are validated.
  if (layout.etp != 0 || args->Find("expert_tensor_parallel_size") != nullptr) args->Set("expert_tensor_parallel_size", Value(layout.expert_tp()));
  if (args->Find("transformer_pipeline_model_parallel_size") != nullptr) args->Set("transformer_pipeline_model_parallel_size", Value(layout.pp));
  args->Erase("custom_pipeline_layers");
  // The string says the number of virtual stages itself; Megatron refuses a run that says it twice.
  std::string string = layout.pipeline_layout;
  if (!layout.pipeline_layers.empty()) {
    string = layout::PipelineLayoutString(stages.Counts());
    constexpr std::int64_t kMostMtp = 1024;
    const std::int64_t mtp = args->GetInt("mtp_num_layers").value_or(0);
    if (mtp > 0 && mtp <= kMostMtp) string.insert(string.size() - 1, static_cast<std::size_t>(mtp), 'm');  // they lie with the head
  }
  const bool is_virtual = stages.vpp > 1;
  const bool by_size = is_virtual && string.empty();
  args->Set("virtual_pipeline_model_parallel_size", is_virtual ? Value(stages.vpp) : Value());
  args->Set("num_virtual_stages_per_pipeline_rank", by_size && !layout.layers_per_virtual_stage ? Value(stages.vpp) : Value());
  args->Set("num_layers_per_virtual_pipeline_stage", by_size ? Optional(layout.layers_per_virtual_stage) : Value());
  args->Set("decoder_first_pipeline_num_layers", Optional(layout.first_stage_layers));
  args->Set("decoder_last_pipeline_num_layers", Optional(layout.last_stage_layers));
  args->Set("account_for_embedding_in_pipeline_split", Value(layout.account_for_embedding));
  args->Set("account_for_loss_in_pipeline_split", Value(layout.account_for_loss));
  args->Set("pipeline_model_parallel_layout", string.empty() ? Value() : Value(string));
}

Result<layout::ParallelLayout> LayoutOfArgs(const Value& args) {
  layout::ParallelLayout layout;
  CROSSDOCK_ASSIGN_OR_RETURN(layout.tp, Ranks(args, "tensor_model_parallel_size"));
  CROSSDOCK_ASSIGN_OR_RETURN(layout.pp, Ranks(args, "pipeline_model_parallel_size"));
  CROSSDOCK_ASSIGN_OR_RETURN(layout.ep, Ranks(args, "expert_model_parallel_size"));
  if (Given(args, "expert_tensor_parallel_size") != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(layout.etp, Ranks(args, "expert_tensor_parallel_size"));
    if (layout.etp == layout.tp) layout.etp = 0;
  }
  for (const char* gone : {"standalone_embedding_stage", "pipeline_model_parallel_split_rank"}) {
    const Value* value = Given(args, gone);
    if (value == nullptr || (value->as_bool() != nullptr && !*value->as_bool())) continue;
    return MakeError(ErrorCode::kUnsupported, fmt::format("the run divided its layers by {}, which this version does not read", gone))
        .WithFound(Printable(ToJson(*value, 0)));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(layout.first_stage_layers, Size(args, "decoder_first_pipeline_num_layers", kMostLayers));
  CROSSDOCK_ASSIGN_OR_RETURN(layout.last_stage_layers, Size(args, "decoder_last_pipeline_num_layers", kMostLayers));
  layout.account_for_embedding = args.GetBool("account_for_embedding_in_pipeline_split").value_or(false);
  layout.account_for_loss = args.GetBool("account_for_loss_in_pipeline_split").value_or(false);
  if (const Value* string = Given(args, "pipeline_model_parallel_layout")) {
    CROSSDOCK_ASSIGN_OR_RETURN(layout.pipeline_layout, LayoutStringOf(*string));
  } else if (const Value* custom = Given(args, "custom_pipeline_layers")) {
    CROSSDOCK_ASSIGN_OR_RETURN(layout.pipeline_layers, LayersOfStages(*custom));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(layout.vpp, Ranks(args, "virtual_pipeline_model_parallel_size"));
  if (Given(args, "virtual_pipeline_model_parallel_size") == nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(layout.vpp, Ranks(args, "num_virtual_stages_per_pipeline_rank"));
    if (layout.vpp == 1) {
      CROSSDOCK_ASSIGN_OR_RETURN(layout.layers_per_virtual_stage, Size(args, "num_layers_per_virtual_pipeline_stage", kMostLayers));
    }
  }
  return layout;
}

std::string LayoutFlags(const Value& args) {
  std::string flags;
  const auto number = [&](const char* name, const char* flag, std::int64_t silent) {
    const std::optional<std::int64_t> value = args.GetInt(name);
    if (value && *value != silent) flags += fmt::format(" {} {}", flag, *value);
    return value.has_value();
  };
  number("tensor_model_parallel_size", "--tensor-model-parallel-size", 1);
  number("pipeline_model_parallel_size", "--pipeline-model-parallel-size", 1);
  number("expert_model_parallel_size", "--expert-model-parallel-size", 1);
  number("expert_tensor_parallel_size", "--expert-tensor-parallel-size", args.GetInt("tensor_model_parallel_size").value_or(1));
  const Value* layout = Given(args, "pipeline_model_parallel_layout");
  if (const Result<std::string> text = layout != nullptr ? LayoutStringOf(*layout) : Result<std::string>(std::string()); text && !text->empty()) {
    return flags + fmt::format(" --pipeline-model-parallel-layout '{}'", *text);
  }
  // The option that a run was told by; else the size that it came to.
  if (!number("num_layers_per_virtual_pipeline_stage", "--num-layers-per-virtual-pipeline-stage", 0)) {
    number("virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank", 1);
  }
  number("decoder_first_pipeline_num_layers", "--decoder-first-pipeline-num-layers", 0);
  number("decoder_last_pipeline_num_layers", "--decoder-last-pipeline-num-layers", 0);
  for (const auto& [name, flag] : {std::pair{"account_for_embedding_in_pipeline_split", "--account-for-embedding-in-pipeline-split"},
                                   std::pair{"account_for_loss_in_pipeline_split", "--account-for-loss-in-pipeline-split"}}) {
    if (args.GetBool(name).value_or(false)) flags += fmt::format(" {}", flag);
  }
  return flags;
}

}  // namespace crossdock::dialects::mcore
