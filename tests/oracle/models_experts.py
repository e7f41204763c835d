"""Tiny, awkward models of the families with experts: 6 or 12 experts, dense layers among them, query sizes of no power of two.
`kinds` says of each layer whether it has experts, by the rules of transformers' modeling files, not of the tool."""

_EXPERTS = dict(vocab_size=385, rope_theta=10000.0, tie_word_embeddings=False)
_MLA = dict(hidden_size=48, num_attention_heads=4, num_key_value_heads=4, intermediate_size=52, moe_intermediate_size=20, kv_lora_rank=18,
            qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14, rms_norm_eps=1e-6, first_k_dense_replace=1, **_EXPERTS)
CONFIGS = {
    "mixtral": dict(model_type="mixtral", hidden_size=40, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=2, head_dim=6,
                    intermediate_size=28, num_local_experts=6, num_experts_per_tok=2, rms_norm_eps=1e-5, sliding_window=None, **_EXPERTS),
    "qwen2_moe": dict(model_type="qwen2_moe", hidden_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, intermediate_size=52,
                      moe_intermediate_size=20, shared_expert_intermediate_size=36, num_experts=12, num_experts_per_tok=4, decoder_sparse_step=1,
                      norm_topk_prob=False, rms_norm_eps=1e-6, use_sliding_window=False, **_EXPERTS),
    "qwen3_moe": dict(model_type="qwen3_moe", hidden_size=40, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=2, head_dim=6,
                      intermediate_size=60, moe_intermediate_size=28, num_experts=12, num_experts_per_tok=3, decoder_sparse_step=1,
                      norm_topk_prob=True, rms_norm_eps=1e-6, use_sliding_window=False, **_EXPERTS),
    # Layers 1 and 5 have experts: every second one, without the fourth.
    "qwen3_moe_mixed": dict(model_type="qwen3_moe", hidden_size=40, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                            intermediate_size=60, moe_intermediate_size=28, num_experts=6, num_experts_per_tok=2, decoder_sparse_step=2,
                            mlp_only_layers=[3], norm_topk_prob=True, rms_norm_eps=1e-6, use_sliding_window=False, **_EXPERTS),
    "deepseek_v2": dict(model_type="deepseek_v2", num_hidden_layers=7, q_lora_rank=22, n_routed_experts=12, n_shared_experts=2, num_experts_per_tok=3,
                        routed_scaling_factor=1.5, topk_method="greedy", norm_topk_prob=False, **_MLA),
    "deepseek_v2_lite": dict(model_type="deepseek_v2", num_hidden_layers=4, q_lora_rank=None, n_routed_experts=6, n_shared_experts=1,
                             num_experts_per_tok=2, routed_scaling_factor=1.0, topk_method="greedy", norm_topk_prob=False, **_MLA),
    "deepseek_v3": dict(model_type="deepseek_v3", num_hidden_layers=7, q_lora_rank=22, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=4,
                        n_group=4, topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True, num_nextn_predict_layers=0, **_MLA),
}
CLASSES = {"mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe", "deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3"}


def experts_of(config):
    """How many experts a layer with experts has; None for a dense family."""
    return next((config[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(key)), None)


def kinds(config):
    """Of each layer, whether it has experts."""
    layers = range(config["num_hidden_layers"])
    if config["model_type"].startswith("deepseek"):
        return [index >= config["first_k_dense_replace"] for index in layers]
    if config["model_type"] == "mixtral":
        return [True for _ in layers]
    skipped, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step") or 1
    return [index not in skipped and (index + 1) % step == 0 for index in layers]


def is_mla(config):
    return bool(config.get("kv_lora_rank"))


def expert_size(config):
    return config.get("moe_intermediate_size") or config["intermediate_size"]


def shared_size(config):
    """Rows of the shared expert's gate; None where there is none."""
    if config.get("n_shared_experts"):
        return config["n_shared_experts"] * config["moe_intermediate_size"]
    return config.get("shared_expert_intermediate_size")


def _mla(config, result, prefix):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value, low, query = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank"))
    if query:
        result |= {prefix + "q_a_proj.weight": (query, hidden), prefix + "q_a_layernorm.weight": (query,), prefix + "q_b_proj.weight": (heads * (nope + rope), query)}
    else:
        result[prefix + "q_proj.weight"] = (heads * (nope + rope), hidden)
    result |= {prefix + "kv_a_proj_with_mqa.weight": (low + rope, hidden), prefix + "kv_a_layernorm.weight": (low,),
               prefix + "kv_b_proj.weight": (heads * (nope + value), low), prefix + "o_proj.weight": (hidden, heads * value)}


def _attention(config, result, prefix):
    hidden, heads, groups = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or hidden // heads
    for part, count in (("q", heads), ("k", groups), ("v", groups)):
        result[f"{prefix}{part}_proj.weight"] = (count * size, hidden)
        if config["model_type"] == "qwen2_moe":
            result[f"{prefix}{part}_proj.bias"] = (count * size,)
    result[prefix + "o_proj.weight"] = (hidden, heads * size)
    if config["model_type"] == "qwen3_moe":
        result |= {prefix + "q_norm.weight": (size,), prefix + "k_norm.weight": (size,)}


def _gated(result, prefix, hidden, size, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    result |= {f"{prefix}{gate}.weight": (size, hidden), f"{prefix}{up}.weight": (size, hidden), f"{prefix}{down}.weight": (hidden, size)}


def shapes(config):
    """HF names and shapes as save_pretrained writes them: one tensor an expert."""
    hidden, kind = config["hidden_size"], config["model_type"]
    result = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    block, names = ("block_sparse_moe", ("w1", "w3", "w2")) if kind == "mixtral" else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    for index, sparse in enumerate(kinds(config)):
        layer = f"model.layers.{index}."
        (_mla if is_mla(config) else _attention)(config, result, layer + "self_attn.")
        result[layer + "input_layernorm.weight"] = result[layer + "post_attention_layernorm.weight"] = (hidden,)
        if not sparse:
            _gated(result, layer + "mlp.", hidden, config["intermediate_size"])
            continue
        result[f"{layer}{block}.gate.weight"] = (experts_of(config), hidden)
        for expert in range(experts_of(config)):
            _gated(result, f"{layer}{block}.experts.{expert}.", hidden, expert_size(config), names)
        if kind == "deepseek_v3":
            result[f"{layer}mlp.gate.e_score_correction_bias"] = (experts_of(config),)
        if shared_size(config):
            shared = "shared_expert" if kind == "qwen2_moe" else "shared_experts"
            _gated(result, f"{layer}mlp.{shared}.", hidden, shared_size(config))
        if kind == "qwen2_moe":
            result[f"{layer}mlp.shared_expert_gate.weight"] = (1, hidden)
    return result | {"model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
