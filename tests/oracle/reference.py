"""The reference side of the oracle: tensors as functions of their names, and HF <-> Megatron arrangements written down
once more, independently of the tool, in plain torch. Proven against two implementations by the logits tests."""
import hashlib
import json
import pathlib
import struct

import torch

import models_experts
import reference_experts

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


def seeded(name, shape, dtype=torch.float32, scale=1.0):
    """Values by name and position alone: no rank, layout or order of creation enters."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1
    return (torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def fill(name, shape, dtype, norm_scale=0.25):
    """A model tensor: norms around one and never one, matrices so that tiny models keep logits near one."""
    if name.endswith("norm.weight") or "layernorm" in name:
        return (1 + seeded(name, shape, scale=norm_scale)).to(dtype)
    scale = 0.1 if name.endswith("bias") else 0.16 if "embed" in name or "lm_head" in name else 1.0 / max(shape[-1], 1) ** 0.5
    return seeded(name, shape, dtype, scale)


def slots_of(parameters):
    """Adam's state for HF parameters: masters differ from the upcast model by a small rest, second moments are positive."""
    state = {}
    for name, tensor in parameters.items():
        if name.endswith("e_score_correction_bias"):             # a buffer: no gradient, no state
            continue
        wide = tensor.float()
        state[f"optim/master/{name}"] = wide + seeded("master:" + name, tensor.shape, scale=1e-5) * wide.abs()
        state[f"optim/adam_mu/{name}"] = seeded("mu:" + name, tensor.shape, scale=1e-3)
        state[f"optim/adam_nu/{name}"] = seeded("nu:" + name, tensor.shape, scale=1e-2) ** 2
    return state


def heads_of(config):
    heads = config["num_attention_heads"]
    if models_experts.is_mla(config):                            # config.json's head_dim is the size of the rotary part there
        return heads, heads, config["hidden_size"] // heads
    return heads, config.get("num_key_value_heads") or heads, config.get("head_dim") or config["hidden_size"] // heads


def to_megatron(tensors, config, vocabulary=None, numbered=False, pad=None):
    """HF names -> torch_dist keys and global tensors. `vocabulary` is the padded size; `pad` fills the added rows."""
    heads, groups, head_dim = heads_of(config)
    layers = config["num_hidden_layers"]
    per_group = heads // groups

    def fuse(layer, kind):
        parts = [tensors[f"model.layers.{layer}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
        query = parts[0].reshape(groups, per_group * head_dim, *parts[0].shape[1:])
        key, value = (part.reshape(groups, head_dim, *part.shape[1:]) for part in parts[1:])
        return torch.cat([query, key, value], dim=1).reshape(-1, *parts[0].shape[1:])

    def widen(tensor):
        if vocabulary is None or vocabulary == tensor.shape[0]:
            return tensor
        rows = torch.zeros(vocabulary - tensor.shape[0], *tensor.shape[1:], dtype=tensor.dtype)
        if pad is not None:
            rows += torch.arange(1, len(rows) + 1).reshape(-1, *[1] * (tensor.dim() - 1)).to(tensor.dtype) * pad
        return torch.cat([tensor, rows])

    def layer(index):
        get = lambda name: tensors[f"model.layers.{index}.{name}"]
        result = {
            "self_attention.linear_qkv.layer_norm_weight": get("input_layernorm.weight"), "self_attention.linear_qkv.weight": fuse(index, "weight"),
            "self_attention.linear_proj.weight": get("self_attn.o_proj.weight"), "mlp.linear_fc1.layer_norm_weight": get("post_attention_layernorm.weight"),
            "mlp.linear_fc1.weight": torch.cat([get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")]), "mlp.linear_fc2.weight": get("mlp.down_proj.weight")}
        if f"model.layers.{index}.self_attn.q_proj.bias" in tensors:
            result["self_attention.linear_qkv.bias"] = fuse(index, "bias")
        if f"model.layers.{index}.self_attn.q_norm.weight" in tensors:
            result["self_attention.q_layernorm.weight"] = get("self_attn.q_norm.weight")
            result["self_attention.k_layernorm.weight"] = get("self_attn.k_norm.weight")
        return result

    if models_experts.experts_of(config) is None:
        every = [layer(index) for index in range(layers)]
    else:
        kinds = models_experts.kinds(config)
        numbered = numbered or not all(kinds)
        every = [reference_experts.layer_keys(lambda name: tensors[f"model.layers.{index}.{name}"], lambda name: f"model.layers.{index}.{name}" in tensors,
                                              config, index, kinds[index], fuse) for index in range(layers)]
    if numbered:
        keys = {f"decoder.layers.{index}.{name}": tensor for index, part in enumerate(every) for name, tensor in part.items()}
    else:
        keys = {f"decoder.layers.{name}": torch.stack([part[name] for part in every]) for name in every[0]}
    keys["embedding.word_embeddings.weight"] = widen(tensors["model.embed_tokens.weight"])
    keys["decoder.final_layernorm.weight"] = tensors["model.norm.weight"]
    if not config.get("tie_word_embeddings"):
        keys["output_layer.weight"] = widen(tensors["lm_head.weight"])
    return keys


def slot_of(state, slot):
    prefix = f"optim/{slot}/" if slot != "param" else "param/"
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


# --- safetensors without the library: the judge must not share its habits -------------------------------------------------
def read_safetensors(path):
    """{name: (dtype, shape, bytes)} and the metadata of one file."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + size:]
    return {name: (item["dtype"], tuple(item["shape"]), bytes(body[slice(*item["data_offsets"])])) for name, item in header.items()}, metadata


def read_directory(path):
    """Every tensor of a directory, through the index when there is one; the index must name exactly what the shards hold."""
    path = pathlib.Path(path)
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return read_safetensors(path / "model.safetensors")
    listed = json.loads(index.read_text())
    tensors, metadata = {}, {}
    for shard in sorted(set(listed["weight_map"].values())):
        part, metadata = read_safetensors(path / shard)
        for name in part:
            assert listed["weight_map"].get(name) == shard, f"{name} lies in {shard}, the index says {listed['weight_map'].get(name)}"
        tensors |= part
    assert set(tensors) == set(listed["weight_map"]), sorted(set(tensors) ^ set(listed["weight_map"]))[:5]
    assert listed["metadata"]["total_size"] == sum(len(data) for _, _, data in tensors.values()), "total_size of the index"
    return tensors, metadata


def as_torch(raw):
    return {name: torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).reshape(shape) if data else torch.empty(shape, dtype=DTYPES[dtype])
            for name, (dtype, shape, data) in raw.items()}


def raw_of(tensors):
    names = {value: key for key, value in DTYPES.items()}
    return {name: (names[tensor.dtype], tuple(tensor.shape), tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            for name, tensor in tensors.items()}


def differences(found, expected, limit=8):
    """Both directions: names only here, only there, dtype, shape, then the first differing byte."""
    if not expected:
        return ["nothing was expected: an empty comparison proves nothing"]
    lines = [f"only found: {name}" for name in sorted(set(found) - set(expected))] + [f"missing: {name}" for name in sorted(set(expected) - set(found))]
    for name in sorted(set(found) & set(expected)):
        ours, theirs = found[name], expected[name]
        if ours[:2] != theirs[:2]:
            lines.append(f"{name}: {ours[0]} {list(ours[1])}, expected {theirs[0]} {list(theirs[1])}")
        elif ours[2] != theirs[2]:
            bad = [index for index, (a, b) in enumerate(zip(ours[2], theirs[2])) if a != b]
            lines.append(f"{name}: {len(bad)} of {len(theirs[2])} bytes differ, first at {bad[0] if bad else 'the length'}")
    return lines[:limit] + ([f"... and {len(lines) - limit} more"] if len(lines) > limit else [])


def assert_same(found, expected):
    lines = differences(found, expected)
    assert not lines, "\n".join(lines)
