"""Writes Hugging Face directories of any size without a library: safetensors headers over sparse or random data."""
import json
import os
import struct


def llama_tensors(layers, hidden, ffn, heads, kv_heads, vocab):
    head = hidden // heads
    yield "model.embed_tokens.weight", [vocab, hidden]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", [hidden]
        yield prefix + "self_attn.q_proj.weight", [heads * head, hidden]
        yield prefix + "self_attn.k_proj.weight", [kv_heads * head, hidden]
        yield prefix + "self_attn.v_proj.weight", [kv_heads * head, hidden]
        yield prefix + "self_attn.o_proj.weight", [hidden, heads * head]
        yield prefix + "post_attention_layernorm.weight", [hidden]
        yield prefix + "mlp.gate_proj.weight", [ffn, hidden]
        yield prefix + "mlp.up_proj.weight", [ffn, hidden]
        yield prefix + "mlp.down_proj.weight", [hidden, ffn]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [vocab, hidden]


def write_llama(folder, layers, hidden=2048, ffn=5632, heads=16, kv_heads=8, vocab=32000, shard_bytes=1 << 30,
                random=False):
    """Makes a bf16 Llama in `folder`; returns the bytes of its tensors. Sparse unless `random`."""
    os.makedirs(folder)
    shards, size = [[]], 0
    for name, shape in llama_tensors(layers, hidden, ffn, heads, kv_heads, vocab):
        bytes_ = 2
        for n in shape:
            bytes_ *= n
        if size and size + bytes_ > shard_bytes:
            shards.append([])
            size = 0
        size += bytes_
        shards[-1].append((name, shape, bytes_))
    total, weight_map = 0, {}
    source = open("/dev/urandom", "rb") if random else None
    for index, tensors in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        for name, shape, bytes_ in tensors:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + bytes_]}
            offset += bytes_
            weight_map[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            if random:
                left = offset
                while left:
                    # The exponents are kept small and positive so that every value is finite.
                    piece = bytearray(source.read(min(left, 1 << 24)))
                    piece[1::2] = piece[1::2].translate(bytes((0x3c | (b & 0x83)) & 0xbf for b in range(256)))
                    out.write(piece)
                    left -= len(piece)
            else:
                out.truncate(8 + len(text) + offset)
        total += offset
    if len(shards) > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out, indent=2)
    return total


def describe_deepseek_v3(folder):
    """config.json and the index of a model shaped as DeepSeek-V3 without its prediction layer, and no weights. Returns its tensors."""
    layers, dense, experts, hidden, heads, rank = 61, 3, 256, 7168, 128, 512
    config = dict(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", vocab_size=129280, hidden_size=hidden, intermediate_size=18432,
                  moe_intermediate_size=2048, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads, n_routed_experts=experts,
                  n_shared_experts=1, num_experts_per_tok=8, n_group=8, topk_group=4, routed_scaling_factor=2.5, first_k_dense_replace=dense,
                  moe_layer_freq=1, kv_lora_rank=rank, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, scoring_func="sigmoid",
                  topk_method="noaux_tc", norm_topk_prob=True, tie_word_embeddings=False, max_position_embeddings=163840, rms_norm_eps=1e-6,
                  rope_theta=10000, hidden_act="silu", torch_dtype="bfloat16", num_nextn_predict_layers=0)
    mlp = [f"{part}_proj.weight" for part in ("gate", "up", "down")]
    attention = [f"self_attn.{part}.weight" for part in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")]
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    for layer in range(layers):
        own = ["input_layernorm.weight", "post_attention_layernorm.weight", *attention]
        if layer < dense:
            own += [f"mlp.{name}" for name in mlp]
        else:
            own += ["mlp.gate.weight", "mlp.gate.e_score_correction_bias"]
            own += [f"mlp.shared_experts.{name}" for name in mlp]
            own += [f"mlp.experts.{expert}.{name}" for expert in range(experts) for name in mlp]
        names += [f"model.layers.{layer}.{name}" for name in own]
    files = 163
    weight_map = {name: f"model-{1 + at * files // len(names):05}-of-{files:05}.safetensors" for at, name in enumerate(names)}
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)
    return len(names)
