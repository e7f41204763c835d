"""The leanest PyTorch script for the same job: Hugging Face safetensors to a torch DCP with Megatron's names, and back.

It does the tensor operations only (QKV by groups, gate/up, layers stacked), holds the model in memory as such scripts do,
and ends with fsync. The way back reads a real torch_dist run: the tracker's step, whatever its TP and PP, and the
config.json in its hf folder. Usage: lean_torch.py to|from SOURCE TARGET
"""
import json
import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def load(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(folder, name), "pt") as file:
                for key in file.keys():
                    tensors[key] = file.get_tensor(key)
    with open(os.path.join(folder, "config.json")) as file:
        return tensors, json.load(file)


def qkv(q, k, v, groups, head):
    h = q.shape[1]
    q, k, v = q.view(groups, -1, head, h), k.view(groups, 1, head, h), v.view(groups, 1, head, h)
    return torch.cat([q, k, v], 1).reshape(-1, h)


def to_megatron(source, target):
    hf, config = load(source)
    groups, head = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    layers = {"self_attention.linear_qkv.weight": [], "self_attention.linear_qkv.layer_norm_weight": [],
              "self_attention.linear_proj.weight": [], "mlp.linear_fc1.layer_norm_weight": [],
              "mlp.linear_fc1.weight": [], "mlp.linear_fc2.weight": []}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        layers["self_attention.linear_qkv.weight"].append(
            qkv(*(hf.pop(p + f"self_attn.{x}_proj.weight") for x in "qkv"), groups, head))
        layers["self_attention.linear_qkv.layer_norm_weight"].append(hf.pop(p + "input_layernorm.weight"))
        layers["self_attention.linear_proj.weight"].append(hf.pop(p + "self_attn.o_proj.weight"))
        layers["mlp.linear_fc1.layer_norm_weight"].append(hf.pop(p + "post_attention_layernorm.weight"))
        layers["mlp.linear_fc1.weight"].append(
            torch.cat([hf.pop(p + "mlp.gate_proj.weight"), hf.pop(p + "mlp.up_proj.weight")]))
        layers["mlp.linear_fc2.weight"].append(hf.pop(p + "mlp.down_proj.weight"))
    state = {"decoder.layers." + k: torch.stack(v) for k, v in layers.items()}
    state["embedding.word_embeddings.weight"] = hf.pop("model.embed_tokens.weight")
    state["decoder.final_layernorm.weight"] = hf.pop("model.norm.weight")
    state["output_layer.weight"] = hf.pop("lm_head.weight")
    dcp.save(state, checkpoint_id=target)


def iteration_of(root):
    """The directory of the step that the tracker of a run names."""
    with open(os.path.join(root, "latest_checkpointed_iteration.txt")) as file:
        name = file.read().strip()
    return os.path.join(root, name if name == "release" else f"iter_{int(name):07d}")


def from_megatron(source, target):
    source = iteration_of(source)
    with open(os.path.join(source, "hf", "config.json")) as file:
        config = json.load(file)
    stored = dcp.FileSystemReader(source).read_metadata().state_dict_metadata
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) for k, m in stored.items() if isinstance(m, TensorStorageMetadata)}
    dcp.load(state, checkpoint_id=source)
    groups, vocab = config["num_key_value_heads"], config["vocab_size"]
    head = config["hidden_size"] // config["num_attention_heads"]
    out = {"model.embed_tokens.weight": state["embedding.word_embeddings.weight"][:vocab],
           "model.norm.weight": state["decoder.final_layernorm.weight"], "lm_head.weight": state["output_layer.weight"][:vocab]}
    fused = state["decoder.layers.self_attention.linear_qkv.weight"]
    for i in range(fused.shape[0]):
        p, h = f"model.layers.{i}.", fused.shape[2]
        parts = fused[i].view(groups, -1, head, h)
        out[p + "self_attn.q_proj.weight"] = parts[:, :-2].reshape(-1, h).contiguous()
        out[p + "self_attn.k_proj.weight"] = parts[:, -2].reshape(-1, h).contiguous()
        out[p + "self_attn.v_proj.weight"] = parts[:, -1].reshape(-1, h).contiguous()
        gate, up = state["decoder.layers.mlp.linear_fc1.weight"][i].chunk(2)
        out[p + "mlp.gate_proj.weight"], out[p + "mlp.up_proj.weight"] = gate.clone(), up.clone()
        for hf, mcore in (("input_layernorm", "self_attention.linear_qkv.layer_norm_weight"),
                          ("self_attn.o_proj", "self_attention.linear_proj.weight"),
                          ("post_attention_layernorm", "mlp.linear_fc1.layer_norm_weight"),
                          ("mlp.down_proj", "mlp.linear_fc2.weight")):
            out[p + hf + ".weight"] = state["decoder.layers." + mcore][i].clone()
    os.makedirs(target)
    path = os.path.join(target, "model.safetensors")
    save_file(out, path, {"format": "pt"})
    with open(path, "rb") as file:
        os.fsync(file.fileno())


if __name__ == "__main__":
    (to_megatron if sys.argv[1] == "to" else from_megatron)(sys.argv[2], sys.argv[3])
