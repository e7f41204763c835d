"""Tiny models of the families that MaxText has, as transformers and as MaxText know them. Whatever MaxText's named model fixes (rotary
scaling, windows, epsilons) stands in transformers' configuration too: else logits differ by a tenth and look like a wrong mapping."""
import json
import pathlib

import torch

from reference import fill

_BASE = dict(hidden_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=76, vocab_size=250,
             max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_EXPERTS = dict(num_experts_per_tok=2)
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}
_MLA = {key: value for key, value in _BASE.items() if key != "head_dim"} | _EXPERTS | dict(
    num_key_value_heads=6, moe_intermediate_size=20, n_routed_experts=6, first_k_dense_replace=1, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6,
    v_head_dim=14, max_position_embeddings=163840)


def _rope(theta, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


_V3 = _MLA | dict(q_lora_rank=22, n_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True, rope_parameters=_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0})
_V3_SETTINGS = {"shared_experts": 1, "q_lora_rank": 22, "n_routing_groups": 2, "topk_routing_group": 1}
_DELTA = dict(head_dim=16, num_experts=6, moe_intermediate_size=28, shared_expert_intermediate_size=28, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=10,
              linear_conv_kernel_dim=3) | _rope(10000000.0, partial_rotary_factor=0.25)
_DELTA_SETTINGS = {"num_experts": 6, "num_experts_per_tok": 2, "base_moe_mlp_dim": 28, "shared_experts": 1, "gdn_num_key_heads": 2, "gdn_num_value_heads": 4, "gdn_key_head_dim": 6, "gdn_value_head_dim": 10,
                   "gdn_conv_kernel_dim": 3, "gdn_chunk_size": 16}

# case -> (transformers' classes, settings, MaxText's model, MaxText's further settings)
CASES = {
    "llama3.1": ("Llama", _BASE | dict(rms_norm_eps=1e-5) | _rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192),
                 "llama3.1-8b", {}),
    "llama3": ("Llama", _BASE | dict(rms_norm_eps=1e-5) | _rope(500000.0), "llama3-8b", {}),
    "mistral": ("Mistral", _BASE | dict(rms_norm_eps=1e-5, sliding_window=None) | _rope(1000000.0), "mistral-7b", {}),
    "qwen2": ("Qwen2", {key: value for key, value in _BASE.items() if key != "head_dim"} | _rope(1000000.0), "qwen2.5-7b", {"head_dim": 8}),
    "qwen3": ("Qwen3", _BASE | _rope(1000000.0), "qwen3-0.6b", {"logits_via_embedding": False}),
    "qwen3_moe": ("Qwen3Moe", _BASE | _EXPERTS | dict(num_experts=6, moe_intermediate_size=28, norm_topk_prob=True, decoder_sparse_step=1) | _rope(10000000.0),
                  "qwen3-30b-a3b", {"num_experts": 6, "num_experts_per_tok": 2, "base_moe_mlp_dim": 28}),
    "mixtral": ("Mixtral", _BASE | _EXPERTS | dict(num_local_experts=6, rms_norm_eps=1e-5, sliding_window=None) | _rope(1000000.0), "mixtral-8x7b",
                {"num_experts": 6, "num_experts_per_tok": 2, "base_moe_mlp_dim": 76}),
    "deepseek_v2": ("DeepseekV2", _MLA | dict(q_lora_rank=None, n_shared_experts=2, routed_scaling_factor=1.0, topk_method="greedy", norm_topk_prob=False,
                                              rope_parameters=_YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}),
                    "deepseek2-16b", {"shared_experts": 2, "q_lora_rank": 0}),
    "deepseek_v3": ("DeepseekV3", _V3, "deepseek3-671b", _V3_SETTINGS),
    "deepseek_v3_mtp": ("DeepseekV3", _V3, "deepseek3-671b", _V3_SETTINGS | {"mtp_num_layers": 1}),
    # The root of the hidden size is a number in bfloat16: in a float32 model transformers does not round it as MaxText does.
    "gemma2": ("Gemma2", _BASE | dict(hidden_size=64, num_attention_heads=4, tie_word_embeddings=True, query_pre_attn_scalar=8, hidden_activation="gelu_pytorch_tanh", sliding_window=4096) | _rope(10000.0), "gemma2-2b",
               {"base_num_decoder_layers": 2}),
    "gemma3": ("Gemma3Text", _BASE | dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=8, tie_word_embeddings=True, query_pre_attn_scalar=8, hidden_activation="gelu_pytorch_tanh", sliding_window=1024,
                                          rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                                                           "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), "gemma3-4b", {"use_multimodal": False}),
    "gpt_oss": ("GptOss", _BASE | _EXPERTS | dict(num_local_experts=6, rms_norm_eps=1e-5, sliding_window=128, max_position_embeddings=131072,
                                                  rope_parameters=_YARN | {"rope_theta": 150000.0, "factor": 32.0, "truncate": False}), "gpt-oss-20b",
                {"num_experts": 6, "num_experts_per_tok": 2, "base_moe_mlp_dim": 76}),
    "olmo3": ("Olmo3", _BASE | dict(num_key_value_heads=6, sliding_window=4096, max_position_embeddings=65536,
                                    rope_parameters={kind: _YARN | {"rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 8192}
                                                     for kind in ("full_attention", "sliding_attention")}), "olmo3-7b", {}),
    "llama4": ("Llama4Text", _BASE | dict(num_hidden_layers=8, num_experts_per_tok=1, num_local_experts=6, intermediate_size=28, intermediate_size_mlp=76, interleave_moe_layer_step=2, rms_norm_eps=1e-5,
                                          use_qk_norm=True) | _rope(500000.0), "llama4-17b-128e",
               {"num_experts": 6, "num_experts_per_tok": 1, "base_mlp_dim": 76, "base_moe_mlp_dim": 28, "shared_experts": 1, "interleave_moe_layer_step": 2, "use_qk_norm": True}),
    # Two blocks of four layers and one left over; in Qwen3.5 nothing is.
    "qwen3_next": ("Qwen3Next", _BASE | _EXPERTS | _DELTA | dict(num_hidden_layers=9, norm_topk_prob=True), "qwen3-next-80b-a3b", _DELTA_SETTINGS),
    "qwen3_5_moe": ("Qwen3_5MoeText", _BASE | _EXPERTS | _DELTA | dict(num_hidden_layers=8), "qwen3.5-35b-a3b", _DELTA_SETTINGS | {"use_multimodal": False, "use_mrope": False}),
}
# Where MaxText multiplies with the tied embedding it does so in bfloat16.
TIED = {"gemma2", "gemma3"}
# Their recurrence runs in chunks of other sizes, which adds up in another order.
DELTA_NETS = ("qwen3_next", "qwen3_5_moe")
# Ours -> how to come back: what is scaled is within a unit in the last place.
SCALED = {"llama3.1", "llama3", "mistral", "mixtral", "gemma2", "gemma3"}


def write(case, directory):
    """A directory of float32 weights whose every tensor has values of its own. Returns config.json."""
    import transformers
    name, settings, _, _ = CASES[case]
    model_name = name.removesuffix("Text")
    model = getattr(transformers, f"{model_name}ForCausalLM")(getattr(transformers, f"{name}Config")(**settings, dtype="float32"))
    with torch.no_grad():
        for key, tensor in list(model.named_parameters()) + [item for item in model.named_buffers() if item[0].endswith("e_score_correction_bias")]:
            tensor.copy_(fill(f"{case}:{key}", tuple(tensor.shape), torch.float32))
    model.tie_weights()
    model.save_pretrained(directory, max_shard_size="90KB")
    if case.endswith("_mtp"):
        _add_prediction_layer(case, pathlib.Path(directory), settings["num_hidden_layers"])
    return json.loads((pathlib.Path(directory) / "config.json").read_text())


def _add_prediction_layer(case, directory, layers):
    """What transformers does not save: after the last layer one more like it, with norms and a projection of its own, and embedding and head once more."""
    import safetensors.torch
    tensors = {}
    for file in directory.glob("*.safetensors"):
        tensors |= safetensors.torch.load_file(file)
        file.unlink()
    (directory / "model.safetensors.index.json").unlink()
    last, at = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    hidden = tensors["model.norm.weight"].shape[0]
    more = {at + name.removeprefix(last): fill(f"{case}:{at}{name}", tuple(tensor.shape), torch.float32) for name, tensor in tensors.items() if name.startswith(last)}
    more |= {at + name: fill(f"{case}:{at}{name}:norm.weight", (hidden,), torch.float32) for name in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")}
    more[at + "eh_proj.weight"] = fill(f"{case}:{at}eh_proj", (hidden, 2 * hidden), torch.float32)
    more |= {at + "embed_tokens.weight": tensors["model.embed_tokens.weight"].clone(), at + "shared_head.head.weight": tensors["lm_head.weight"].clone()}
    safetensors.torch.save_file(tensors | more, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))


def settings(case):
    """MaxText's model and the settings that make it this model."""
    _, config, model_name, more = CASES[case]
    out = dict(base_emb_dim=config["hidden_size"], base_num_query_heads=config["num_attention_heads"], base_num_kv_heads=config["num_key_value_heads"],
               base_mlp_dim=config["intermediate_size"], base_num_decoder_layers=config["num_hidden_layers"], vocab_size=config["vocab_size"],
               normalization_layer_epsilon=config["rms_norm_eps"])
    if "head_dim" in config:
        out["head_dim"] = config["head_dim"]
    if "kv_lora_rank" in config:
        out |= dict(num_experts=config["n_routed_experts"], num_experts_per_tok=2, base_moe_mlp_dim=config["moe_intermediate_size"], first_num_dense_layers=1,
                    kv_lora_rank=config["kv_lora_rank"], qk_nope_head_dim=config["qk_nope_head_dim"], qk_rope_head_dim=config["qk_rope_head_dim"],
                    v_head_dim=config["v_head_dim"], mtp_num_layers=0)
    return model_name, out | more
