"""Model D of the users' cases as a Hugging Face directory, written and read with the standard library alone.

Llama names, hidden 16, 4 heads, 2 KV heads of 4, ffn 24, vocabulary 50, untied, bf16. Every element is told by its place
(fill rule R), so that any swap of tensors, rows or columns shows."""
import json
import os
import struct

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 50,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "bfloat16",
}
TOKENIZER = b'{"version": "1.0",  "note": "two  spaces and no newline stay"}'


def config(**changes):
    return CONFIG | changes


def shapes(c):
    h, f, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    out = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h], "lm_head.weight": [c["vocab_size"], h]}
    for layer in range(c["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": [h], "post_attention_layernorm": [h], "self_attn.q_proj": [q, h], "self_attn.k_proj": [kv, h],
            "self_attn.v_proj": [kv, h], "self_attn.o_proj": [h, q], "mlp.gate_proj": [f, h], "mlp.up_proj": [f, h], "mlp.down_proj": [h, f],
        }.items():
            out[f"model.layers.{layer}.{name}.weight"] = shape
    return out


def tensors(c):
    return filled(shapes(c))


def filled(shapes_by_name):
    """name -> (dtype, shape, bytes): k = rank of the name, i = row-major number, ((37k + (7 + 2(k mod 61)) i) mod 251) - 125."""
    out = {}
    for k, (name, shape) in enumerate(sorted(shapes_by_name.items())):
        count = 1
        for n in shape:
            count *= n
        values = [((37 * k + (7 + 2 * (k % 61)) * i) % 251) - 125 for i in range(count)]
        # A whole number below 256 is exact in bf16: the upper half of its float32.
        data = b"".join(struct.pack("<f", v)[2:] for v in values)
        out[name] = ("BF16", shape, data)
    return out


def header_of(items, metadata=None):
    header, offset = {"__metadata__": metadata or {"format": "pt"}}, 0
    for name, (dtype, shape, data) in items.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return json.dumps(header, separators=(",", ":")).encode()


def write_file(path, items, metadata=None):
    text = header_of(items, metadata)
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in items.values()))


def write(folder, c=None, items=None, shards=1, tokenizer=True):
    """Makes a directory; returns its tensors."""
    c = c or CONFIG
    items = tensors(c) if items is None else items
    os.makedirs(folder)
    names = list(items)
    if shards == 1:
        write_file(os.path.join(folder, "model.safetensors"), items)
    else:
        weight_map, step = {}, -(-len(names) // shards)
        for index in range(shards):
            file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
            part = names[index * step:(index + 1) * step]
            write_file(os.path.join(folder, file), {name: items[name] for name in part})
            weight_map |= {name: file for name in part}
        total = sum(len(data) for _, _, data in items.values())
        write_json(os.path.join(folder, "model.safetensors.index.json"), {"metadata": {"total_size": total}, "weight_map": weight_map})
    write_json(os.path.join(folder, "config.json"), c)
    if tokenizer:
        with open(os.path.join(folder, "tokenizer.json"), "wb") as out:
            out.write(TOKENIZER)
    return items


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)


def read_json(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return json.load(file)


def read(folder):
    """name -> (dtype, shape, bytes) of every safetensors file in a directory."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, file), "rb") as stream:
            data = stream.read()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            out[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return out
