"""FP8 export: whole directories byte for byte against torch, the loaders of transformers and compressed-tensors, the rules by which vLLM
and SGLang read quantization_config, and the way back."""
import copy
import json
import shutil

import pytest

import tool

tool.require()

import safetensors.torch
import torch

import fp8_reference as reference
import mcore_env as env
import models
from reference import assert_same, fill, raw_of, seeded
from test_quantized_source import read_directory_as_torch

E4M3 = torch.float8_e4m3fn
_BASE = dict(vocab_size=307, rms_norm_eps=1e-6, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, hidden_act="silu", tie_word_embeddings=False,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
# Sizes that blocks divide, for loaders; `odd` has edge blocks on every side.
CONFIGS = {
    "whole": ("Qwen2", dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=384, **_BASE)),
    "tied": ("Qwen3", dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=256, **_BASE | {"tie_word_embeddings": True})),
    "experts": ("Qwen3Moe", dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=256, moe_intermediate_size=128,
                                 num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[0], **_BASE)),
    "odd": ("Qwen3", dict(hidden_size=200, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=30, intermediate_size=328, **_BASE)),
}


def adversarial(tensors):
    """Blocks of zeros with both signs, tiny values, one value that towers over its block, neighbours of rounding borders."""
    out = copy.deepcopy(tensors)
    down, up = out["model.layers.0.mlp.down_proj.weight"], out["model.layers.1.mlp.up_proj.weight"]
    down[:128, :128] = 0
    down[3, 5] = -0.0
    down[130:, :] *= 2.0 ** -120 if down.dtype != torch.float16 else 2.0 ** -20
    up[0, 0], up[1, 1] = 448, -447.5
    border = torch.tensor([17.0, 18.0, 19.0, 0.0009765625, 0.0029296875, 15.5, 248.0, 264.0])
    up[2, :8], up[3, :8] = border.to(up.dtype), -border.to(up.dtype)
    return out


@pytest.fixture(scope="module")
def made(workshop):
    """name, dtype -> (directory, tensors): config by transformers, tensors by save_file."""
    cache = {}

    def make(case, dtype=torch.bfloat16, hard=False):
        import transformers
        key = case, dtype, hard
        if key not in cache:
            kind, fields = CONFIGS[case]
            settings = getattr(transformers, f"{kind}Config")(**fields, dtype=str(dtype).removeprefix("torch."), use_cache=False)
            with torch.device("meta"):
                shapes = {name: tuple(value.shape) for name, value in getattr(transformers, f"{kind}ForCausalLM")(settings).state_dict().items()}
            tensors = {}
            for name, shape in shapes.items():
                if name.endswith("experts.gate_up_proj"):
                    both = fill(name, shape, dtype)
                    for e in range(shape[0]):
                        tensors[name.replace("gate_up_proj", f"{e}.gate_proj.weight")], tensors[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = both[e].chunk(2)
                elif name.endswith("experts.down_proj"):
                    tensors |= {name.replace("down_proj", f"{e}.down_proj.weight"): part for e, part in enumerate(fill(name, shape, dtype))}
                elif name != "lm_head.weight" or not fields["tie_word_embeddings"]:
                    tensors[name] = fill(name, shape, dtype)
            tensors = adversarial(tensors) if hard else tensors
            directory = workshop.fresh(f"fp8-{case}")
            settings.architectures = [f"{kind}ForCausalLM"]
            settings.save_pretrained(directory)
            safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, directory / "model.safetensors", {"format": "pt"})
            (directory / "tokenizer.json").write_text('{"no": "real one",  "spaces":   "stay"}')
            cache[key] = directory, tensors
        return cache[key]

    return make


def check_directory(source, target, wanted, said):
    """Tensors, configuration, index, files beside."""
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    before, after = (json.loads((path / "config.json").read_text()) for path in (source, target))
    assert after.pop("quantization_config") == said
    assert after == before and list(after) == list(before)
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(value.numel() * value.element_size() for value in wanted.values())
    assert sorted(index["weight_map"]) == sorted(wanted)
    for name, file in index["weight_map"].items():
        if "weight_scale" in name:
            assert index["weight_map"][name[:name.index("_scale")]] == file
    assert (target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    for file in set(index["weight_map"].values()):   # the bytes of save_file
        part = safetensors.torch.load_file(target / file)
        safetensors.torch.save_file(part, target / "again", {"format": "pt"})
        assert (target / "again").read_bytes() == (target / file).read_bytes()
        (target / "again").unlink()


# words of the command line -> dtype of the source, how the reference does it
FORMS = {
    "block": (["--fp8"], torch.bfloat16, dict(strategy="block")),
    "block_f32": (["--fp8", "block"], torch.float32, dict(strategy="block")),
    "block_small": (["--fp8", "--fp8-block-size", 64, 32], torch.float16, dict(strategy="block", block=(64, 32))),
    "block_ue8m0": (["--fp8", "--scale-fmt", "ue8m0"], torch.bfloat16, dict(strategy="block", ue8m0=True)),
    "block_groups": (["--fp8", "--fp8-format", "compressed-tensors"], torch.bfloat16, dict(strategy="block", compressed=True)),
    "channel": (["--fp8", "channel"], torch.bfloat16, dict(strategy="channel")),
    "channel_f16": (["--fp8-strategy", "channel", "--fp8-arith", "relax"], torch.float16, dict(strategy="channel")),
    "tensor": (["--fp8=tensor"], torch.bfloat16, dict(strategy="tensor")),
    "tensor_f32": (["--fp8", "tensor"], torch.float32, dict(strategy="tensor")),
    "tensor_relax": (["--fp8", "tensor", "--fp8-arith", "relax"], torch.bfloat16, dict(strategy="tensor", relax=True)),
    "tensor_relax_f16": (["--fp8", "tensor", "--fp8-arith=relax", "--scale-fmt", "ue8m0"], torch.float16, dict(strategy="tensor", relax=True, ue8m0=True)),
    "tensor_native": (["--fp8", "tensor", "--fp8-format", "native"], torch.bfloat16, dict(strategy="tensor", compressed=False)),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_whole_directories_are_what_torch_makes(made, workshop, form):
    words, dtype, how = FORMS[form]
    source, tensors = made("odd", dtype, hard=True)
    wanted, kept = reference.export(tensors, **how)
    said = reference.config_of(kept=kept, **{key: value for key, value in how.items() if key != "relax"})
    target = workshop.fresh("out")
    text = tool.convert(source, target, "--to", "hf", *words)
    check_directory(source, target, wanted, said)
    assert "14 weights are quantized to FP8" in text, text
    if how["strategy"] == "block":
        assert "partial block: model.layers.*.mlp.down_proj.weight [200, 328]" in text, text
    codes = [value.view(torch.uint8) for value in wanted.values() if value.dtype == E4M3]
    assert not any(((code & 0x7F) == 0x7F).any() for code in codes)


def test_small_memory_threads_and_shards_change_no_byte(made, workshop):
    """Whole tensors in bands that are read twice, rows and blocks in many tasks, shards of a few tensors."""
    source, _ = made("odd", hard=True)
    for strategy in ("block", "channel", "tensor"):
        plain, small, cut = (workshop.fresh(name) for name in ("plain", "small", "cut"))
        tool.run("quantize", source, plain, "--strategy", strategy, "--max-workers", 1)
        tool.run("quantize", "--model-dir", source, "--save_dir", small, "--strategy", strategy, "--memory", "512KiB", "--threads", 3)
        assert {path.name: path.read_bytes() for path in plain.iterdir()} == {path.name: path.read_bytes() for path in small.iterdir()}
        tool.convert(source, cut, "--to", "hf", "--fp8", strategy, "--max-shard-size", "200KB", "--threads", 2)
        assert len(list(cut.glob("*.safetensors"))) > 3
        assert_same(raw_of(read_directory_as_torch(cut)), raw_of(read_directory_as_torch(plain)))
        index = json.loads((cut / "model.safetensors.index.json").read_text())["weight_map"]
        assert all(index[name[:name.index("_scale")]] == file for name, file in index.items() if "weight_scale" in name)


def test_fused_experts_are_written_one_by_one(made, workshop):
    """transformers saves a layer's experts as one tensor; the result is that of the released form."""
    source, tensors = made("experts")
    fused = workshop.fresh("fused")
    fused.mkdir()
    joined = {name: value for name, value in tensors.items() if ".experts." not in name}
    for layer in (1,):
        prefix = f"model.layers.{layer}.mlp.experts."
        part = lambda e, word: tensors[f"{prefix}{e}.{word}_proj.weight"]
        joined[prefix + "gate_up_proj"] = torch.stack([torch.cat([part(e, "gate"), part(e, "up")]) for e in range(4)])
        joined[prefix + "down_proj"] = torch.stack([part(e, "down") for e in range(4)])
    safetensors.torch.save_file({name: value.contiguous() for name, value in joined.items()}, fused / "model.safetensors", {"format": "pt"})
    shutil.copy(source / "config.json", fused)
    shutil.copy(source / "tokenizer.json", fused)
    wanted, kept = reference.export(tensors, strategy="block")
    assert "model.layers.1.mlp.gate" in kept
    for directory in (source, fused):
        target = workshop.fresh("out")
        tool.convert(directory, target, "--to", "hf", "--fp8")
        check_directory(source, target, wanted, reference.config_of("block", kept))
    tool.refused(tool.convert(fused, workshop.fresh("out"), "--to", "hf", "--fp8", "--experts", "fused", expect=2), "expert by expert")


@pytest.mark.parametrize("case", ["llama4", "gpt_oss"])
def test_experts_that_the_family_keeps_fused(workshop, case):
    """Llama 4 stores [E, h, 2m], gpt-oss gate and up in turn: each expert is brought to [out, in] first, its biases too."""
    import test_more_families
    directory, target = workshop.fresh(case), workshop.fresh("fp8")
    test_more_families._write(case, directory)
    single = {}
    for name, value in read_directory_as_torch(directory).items():
        prefix, found, last = name.partition(".experts.")
        if not found:
            single[name] = value
            continue
        kind = "bias" if last.endswith("_bias") else "weight"
        for e, part in enumerate(value.mT if kind == "weight" else value):
            halves = (part[0::2], part[1::2]) if case == "gpt_oss" else part.chunk(2)
            parts = dict(zip(("gate_proj", "up_proj"), halves)) if last.startswith("gate_up") else {"down_proj": part}
            single |= {f"{prefix}.experts.{e}.{layer}.{kind}": tensor.contiguous() for layer, tensor in parts.items()}
    wanted, kept = reference.export(single, strategy="block", block=(16, 16))
    tool.convert(directory, target, "--to", "hf", "--fp8", "--fp8-block-size", 16, 16, "--max-shard-size", "30KB")
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    assert json.loads((target / "config.json").read_text())["quantization_config"]["modules_to_not_convert"] == kept
    assert any("router" in module for module in kept)
    again = workshop.fresh("again")   # through, bit for bit
    tool.convert(target, again, "--to", "hf", "--fp8", "--fp8-block-size", 16, 16, "--max-shard-size", "30KB")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {path.name: path.read_bytes() for path in target.iterdir()}
    # The way back, in the family's own form: what the codes and scales are worth.
    back = workshop.fresh("back")
    tool.convert(target, back, "--to", "hf", "--dtype", "bf16")
    wide = {name: value.to(torch.bfloat16) for name, value in dequantized(target, (16, 16)).items()}
    for prefix in {name.partition(".experts.")[0] for name in wide if ".experts." in name}:
        for last in ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"):
            kind = "bias" if last.endswith("_bias") else "weight"
            each = lambda layer: [wide.pop(f"{prefix}.experts.{e}.{layer}.{kind}") for e in range(count)]
            count = sum(name.startswith(f"{prefix}.experts.") and name.endswith(f".down_proj.{kind}") for name in wide)
            if count == 0:
                continue
            if last.startswith("gate_up"):
                join = (lambda g, u: torch.stack([g, u], 1).flatten(0, 1)) if case == "gpt_oss" else (lambda g, u: torch.cat([g, u]))
                whole = torch.stack([join(g, u) for g, u in zip(each("gate_proj"), each("up_proj"))])
            else:
                whole = torch.stack(each("down_proj"))
            wide[f"{prefix}.experts.{last}"] = whole.mT.contiguous() if kind == "weight" else whole
    assert sorted(wide) == sorted(read_directory_as_torch(directory))
    assert_same(raw_of(read_directory_as_torch(back)), raw_of(wide))


def test_a_vision_models_language_part_alone(workshop):
    """Qwen2.5-VL: the tower stays as it is and is listed; transformers loads the rest as the codes say."""
    pytest.importorskip("accelerate")
    import test_vision
    import transformers
    text = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=256, vocab_size=307,
                rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 6, 6]))
    vision = dict(hidden_size=128, depth=1, num_heads=4, intermediate_size=256, out_hidden_size=128, patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                  fullatt_block_indexes=[0], window_size=16)
    source, target, plain = (workshop.fresh(name) for name in ("vision", "fp8", "plain"))
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)).to(torch.bfloat16)
    tensors = test_vision.save_filled(model, source)
    wanted, kept = reference.export(tensors, strategy="block")
    assert any("visual" in module for module in kept) and sum(value.dtype == E4M3 for value in wanted.values()) == 14
    tool.convert(source, target, "--to", "hf", "--fp8")
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    # Loaders know the modules by the names of their own classes, of which there have been two.
    others = [f"model.{module}" for module in kept if module.startswith("visual.")] + ["language_model.lm_head"]
    assert json.loads((target / "config.json").read_text())["quantization_config"]["modules_to_not_convert"] == sorted(kept + others)
    tool.convert(target, plain, "--to", "hf")
    assert_same(raw_of(read_directory_as_torch(plain)), raw_of(dequantized(target)))
    load = lambda path: transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.bfloat16, output_loading_info=True)
    (theirs, info), (ours, _) = load(target), load(plain)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert_same(raw_of(theirs.state_dict()), raw_of(ours.state_dict()))


def test_from_megatron_equals_the_way_over_hugging_face(workshop):
    layout = env.Layout(2, 2)
    root, _, _, _, _ = workshop.megatron("qwen3", layout, False)
    template = workshop.hf("qwen3")[0]
    for strategy in ("block", "channel", "tensor"):
        plain, direct, twice = (workshop.fresh(name) for name in ("plain", "direct", "twice"))
        how = ["--fp8", strategy, *(["--fp8-block-size", 16, 32] if strategy == "block" else [])]
        tool.convert(root, plain, "--to", "hf", "--hf-template", template, "--max-shard-size", "60KB")
        tool.convert(root, direct, "--to", "hf", "--hf-template", template, *how, "--max-shard-size", "60KB")
        tool.convert(plain, twice, "--to", "hf", *how, "--max-shard-size", "60KB")
        assert {path.name: path.read_bytes() for path in direct.iterdir()} == {path.name: path.read_bytes() for path in twice.iterdir()}


def dequantized(directory, block=(128, 128), dtype=torch.bfloat16):
    """`dtype` of codes and scales, in this file's own arithmetic."""
    tensors, out = read_directory_as_torch(directory), {}
    for name, value in tensors.items():
        if "weight_scale" in name:
            continue
        if value.dtype == E4M3:
            scale = tensors.get(name + "_scale_inv", tensors.get(name + "_scale"))
            rows, cols = value.shape
            if scale.dim() == 1:
                scale = scale.reshape(1, 1)
            height, width = block if name + "_scale_inv" in tensors else (1 if scale.shape[0] > 1 else rows, cols)
            value = (value.float() * scale.repeat_interleave(height, 0)[:rows].repeat_interleave(width, 1)[:, :cols]).to(dtype)
        out[name] = value if dtype == torch.bfloat16 else value.to(dtype)
    return out


@pytest.mark.parametrize("case", ["whole", "tied", "experts"])
def test_transformers_loads_what_is_written(made, workshop, case):
    """Blocks are dequantized on a CPU: tensors are compared. Rows and tensors go through compressed-tensors: logits are."""
    pytest.importorskip("accelerate")
    import transformers
    source, _ = made(case)
    # Without a GPU transformers dequantizes; the same weights in bfloat16 are the judge.
    target, plain = workshop.fresh("fp8"), workshop.fresh("plain")
    for words in (["--fp8"], ["--fp8", "--scale-fmt", "ue8m0"]):
        shutil.rmtree(target, True), shutil.rmtree(plain, True)
        tool.convert(source, target, "--to", "hf", *words)
        tool.convert(target, plain, "--to", "hf")
        assert_same(raw_of(read_directory_as_torch(plain)), raw_of(dequantized(target)))
        theirs, info = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
        assert_same(raw_of(theirs.state_dict()), raw_of(models.load(plain, torch.bfloat16).state_dict()))


@pytest.mark.parametrize("case", ["whole", "tied", "odd", "experts"])
@pytest.mark.parametrize("strategy", ["channel", "tensor"])
def test_compressed_tensors_loads_what_is_written(made, workshop, case, strategy):
    tool.needs("compressed")
    pytest.importorskip("accelerate")
    import transformers
    source, _ = made(case)
    target, plain = workshop.fresh("fp8"), workshop.fresh("plain")
    tool.convert(source, target, "--to", "hf", "--fp8", strategy)
    tool.convert(target, plain, "--to", "hf")
    assert_same(raw_of(read_directory_as_torch(plain)), raw_of(dequantized(target)))
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    words = models.tokens(307)
    with torch.no_grad():
        found = theirs.eval()(words, use_cache=False).logits
        wanted = models.load(plain)(words, use_cache=False).logits
        exact = models.load(source)(words, use_cache=False).logits
    # Activations are FP8 there, and may send a token to another expert: the mean is judged, which for wrong weights is above 1.
    assert max((found - exact).abs().mean(), (found - wanted).abs().mean()) < 0.2 * exact.std()


@pytest.mark.parametrize("case", ["whole", "experts"])
@pytest.mark.parametrize("strategy", ["block", "channel", "tensor"])
def test_vllm_and_sglang_would_read_it(made, workshop, case, strategy):
    """By their rules: the method, what it needs, and every layer as it is stored."""
    source, _ = made(case)
    target = workshop.fresh("fp8")
    tool.convert(source, target, "--to", "hf", "--fp8", strategy)
    said = json.loads((target / "config.json").read_text())["quantization_config"]
    tensors = read_directory_as_torch(target)
    if said["quant_method"] == "fp8":
        assert said["activation_scheme"] == "dynamic" and len(said["weight_block_size"]) == 2
    else:
        assert said["config_groups"]["group_0"]["weights"]["strategy"] == strategy and said["config_groups"]["group_0"]["input_activations"]["dynamic"]
    joined = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}
    for name, value in tensors.items():
        if value.dim() != 2 or not name.endswith(".weight"):
            continue
        path = name.removesuffix(".weight")
        prefix, _, last = path.rpartition(".")
        path = path if ".experts." in path else f"{prefix}.{joined.get(last, last)}".removeprefix(".")
        for skips in (reference.vllm_skips, reference.sglang_skips):
            assert skips(path, said) == (value.dtype != E4M3), (name, skips)
        if value.dtype == E4M3:
            scale = tensors[name + ("_scale_inv" if strategy == "block" else "_scale")]
            assert scale.dtype == torch.float32 and (scale > 0).all() and scale.isfinite().all()
            shape = {"block": (-(-value.shape[0] // 128), -(-value.shape[1] // 128)), "channel": (value.shape[0], 1), "tensor": (1,)}[strategy]
            assert tuple(scale.shape) == shape


@pytest.mark.parametrize("strategy", ["block", "channel", "tensor"])
def test_back_and_through(made, workshop, strategy):
    """FP8 to floating in any target; FP8 to FP8 by the same rule bit for bit, by another rule rounded twice."""
    source, _ = made("odd", hard=True)
    target, again, full, other = (workshop.fresh(name) for name in ("fp8", "again", "full", "other"))
    tool.convert(source, target, "--to", "hf", "--fp8", strategy)
    text = tool.convert(target, again, "--to", "hf", "--fp8", strategy, "--max-shard-size", "300KB")
    assert "14 weights are FP8 already" in text and "bit for bit" in text, text
    assert_same(raw_of(read_directory_as_torch(again)), raw_of(read_directory_as_torch(target)))
    assert (again / "config.json").read_bytes() == (target / "config.json").read_bytes()
    tool.convert(target, full, "--to", "full-state", "--dtype", "fp32")
    floats = {f"param/{name}": value for name, value in dequantized(target, dtype=torch.float32).items()}  # no rounding to bfloat16 on the way
    assert_same(raw_of(read_directory_as_torch(full)), raw_of(floats) | {name: value for name, value in raw_of(read_directory_as_torch(full)).items() if name.startswith("meta/")})
    if strategy != "channel":
        text = tool.convert(target, other, "--to", "hf", "--fp8", "channel")
        assert "rounded a second time" in text, text
        wanted, _ = reference.export(dequantized(target), strategy="channel")
        assert_same(raw_of(read_directory_as_torch(other)), raw_of(wanted))


@pytest.mark.parametrize("how", [["--fp8", "block", "--fp8-block-size", 64, 96], ["--fp8", "channel"], ["--fp8", "tensor"], ["--fp8", "tensor", "--fp8-format", "native"]])
def test_fp8_alone_keeps_the_form_of_an_fp8_source(made, workshop, how):
    source, _ = made("odd")
    target, again, other = (workshop.fresh(name) for name in ("fp8", "again", "other"))
    tool.convert(source, target, "--to", "hf", *how)
    text = tool.run("quantize", target, again)
    assert "14 weights are FP8 already" in text and "bit for bit" in text and "second time" not in text, text
    assert_same(raw_of(read_directory_as_torch(again)), raw_of(read_directory_as_torch(target)))
    if "native" not in how:
        assert (again / "config.json").read_bytes() == (target / "config.json").read_bytes()
    assert "second time" in tool.convert(target, other, "--to", "hf", "--fp8", "block")
    wanted, _ = reference.export(dequantized(target, (64, 96)), strategy="block")
    assert_same(raw_of(read_directory_as_torch(other)), raw_of(wanted))


def test_an_fp8_template_gives_layers_and_no_rule_for_the_source(workshop):
    """--mtp template: the source is bfloat16, what the template adds is FP8."""
    import gated_delta
    trained, released, quantized, target = (workshop.fresh(name) for name in ("trained", "released", "quantized", "target"))
    gated_delta.write("qwen3_next", trained)
    gated_delta.write("qwen3_next", released, True)
    tool.convert(released, quantized, "--to", "hf", "--fp8")
    text = tool.convert(trained, target, "--to", "hf", "--fp8", "--hf-template", quantized, "--mtp", "template")
    assert "are quantized to FP8" in text and "are FP8 already" in text, text
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(read_directory_as_torch(quantized)))
    said = [json.loads((path / "config.json").read_text())["quantization_config"] for path in (target, quantized)]
    assert said[0] == said[1]


_FUSED = dict(vocab_size=307, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, head_dim=32)
_ROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
KEPT_TOGETHER = {
    "gpt_oss": lambda t: t.GptOssForCausalLM(t.GptOssConfig(**_FUSED, **_ROPE, intermediate_size=128, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, pad_token_id=0, eos_token_id=2,
                                                            layer_types=["sliding_attention", "full_attention"], max_position_embeddings=256)),
    "llama4": lambda t: t.Llama4ForCausalLM(t.Llama4TextConfig(**_FUSED, **_ROPE, intermediate_size=128, intermediate_size_mlp=256, num_local_experts=4, num_experts_per_tok=1,
                                                               interleave_moe_layer_step=2, attention_chunk_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "qwen3_vl_moe": lambda t: t.Qwen3VLMoeForConditionalGeneration(t.Qwen3VLMoeConfig(
        text_config=dict(**_FUSED, intermediate_size=256, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2,
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 6, 6])),
        vision_config=dict(hidden_size=128, depth=2, num_heads=4, intermediate_size=256, out_hidden_size=128, patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                           deepstack_visual_indexes=[0], num_position_embeddings=16), tie_word_embeddings=False)),
}


@pytest.mark.parametrize("case", list(KEPT_TOGETHER))
def test_the_summary_says_what_transformers_does_not_load(workshop, case):
    """Experts one by one: its classes of some families have no place for them, and fill theirs at random. Its own report is the judge."""
    pytest.importorskip("accelerate")
    import test_vision
    import transformers
    source = workshop.fresh(case)
    model = KEPT_TOGETHER[case](transformers).to(torch.bfloat16)
    test_vision.save_filled(model, source)
    compressed = tool.folder_beside("compressed").is_dir()
    if compressed:
        tool.needs("compressed")
    for strategy in ["block", "channel"] if compressed else ["block"]:
        target = workshop.fresh("fp8")
        text = tool.convert(source, target, "--to", "hf", "--fp8", strategy)
        _, info = type(model).from_pretrained(target, dtype=torch.bfloat16, output_loading_info=True)
        missing = [key for key in info["missing_keys"] if ".experts." in key]
        assert missing or not info["missing_keys"], info
        assert ("does not load these experts" in text) == bool(missing), (info, text)
        assert ("from_pretrained" in text) != bool(missing), text


def test_what_an_fp8_source_left_alone_stays_so(made, workshop):
    source, tensors = made("whole")
    target, again = workshop.fresh("fp8"), workshop.fresh("again")
    tool.convert(source, target, "--to", "hf", "--fp8", "--fp8-skip", "model.layers.0.*", "--scale-fmt", "ue8m0")
    tool.convert(target, again, "--to", "hf", "--fp8")
    assert_same(raw_of(read_directory_as_torch(again)), raw_of(read_directory_as_torch(target)))
    assert (again / "config.json").read_bytes() == (target / "config.json").read_bytes()
    assert read_directory_as_torch(again)["model.layers.0.mlp.up_proj.weight"].dtype == torch.bfloat16


def test_values_that_are_not_finite(made, workshop):
    source, tensors = made("odd")
    broken = workshop.fresh("broken")
    shutil.copytree(source, broken)
    name = "model.layers.1.mlp.up_proj.weight"
    values = {key: value.clone() for key, value in tensors.items()}
    values[name][300, 7], values[name][5, 199] = float("nan"), float("inf")
    safetensors.torch.save_file({key: value.contiguous() for key, value in values.items()}, broken / "model.safetensors", {"format": "pt"})
    for strategy in ("block", "channel", "tensor"):
        text = tool.convert(broken, workshop.fresh("out"), "--to", "hf", "--fp8", strategy, "--memory", "512KiB", "--threads", 2, expect=3)
        tool.refused(text, name, "2 that are not", "[5, 199]", "--allow nonfinite")
        target = workshop.fresh("out")
        text = tool.convert(broken, target, "--to", "hf", "--fp8", strategy, "--allow", "nonfinite")
        assert "2 values are NaN or infinite" in text, text
        found = read_directory_as_torch(target)
        assert found[name].view(torch.uint8)[300, 7] == 0x7F and found[name].view(torch.uint8)[5, 199] == 0x7F
        scale = found[name + ("_scale_inv" if strategy == "block" else "_scale")]
        assert not scale.isfinite().all()
    tool.convert(broken, workshop.fresh("out"), "--to", "hf", "--fp8", "--fp8-skip", "*.layers.1.mlp.*")


def test_cast_before_and_patterns(made, workshop):
    source, tensors = made("odd", torch.float32)
    target = workshop.fresh("fp8")
    text = tool.convert(source, target, "--to", "hf", "--fp8", "--dtype", "bf16", "--fp8-skip", "*.0.*.q_proj", "--check-tp", 4)
    narrow = {name: value.to(torch.bfloat16) for name, value in tensors.items()}
    wanted, _ = reference.export(narrow, strategy="block")
    for part in "qkv":   # joined when loaded: all or none
        name = f"model.layers.0.self_attn.{part}_proj.weight"
        wanted[name] = narrow[name]
        del wanted[name + "_scale_inv"]
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    assert "2 weights stay as they are because loaders join them" in text, text
    assert "tensor parallel 4: model.layers.*.mlp.gate_proj.weight [328, 200]: a rank holds 82 of 328 rows, no multiple of 128 (2 of them)" in text, text
    assert "tensor parallel 4: model.layers.*.self_attn.k_proj.weight [60, 200]: a rank holds 30 of 60 rows" in text, text
    tool.refused(tool.convert(source, workshop.fresh("out"), "--to", "hf", "--fp8", "--fp8-only", "*.nothing", expect=2), "--fp8-only", "matches no weight")
    only = workshop.fresh("only")
    tool.convert(source, only, "--to", "hf", "--fp8", "channel", "--fp8-only", "*.down_proj.weight")
    found = read_directory_as_torch(only)
    assert sum(value.dtype == E4M3 for value in found.values()) == 2


@pytest.mark.parametrize("case", ["deepseek_v3", "mixtral", "qwen2_moe"])
def test_families_with_experts(workshop, case):
    """Latent attention, shared experts, routers under three names; what transformers keeps in F32 stays F32."""
    source, target = workshop.hf(case)[0], workshop.fresh("fp8")
    _, single = models.parameters(case)
    single |= {name: value for name, value in read_directory_as_torch(source).items() if name in single}
    tool.convert(source, target, "--to", "hf", "--fp8", "--fp8-block-size", 16, 16)
    wanted, kept = reference.export(single, strategy="block", block=(16, 16))
    assert_same(raw_of(read_directory_as_torch(target)), raw_of(wanted))
    assert json.loads((target / "config.json").read_text())["quantization_config"]["modules_to_not_convert"] == kept
