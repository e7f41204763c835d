"""A run that goes on from a checkpoint which went to another layout and back takes the same step 21, bit for bit."""
import pytest

import tool

tool.require()

import torch

import full_state
import mcore_env as env
import mcore_load
import mcore_train
import models
from reference import as_torch, slot_of


def same(found, expected, what):
    assert set(found) == set(expected), f"{what}: {sorted(set(found) ^ set(expected))[:4]}"
    bad = [name for name in expected if not torch.equal(found[name].view(torch.uint8), expected[name].view(torch.uint8))]
    assert not bad, f"{what}: {len(bad)} of {len(expected)} differ, such as {bad[:4]}"


@pytest.mark.parametrize("fully", [False, True], ids=["dp_reshardable", "fully_reshardable"])
def test_step_21_after_another_layout_and_back(workshop, tmp_path, fully):
    config, parameters = models.parameters("qwen3")
    home, away = env.Layout(1, 1, dp=2), env.Layout(2, 2)
    trained = mcore_train.train(tmp_path / "run", config, parameters, home, dist_ckpt_optim_fully_reshardable=fully)
    before, after = trained[0]
    assert any(not torch.equal(before[name], after[name]) for name in before), "step 21 changes nothing"
    tool.convert(tmp_path / "run", tmp_path / "away", "--to", "megatron", *tool.layout_words(away), "--require-optim")
    tool.convert(tmp_path / "away", tmp_path / "back", "--to", "megatron", *tool.layout_words(home), "--require-optim")
    again = mcore_train.resume(tool.step_of(tmp_path / "back"), config, parameters, home, [21])
    for rank, ((loaded, stepped), (saved, expected)) in enumerate(zip(again, trained)):
        same(loaded, saved, f"rank {rank} as loaded")
        same(stepped, expected, f"rank {rank} after step 21")
    # In the other layout the real library finds the same states, each local piece of them.
    tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    found = as_torch(full_state.read(tmp_path / "full")[0])
    mcore_load.check(tool.step_of(tmp_path / "away"), config, slot_of(found, "param"), {name: tensor for name, tensor in found.items() if name.startswith("optim/")},
                     layouts=[away], groups={"step": 20})
