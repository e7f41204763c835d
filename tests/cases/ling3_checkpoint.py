"""Ling 3 tiny with every one of its 9686 parameters and small sizes: 24 layers, 128 experts, one layer of multi-token prediction; and Megatron names for it, which
no public code has: a rule file of the tests' own, made of the family's."""
import array
import os
import re

CONFIG = {
    "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_moe_v3", "hidden_size": 8, "intermediate_size": 12, "moe_intermediate_size": 4,
    "num_hidden_layers": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "linear_head_dim": 4, "short_conv_kernel_size": 4, "layer_group_size": 4,
    "first_k_dense_replace": 1, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "q_lora_rank": 6,
    "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "num_nextn_predict_layers": 1, "vocab_size": 20, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}
FAMILY = os.path.join(os.path.dirname(__file__), "..", "..", "families", "ling3.toml")


def _latent(c):
    h, q, v, ql, kl = c["hidden_size"], c["num_attention_heads"], c["v_head_dim"], c["q_lora_rank"], c["kv_lora_rank"]
    nope, rope = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    return {"attention.q_a_proj.weight": [ql, h], "attention.q_a_layernorm.weight": [ql], "attention.q_b_proj.weight": [q * (nope + rope), ql],
            "attention.kv_a_proj_with_mqa.weight": [kl + rope, h], "attention.kv_a_layernorm.weight": [kl], "attention.kv_b_proj.weight": [q * (nope + v), kl],
            "attention.dense.weight": [h, q * v], "attention.g_proj.weight": [q, h]}


def _linear(c):
    h, heads, d = c["hidden_size"], c["num_attention_heads"], c["linear_head_dim"]
    out = {f"attention.{name}_proj.weight": [heads * d, h] for name in "qkvfg"}
    out |= {f"attention.{name}_conv1d.weight": [heads * d, 1, c["short_conv_kernel_size"]] for name in "qkv"}
    return out | {"attention.b_proj.weight": [heads, h], "attention.o_proj.weight": [h, heads * d], "attention.A_log": [heads], "attention.dt_bias": [heads * d],
                  "attention.o_norm.weight": [d]}


def _mlp(prefix, h, f):
    return {f"{prefix}gate_proj.weight": [f, h], f"{prefix}up_proj.weight": [f, h], f"{prefix}down_proj.weight": [h, f]}


def _layer(c, latent, dense):
    h, m = c["hidden_size"], c["moe_intermediate_size"]
    out = {"input_layernorm.weight": [h], "post_attention_layernorm.weight": [h]} | (_latent(c) if latent else _linear(c))
    if dense:
        return out | _mlp("mlp.", h, c["intermediate_size"])
    out |= {"mlp.gate.weight": [c["num_experts"], h], "mlp.gate.expert_bias": [c["num_experts"]]} | _mlp("mlp.shared_experts.", h, m)
    for e in range(c["num_experts"]):
        out |= _mlp(f"mlp.experts.{e}.", h, m)
    return out


def shapes(c=None):
    c = c or CONFIG
    h = c["hidden_size"]
    out = {"model.word_embeddings.weight": [c["vocab_size"], h], "model.norm.weight": [h], "lm_head.weight": [c["vocab_size"], h]}
    layers = c["num_hidden_layers"]
    for number in range(layers):
        for name, shape in _layer(c, (number + 1) % c["layer_group_size"] == 0, number < c["first_k_dense_replace"]).items():
            out[f"model.layers.{number}.{name}"] = shape
    extra = _layer(c, True, False) | {"enorm.weight": [h], "hnorm.weight": [h], "final_layernorm.weight": [h], "eh_proj.weight": [h, 2 * h]}
    return out | {f"model.layers.{layers}.{name}": shape for name, shape in extra.items()}


def is_muons(name, shape):
    """As the model's trainer divides: matrices but embedding, head, norms, biases and convolutions."""
    return len(shape) == 2 and not any(word in name for word in ("embeddings", "lm_head", "norm", "bias"))


def has_state(name):
    return not name.endswith("expert_bias")   # no gradient


def full_state(masters=True):
    """All tensors of a full state, each with values that nothing else has, and its counters."""
    out, number = {}, 0

    def made(shape, dtype="F32"):
        nonlocal number
        count = 1
        for size in shape:
            count *= size
        number += 1
        values = array.array("f", (number + i / 64 for i in range(count)))
        if dtype == "F32":
            return ("F32", shape, values.tobytes())
        data = values.tobytes()
        return ("BF16", shape, b"".join(data[4 * i + 2:4 * i + 4] for i in range(count)))

    for name, shape in shapes().items():
        wide = any(word in name for word in ("expert_bias", "A_log", "dt_bias", "conv1d"))
        out[f"param/{name}"] = made(shape, "F32" if wide else "BF16")
        if not has_state(name):
            continue
        for slot in (["muon_mu"] if is_muons(name, shape) else ["adam_mu", "adam_nu"]) + ["master"] * masters:
            out[f"optim/{slot}/{name}"] = made(shape)
    return out


_ARGUMENTS = {"v": "vocab_size", "h": "hidden_size", "f": "ffn_hidden_size", "m": "moe_ffn_hidden_size", "q": "num_attention_heads", "layers": "num_layers",
              "experts": "num_experts", "mtp": "mtp_num_layers", "ql": "q_lora_rank", "kl": "kv_lora_rank", "nope": "qk_head_dim", "rope": "qk_pos_emb_head_dim",
              "vd": "v_head_dim", "ld": "kv_channels"}
_CONDITIONS = {"untied": "untie_embeddings_and_output_weights", "qlora": "q_lora_rank", "shared": "num_experts", "v3": "num_experts", "latent": "(l + 1) % 4 == 0", "moe": "l >= 1"}
_ROWS = ("dense.weight", "o_proj.weight", "down_proj.weight")


def _megatron(row):
    """A row with a Megatron name: the hub's own, divided among ranks by rows, or by columns where it goes back to the hidden size."""
    hub, shape, _, maxtext = row
    name = hub.split(" ?")[0]
    if "embeddings" in name or "lm_head" in name:
        target = ("embedding.word_embeddings.weight" if "embeddings" in name else "output_layer.weight") + " : vocab"
    elif name == "{gate,up}_proj.weight":
        target = "linear_fc1.weight : gate_up"
    elif name == "down_proj.weight":
        target = "linear_fc2.weight : row"
    elif "{gate,up}_proj" in name:
        target = name.replace("{gate,up}_proj", "linear_fc1") + " : gate_up"
    elif name == "model.norm.weight":
        target = "decoder.final_layernorm.weight"
    elif "," not in shape or "conv1d" in name or name == "mlp.gate.weight":
        target = name
    else:
        target = name + (" : row" if name.endswith(_ROWS) else " : col")
    return [hub, shape, target, maxtext]


def rules():
    """families/ling3.toml with Megatron names of the tests' own."""
    with open(FAMILY) as file:
        text = file.read()
    text = text.replace('without       = ["mcore"]\n', "")
    for letter, argument in (_ARGUMENTS | _CONDITIONS).items():
        text = re.sub(rf"^({letter} +=) {{ hf", rf'\1 {{ mcore = "{argument}", hf', text, flags=re.M)
    text = text.replace('hub     = "model.layers.{l}.mlp.experts.{e}."\n', 'hub     = "model.layers.{l}.mlp.experts.{e}."\nmcore   = "decoder.layers.{l}.mlp.experts.experts."\n')
    text = text.replace('hub     = "model.layers.{layers+i}.mlp.experts.{e}."\n', 'hub     = "model.layers.{layers+i}.mlp.experts.{e}."\nmcore   = "mtp.layers.{i}.transformer_layer.mlp.experts.experts."\n')
    text = text.replace('hub     = "model.layers.{l}."\n', 'hub     = "model.layers.{l}."\nmcore   = "decoder.layers.{l}."\n')
    text = text.replace('hub     = "model.layers.{layers+i}."\n', 'hub     = "model.layers.{layers+i}."\nmcore   = "mtp.layers.{i}.transformer_layer."\n')

    def replaced(match):
        return "[" + ", ".join(f'"{cell}"' for cell in _megatron(re.findall(r'"([^"]*)"', match.group(0)))) + "],"
    return re.sub(r'\["[^\]]*"\],$', replaced, text, flags=re.M)
