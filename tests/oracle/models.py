"""Tiny, awkward models of every dense family: no size is a power of two that hides a mistake, every stack is unlike."""
import json
import os
import pathlib

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import models_experts
from reference import fill

# name -> fields of config.json. Vocabularies are no multiples, head_dim * heads != hidden where the family allows it.
_COMMON = dict(max_position_embeddings=128, bos_token_id=1, eos_token_id=2, hidden_act="silu", attention_dropout=0.0)
_LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
CONFIGS = {
    "llama2_mha": dict(model_type="llama", hidden_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=10,
                       intermediate_size=52, vocab_size=307, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
    "llama3_gqa": dict(model_type="llama", hidden_size=48, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=4, head_dim=6,
                       intermediate_size=68, vocab_size=307, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=False),
    "llama31_scaled": dict(model_type="llama", hidden_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
                           intermediate_size=76, vocab_size=250, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=False, rope=_LLAMA31),
    "llama32_tied": dict(model_type="llama", hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                         intermediate_size=44, vocab_size=307, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True, rope=_LLAMA31 | {"factor": 32.0}),
    "mistral": dict(model_type="mistral", hidden_size=40, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=6,
                    intermediate_size=60, vocab_size=307, rms_norm_eps=1e-5, rope_theta=1000000.0, tie_word_embeddings=False, sliding_window=None),
    "qwen2": dict(model_type="qwen2", hidden_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
                  intermediate_size=76, vocab_size=307, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, use_sliding_window=False),
    "qwen2_tied": dict(model_type="qwen2", hidden_size=32, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
                       intermediate_size=44, vocab_size=250, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True, use_sliding_window=False),
    "qwen3": dict(model_type="qwen3", hidden_size=40, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=6,
                  intermediate_size=60, vocab_size=307, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, use_sliding_window=False),
    "qwen3_tied": dict(model_type="qwen3", hidden_size=32, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                       intermediate_size=52, vocab_size=250, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True, use_sliding_window=False),
    "mqa": dict(model_type="llama", hidden_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=10,
                intermediate_size=52, vocab_size=307, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
}


def shapes(config):
    """HF names and shapes of a dense model, in the order of the model."""
    hidden, ffn, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    result = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        for part, count in (("q", heads), ("k", groups), ("v", groups)):
            result[f"{layer}self_attn.{part}_proj.weight"] = (count * head_dim, hidden)
            if config["model_type"] == "qwen2":
                result[f"{layer}self_attn.{part}_proj.bias"] = (count * head_dim,)
        result[f"{layer}self_attn.o_proj.weight"] = (hidden, heads * head_dim)
        if config["model_type"] == "qwen3":
            result[f"{layer}self_attn.q_norm.weight"] = result[f"{layer}self_attn.k_norm.weight"] = (head_dim,)
        result[f"{layer}mlp.gate_proj.weight"] = result[f"{layer}mlp.up_proj.weight"] = (ffn, hidden)
        result[f"{layer}mlp.down_proj.weight"] = (hidden, ffn)
        result[f"{layer}input_layernorm.weight"] = result[f"{layer}post_attention_layernorm.weight"] = (hidden,)
    result["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (config["vocab_size"], hidden)
    return result


def parameters(case, dtype=torch.bfloat16):
    """(config, {HF name: tensor}) without transformers."""
    config = dict(CONFIGS[case] if case in CONFIGS else models_experts.CONFIGS[case])
    rope = config.pop("rope", None)
    config |= {"rope_parameters": {"rope_theta": config["rope_theta"], **(rope or {"rope_type": "default"})}, **_COMMON}
    listed = shapes(config) if case in CONFIGS else models_experts.shapes(config)
    return config, {name: fill(f"{case}:{name}", shape, torch.float32 if name.endswith("e_score_correction_bias") else dtype) for name, shape in listed.items()}


def build(case, dtype=torch.bfloat16):
    """The same as a real transformers model."""
    import transformers
    if case in models_experts.CONFIGS:
        return build_experts(case, dtype)
    config, tensors = parameters(case, dtype)
    fields = {key: value for key, value in config.items() if key not in ("model_type", "rope_theta")}
    kinds = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    name = kinds[config["model_type"]]
    settings = getattr(transformers, f"{name}Config")(**fields, dtype=str(dtype).removeprefix("torch."), use_cache=False)
    model = getattr(transformers, f"{name}ForCausalLM")(settings).to(dtype)
    model.tie_weights()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            tensor.copy_(tensors["model.embed_tokens.weight" if key == "lm_head.weight" and config["tie_word_embeddings"] else key])
    model.tie_weights()
    return model, tensors


def build_experts(case, dtype):
    """Through a directory: transformers holds a layer's experts as one tensor, and makes it from the released ones itself."""
    import tempfile
    import transformers
    from safetensors.torch import save_file
    config, tensors = parameters(case, dtype)
    fields = {key: value for key, value in config.items() if key not in ("model_type", "rope_theta")}
    settings = getattr(transformers, models_experts.CLASSES[config["model_type"]] + "Config")(**fields, dtype=str(dtype).removeprefix("torch."), use_cache=False)
    settings.architectures = [models_experts.CLASSES[config["model_type"]] + "ForCausalLM"]
    with tempfile.TemporaryDirectory() as folder:
        settings.save_pretrained(folder)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, f"{folder}/model.safetensors", {"format": "pt"})
        return load(folder, dtype), tensors


def write(case, target, dtype=torch.bfloat16, max_shard_size="60KB", complete=True):
    """save_pretrained plus what makes a directory complete. Returns (config.json as a dict, tensors)."""
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    target = pathlib.Path(target)
    model, tensors = build(case, dtype)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=2, max_new_tokens=8)
    model.save_pretrained(target, max_shard_size=max_shard_size)
    if complete:
        words = Tokenizer(WordLevel({f"w{index}": index for index in range(model.config.vocab_size)}, unk_token="w0"))
        words.pre_tokenizer = Whitespace()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w1", eos_token="w2")
        tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }}\n{% endfor %}"
        tokenizer.save_pretrained(target)
        (target / "LICENSE").write_text("Text of a licence, with \r\n and no newline at the end")
    return json.loads((target / "config.json").read_text()), tensors


def tokens(vocabulary, length=24):
    return torch.randint(0, vocabulary, (2, length), generator=torch.Generator().manual_seed(11))


def load(directory, dtype=torch.float32):
    """from_pretrained with the checks that it only warns about; returns the model."""
    import transformers
    model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"):
        assert not info.get(problem), f"{directory}: {problem} {sorted(info[problem])[:5]}"
    return model.eval()


def logits(directory):
    model = load(directory)
    with torch.no_grad():
        return model(tokens(model.config.vocab_size), use_cache=False).logits
