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
