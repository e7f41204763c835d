"""Models with experts as Hugging Face directories, by the same fill rule as `checkpoint`.

`latent`: DeepSeek-V3's names, 7 layers of which the first is dense, multi-latent attention, 12 experts and a shared one, the router's
correction in F32. `plain`: Qwen3-MoE's names, 4 layers, 12 experts, none shared."""
import struct

import checkpoint

LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 7,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2,
    "v_head_dim": 5, "n_routed_experts": 12, "n_shared_experts": 1, "moe_intermediate_size": 8, "first_k_dense_replace": 1, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16", "num_nextn_predict_layers": 0,
}
PLAIN = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 12, "moe_intermediate_size": 8, "num_experts_per_tok": 2,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}


def _attention(c):
    h, heads = c["hidden_size"], c["num_attention_heads"]
    if "kv_lora_rank" not in c:
        head, kv = c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        return {"q_proj": [heads * head, h], "k_proj": [kv, h], "v_proj": [kv, h], "o_proj": [h, heads * head], "q_norm": [head], "k_norm": [head]}
    low, query, rotary, nope, value = (c[name] for name in ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    return {"q_a_proj": [query, h], "q_a_layernorm": [query], "q_b_proj": [heads * (nope + rotary), query], "kv_a_proj_with_mqa": [low + rotary, h],
            "kv_a_layernorm": [low], "kv_b_proj": [heads * (nope + value), low], "o_proj": [h, heads * value]}


def shapes(c):
    h, m = c["hidden_size"], c["moe_intermediate_size"]
    out = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h], "lm_head.weight": [c["vocab_size"], h]}

    def gated(place, rows):
        out.update({f"{place}.gate_proj.weight": [rows, h], f"{place}.up_proj.weight": [rows, h], f"{place}.down_proj.weight": [h, rows]})

    for index in range(c["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        out.update({f"{layer}self_attn.{name}.weight": shape for name, shape in _attention(c).items()})
        out.update({f"{layer}{name}.weight": [h] for name in ("input_layernorm", "post_attention_layernorm")})
        if index < c.get("first_k_dense_replace", 0):
            gated(layer + "mlp", c["intermediate_size"])
            continue
        experts = c.get("n_routed_experts") or c["num_experts"]
        out[layer + "mlp.gate.weight"] = [experts, h]
        for expert in range(experts):
            gated(f"{layer}mlp.experts.{expert}", m)
        if c.get("n_shared_experts"):
            gated(layer + "mlp.shared_experts", c["n_shared_experts"] * m)
            out[layer + "mlp.gate.e_score_correction_bias"] = [experts]
    return out


def tensors(c):
    out = {}
    for name, (_, shape, data) in checkpoint.filled(shapes(c)).items():
        if name.endswith("e_score_correction_bias"):   # in F32: the same whole numbers, and a rest that bf16 would lose
            wide = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] + 1 / 1024 for i in range(0, len(data), 2)]
            out[name] = ("F32", shape, struct.pack(f"<{len(wide)}f", *wide))
        else:
            out[name] = ("BF16", shape, data)
    return out


def write(folder, c):
    return checkpoint.write(folder, c, tensors(c))
