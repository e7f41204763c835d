"""The leanest PyTorch script for the same job: Hugging Face safetensors to a torch DCP with Megatron's names, and back, or to FP8.

It does the tensor operations only (QKV by groups, gate/up, layers stacked), holds the model in memory as such scripts do,
and ends with fsync. The way back reads a real torch_dist run: the tracker's step, whatever its TP and PP, and the
config.json in its hf folder. FP8 is by blocks of 128 x 128 with F32 scales, file by file. Usage: lean_torch.py to|from|fp8 SOURCE TARGET
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


def quantize(weight, block=128):
    """q and s of one matrix: s = amax / 448 of each block, q = w / s in F8_E4M3."""
    rows, cols = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -cols % block, 0, -rows % block))
    blocks = padded.view(padded.shape[0] // block, block, padded.shape[1] // block, block)
    scales = blocks.abs().amax((1, 3)) / 448
    scales[scales == 0] = 1
    q = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).view(padded.shape)[:rows, :cols]
    return q.contiguous(), scales


def to_fp8(source, target):
    os.makedirs(target)
    weight_map, total = {}, 0
    for file in sorted(name for name in os.listdir(source) if name.endswith(".safetensors")):
        out = {}
        with safe_open(os.path.join(source, file), "pt") as opened:
            for name in opened.keys():
                tensor = opened.get_tensor(name)
                if name.endswith("_proj.weight"):
                    out[name], out[name + "_scale_inv"] = quantize(tensor)
                else:
                    out[name] = tensor
        path = os.path.join(target, file)
        save_file(out, path, {"format": "pt"})
        with open(path, "rb") as written:
            os.fsync(written.fileno())
        weight_map |= dict.fromkeys(out, file)
        total += sum(tensor.nbytes for tensor in out.values())
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    for name, content in (("config.json", config), ("model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})):
        with open(os.path.join(target, name), "w") as file:
            json.dump(content, file)


if __name__ == "__main__":
    {"to": to_megatron, "from": from_megatron, "fp8": to_fp8}[sys.argv[1]](sys.argv[2], sys.argv[3])
