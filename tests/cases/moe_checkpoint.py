"""Small models with experts as Hugging Face directories, by the fill rule of checkpoint.py: Qwen3-MoE with twelve experts, and DeepSeek-V3
with a dense first layer, a bias of the router in F32 and one layer of multi-token prediction."""
import struct

import checkpoint

QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 16, "intermediate_size": 24,
    "moe_intermediate_size": 8, "num_experts": 12, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 50, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
    "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001, "use_sliding_window": False,
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 16, "intermediate_size": 24,
    "moe_intermediate_size": 8, "n_routed_experts": 12, "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 2.5, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1,
    "num_hidden_layers": 3, "num_nextn_predict_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 12,
    "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "vocab_size": 50, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}


def top(c):
    h = c["hidden_size"]
    return {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h], "lm_head.weight": [c["vocab_size"], h]}


def expert_shapes(c, prefix, count):
    h, m = c["hidden_size"], c["moe_intermediate_size"]
    out = {f"{prefix}mlp.gate.weight": [count, h]}
    for e in range(count):
        for name, shape in {"gate": [m, h], "up": [m, h], "down": [h, m]}.items():
            out[f"{prefix}mlp.experts.{e}.{name}_proj.weight"] = shape
    return out


def qwen_shapes(c):
    h, d = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = top(c)
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in {"input_layernorm": [h], "post_attention_layernorm": [h], "self_attn.q_proj": [q, h], "self_attn.k_proj": [kv, h],
                            "self_attn.v_proj": [kv, h], "self_attn.o_proj": [h, q], "self_attn.q_norm": [d], "self_attn.k_norm": [d]}.items():
            out[f"{prefix}{name}.weight"] = shape
        out |= expert_shapes(c, prefix, c["num_experts"])
    return out


def deepseek_layer(c, prefix, dense):
    h, f, m, q = c["hidden_size"], c["intermediate_size"], c["moe_intermediate_size"], c["num_attention_heads"]
    nope, rope, v, ql, kl = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank"))
    shapes = {"input_layernorm": [h], "post_attention_layernorm": [h], "self_attn.q_a_proj": [ql, h], "self_attn.q_a_layernorm": [ql],
              "self_attn.q_b_proj": [q * (nope + rope), ql], "self_attn.kv_a_proj_with_mqa": [kl + rope, h], "self_attn.kv_a_layernorm": [kl],
              "self_attn.kv_b_proj": [q * (nope + v), kl], "self_attn.o_proj": [h, q * v]}
    if dense:
        shapes |= {"mlp.gate_proj": [f, h], "mlp.up_proj": [f, h], "mlp.down_proj": [h, f]}
    else:
        s = c["n_shared_experts"] * m
        shapes |= {"mlp.shared_experts.gate_proj": [s, h], "mlp.shared_experts.up_proj": [s, h], "mlp.shared_experts.down_proj": [h, s]}
    out = {f"{prefix}{name}.weight": shape for name, shape in shapes.items()}
    if not dense:
        out |= expert_shapes(c, prefix, c["n_routed_experts"])
        out[f"{prefix}mlp.gate.e_score_correction_bias"] = [c["n_routed_experts"]]
    return out


def deepseek_shapes(c):
    h, layers = c["hidden_size"], c["num_hidden_layers"]
    out = top(c)
    for layer in range(layers):
        out |= deepseek_layer(c, f"model.layers.{layer}.", layer < c["first_k_dense_replace"])
    for extra in range(c["num_nextn_predict_layers"]):
        prefix = f"model.layers.{layers + extra}."
        out |= deepseek_layer(c, prefix, False)
        out |= {f"{prefix}enorm.weight": [h], f"{prefix}hnorm.weight": [h], f"{prefix}eh_proj.weight": [h, 2 * h], f"{prefix}shared_head.norm.weight": [h],
                f"{prefix}embed_tokens.weight": [c["vocab_size"], h], f"{prefix}shared_head.head.weight": [c["vocab_size"], h]}
    return out


def fill(shapes):
    """The fill rule; biases of routers in F32, and copies that are copies."""
    out = checkpoint.filled(shapes)
    for name, (_, shape, data) in out.items():
        if name.endswith("e_score_correction_bias"):
            whole = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
            out[name] = ("F32", shape, struct.pack(f"<{len(whole)}f", *(v + 0.1 for v in whole)))  # no bf16 numbers
    for name in out:
        if name.endswith(".embed_tokens.weight") and name != "model.embed_tokens.weight":
            out[name] = out["model.embed_tokens.weight"]
        if name.endswith("shared_head.head.weight"):
            out[name] = out["lm_head.weight"]
    return out


def qwen(**changes):
    c = QWEN | changes
    return c, fill(qwen_shapes(c))


def deepseek(**changes):
    c = DEEPSEEK | changes
    return c, fill(deepseek_shapes(c))


def rows(data, count):
    """Equal parts of a tensor's bytes along its first axis."""
    step = len(data) // count
    return [data[i * step:(i + 1) * step] for i in range(count)]


def transposed(data, height, width):
    cells = [data[2 * i:2 * i + 2] for i in range(height * width)]
    return b"".join(cells[i * width + j] for j in range(width) for i in range(height))


def fused(c, items, flip=False):
    """The same model with the experts of a layer in two tensors: [E, 2m, h] and [E, h, m], or their matrices transposed."""
    h, m, count = c["hidden_size"], c["moe_intermediate_size"], c["num_experts"]
    out = {name: item for name, item in items.items() if ".experts." not in name}
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts."
        part = lambda e, name: items[f"{prefix}{e}.{name}_proj.weight"][2]  # noqa: E731
        joined = [part(e, "gate") + part(e, "up") for e in range(count)]
        down = [part(e, "down") for e in range(count)]
        if flip:
            joined = [transposed(one, 2 * m, h) for one in joined]
            down = [transposed(one, h, m) for one in down]
        out[prefix + "gate_up_proj"] = ("BF16", [count, h, 2 * m] if flip else [count, 2 * m, h], b"".join(joined))
        out[prefix + "down_proj"] = ("BF16", [count, m, h] if flip else [count, h, m], b"".join(down))
    return out


def write(folder, model):
    c, items = model
    return checkpoint.write(folder, c, items)
