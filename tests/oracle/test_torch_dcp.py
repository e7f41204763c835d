"""Runs of Megatron under torch's FSDP2 (`--ckpt-format torch_dcp`) and under its own (`fsdp_dtensor`), saved by training's own
save_checkpoint: read bit for bit, weights and Adam's state, and handed to torch_dist's real loader."""
import json

import pytest

import tool

tool.require()

import full_state
import mcore_env as env
import mcore_fsdp
import mcore_load
import models
from reference import as_torch, assert_same, raw_of, read_directory, slot_of, slots_of, to_megatron

CASES = [("qwen3", 2), ("llama3_gqa", 3), ("qwen2", 1)]


def produced(case, ranks, folder, optimizer=True):
    config, parameters = models.parameters(case)
    state = slots_of(parameters) if optimizer else None
    mcore_fsdp.save(folder, config, parameters, env.Layout(dp=ranks), state)
    return config, parameters, state


@pytest.mark.parametrize("case,ranks", CASES, ids=[f"{case}-dp{ranks}" for case, ranks in CASES])
def test_every_value_is_read(case, ranks, tmp_path):
    config, parameters, state = produced(case, ranks, tmp_path / "run")
    tool.convert(tmp_path / "run", tmp_path / "state", "--to", "full-state")
    found, counters, metadata = full_state.read(tmp_path / "state")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == mcore_fsdp.STEP and counters.get("step") == mcore_fsdp.ITERATION, counters
    assert metadata.get("consumed_train_samples") == "160", metadata


def test_torch_dist_goes_on_from_it(tmp_path):
    config, parameters, state = produced("qwen3", 2, tmp_path / "run")
    tool.convert(tmp_path / "run", tmp_path / "out", "--to", "megatron", "--tp", 2, "--pp", 2)
    assert mcore_load.check(tool.step_of(tmp_path / "out"), config, parameters, state) > 20


def test_weights_alone_and_what_inspect_says(tmp_path):
    config, parameters, _ = produced("qwen3", 2, tmp_path / "run", optimizer=False)
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))
    told = json.loads(tool.run("inspect", tmp_path / "run", "--json"))
    assert told["format"] == "megatron-legacy" and told["step"] == mcore_fsdp.ITERATION
    assert "--use-torch-fsdp2 --ckpt-format torch_dcp" in json.dumps(told)


OWN = [("qwen3", 2), ("llama3_gqa", 3), ("qwen2_tied", 1)]


@pytest.mark.parametrize("case,ranks", OWN, ids=[f"{case}-dp{ranks}" for case, ranks in OWN])
def test_megatrons_own_fsdp(case, ranks, tmp_path):
    """Main weights are masters, and rounded the parameters; ranks hold unequal rows, and none of some tensors."""
    config, parameters = models.parameters(case)
    layout = env.Layout(dp=ranks)
    held = mcore_fsdp.save_own(tmp_path / "run", config, parameters, layout)
    tool.convert(tmp_path / "run", tmp_path / "state", "--to", "full-state")
    found, counters, _ = full_state.read(tmp_path / "state")
    found = as_torch(found)
    assert counters == {"adam_count": 2, "step": mcore_fsdp.ITERATION}
    for slot, key in [("master", "param"), ("adam_mu", "exp_avg"), ("adam_nu", "exp_avg_sq")]:
        arranged = to_megatron(slot_of(found, slot), config, numbered=True)
        assert arranged.keys() == held[key].keys()
        assert_same(raw_of(arranged), raw_of({name: tensor[:arranged[name].shape[0]] for name, tensor in held[key].items()}))
    weights = to_megatron(slot_of(found, "param"), config, numbered=True)
    assert_same(raw_of(weights), raw_of({name: tensor[:weights[name].shape[0]].bfloat16() for name, tensor in held["param"].items()}))
    if case == "qwen3":
        tool.convert(tmp_path / "run", tmp_path / "out", "--to", "megatron", "--tp", 2, "--pp", 2)
        by_name = {name.removeprefix("param/"): tensor for name, tensor in found.items() if name.startswith("param/")}
        state = {name: tensor for name, tensor in found.items() if name.startswith("optim/")}
        assert mcore_load.check(tool.step_of(tmp_path / "out"), config, by_name, state) > 20
        assert "--use-megatron-fsdp --ckpt-format fsdp_dtensor" in tool.run("inspect", tmp_path / "run")
