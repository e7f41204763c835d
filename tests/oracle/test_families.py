"""HF -> Megatron -> HF for every dense family. Megatron-Core loads what was written under four TP x PP and computes
transformers' logits (tolerance 2e-5: two implementations); the way back is equal bit for bit, files, tensors and logits."""
import json

import pytest

import tool

tool.require()

import safetensors.torch
import torch

import mcore_env as env
import mcore_load
import models
from reference import as_torch, assert_same, raw_of, read_directory, read_safetensors

# Each case is written under another layout; together: TP 1, 2, 4 x PP 1, 2, 3, even and uneven.
WRITTEN = {
    "llama2_mha": env.Layout(2, 2), "llama3_gqa": env.Layout(4, 2, first=2), "llama31_scaled": env.Layout(2, 1), "llama32_tied": env.Layout(2, 2, first=3),
    "mistral": env.Layout(2, 3, first=1, last=2), "qwen2": env.Layout(2, 2), "qwen2_tied": env.Layout(1, 3), "qwen3": env.Layout(2, 2),
    "qwen3_tied": env.Layout(2, 2, last=1), "mqa": env.Layout(1, 2)}
CASES = list(WRITTEN)


@pytest.fixture(scope="module")
def converted(workshop):
    """case -> (run root, what the tool said), converted once."""
    made = {}

    def make(case):
        if case not in made:
            directory, *_ = workshop.hf(case)
            target = workshop.root / f"ours-{case}"
            made[case] = target, tool.convert(directory, target, "--to", "megatron", *tool.layout_words(WRITTEN[case]))
        return made[case]
    return make


@pytest.mark.parametrize("case", CASES)
def test_megatron_loads_under_four_layouts(workshop, converted, case):
    _, config, tensors = workshop.hf(case)
    root, _ = converted(case)
    mcore_load.check(tool.step_of(root), config, tensors)


@pytest.mark.parametrize("case", CASES)
def test_no_key_is_missing_or_too_many(workshop, converted, case):
    _, config, _ = workshop.hf(case)
    unexpected, missing = mcore_load.keys(tool.step_of(converted(case)[0]), config)
    assert not missing, missing
    assert not [key for key in unexpected if not key.startswith(("rng_state", "common_state"))], unexpected


@pytest.mark.parametrize("case", CASES)
def test_megatron_computes_the_logits_of_transformers(workshop, converted, case):
    _, config, _ = workshop.hf(case)
    ours = mcore_load.logits(tool.step_of(converted(case)[0]), config, models.tokens(config["vocab_size"]))
    difference = (ours - workshop.hf_logits(case)).abs().max().item()
    assert difference <= 2e-5, f"largest difference of logits {difference}"


@pytest.mark.parametrize("case", ["llama31_scaled", "qwen2", "qwen3", "qwen3_tied", "mqa"])
def test_b69_training_starts_from_it_with_the_flags_printed(workshop, converted, case):
    """B69: no file is renamed by hand; tracker and directory agree; the arguments are in the common file."""
    _, config, tensors = workshop.hf(case)
    root, text = converted(case)
    flags = mcore_load.flags_of(config)
    for flag in (word for word in flags if word.startswith("--")):
        assert flag in text, f"the summary does not tell {flag}:\n{text[-1500:]}"
    layout = mcore_load.layouts_for(config)[1]
    result = mcore_load.train_load(root, flags, config, tensors, layout=layout)
    assert result["iteration"] == 0
    found = result["model"]
    for field in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "tie_word_embeddings", "max_position_embeddings"):
        assert found[field] == config[field], f"{field}: {found[field]}, expected {config[field]}"
    assert found["rope_theta"] == env.rope_of(config)[0] and found["swiglu"] and not found["bias"] and found["normalization"] == "RMSNorm"
    assert found["padded"] == WRITTEN[case].padded(config["vocab_size"]) and found["position"] == "rope" and found["dropout"] == [0.0, 0.0]


@pytest.fixture(scope="module")
def returned(workshop, converted):
    made = {}

    def make(case, template=True):
        if (case, template) not in made:
            target = workshop.root / f"back-{case}-{template}"
            words = ["--hf-template", workshop.hf(case)[0]] if template else []
            made[case, template] = target, tool.convert(converted(case)[0], target, "--to", "hf", *words)
        return made[case, template][0]
    return make


@pytest.mark.parametrize("case", CASES)
def test_back_to_hf_is_equal(workshop, returned, case):
    source, config, tensors = workshop.hf(case)
    target = returned(case)
    found, metadata = read_directory(target)
    assert_same(found, raw_of(tensors))
    assert metadata == {"format": "pt"}
    assert json.loads((target / "config.json").read_text()).items() >= {key: value for key, value in config.items() if key != "transformers_version"}.items()
    for file in source.iterdir():                                # B116: side files byte for byte
        if file.suffix != ".safetensors" and not file.name.endswith(".index.json") and file.name != "config.json":
            assert (target / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("case", CASES)
def test_transformers_opens_it_with_equal_logits(workshop, returned, case):
    logits = models.logits(returned(case))                       # also fails on missing, mismatched and unexpected keys
    assert torch.equal(logits, workshop.hf_logits(case)), (logits - workshop.hf_logits(case)).abs().max().item()


@pytest.mark.parametrize("case", ["llama31_scaled", "qwen2", "qwen3_tied", "mistral"])
def test_config_rebuilt_from_arguments_alone(workshop, converted, returned, case, tmp_path):
    """Without a template, and with ITER/hf/ taken away, config.json comes from Megatron's arguments and must compute the same."""
    import shutil
    root = tmp_path / "root"
    shutil.copytree(converted(case)[0], root)
    shutil.rmtree(tool.step_of(root) / "hf", ignore_errors=True)
    tool.convert(root, tmp_path / "hf", "--to", "hf")
    found, _ = read_directory(tmp_path / "hf")
    assert_same(found, raw_of(workshop.hf(case)[2]))
    assert torch.equal(models.logits(tmp_path / "hf"), workshop.hf_logits(case))


@pytest.mark.parametrize("case", ["qwen3", "llama32_tied"])
def test_shard_files_are_those_of_save_file(workshop, returned, case, tmp_path):
    """The same tensors and metadata through the reference library give the same bytes, header and padding included."""
    shards = sorted(returned(case).glob("*.safetensors"))
    assert shards
    for shard in shards:
        raw, metadata = read_safetensors(shard)
        again = tmp_path / shard.name
        safetensors.torch.save_file(as_torch(raw), again, metadata)
        assert shard.read_bytes() == again.read_bytes(), shard.name


def test_shard_size_splits_as_asked(workshop, converted, tmp_path):
    source, config, tensors = workshop.hf("qwen3")
    tool.convert(converted("qwen3")[0], tmp_path / "hf", "--to", "hf", "--hf-template", source, "--max-shard-size", "60KB")
    files = sorted(path.name for path in (tmp_path / "hf").glob("*.safetensors"))
    assert len(files) > 1 and files[0] == f"model-00001-of-{len(files):05d}.safetensors", files
    found, _ = read_directory(tmp_path / "hf")
    assert_same(found, raw_of(tensors))
    for name in files:
        raw, metadata = read_safetensors(tmp_path / "hf" / name)
        assert len(raw) == 1 or sum(len(data) for _, _, data in raw.values()) <= 60000, name
        safetensors.torch.save_file(as_torch(raw), tmp_path / name, metadata)
        assert (tmp_path / name).read_bytes() == (tmp_path / "hf" / name).read_bytes(), name
    assert torch.equal(models.logits(tmp_path / "hf"), workshop.hf_logits("qwen3"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_dtypes(workshop, dtype, tmp_path):
    source, config, tensors = workshop.hf("llama2_mha", dtype)
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2)
    layouts = [env.Layout(1, 2)]
    mcore_load.check(tool.step_of(tmp_path / "m"), config, tensors, layouts=layouts, dtype=getattr(torch, dtype))
    tool.convert(tmp_path / "m", tmp_path / "hf", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))


def test_reshard_megatron_to_megatron(workshop, converted, tmp_path):
    _, config, tensors = workshop.hf("qwen3")
    tool.convert(converted("qwen3")[0], tmp_path / "a", "--to", "megatron", "--tp", 1, "--pp", 4)
    tool.convert(tmp_path / "a", tmp_path / "b", "--to", "megatron", *tool.layout_words(WRITTEN["qwen3"]))
    mcore_load.check(tool.step_of(tmp_path / "a"), config, tensors, layouts=[env.Layout(2, 2)])
    mcore_load.check(tool.step_of(tmp_path / "b"), config, tensors, layouts=[env.Layout(1, 1)])
    tool.run("verify", converted("qwen3")[0], tmp_path / "b")
    tool.run("verify", workshop.hf("qwen3")[0], tmp_path / "a")
