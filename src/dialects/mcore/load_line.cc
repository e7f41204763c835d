// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/load_line.h"

#include "dialects/mcore/layout_args.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

std::string Number(const Value& args, std::string_view name) {
  const std::optional<std::int64_t> whole = args.GetInt(name);
  return whole ? fmt::format("{}", *whole) : fmt::format("{}", args.GetFloat(name).value_or(0));
}

/// (4095, 0) as the parser takes it.
std::string Window(const Value& window) {
  std::string text;
  for (const Value& side : *window.as_sequence()) {
    const std::int64_t* size = side.as_int();
    text += fmt::format("{}{}", text.empty() ? "" : ",", size != nullptr ? *size : 0);
  }
  return text;
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
  const Value* window = args.Find("window_size");
  if (window != nullptr && window->as_sequence() != nullptr) flags += " --window-size " + Window(*window);
  return flags + LayoutFlags(args);
}

}  // namespace crossdock::dialects::mcore
