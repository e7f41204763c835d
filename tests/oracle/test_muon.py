"""Muon beside Adam: full state -> Megatron -> the real chained optimizer, and back, bit for bit; training goes on alike."""
import pytest

import tool

tool.require()
tool.needs("emerging")

import torch

import full_state
import mcore_env as env
import mcore_muon
import mcore_write
import models
from reference import as_torch, assert_same, raw_of

HYPER = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1", "--set", "muon_momentum=0.9", "--set", "adam_beta2=0.95"]
HOME, AWAY = env.Layout(1, 1), env.Layout(2, 2)
COUNTS = {"step": 20, "adam_count": 7, "muon_count": 9}


def everything(parameters, state):
    return raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state)


@pytest.fixture(scope="module")
def full(workshop):
    """(directory, config, parameters, state) of a full state with Muon, its counters all different."""
    _, config, parameters = workshop.hf("qwen3")
    state = mcore_muon.state_of(parameters)
    return workshop.root / "muon-full", config, parameters, full_state.write(workshop.root / "muon-full", "qwen3", config, parameters, state=state, muon_count=9)


@pytest.fixture(scope="module")
def converted(workshop, full):
    target = workshop.root / "muon-megatron"
    return target, tool.convert(full[0], target, "--to", "megatron", *tool.layout_words(AWAY), *HYPER, "--hf-template", workshop.hf("qwen3")[0])


def test_the_real_optimizer_loads_it(full, converted):
    mcore_muon.check(tool.step_of(converted[0]), *full[1:], [AWAY, HOME])


def test_back_to_full_state_is_equal(full, converted, tmp_path):
    _, config, parameters, state = full
    tool.convert(converted[0], tmp_path / "full", "--to", "full-state", "--require-optim")
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, everything(parameters, state))
    assert counters == COUNTS, counters
    assert metadata["optimizer"] == "muon" and metadata["consumed_train_samples"] == "160", metadata


def test_keys_and_common_state_are_those_of_a_real_run(workshop, full, converted, tmp_path):
    _, config, parameters, state = full
    real = mcore_muon.save(tmp_path / "real", config, parameters, state, AWAY)
    ours, theirs = mcore_muon.keys_of(tool.step_of(converted[0])), mcore_muon.keys_of(real)
    assert ours == theirs, sorted(set(ours.items()) ^ set(theirs.items()))[:6]
    mine, common = mcore_write.read_common(tool.step_of(converted[0])), mcore_write.read_common(real)
    assert mine["content_metadata"] == common["content_metadata"]
    for index, chained in common["optimizer"].items():
        for group, expected in zip(mine["optimizer"][index]["optimizer"]["param_groups"], chained["optimizer"]["param_groups"], strict=True):
            assert set(group) == set(expected) and group | {"lr": 0} == expected | {"lr": 0}, (group, expected)
    # What it wrote comes to the hub with all its slots.
    tool.convert(tmp_path / "real", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    found, counters, _ = full_state.read(tmp_path / "full")
    assert_same(found, everything(parameters, state))
    assert counters == {"step": 20, "adam_count": 7, "muon_count": 7}, counters


def test_layer_wise_state_is_read(workshop, full, tmp_path):
    """Ranks that hold whole parameters of their own store the same keys; the result is loaded by the optimizer that is not layer-wise."""
    _, config, parameters, state = full
    mcore_muon.save(tmp_path / "run", config, parameters, state, env.Layout(2, 1, dp=2), layer_wise=True)
    tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(full_state.read(tmp_path / "full")[0], everything(parameters, state))
    tool.convert(tmp_path / "full", tmp_path / "m", "--to", "megatron", *tool.layout_words(AWAY))
    mcore_muon.check(tool.step_of(tmp_path / "m"), config, parameters, state, [AWAY])


def test_split_state_is_read_and_its_buckets_are_refused(workshop, full, tmp_path):
    """Matrices by rank with Muon, the rest with a distributed optimizer: two names for the masters in one checkpoint; or, as Megatron saves by default, flat buckets
    and `chained_N.` before every key of the optimizer."""
    _, config, parameters, state = full
    layout, words = env.Layout(2, 1, dp=2), ["--hf-template", workshop.hf("qwen3")[0]]
    keys = mcore_muon.keys_of(mcore_muon.save_split(tmp_path / "run", config, parameters, state, layout, fully=True))
    assert any(key.startswith("optimizer.state.param.") for key in keys) and any(key.startswith("optimizer.state.fp32_param.") for key in keys)
    tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state", "--require-optim", *words)
    assert_same(full_state.read(tmp_path / "full")[0], everything(parameters, state))
    keys = mcore_muon.keys_of(mcore_muon.save_split(tmp_path / "flat", config, parameters, state, layout, fully=False))
    assert any(key.startswith("chained_0.optimizer.state.momentum_buffer.") for key in keys)
    tool.refused(tool.convert(tmp_path / "flat", tmp_path / "no", "--to", "full-state", *words, expect=3), "several optimizers, in flat buckets", "chained_1.", "--no-optim")
    told = tool.convert(tmp_path / "flat", tmp_path / "weights", "--to", "full-state", "--no-optim", *words)
    assert_same(full_state.read(tmp_path / "weights")[0], raw_of({f"param/{name}": tensor for name, tensor in parameters.items()}))
    assert "left behind" in told or "left out" in told, told


@pytest.mark.parametrize("kind, says", [("lion", ["no complete optimizer state", "exp_avg and exp_avg_sq"]), ("adaptive_muon", ["moment2_buffer", "no state of Adam or Muon"])])
def test_states_of_other_optimizers_are_refused_by_name(workshop, tmp_path, kind, says):
    config, parameters = models.parameters("qwen3")
    mcore_muon.save_zeros(tmp_path / "run", config, parameters, kind)
    tool.refused(tool.convert(tmp_path / "run", tmp_path / "no", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0], expect=3), *says, "--no-optim")


def test_step_21_after_another_layout_and_back(workshop, tmp_path):
    config, parameters = models.parameters("qwen3")
    trained = mcore_muon.train(tmp_path / "run", config, parameters, HOME)
    before, after = trained[0]
    changed = {name.split("/")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"param", *mcore_muon.SLOTS}, changed
    tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    tool.convert(tmp_path / "full", tmp_path / "away", "--to", "megatron", *tool.layout_words(AWAY), "--require-optim")
    tool.convert(tmp_path / "away", tmp_path / "back", "--to", "megatron", *tool.layout_words(HOME), "--require-optim")
    again = mcore_muon.resume(tool.step_of(tmp_path / "back"), config, parameters, HOME, [21])
    for (loaded, stepped), (saved, expected) in zip(again, trained):
        mcore_muon.same(loaded, saved, "as loaded")
        mcore_muon.same(stepped, expected, "after step 21")
    found = as_torch(full_state.read(tmp_path / "full")[0])
    state = {name: tensor for name, tensor in found.items() if name.startswith("optim/")}
    mcore_muon.check(tool.step_of(tmp_path / "away"), config, {name.removeprefix("param/"): tensor for name, tensor in found.items() if name.startswith("param/")}, state, [AWAY], count=20)


def test_experts_of_expert_parallel_ranks_have_an_optimizer_of_their_own(workshop, tmp_path):
    _, config, parameters = workshop.hf("qwen3_moe")
    state = full_state.write(tmp_path / "full", "qwen3_moe", config, parameters, state=mcore_muon.state_of(parameters), muon_count=7)
    layout = env.Layout(2, 1, ep=2, etp=1)
    tool.convert(tmp_path / "full", tmp_path / "m", "--to", "megatron", *tool.layout_words(layout), *HYPER, "--set", "seq_length=64")
    mcore_muon.check(tool.step_of(tmp_path / "m"), config, parameters, state, [layout])
    assert sorted(mcore_write.read_common(tool.step_of(tmp_path / "m"))["optimizer"]) == [0, 1, 2]
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "full-state", "--require-optim")
    assert_same(full_state.read(tmp_path / "back")[0], everything(parameters, state))


def test_the_load_line_names_muon(converted):
    line = next(line for line in converted[1].splitlines() if "--use-checkpoint-args" in line)
    assert " --optimizer muon --muon-momentum 0.9 " in line and "--use-distributed-optimizer" not in line, line
    assert "Muon's counter, 9, has no place" in converted[1], converted[1]
