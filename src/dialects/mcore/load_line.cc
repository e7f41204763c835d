// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/load_line.h"

#include <algorithm>
#include <array>

#include "base/digits.h"
#include "dialects/hf/rope.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/layout_args.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// One of these in hf/ makes it a directory that AutoTokenizer opens.
constexpr std::array kTokenizerFiles = {std::string_view("hf/tokenizer.json"), std::string_view("hf/tokenizer.model"),
                                        std::string_view("hf/vocab.json"), std::string_view("hf/tekken.json")};

std::string Number(const Value& args, std::string_view name) {
  const std::optional<std::int64_t> whole = args.GetInt(name);
  return whole ? fmt::format("{}", *whole) : fmt::format("{}", args.GetFloat(name).value_or(0));
}

/// Words of a checkpoint stand in a line that is meant for a shell: others than these are left to the user.
bool IsPlainWord(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_' || c == '-' || c == '.'; });
}

/// (4095, 0) or a number for each layer, as the parser takes them.
std::string Numbers(const Value& list) {
  std::string text;
  for (const Value& one : *list.as_sequence()) {
    const std::int64_t* number = one.as_int();
    text += fmt::format("{}{}", text.empty() ? "" : ",", number != nullptr ? *number : 0);
  }
  return text;
}

/// What Megatron does not take from a checkpoint's arguments, and without which it builds another model (megatron-core 0.19.2,
/// training/checkpointing.py, load_args_from_checkpoint).
std::string UnreadFlags(const Value& args) {
  std::string flags;
  const auto add = [&](std::string_view name) {
    const Value* value = args.Find(name);
    if (value == nullptr || value->is_null()) return;
    std::string flag = " --" + std::string(name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (value->as_string() != nullptr) {
      if (IsPlainWord(*value->as_string())) flags += fmt::format("{} {}", flag, *value->as_string());
    } else if (value->as_bool() == nullptr) {
      flags += fmt::format("{} {}", flag, Number(args, name));
    } else if (*value->as_bool()) {
      flags += flag;
    }
  };
  if (args.GetBool("multi_latent_attention").value_or(false)) {
    for (const char* name : {"multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type"}) add(name);
    if (args.GetString("rope_type") == "yarn") {
      for (const auto& [field, name] : hf::kLatentYarn) add(name);
    }
  }
  if (args.GetInt("num_experts").value_or(0) > 0) {
    for (const char* name : {"moe_router_num_groups", "moe_router_group_topk", "moe_shared_expert_gate", "moe_apply_probs_on_input"}) add(name);
  }
  const auto add_layers = [&](std::string_view name, std::string_view flag) {
    if (const Value* each = args.Find(name); each != nullptr && each->as_sequence() != nullptr) flags += fmt::format(" {} '([{}])'", flag, Numbers(*each));
    if (const std::optional<std::int64_t> every = args.GetInt(name)) flags += fmt::format(" {} {}", flag, *every);
  };
  for (const char* name : {"quick_geglu", "activation_func_clamp_value", "attention_output_gate", "qk_l2_norm"}) add(name);
  if (args.GetFloat("glu_linear_offset").value_or(0) != 0) add("glu_linear_offset");
  if (args.GetString("softmax_type").value_or("vanilla") != "vanilla") add("softmax_type");
  add_layers("no_rope_freq", "--no-rope-freq");
  if (args.GetString("experimental_attention_variant")) {
    for (const char* name : {"experimental_attention_variant", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads",
                             "linear_num_value_heads"}) {
      add(name);
    }
    add_layers("linear_attention_freq", "--linear-attention-freq");
  }
  return flags;
}

/// --optimizer muon and its settings; those at Megatron's defaults (0.19.2, training/arguments.py) need no word.
std::string MuonFlags(const Value& args) {
  std::string flags = " --optimizer muon";
  if (args.GetBool("use_layer_wise_distributed_optimizer").value_or(false)) flags += " --use-distributed-optimizer";
  if (args.GetFloat("muon_momentum")) flags += " --muon-momentum " + Number(args, "muon_momentum");
  if (args.GetBool("muon_nesterov").value_or(false)) flags += " --muon-nesterov";
  if (!args.GetBool("muon_split_qkv").value_or(true)) flags += " --muon-no-split-qkv";
  constexpr std::array<std::array<const char*, 3>, 5> kWords = {{{"muon_scale_mode", "--muon-scale-mode", "spectral"},
                                                                 {"muon_fp32_matmul_prec", "--muon-fp32-matmul-prec", "medium"},
                                                                 {"muon_coefficient_type", "--muon-coefficient-type", "quintic"},
                                                                 {"muon_tp_mode", "--muon-tp-mode", "blockwise"},
                                                                 {"muon_scalar_optimizer", "--muon-scalar-optimizer", "adam"}}};
  for (const auto& [name, flag, ordinary] : kWords) {
    const auto word = args.GetString(name);
    if (word && *word != ordinary && IsPlainWord(*word)) flags += fmt::format(" {} {}", flag, *word);
  }
  if (args.GetInt("muon_num_ns_steps").value_or(5) != 5) flags += " --muon-num-ns-steps " + Number(args, "muon_num_ns_steps");
  if (args.GetFloat("muon_extra_scale_factor").value_or(1) != 1) flags += " --muon-extra-scale-factor " + Number(args, "muon_extra_scale_factor");
  return flags;
}

}  // namespace

std::string LoadFlags(const Value& args) {
  std::string flags = "--use-checkpoint-args";
  if (args.GetBool("bf16").value_or(false)) flags += " --bf16";
  if (args.GetBool("fp16").value_or(false)) flags += " --fp16";
  for (const char* epsilon : {"layernorm_epsilon", "norm_epsilon"}) {
    if (!args.GetFloat(epsilon)) continue;
    flags += " --norm-epsilon " + Number(args, epsilon);
    break;
  }
  if (args.GetBool("qk_layernorm").value_or(false)) flags += " --qk-layernorm";
  if (args.GetBool("use_rope_scaling").value_or(false)) flags += " --use-rope-scaling --rope-scaling-factor " + Number(args, "rope_scaling_factor");
  if (args.GetInt("rotary_seq_len_interpolation_factor")) {
    flags += " --rotary-seq-len-interpolation-factor " + Number(args, "rotary_seq_len_interpolation_factor");
  }
  flags += UnreadFlags(args);
  const Value* window = args.Find("window_size");
  if (window != nullptr && window->as_sequence() != nullptr) flags += " --window-size " + Numbers(*window);
  if (const Value* skip = args.Find("window_attn_skip_freq"); skip != nullptr && skip->as_sequence() != nullptr) {
    flags += fmt::format(" --window-attn-skip-freq '([{}])'", Numbers(*skip));
  }
  return flags + LayoutFlags(args);
}

StoredState StoredStateOf(const Catalog& catalog, bool release) {
  StoredState state;
  if (std::optional<StoredArgs> stored = ReadStoredArgs(catalog)) state.args = std::move(stored->args);
  state.optimizer = std::ranges::any_of(catalog.entries, [](const Entry& e) { return ParseTensorKey(e.name).kind != TensorKey::Kind::kModel; });
  const Value* common = CommonState(catalog);
  const Value* scheduler = common != nullptr ? common->Find("opt_param_scheduler") : nullptr;
  state.scheduler = scheduler != nullptr && !scheduler->is_null();
  state.release = release;
  state.tokenizer = std::ranges::any_of(catalog.side_files, [](const SideFile& file) {
    return std::ranges::any_of(kTokenizerFiles, [&](std::string_view name) { return file.path == name; });
  });
  return state;
}

std::string LoadLine(const std::string& root, const std::string& unit, const StoredState& state) {
  std::string line = fmt::format("--load {} {}", root, LoadFlags(state.args));
  if (state.tokenizer) line += fmt::format(" --tokenizer-type HuggingFaceTokenizer --tokenizer-model {}/hf", unit);
  if (!state.optimizer) return line + (state.release ? "" : " --no-load-optim");
  line += state.args.GetString("optimizer") == "muon" ? MuonFlags(state.args) : " --use-distributed-optimizer";
  for (const auto& [name, flag] : {std::pair{"lr", "--lr"}, std::pair{"min_lr", "--min-lr"}, std::pair{"weight_decay", "--weight-decay"}}) {
    if (state.args.GetFloat(name)) line += fmt::format(" {} {}", flag, Number(state.args, name));
  }
  if (state.args.GetBool("override_opt_param_scheduler").value_or(false)) return line + " --override-opt_param-scheduler";
  return line + (state.scheduler ? " --use-checkpoint-opt_param-scheduler" : "");
}

std::string LegacyLoadLine(std::string line, const LegacyForm& form) {
  constexpr std::string_view kDistributed = " --use-distributed-optimizer";
  if (const std::size_t at = line.find(kDistributed); at != std::string::npos && !form.distributed) line.erase(at, kDistributed.size());
  line += form.torch_dcp ? " --use-torch-fsdp2 --ckpt-format torch_dcp" : " --ckpt-format torch";
  if (form.no_random_state) line += " --no-load-rng";
  return line;
}

}  // namespace crossdock::dialects::mcore
