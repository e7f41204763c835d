"""FP8 export once more, in plain torch and with rules of its own: which weights become FP8, what their bytes and scales are, what
config.json then says. Independent of the tool: nothing here was taken from it."""
import torch

E4M3 = torch.float8_e4m3fn
SCALES = {"block": "weight_scale_inv", "channel": "weight_scale", "tensor": "weight_scale"}

# Parts of names that hold no plain linear layer, for the families of these tests.
_KEPT = ("embed", "norm", "lm_head", "router", ".gate.", "shared_expert_gate", "visual", "eh_proj", "shared_head")


def is_quantized(name, tensor):
    return tensor.dim() == 2 and name.endswith(".weight") and not any(word in name for word in _KEPT)


def power_of_two(scale):
    """The least one that is not below, by bits."""
    bits = scale.view(torch.int32)
    exponent = ((bits >> 23) & 255) + ((bits & 0x7FFFFF) != 0).int()
    return (exponent.clamp(1, 254) << 23).view(torch.float32)


def codes(values, scale, relaxed=None):
    """clamp(x / s) in e4m3fn; `relaxed`: the quotient is rounded to that dtype first."""
    quotient = values / scale
    if relaxed is not None:
        quotient = quotient.to(relaxed).float()
    return quotient.clamp(-448, 448).to(E4M3)


def quantize(tensor, strategy, block=(128, 128), ue8m0=False, relax=False):
    """(codes, scales) of one matrix, group by group."""
    rows, cols = tensor.shape
    height, width = {"block": block, "channel": (1, cols), "tensor": (rows, cols)}[strategy]
    grid = torch.empty(-(-rows // height), -(-cols // width))
    out = torch.empty(rows, cols, dtype=E4M3)
    wide = tensor.float()
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            place = (slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width))
            amax = wide[place].abs().max().clamp(min=1e-12)
            scale = amax / torch.tensor(448.0)
            if ue8m0:
                scale = power_of_two(scale.reshape(1)).reshape(())
            grid[i, j] = scale
            out.view(torch.uint8)[place] = codes(wide[place], scale, tensor.dtype if relax and strategy == "tensor" else None).view(torch.uint8)
    return out, grid.reshape(1) if strategy == "tensor" else grid


def export(tensors, strategy, compressed=None, **how):
    """{name: tensor} of an FP8 directory, and its list of layers that are not FP8."""
    compressed = strategy != "block" if compressed is None else compressed
    suffix = "weight_scale" if compressed else SCALES[strategy]
    out, kept = {}, []
    for name, tensor in tensors.items():
        if is_quantized(name, tensor):
            out[name], out[name.removesuffix("weight") + suffix] = quantize(tensor, strategy, **how)
        else:
            out[name] = tensor
            kept += [name.removesuffix(".weight")] if tensor.dim() == 2 and name.endswith(".weight") else []
    return out, sorted(set(kept))


def config_of(strategy, kept, compressed=None, block=(128, 128), ue8m0=False):
    compressed = strategy != "block" if compressed is None else compressed
    if not compressed:
        said = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "modules_to_not_convert": kept}
        said |= {"weight_block_size": list(block)} if strategy == "block" else {}
    else:
        eight = {"num_bits": 8, "type": "float", "symmetric": True}
        weights = eight | {"strategy": strategy, "dynamic": False, "observer": "minmax"}
        activations = eight | {"strategy": "token", "dynamic": True}
        if strategy == "block":
            weights["block_structure"] = list(block)
            activations |= {"strategy": "group", "group_size": block[1]}
        said = {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "ignore": kept,
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}}}
    return said | ({"scale_fmt": "ue8m0"} if ue8m0 else {})


def vllm_skips(path, said):
    """vLLM 0.11, is_layer_skipped: whole paths; a layer made of several is asked for each of them."""
    listed = said.get("ignored_layers") or said.get("modules_to_not_convert") or said.get("ignore") or []
    prefix, _, last = path.rpartition(".")
    parts = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}.get(last, (last,))
    answers = {f"{prefix}.{part}".removeprefix(".") in listed for part in parts}
    if len(answers) != 1:
        raise ValueError(f"{path}: some of {parts} are skipped and some are not")
    return answers.pop()


def sglang_skips(path, said):
    """SGLang, is_layer_skipped: entries with and without `model.`, matched between dots."""
    listed = said.get("ignored_layers") or said.get("modules_to_not_convert") or said.get("ignore") or []
    wide = {form for entry in listed for form in (entry, entry.removeprefix("model."), f"model.{entry}")}
    prefix, _, last = path.rpartition(".")
    parts = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}.get(last, (last,))
    dotted = lambda whole: f".{whole}."
    answers = {any(dotted(entry) in dotted(f"{prefix}.{part}") for entry in wide) for part in parts}
    if len(answers) != 1:
        raise ValueError(f"{path}: some of {parts} are skipped and some are not")
    return answers.pop()
