"""Quantized Hugging Face directories as sources: FP8 by block, row and tensor under every name of scales, and MXFP4. What comes out must
be, bit for bit, torch's product in float32 rounded once; transformers' own dequantization is the second judge."""
import json
import pathlib

import pytest

import tool

tool.require()

import safetensors.torch
import torch

import mcore_env as env
import mcore_load
import models
from reference import assert_same, raw_of, seeded

CASE = "qwen3"  # 48 and 12 rows over 40 columns, 60 over 40, 40 over 60 and 48: no two matrices have the same edge blocks
E4M3 = torch.float8_e4m3fn


def is_quantized(name, tensor):
    return tensor.dim() == 2 and "embed" not in name and "lm_head" not in name


def grid(tensor, block):
    rows, cols = block
    return -(-tensor.shape[0] // rows), -(-tensor.shape[1] // cols)


def spread(scales, shape, block):
    """One scale for each element."""
    if scales.numel() == 1:
        return scales.float().reshape(1, 1).expand(shape)
    wide = scales.float().reshape(scales.shape[0], -1)
    return wide.repeat_interleave(block[0], 0)[:shape[0]].repeat_interleave(block[1], 1)[:, :shape[1]]


# name -> block (None: the whole), suffix and shape of the scales, their dtype, the codes' dtype, quantization_config
FORMS = {
    "block": ((32, 16), "weight_scale_inv", None, torch.float32, E4M3, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 16]}),
    "block_ue8m0": ((32, 16), "scale", None, torch.float8_e8m0fnu, E4M3, {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [32, 16]}),
    "block_groups": ((1, 16), "weight_scale", None, torch.bfloat16, E4M3,
                     {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "group_size": 16, "strategy": "group"}}}}),
    "block_unsaid": ((128, 128), "weight_scale_inv", None, torch.float32, torch.float8_e5m2, None),
    "channel": ((1, None), "weight_scale", (-1, 1), torch.bfloat16, E4M3,
                {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}),
    "channel_flat": ((1, None), "scale", (-1,), torch.float32, E4M3, None),
    "tensor": ((None, None), "weight_scale", (1,), torch.float32, E4M3, {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}}),
    "scalar": ((None, None), "weight_scale_inv", (), torch.float32, E4M3, {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}),
}


def quantize(name, tensor, form):
    """(codes, scales, what they mean in bfloat16)."""
    block, _, shape, scale_type, code_type, _ = FORMS[form]
    block = tuple(extent or whole for extent, whole in zip(block, tensor.shape))
    # Scales with all digits, not the best ones: what is stored counts, not how good it is.
    scales = (seeded("scale:" + name, grid(tensor, block)).abs() + 0.01) / 100
    scales = scales.to(scale_type) if scale_type != torch.float8_e8m0fnu else torch.exp2(torch.round(torch.log2(scales))).to(scale_type)
    codes = (tensor.float() / spread(scales, tensor.shape, block)).clamp(-448, 448).to(code_type)
    meaning = (codes.float() * spread(scales, tensor.shape, block)).to(torch.bfloat16)
    return codes, scales if shape is None else scales.reshape(shape), meaning


def write(source, target, form, keep=lambda name: True):
    """A quantized copy of a directory in two files, scales away from their weights; returns {name: bfloat16} as it is to be read."""
    target.mkdir()
    _, suffix, _, _, _, said = FORMS[form]
    tensors, wanted = read_directory_as_torch(source), {}
    first, second = {}, {}
    for name, tensor in tensors.items():
        if not is_quantized(name, tensor):
            first[name] = wanted[name] = tensor
            continue
        first[name], scales, wanted[name] = quantize(name, tensor, form)
        if keep(name):
            second[name.removesuffix("weight") + suffix] = scales
        if form == "scalar":
            second[name.removesuffix("weight") + "input_scale"] = torch.tensor(0.5)
    files = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
    for file, part in files.items():
        safetensors.torch.save_file({key: value.contiguous() for key, value in part.items()}, target / file, {"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": {key: file for file, part in files.items() for key in part}}
    index["metadata"]["total_size"] = sum(value.numel() * value.element_size() for part in files.values() for value in part.values())
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((source / "config.json").read_text())
    if said is not None:
        config["quantization_config"] = said
    (target / "config.json").write_text(json.dumps(config))
    return wanted


def read_directory_as_torch(directory):
    result = {}
    for file in sorted(pathlib.Path(directory).glob("*.safetensors")):
        result |= safetensors.torch.load_file(file)
    return result


@pytest.mark.parametrize("form", list(FORMS))
def test_b96_to_hf_is_what_torch_makes_of_codes_and_scales(workshop, form):
    source, target = workshop.fresh("quantized"), workshop.fresh("plain")
    wanted = write(workshop.hf(CASE)[0], source, form)
    text = tool.convert(source, target, "--to", "hf", "--verify")
    assert "28 weights are stored quantized" in text and "no optimizer state" in text, text
    if FORMS[form][5] is not None:
        assert "config.json: quantization_config" in text, text
    if form == "scalar":
        assert "input_scale" in text and "only FP8 arithmetic uses" in text, text
    config = json.loads((target / "config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "bfloat16"
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    model = models.load(target, torch.bfloat16)
    assert_same(raw_of(model.state_dict()), raw_of(wanted))
    assert "equal" in tool.run("verify", source, target)


@pytest.mark.parametrize("form", ["block", "channel", "tensor"])
def test_to_megatron_with_two_ranks(workshop, form):
    source, target = workshop.fresh("quantized"), workshop.fresh("megatron")
    wanted = write(workshop.hf(CASE)[0], source, form)
    tool.convert(source, target, "--to", "megatron", "--tp", 2, "--verify")
    config = workshop.hf(CASE)[1]
    mcore_load.check(tool.step_of(target), config, wanted, layouts=[env.Layout(2, 1), env.Layout(1, 1)])
    carried = json.loads((tool.step_of(target) / "hf" / "config.json").read_text())
    assert "quantization_config" not in carried
    back = workshop.fresh("back")
    tool.convert(target, back, "--to", "hf")
    assert_same(raw_of(read_directory_as_torch(back)), raw_of(wanted))


def test_small_memory_and_many_threads_give_the_same_bytes(workshop):
    source, one, many = workshop.fresh("quantized"), workshop.fresh("one"), workshop.fresh("many")
    write(workshop.hf(CASE)[0], source, "block")
    tool.convert(source, one, "--to", "full-state", "--dtype", "float32", "--memory", "1MiB", "--threads", 1)
    tool.convert(source, many, "--to", "full-state", "--dtype", "float32", "--threads", 4)
    assert {path.name: path.read_bytes() for path in one.glob("*.safetensors")} == {path.name: path.read_bytes() for path in many.glob("*.safetensors")}


def test_transformers_dequantizes_to_the_same_weights(workshop):
    """transformers derives the block from the grid, so every matrix has whole blocks here."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    source, target = workshop.fresh("quantized"), workshop.fresh("plain")
    FORMS["whole_blocks"] = ((4, 4), "weight_scale_inv", None, torch.float32, E4M3,
                             {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [4, 4], "modules_to_not_convert": ["lm_head"]})
    try:
        write(workshop.hf(CASE)[0], source, "whole_blocks")
    finally:
        del FORMS["whole_blocks"]
    tool.convert(source, target, "--to", "hf")
    how = transformers.FineGrainedFP8Config(dequantize=True, weight_block_size=(4, 4), modules_to_not_convert=["lm_head"])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(source, quantization_config=how, dtype=torch.bfloat16)
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(theirs.state_dict()))


def test_b96_without_scales_it_is_refused(workshop):
    source = workshop.fresh("quantized")
    lost = "model.layers.1.mlp.up_proj.weight"
    write(workshop.hf(CASE)[0], source, "block", keep=lambda name: name != lost)
    text = tool.convert(source, workshop.fresh("plain"), "--to", "hf", expect=3)
    tool.refused(text, lost, lost + "_scale_inv", lost + "_scale", "model.layers.1.mlp.up_proj.scale", "--allow unscaled-fp8")
    target = workshop.fresh("plain")
    assert "taken as 1" in tool.convert(source, target, "--to", "hf", "--allow", "unscaled-fp8", "--verify")
    codes = read_directory_as_torch(source)[lost]
    assert codes.dtype == E4M3
    assert_same(raw_of({lost: read_directory_as_torch(target)[lost]}), raw_of({lost: codes.to(torch.bfloat16)}))


def test_scales_of_another_shape_are_refused(workshop):
    source = workshop.fresh("quantized")
    write(workshop.hf(CASE)[0], source, "block")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [16, 16]
    (source / "config.json").write_text(json.dumps(config))
    text = tool.convert(source, workshop.fresh("plain"), "--to", "hf", expect=3)
    tool.refused(text, "scale_inv", "16 x 16", "[3, 3]", "[2, 3]")


@pytest.mark.parametrize("said", [{"quant_method": "awq", "bits": 4}, {"quant_method": "compressed-tensors", "format": "pack-quantized"}, {"bits": 4}])
def test_other_methods_are_refused_by_name(workshop, said):
    source = workshop.fresh("quantized")
    write(workshop.hf(CASE)[0], source, "block")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = said
    (source / "config.json").write_text(json.dumps(config))
    text = tool.convert(source, workshop.fresh("plain"), "--to", "hf", expect=3)
    tool.refused(text, said.get("format") or said.get("quant_method") or "without a method", "config.json")


MXFP4_RULES = """
family = "packed_experts"
architectures = ["PackedForCausalLM"]
model_type = "packed"
[letters]
h = { hf = "hidden_size" }
m = { hf = "intermediate_size" }
e = { hf = "num_local_experts" }
v = { hf = "vocab_size" }
[[group]]
hub = "model."
rules = [
  ["embed_tokens.weight", "v,h", "-", "-"],
  ["layers.0.mlp.experts.gate_up_proj", "e,h,2*m", "-", "-"],
  ["layers.0.mlp.experts.down_proj", "e,m,h", "-", "-"],
]
"""


def test_mxfp4_is_what_transformers_unpacks(workshop):
    """Any family: the packed tensors alone are looked at. Every code and every exponent whose products are finite occurs."""
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    experts, hidden, ffn = 3, 64, 96
    source, target = workshop.fresh("mxfp4"), workshop.fresh("plain")
    source.mkdir()
    tensors = {"model.embed_tokens.weight": seeded("embed", (50, hidden), torch.bfloat16)}
    wanted = dict(tensors)
    for name, rows, cols in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
        generator = torch.Generator().manual_seed(rows)
        blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), generator=generator, dtype=torch.uint8)
        scales = (torch.arange(experts * rows * (cols // 32)) % 252).reshape(experts, rows, cols // 32).to(torch.uint8)
        full = f"model.layers.0.mlp.experts.{name}"
        tensors[full + "_blocks"], tensors[full + "_scales"] = blocks, scales
        wanted[full] = mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, source / "model.safetensors", {"format": "pt"})
    config = dict(architectures=["PackedForCausalLM"], model_type="packed", hidden_size=hidden, intermediate_size=ffn, num_local_experts=experts,
                  vocab_size=50, dtype="bfloat16", quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": []})
    (source / "config.json").write_text(json.dumps(config))
    rules = workshop.fresh("rules").with_suffix(".toml")
    rules.write_text(MXFP4_RULES)
    text = tool.convert(source, target, "--to", "hf", "--rules", rules, "--memory", "1MiB", "--verify")
    assert "2 weights are stored quantized (MXFP4, groups of 32)" in text, text
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    del tensors["model.layers.0.mlp.experts.down_proj_scales"]
    safetensors.torch.save_file(tensors, source / "model.safetensors", {"format": "pt"})
    text = tool.convert(source, workshop.fresh("plain"), "--to", "hf", "--rules", rules, expect=3)
    tool.refused(text, "down_proj_blocks", "down_proj_scales")


def test_gpt_oss_of_mxfp4_to_megatron_and_back(workshop):
    """As it is released: experts packed, everything else BF16. Megatron gets what transformers unpacks, and the way back is BF16."""
    transformers = pytest.importorskip("transformers")
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    plain, source = workshop.fresh("gpt_oss"), workshop.fresh("gpt_oss-mxfp4")
    config = transformers.GptOssConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=32, vocab_size=50, num_local_experts=4,
                                       num_experts_per_tok=2, sliding_window=8, max_position_embeddings=128, layer_types=["sliding_attention", "full_attention"], pad_token_id=0, eos_token_id=2)
    transformers.GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(plain)
    tensors = read_directory_as_torch(plain)
    wanted = dict(tensors)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, cols, rows = tensors.pop(name).shape
        generator = torch.Generator().manual_seed(rows + 1000 * int(name.split(".")[2]))
        blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(118, 126, (experts, rows, cols // 32), generator=generator, dtype=torch.uint8)
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        wanted[name] = mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    source.mkdir()
    safetensors.torch.save_file(tensors, source / "model.safetensors", {"format": "pt"})
    said = json.loads((plain / "config.json").read_text()) | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}
    (source / "config.json").write_text(json.dumps(said))
    target, back = workshop.fresh("megatron"), workshop.fresh("back")
    assert "4 weights are stored quantized (MXFP4" in tool.convert(source, target, "--to", "megatron", "--tp", 2, "--ep", 2, "--verify")
    tool.convert(target, back, "--to", "hf")
    assert_same(raw_of(read_directory_as_torch(back)), raw_of(wanted))
    assert "quantization_config" not in json.loads((back / "config.json").read_text())


def test_deepseek_of_fp8_to_megatron_and_back(workshop):
    """Blocks of every matrix, experts and latents included; the router's correction stays F32."""
    source, target, back = workshop.fresh("deepseek-fp8"), workshop.fresh("megatron"), workshop.fresh("back")
    hf, config, _ = workshop.hf("deepseek_v3")
    wanted = write(hf, source, "block")
    tool.convert(source, target, "--to", "megatron", "--tp", 2, "--ep", 2, "--verify")
    mcore_load.check(tool.step_of(target), config, wanted, layouts=[env.Layout(2, 1, dp=2, ep=2)])
    tool.convert(target, back, "--to", "hf")
    assert_same(raw_of(read_directory_as_torch(back)), raw_of(wanted))
