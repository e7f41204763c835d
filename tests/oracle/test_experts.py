"""Experts and multi-latent attention before the real libraries: what the tool writes under any TP x PP x EP x ETP is loaded by
Megatron-Core, piece by piece and bit by bit, and computes transformers' logits (2e-5 in fp32: two implementations); what
Megatron saves comes back as the files of Hugging Face. Each case takes one layout a run (rotation.py: CROSSDOCK_MATRIX)."""
import json
import shlex

import pytest

import tool

tool.require()

import torch
from safetensors.torch import save_file

import full_state
import mcore_env as env
import mcore_experts
import mcore_load
import mcore_write
import models
import models_experts
import rotation
from reference import as_torch, assert_same, raw_of, read_directory, slots_of

ADAM = ["--set", "lr=0.001", "--set", "min_lr=1e-05", "--set", "weight_decay=0.1", "--set", "seq_length=64", "--iteration", 20]
CASES = list(models_experts.CONFIGS)
WIDE = "float32"                                                 # both implementations compute in what they load


def layouts(case):
    """One, TP x PP uneven, EP alone and beside PP, expert tensors cut more, equally and less than the dense ones."""
    uneven = models_experts.CONFIGS[case]["num_hidden_layers"] // 2 + 1
    return [env.Layout(1, 1), env.Layout(2, 2, first=uneven), env.Layout(1, 1, dp=2, ep=2), env.Layout(1, 2, dp=3, ep=3, first=uneven),
            env.Layout(2, 1, dp=2, ep=2, etp=2), env.Layout(1, 1, dp=4, ep=2, etp=2), env.Layout(2, 1, ep=2, etp=1)]


def saved_layouts(case):
    """What training saves: also layers that carry their number although all are of one kind."""
    return layouts(case)[:5] + [env.Layout(2, 1, ep=2, etp=1, numbered=True)]


SEED = rotation.seed()


def rotated(kind, make, cases=CASES, count=1):
    """(case, layout) of this run: `count` layouts of each case."""
    cells = []
    for case in cases:
        named = {str(layout): layout for layout in make(case)}
        cells += [pytest.param(case, named[name], id=f"{case}-{name}") for name in rotation.chosen(named, SEED if SEED == "all" else f"{SEED} {kind} {case}", count)]
    return cells


@pytest.fixture(scope="module")
def written(workshop):
    """(case, layout) -> run root, converted once from float32 files of transformers."""
    made = {}

    def make(case, layout):
        if (case, layout) not in made:
            target = workshop.root / f"experts-{case}-{layout}"
            tool.convert(workshop.hf(case, WIDE)[0], target, "--to", "megatron", *tool.layout_words(layout))
            made[case, layout] = target
        return made[case, layout]
    return make


@pytest.fixture(scope="module")
def expected_logits(workshop):
    made = {}

    def make(case):
        if case not in made:
            made[case] = models.logits(workshop.hf(case, WIDE)[0])
        return made[case]
    return make


@pytest.mark.parametrize("case", CASES)
def test_transformers_writes_what_we_think(workshop, case):
    """The recipe itself: names, shapes and bytes of save_pretrained, and layers of both kinds where there should be."""
    directory, config, tensors = workshop.hf(case, WIDE)
    assert_same(read_directory(directory)[0], raw_of(tensors))
    assert len(list(directory.glob("*.safetensors"))) > 3
    kinds = models_experts.kinds(config)
    assert any(kinds) and all(kinds) == (case in ("mixtral", "qwen2_moe", "qwen3_moe"))


@pytest.mark.parametrize("case,layout", rotated("written", layouts))
def test_megatron_loads_and_computes_what_was_written(workshop, written, expected_logits, case, layout):
    _, config, tensors = workshop.hf(case, WIDE)
    step = tool.step_of(written(case, layout))
    every = layouts(case)
    other = every[(every.index(layout) + 2) % len(every)]
    assert mcore_load.check(step, config, tensors, None, [layout, other], torch.float32) > 50
    unexpected, missing = mcore_load.keys(step, config, dtype=torch.float32)
    assert not missing, missing
    assert not [key for key in unexpected if not key.startswith(("rng_state", "common_state"))], unexpected
    ours = mcore_load.logits(step, config, models.tokens(config["vocab_size"]))
    difference = (ours - expected_logits(case)).abs().max().item()
    assert difference <= 2e-5, f"largest difference of logits {difference}"


@pytest.mark.parametrize("case,layout", rotated("written", layouts))
def test_back_to_hf_is_equal(workshop, written, expected_logits, case, layout, tmp_path):
    source, config, tensors = workshop.hf(case, WIDE)
    tool.convert(written(case, layout), tmp_path / "hf", "--to", "hf", "--hf-template", source)
    found, metadata = read_directory(tmp_path / "hf")
    assert_same(found, raw_of(tensors))
    assert metadata == {"format": "pt"}
    assert json.loads((tmp_path / "hf" / "config.json").read_text()).items() >= {key: value for key, value in config.items() if key != "transformers_version"}.items()
    save_file(as_torch(read_directory(source)[0]), tmp_path / "whole.safetensors", {"format": "pt"})
    assert (tmp_path / "hf" / "model.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert torch.equal(models.logits(tmp_path / "hf"), expected_logits(case))


@pytest.mark.parametrize("case,layout", rotated("saved", saved_layouts))
def test_what_megatron_saves_comes_back(workshop, case, layout, tmp_path):
    source, config, tensors = workshop.hf(case, WIDE)
    mcore_write.save(tmp_path / "run", config, tensors, layout, dtype=torch.float32)
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))


@pytest.mark.parametrize("case", rotation.chosen(CASES, SEED if SEED == "all" else f"{SEED} own", 3))
def test_megatrons_own_layers_under_their_own_names(workshop, case, tmp_path):
    source, config, tensors = workshop.hf(case, WIDE)
    mcore_write.save(tmp_path / "run", config, tensors, env.Layout(), dtype=torch.float32, local=True)
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))


@pytest.mark.parametrize("case", CASES)
def test_a_run_builds_this_model_from_the_flags_printed(workshop, case, tmp_path):
    """--use-checkpoint-args and the line that the summary prints: every argument that decides what the model computes."""
    directory, config, _ = workshop.hf(case, WIDE)
    text = tool.convert(directory, tmp_path / "run", "--to", "megatron")
    line = next(line for line in text.splitlines() if line.strip().startswith("--load "))
    expected = mcore_experts.arguments(config, env.Layout()) | {"qk_layernorm": mcore_experts.has_norms(env, config), "add_qkv_bias": config["model_type"] in env.BIASED}
    for free in ("moe_router_load_balancing_type", "moe_router_dtype", "expert_tensor_parallel_size", "expert_model_parallel_size", "kv_channels"):
        expected.pop(free, None)                                 # the run's own choice, or without meaning for this attention
    found = mcore_load.stored_arguments(shlex.split(line))
    wrong = {name: (found.get(name), value) for name, value in expected.items() if found.get(name) != value}
    assert not wrong, f"found and expected: {wrong}\n{line}"


@pytest.mark.parametrize("case", CASES)
def test_config_rebuilt_from_arguments_alone(workshop, expected_logits, case, tmp_path):
    """No template and no config.json beside the checkpoint: kinds of layers, sizes and the router's ways come from the arguments."""
    _, config, tensors = workshop.hf(case, WIDE)
    mcore_write.save(tmp_path / "run", config, tensors, env.Layout(), dtype=torch.float32)
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))
    assert torch.equal(models.logits(tmp_path / "hf"), expected_logits(case))


# --- Adam: one optimizer where EP is 1, two (dense, experts) where it is more -------------------------------------------------
def everything(tensors, state):
    return raw_of({f"param/{name}": tensor for name, tensor in tensors.items()} | state)


ADAM_CASES = rotation.chosen(CASES, f"{SEED} adam" if SEED != "all" else SEED, 3)


@pytest.mark.parametrize("case,layout", rotated("adam", layouts, ADAM_CASES))
def test_the_optimizers_load_what_was_written(workshop, case, layout, tmp_path):
    source, config, tensors, state = workshop.full_state(case)
    tool.convert(source, tmp_path / "run", "--to", "megatron", "--hf-template", workshop.hf(case)[0], *ADAM, *tool.layout_words(layout))
    step = tool.step_of(tmp_path / "run")
    assert mcore_load.check(step, config, tensors, state, [layout], groups={"step": 7, "max_lr": 1e-3, "min_lr": 1e-5}) > 100
    assert set(mcore_write.read_common(step)["optimizer"]) == ({0, 1} if layout.ep > 1 else {"optimizer", "param_state_sharding_type"})


@pytest.mark.parametrize("case,layout", rotated("adam saved", saved_layouts, ADAM_CASES))
def test_what_the_optimizers_save_comes_back_and_changes_layout(workshop, case, layout, tmp_path):
    """Megatron itself cannot load an optimizer saved with EP 1 under EP 2, or the other way: the tool carries it over."""
    source, config, tensors = workshop.hf(case)
    state = slots_of(tensors)
    mcore_write.save(tmp_path / "run", config, tensors, layout, state)
    tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state", "--hf-template", source)
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, everything(tensors, state))
    assert counters == {"step": 20, "adam_count": 7} and metadata["optimizer"] == "adam", (counters, metadata)
    if layout.numbered:                                          # which a run asks for: the tool numbers layers of two kinds only
        return
    other = env.Layout() if layout.ep > 1 else env.Layout(1, 1, dp=2, ep=2)
    tool.convert(tmp_path / "run", tmp_path / "other", "--to", "megatron", "--hf-template", source, *tool.layout_words(other))
    assert mcore_load.check(tool.step_of(tmp_path / "other"), config, tensors, state, [other], groups={"step": 7}) > 100


def test_a_second_optimizer_comes_and_goes_with_the_division_of_experts(workshop, tmp_path):
    """From Megatron to Megatron without a template: the common state names as many optimizers as the run that loads has."""
    source, config, tensors, state = workshop.full_state("qwen3_moe")
    one, divided = env.Layout(), env.Layout(1, 1, dp=2, ep=2)
    tool.convert(source, tmp_path / "first", "--to", "megatron", "--hf-template", workshop.hf("qwen3_moe")[0], *ADAM)
    tool.convert(tmp_path / "first", tmp_path / "divided", "--to", "megatron", *tool.layout_words(divided))
    tool.convert(tmp_path / "divided", tmp_path / "joined", "--to", "megatron", *tool.layout_words(one))
    for folder, layout in (("divided", divided), ("joined", one)):
        assert mcore_load.check(tool.step_of(tmp_path / folder), config, tensors, state, [layout], groups={"step": 7, "max_lr": 1e-3}) > 100


def test_routers_that_transformers_keeps_in_f32(workshop, tmp_path):
    """save_pretrained of a bf16 DeepSeek-V3 writes the routers' weights in F32, beside the correction of their choice."""
    source, config, tensors = workshop.hf("deepseek_v3")
    disk, _ = read_directory(source)
    wide = {name for name, (dtype, _, _) in disk.items() if dtype == "F32"}
    assert len(wide) == 12 and all(".mlp.gate." in name for name in wide), sorted(wide)
    tool.convert(source, tmp_path / "run", "--to", "megatron", "--tp", 2)
    mcore_load.check(tool.step_of(tmp_path / "run"), config, tensors, None, [env.Layout(2, 1)])
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "hf")[0], disk)
