"""Full-state safetensors with Adam -> Megatron -> the real distributed optimizer, and back, bit for bit."""
import json
import shutil

import pytest

import tool

tool.require()

import torch

import full_state
import mcore_env as env
import mcore_load
import mcore_write
import models
import rotation
from reference import assert_same, raw_of, read_directory

HYPER = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1"]
CASES = {"qwen3": env.Layout(2, 2), "llama32_tied": env.Layout(2, 2, first=1), "qwen2": env.Layout(1, 2), "mqa": env.Layout(1, 1), "llama3_gqa": env.Layout(4, 1)}


@pytest.fixture(scope="module")
def converted(workshop):
    made = {}

    def make(case):
        if case not in made:
            target = workshop.root / f"adam-{case}"
            made[case] = target, tool.convert(workshop.full_state(case)[0], target, "--to", "megatron", *tool.layout_words(CASES[case]), *HYPER,
                                              "--hf-template", workshop.hf(case)[0])
        return made[case]
    return make


def everything(parameters, state):
    return raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state)


@pytest.mark.parametrize("case", rotation.pick(CASES, "full-state", 2))
def test_the_distributed_optimizer_loads_it(workshop, converted, case):
    _, config, parameters, state = workshop.full_state(case)
    mcore_load.check(tool.step_of(converted(case)[0]), config, parameters, state, groups={"step": 7})


@pytest.mark.parametrize("case", CASES)
def test_back_to_full_state_is_equal(workshop, converted, case, tmp_path):
    _, config, parameters, state = workshop.full_state(case)
    tool.convert(converted(case)[0], tmp_path / "full", "--to", "full-state")
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, everything(parameters, state))
    assert counters == {"step": 20, "adam_count": 7}, counters
    assert metadata["consumed_train_samples"] == "160" and metadata["optimizer"] == "adam", metadata


@pytest.mark.parametrize("case", rotation.pick(["qwen3", "llama32_tied"], "goes-on", 1))
def test_training_goes_on_from_it(workshop, converted, case):
    """load_checkpoint with the printed flags: iteration, samples, optimizer step, masters and moments."""
    _, config, parameters, state = workshop.full_state(case)
    root, text = converted(case)
    flags = [*mcore_load.flags_of(config), "--lr", "1e-3", "--min-lr", "1e-5"]
    for layout in (env.Layout(1, 1), env.Layout(2, 2)):
        result = mcore_load.train_load(root, flags, config, parameters, state, layout)
        assert (result["iteration"], result["consumed_train_samples"], result["steps"]) == (20, 160, [7]), result


def test_adam_without_its_hyperparameters_is_refused(workshop, tmp_path):
    text = tool.convert(workshop.full_state("qwen3")[0], tmp_path / "m", "--to", "megatron", "--tp", 2, expect=(2, 3))
    tool.refused(text, "lr", "weight_decay", "--set")


def test_no_optim_leaves_it_behind_and_says_so(workshop, tmp_path):
    _, config, parameters, _ = workshop.full_state("qwen3")
    text = tool.convert(workshop.full_state("qwen3")[0], tmp_path / "m", "--to", "megatron", "--tp", 2, "--no-optim")
    assert "optim" in text.lower()
    mcore_load.check(tool.step_of(tmp_path / "m"), config, parameters, layouts=[env.Layout(1, 1)])


def test_shards_and_index(workshop, tmp_path):
    directory, config, tensors = workshop.hf("qwen3")
    state = full_state.write(tmp_path / "in", "qwen3", config, tensors, shards=3)
    tool.convert(tmp_path / "in", tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2, *HYPER)
    tool.convert(tmp_path / "m", tmp_path / "out", "--to", "full-state")
    assert_same(full_state.read(tmp_path / "out")[0], everything(tensors, state))


def test_real_save_through_full_state_to_another_layout(workshop, tmp_path):
    """Megatron (real) -> full-state -> Megatron (ours, other TP x PP) -> the real optimizer."""
    root, step, config, parameters, state = workshop.megatron("qwen3", env.Layout(2, 2))
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    tool.convert(tmp_path / "full", tmp_path / "m", "--to", "megatron", "--tp", 1, "--pp", 4, *HYPER)
    mcore_load.check(tool.step_of(tmp_path / "m"), config, parameters, state, [env.Layout(2, 1)], groups={"step": 7})


def test_reshard_with_adam(workshop, tmp_path):
    """Megatron (real) -> Megatron: the arguments and hyperparameters of the source serve, nothing has to be set."""
    root, step, config, parameters, state = workshop.megatron("qwen3", env.Layout(2, 2))
    tool.convert(root, tmp_path / "m", "--to", "megatron", "--tp", 1, "--pp", 2)
    groups = {"step": 7, "max_lr": 1e-3, "min_lr": 1e-5}
    mcore_load.check(tool.step_of(tmp_path / "m"), config, parameters, state, [env.Layout(2, 2)], groups=groups)
    ours, theirs = mcore_write.read_common(tool.step_of(tmp_path / "m")), mcore_write.read_common(step)
    assert ours["iteration"] == 20 and ours["args"].consumed_train_samples == 160
    assert ours["opt_param_scheduler"]["num_steps"] == theirs["opt_param_scheduler"]["num_steps"]
    result = mcore_load.train_load(tmp_path / "m", [*mcore_load.flags_of(config), "--lr", "1e-3", "--min-lr", "1e-5"], config, parameters, state)
    assert (result["iteration"], result["num_steps"]) == (20, 56)


def test_b40_parameters_stay_what_they_are(workshop, tmp_path):
    """B40: bf16 weights beside fp32 masters: bf16 out and config says so; --dtype widens; masters only on request."""
    source, config, parameters, state = workshop.full_state("qwen3")
    template = ["--hf-template", workshop.hf("qwen3")[0]]
    tool.convert(source, tmp_path / "plain", "--to", "hf", *template)
    assert_same(read_directory(tmp_path / "plain")[0], raw_of(parameters))
    written = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert written.get("dtype", written.get("torch_dtype")) == "bfloat16"
    tool.convert(source, tmp_path / "wide", "--to", "hf", "--dtype", "fp32", *template)
    assert_same(read_directory(tmp_path / "wide")[0], raw_of({name: tensor.float() for name, tensor in parameters.items()}))
    written = json.loads((tmp_path / "wide" / "config.json").read_text())
    assert written.get("dtype", written.get("torch_dtype")) == "float32"
    tool.convert(source, tmp_path / "master", "--to", "hf", "--dtype", "fp32", "--params-from", "master", *template)
    masters = {name: state[f"optim/master/{name}"] for name in parameters}
    assert_same(read_directory(tmp_path / "master")[0], raw_of(masters))
    tool.convert(source, tmp_path / "narrow", "--to", "hf", "--dtype", "bf16", "--params-from", "master", *template)
    assert_same(read_directory(tmp_path / "narrow")[0], raw_of({name: tensor.to(torch.bfloat16) for name, tensor in masters.items()}))
    assert any(not torch.equal(masters[name].to(torch.bfloat16).float(), masters[name]) for name in masters), "masters would hide a mistake"
