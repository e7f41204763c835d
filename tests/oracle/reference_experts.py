"""HF -> Megatron for layers with experts and for multi-latent attention, in plain torch: what test_experts expects of the tool."""
import torch

import models_experts as experts


# What Megatron's own layers call these norms (the first also in layers with experts), where TransformerEngine's say the second.
OWN_NAMES = {"mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight", "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
             "self_attention.q_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
             "self_attention.kv_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight"}


def with_own_names(reference):
    """The same tensors, also under the names of Megatron's own layers."""
    more = {key.removesuffix(theirs) + own: tensor for key, tensor in reference.items() for own, theirs in OWN_NAMES.items() if key.endswith("." + theirs)}
    return more | reference


def layer_keys(get, has, config, index, sparse, fused_qkv):
    """torch_dist keys of one layer, below decoder.layers[.<index>]."""
    result = {}
    if experts.is_mla(config):
        result["input_layernorm.weight"] = get("input_layernorm.weight")
        pairs = {"q_proj.weight": "linear_q_proj.weight", "q_a_proj.weight": "linear_q_down_proj.weight", "q_a_layernorm.weight": "linear_q_up_proj.layer_norm_weight",
                 "q_b_proj.weight": "linear_q_up_proj.weight", "kv_a_proj_with_mqa.weight": "linear_kv_down_proj.weight",
                 "kv_a_layernorm.weight": "linear_kv_up_proj.layer_norm_weight", "kv_b_proj.weight": "linear_kv_up_proj.weight", "o_proj.weight": "linear_proj.weight"}
        for theirs, ours in pairs.items():
            if has("self_attn." + theirs):
                result["self_attention." + ours] = get("self_attn." + theirs)
    else:
        result["self_attention.linear_qkv.layer_norm_weight"] = get("input_layernorm.weight")
        result["self_attention.linear_qkv.weight"] = fused_qkv(index, "weight")
        if has("self_attn.q_proj.bias"):
            result["self_attention.linear_qkv.bias"] = fused_qkv(index, "bias")
        result["self_attention.linear_proj.weight"] = get("self_attn.o_proj.weight")
        if has("self_attn.q_norm.weight"):
            result["self_attention.q_layernorm.weight"] = get("self_attn.q_norm.weight")
            result["self_attention.k_layernorm.weight"] = get("self_attn.k_norm.weight")
    if not sparse:
        return result | {"mlp.linear_fc1.layer_norm_weight": get("post_attention_layernorm.weight"), "mlp.linear_fc2.weight": get("mlp.down_proj.weight"),
                         "mlp.linear_fc1.weight": torch.cat([get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")])}
    result["pre_mlp_layernorm.weight"] = get("post_attention_layernorm.weight")
    block, (gate, up, down) = ("block_sparse_moe", ("w1", "w3", "w2")) if config["model_type"] == "mixtral" else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    result["mlp.router.weight"] = get(f"{block}.gate.weight")
    if has("mlp.gate.e_score_correction_bias"):
        result["mlp.router.expert_bias"] = get("mlp.gate.e_score_correction_bias")
    every = [f"{block}.experts.{expert}." for expert in range(experts.experts_of(config))]
    result["mlp.experts.experts.linear_fc1.weight"] = torch.stack([torch.cat([get(f"{one}{gate}.weight"), get(f"{one}{up}.weight")]) for one in every])
    result["mlp.experts.experts.linear_fc2.weight"] = torch.stack([get(f"{one}{down}.weight") for one in every])
    shared = next((name for name in ("shared_expert", "shared_experts") if has(f"mlp.{name}.down_proj.weight")), None)
    if shared:
        result["mlp.shared_experts.linear_fc1.weight"] = torch.cat([get(f"mlp.{shared}.gate_proj.weight"), get(f"mlp.{shared}.up_proj.weight")])
        result["mlp.shared_experts.linear_fc2.weight"] = get(f"mlp.{shared}.down_proj.weight")
    if has("mlp.shared_expert_gate.weight"):
        result["mlp.shared_experts.gate_weight"] = get("mlp.shared_expert_gate.weight")
    return result
