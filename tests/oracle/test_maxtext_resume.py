"""A run of the real MaxText goes on from what the tool made of its checkpoint, and its loss is the one of the run that was never interrupted, bit for
bit: MaxText -> full-state -> MaxText, and through Megatron. Some minutes: with CROSSDOCK_MATRIX=all alone."""
import json
import os
import pathlib
import subprocess

import pytest

import tool

tool.require()
if os.environ.get("CROSSDOCK_MATRIX") != "all":
    pytest.skip("runs of MaxText take minutes: CROSSDOCK_MATRIX=all", allow_module_level=True)

import models_maxtext as recipes
import test_maxtext

python = test_maxtext.python  # the fixture
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 31          # 0 to 30; the state after 30 of them is saved
MEGATRON = ["--set", "lr=1e-2", "--set", "min_lr=0", "--set", "weight_decay=0.1"]


def _calls(work, hf, optimizer):
    """Between the runs: the state that the first one saved, on both ways."""
    saved, full, back = work / f"runs/{optimizer}/checkpoints/29", work / f"{optimizer}-full", work / f"{optimizer}-back"
    megatron, through = work / f"{optimizer}-megatron", work / f"{optimizer}-through"
    muon = ["--set", "muon_momentum=0.95"] if optimizer == "muon" else []
    return back / "30/items", through / "30/items", [
        [saved, full, "--to", "full-state", "--hf-template", hf, "--require-optim"],
        [full, back, "--to", "maxtext", "--verify"],
        [saved, megatron, "--to", "megatron", "--tp", "2", "--pp", "2", "--hf-template", hf, *MEGATRON, *muon],
        [megatron, through, "--to", "maxtext", "--params-from", "master", "--compression", "zstd:3"],
    ]


@pytest.fixture(scope="module")
def losses(python, tmp_path_factory):
    work = tmp_path_factory.mktemp("resume")
    recipes.write("qwen3", work / "hf")
    model_name, settings = recipes.settings("qwen3")
    jobs = []
    for optimizer in ("adamw", "muon"):
        more = settings | {"opt_type": optimizer, "steps": STEPS, "scan_layers": True, "checkpoint_period": 1000}
        back, through, calls = _calls(work, work / "hf", optimizer)
        jobs.append({"train": optimizer, "model_name": model_name, "settings": more | {"checkpoint_period": 29}})
        jobs += [{"call": [tool.BINARY, "convert", *map(str, words)]} for words in calls]
        jobs.append({"train": f"{optimizer}-back", "model_name": model_name, "settings": more | {"load_full_state_path": str(back)}})
        jobs.append({"train": f"{optimizer}-through", "model_name": model_name, "settings": more | {"load_full_state_path": str(through)}})
    (work / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run([python, ROOT / "tests/oracle/maxtext_train.py", work / "jobs.json", work / "result.json"], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: {int(step): loss for step, loss in run.items()} for name, run in json.loads((work / "result.json").read_text()).items()}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_next_step_has_the_uninterrupted_runs_loss(losses, optimizer):
    whole = losses[optimizer]
    assert sorted(whole) == list(range(STEPS)) and whole[30] < whole[0] - 0.5, whole  # it learns
    assert losses[f"{optimizer}-back"] == {30: whole[30]}, (losses[f"{optimizer}-back"], whole[30])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_same_through_megatron(losses, optimizer):
    whole, through = losses[optimizer], losses[f"{optimizer}-through"]
    assert sorted(through) == [30]
    assert through[30] == whole[30], (through, whole[30])
