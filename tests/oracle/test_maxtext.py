"""The tool's MaxText checkpoints before MaxText 0.2.5 itself: logits against transformers', every leaf of a training state, and the way back.
MaxText runs in an environment of its own (scripts/setup_test_env.sh maxtext), one process for all cases; without it these tests skip and say so."""
import hashlib
import json
import math
import pathlib
import subprocess

import pytest

import tool

tool.require()

import torch

import models_maxtext as recipes
import rotation
from reference import read_directory

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Four logits cells and two states a run; CROSSDOCK_MATRIX=all takes all.
CELLS = {f"{case}-{form}" for case in recipes.CASES for form in ("scanned", "unscanned")}
STATES = {"qwen3-adamw", "qwen3_moe-adamw", "deepseek_v3-adamw", "qwen3-muon", "deepseek_v3-muon", "deepseek_v3_mtp-adamw", "qwen3-adam_pax", "llama4-adamw", "qwen3_next-adamw", "qwen3_next-muon", "qwen3_5_moe-adamw"}
WORD = rotation.seed()
CHOSEN, CHOSEN_STATES = rotation.chosen(CELLS, WORD, 4), rotation.chosen(STATES, WORD, 2)


@pytest.fixture(scope="module")
def python():
    done = subprocess.run([ROOT / "scripts/setup_test_env.sh", "maxtext", "--print-python"], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("the environment with MaxText cannot be made here: " + done.stderr[-300:])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    made = {}

    def make(case):
        if case not in made:
            directory = tmp_path_factory.mktemp(case.replace(".", "_")) / "hf"
            recipes.write(case, directory)
            made[case] = directory
        return made[case]
    return make


def _muon_takes(name, shape):
    """MaxText's rule, by Hugging Face names: matrices but embedding, head, norms and biases, and of a delta net its convolution."""
    return len(shape) > 1 and not any(word in name for word in ("embed", "lm_head", "norm", "bias", "conv1d", "shared_expert_gate"))


def _full_state(case, hf, target, optimizer):
    """Moments that tell where they come from: mu is the parameter, nu its square."""
    from safetensors.torch import load_file, save_file
    tensors = {}
    for file in sorted(hf.glob("*.safetensors")):
        tensors |= load_file(file)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(("shared_head.head.weight", ".4.embed_tokens.weight"))}   # they repeat others
    out = {f"param/{name}": tensor.contiguous() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if name.endswith("e_score_correction_bias"):
            continue
        if optimizer == "muon" and _muon_takes(name, tensor.shape):
            out[f"optim/muon_mu/{name}"] = tensor.clone().contiguous()
        else:
            out[f"optim/adam_mu/{name}"], out[f"optim/adam_nu/{name}"] = tensor.clone().contiguous(), tensor.square().contiguous()
    for counter, value in (("step", 20), ("adam_count", 17)) + ((("muon_count", 18),) if optimizer == "muon" else ()):
        out[f"meta/{counter}"] = torch.tensor(value, dtype=torch.int64)
    target.mkdir()
    save_file(out, target / "model.safetensors", {"format": "crossdock-full-state-v1", "optimizer": "muon" if optimizer == "muon" else "adam", "step": "20"})
    (target / "config.json").write_text((hf / "config.json").read_text())


@pytest.fixture(scope="module")
def verdict(python, source, tmp_path_factory):
    """Everything at once: MaxText takes 20 s to start."""
    work = tmp_path_factory.mktemp("maxtext")
    jobs = {}
    for cell in CHOSEN:
        case, form = cell.rsplit("-", 1)
        tool.convert(source(case), work / cell, "--to", "maxtext", *([] if form == "scanned" else ["--no-scan-layers"]))
        model_name, settings = recipes.settings(case)
        jobs[cell] = {"model_name": model_name, "settings": settings | {"scan_layers": form == "scanned"}, "items": str(work / cell / "0/items"), "hf": str(source(case))}
    for cell in CHOSEN_STATES:
        case, optimizer = cell.rsplit("-", 1)
        _full_state(case, source(case), work / f"{cell}-state", optimizer)
        tool.convert(work / f"{cell}-state", work / cell, "--to", "maxtext", "--opt-type", optimizer)
        model_name, settings = recipes.settings(case)
        jobs[cell] = {"model_name": model_name, "settings": settings | {"scan_layers": True}, "items": str(work / cell / "20/items"), "state": optimizer}
    (work / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run([python, ROOT / "tests/oracle/maxtext_judge.py", work / "jobs.json", work / "result.json"], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((work / "result.json").read_text()), work


@pytest.mark.parametrize("cell", CHOSEN)
def test_maxtext_computes_transformers_logits(verdict, cell):
    result = verdict[0][cell]
    assert "error" not in result, result["error"]
    tied = cell.rsplit("-", 1)[0] in recipes.TIED
    assert result["scale"] > 0.05
    bound = 0.02 if tied else 6e-4 if cell.startswith(recipes.DELTA_NETS) else 2e-4
    assert result["max_difference"] < bound * max(1.0, result["scale"]), result
    assert result["kl"] < (5e-5 if tied else 1e-6), result
    if "mtp" in cell:
        found, expected = result["prediction"]
        assert expected > 10 and abs(found - expected) < 1e-4 * expected, result


@pytest.mark.parametrize("cell", CHOSEN_STATES)
def test_maxtext_finds_every_leaf_of_a_training_state(verdict, cell):
    results, work = verdict
    result = results[cell]
    assert "error" not in result, result["error"]
    strangers = [name for name in result["not_found"] if "rngs" not in name and "dropout" not in name]
    assert not strangers, strangers[:5]
    found = result["found"]
    counters = {name: value for name, value in found.items() if name == "step" or name.endswith("count") and not name.startswith("nnx_aux")}
    digest = {number: hashlib.sha256(number.to_bytes(4, "little")).hexdigest() for number in (17, 18, 20)}
    for name, (_, _, sha) in counters.items():
        own = 18 if ".muon." in name else 17
        last = name.split(".")[-2] if name != "step" else "schedule"
        assert sha == digest[own if last in ("0", "opt_state") else 20], name
    # mu holds the parameters themselves, arranged as they are.
    compared = 0
    for name, (_, shape, sha) in found.items():
        if not name.startswith("opt_state") or ".mu." not in name:
            continue
        parameter = name.split(".mu.")[1].removeprefix("params.")
        assert found[f"params.params.{parameter}"][1:] == [shape, sha], name
        compared += 1
    assert compared == sum(name.startswith("params.params.") and not name.endswith("gate.bias") for name in found) > 5
    if cell.startswith("deepseek_v3"):
        bias = [name for name in found if name.endswith("gate.bias")]
        assert bias and all(found[name][2] != hashlib.sha256(bytes(4 * math.prod(found[name][1]))).hexdigest() for name in bias), bias
    # And back: every tensor of every slot, bit for bit.
    tool.convert(work / cell, work / f"{cell}-back", "--to", "full-state")
    assert "equal" in tool.run("verify", work / f"{cell}-state", work / f"{cell}-back").splitlines()[0]


@pytest.mark.parametrize("form", ["scanned", "unscanned"])
@pytest.mark.parametrize("case", recipes.CASES)
def test_there_and_back(source, tmp_path, case, form):
    hf = source(case)
    tool.convert(hf, tmp_path / "run", "--to", "maxtext", *([] if form == "scanned" else ["--no-scan-layers"]))
    # Of the released spelling, or of what repeats another tensor, the template tells.
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", *(["--hf-template", hf] if case in ("qwen3_5_moe", "deepseek_v3_mtp") else []))
    before, after = read_directory(hf)[0], read_directory(tmp_path / "hf")[0]
    assert before.keys() == after.keys()
    changed = 0
    for name, (dtype, shape, data) in before.items():
        assert after[name][:2] == (dtype, shape), name
        if after[name][2] == data:
            continue
        changed += 1
        ours, theirs = (torch.frombuffer(bytearray(x), dtype=torch.float32).double() for x in (after[name][2], data))
        step = torch.finfo(torch.float32).eps * (theirs.abs().clamp(min=1.0) if "norm" in name else theirs.abs())
        assert ((ours - theirs).abs() <= step).all(), name
    assert changed == 0 or case in recipes.SCALED
