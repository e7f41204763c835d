"""python -m crossdock.roundtrip: into the ranks of a layout and back."""
import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

import crossdock
from crossdock import Layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cases"))
import moe_checkpoint  # noqa: E402

roundtrip = importlib.import_module("crossdock.roundtrip")


def run(*words, expect=0, **environment):
    done = subprocess.run([sys.executable, "-m", "crossdock.roundtrip", *map(str, words)], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, **environment})
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("words", [(), ("--tp", 2, "--pp", 2), ("--pp", 2, "--vpp", 2, "--threads", 1)],
                         ids=lambda words: " ".join(map(str, words)) or "alone")
def test_nothing_is_lost(demo, tmp_path, words):
    run(demo / "hf", "--out", tmp_path / "out", "--profile", tmp_path / "p.json", *words)
    report = json.loads((tmp_path / "out" / "roundtrip_comparison.json").read_text())
    assert report["passed"] and report["num_bit_identical"] == report["num_baseline"] > 10
    assert os.listdir(tmp_path / "out") == ["roundtrip_comparison.json"]
    ranks = json.loads((tmp_path / "p.json").read_text())["ranks"]
    assert [rank["rank"] for rank in ranks] == list(range(4 if "--tp" in words else 2 if "--pp" in words else 1))
    assert all(set(rank["seconds"]) == {"plan", "memory", "read", "agree", "save"} and rank["bytes"] > 0 for rank in ranks)


def test_ranks_of_a_launcher_and_what_is_kept(demo, tmp_path):
    words = [sys.executable, "-m", "crossdock.roundtrip", demo / "hf", "--out", tmp_path / "out", "--tp", "2", "--keep", "--report", tmp_path / "r.json"]
    ranks = [subprocess.Popen(words, env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"}) for rank in range(2)]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    assert json.loads((tmp_path / "r.json").read_text())["passed"]
    assert (tmp_path / "out" / "hf" / "config.json").exists()


def test_a_difference_is_told_by_the_status(demo, tmp_path, monkeypatch):
    from crossdock import _exporter

    save = _exporter.Exporter.save
    zeros = {}

    def spoiled(self, step, tensors, **more):
        name = next(name for name in tensors if name.endswith("linear_proj.weight"))
        view, dtype = tensors[name]
        zeros[name] = memoryview(bytearray(view.nbytes)).cast("H", shape=view.shape)
        return save(self, step, {**tensors, name: (zeros[name], dtype)}, **more)

    monkeypatch.setattr(_exporter.Exporter, "save", spoiled)
    args = roundtrip.arguments([str(demo / "hf"), "--out", str(tmp_path / "out")])
    os.makedirs(args.out)
    assert roundtrip.run_rank(args, 0, 1) == 1
    report = json.loads((tmp_path / "out" / "roundtrip_comparison.json").read_text())
    assert report["mismatched_keys"] == ["model.layers.0.self_attn.o_proj.weight"]


def test_layers_of_prediction_are_copied_and_said(tmp_path):
    moe_checkpoint.write(tmp_path / "hf", moe_checkpoint.deepseek())
    said = run(tmp_path / "hf", "--out", tmp_path / "out", "--ep", 2)
    assert "were copied" in said
    report = json.loads((tmp_path / "out" / "roundtrip_comparison.json").read_text())
    assert report["passed"] and report["num_bit_identical"] == report["num_baseline"] > 10


def test_the_example(demo, tmp_path):
    done = subprocess.run([ROOT / "examples" / "roundtrip.sh", "qwen3", demo / "hf", "--out", tmp_path / "out", "--threads", "1"], capture_output=True,
                          text=True, check=False, timeout=300, env={**os.environ, "PYTHON": sys.executable})
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "out" / "roundtrip_comparison.json").read_text())["passed"]


def test_what_the_system_refuses_has_its_status(demo, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert "error: " in run(demo / "hf", "--out", tmp_path / "file" / "out", expect=4)

    def none_left(tensors):
        raise MemoryError

    monkeypatch.setattr(roundtrip, "memory_for", none_left)
    args = roundtrip.arguments([str(demo / "hf"), "--out", str(tmp_path / "out")])
    os.makedirs(args.out)
    assert roundtrip.run_rank(args, 0, 1) == 4


def test_the_command_of_the_same_name_is_still_there(demo, tmp_path):
    assert crossdock.roundtrip(demo / "hf", via="megatron", out=tmp_path).equal


def test_what_cannot_be_is_refused(demo, tmp_path):
    assert "needs 2 ranks" in run(demo / "hf", "--out", tmp_path / "out", "--tp", 2, expect=2, RANK="0", WORLD_SIZE="1")
    assert "expected --tp of 1, 2, 4" in run(demo / "hf", "--out", tmp_path / "out", "--tp", 3, expect=2)
    assert "nowhere" in run(tmp_path / "nowhere", "--out", tmp_path / "none", expect=3)
    assert not (tmp_path / "none").exists()


def test_how_many_ranks_a_layout_has():
    assert roundtrip.fewest_ranks(Layout(2, 3)) == 6
    assert roundtrip.fewest_ranks(Layout(2, 1, ep=4)) == 8
    assert roundtrip.fewest_ranks(Layout(2, 2, ep=3, etp=1)) == 12
