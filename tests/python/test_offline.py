"""The commands as functions give what the command line gives: the same bytes, the same report."""
import hashlib
import json
import os
import pathlib
import re
import sys

import pytest

import crossdock
from conftest import tool


def digest(folder):
    """Every file below a directory with the hash of its bytes."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


CONVERSIONS = [
    ("full-state", dict(to="megatron", tp=2, pp=2, set={"no_such": True}), ["--to", "megatron", "--tp", "2", "--pp", "2", "--set", "no_such=true"]),
    ("hf", dict(to="megatron_legacy", pipeline_layers=[3, 1], pp=2), ["--to", "megatron-legacy", "--pp", "2", "--pipeline-layers", "3,1"]),
    ("hf", dict(to="maxtext", scan_layers=False, compression="none"), ["--to", "maxtext", "--no-scan-layers", "--compression", "none"]),
    ("hf", dict(to="hf", fp8=True, fp8_block_size=(64, 64), fp8_skip=["*o_proj*", "*down_proj*"]),
     ["--to", "hf", "--fp8", "--fp8-block-size", "64", "64", "--fp8-skip", "*o_proj*", "--fp8-skip", "*down_proj*"]),
    ("hf", dict(to="hf", dtype="bfloat16", max_shard_size="200KB", emit_manifest=None, verify=True, force=False),
     ["--to", "hf", "--bf16", "--max-shard-size", "200KB", "--verify"]),
]


@pytest.mark.parametrize("source, options, words", CONVERSIONS, ids=[c[1]["to"] + str(i) for i, c in enumerate(CONVERSIONS)])
def test_converts_to_the_same_bytes(source, options, words, demo, tmp_path):
    if options["to"] == "megatron_legacy":
        options = options | {"to": "megatron-legacy"}
    report = crossdock.convert(demo / source, tmp_path / "a", **options)
    done = tool("convert", demo / source, tmp_path / "b", *words)
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert report.equal and str(report) == report.text
    assert report.text.replace(str(tmp_path / "a"), "T").splitlines()[0] == done.stdout.replace(str(tmp_path / "b"), "T").splitlines()[0]


def test_reports_are_those_of_the_command_line(demo, tmp_path):
    for report, words in [
        (crossdock.inspect(demo / "hf", tensors=True), ["inspect", demo / "hf", "--tensors"]),
        (crossdock.plan(demo / "full-state", tmp_path / "m", to="megatron", tp=2), ["plan", demo / "full-state", tmp_path / "m", "--to", "megatron", "--tp", "2"]),
        (crossdock.manifest(demo / "hf", to="megatron"), ["manifest", demo / "hf", "--to", "megatron"]),
        (crossdock.verify(demo / "hf", demo / "full-state"), ["verify", demo / "hf", demo / "full-state"]),
        (crossdock.families(), ["families"]),
        (crossdock.families("qwen3"), ["families", "qwen3"]),
        (crossdock.resume_plan(tmp_path / "run", hf_path=demo / "hf"), ["resume-plan", tmp_path / "run", "--hf-path", demo / "hf"]),
    ]:
        typed = tool(*words).stdout.rstrip("\n")
        # The free space of a disk changes under our hands.
        assert re.sub(r"\d+ bytes free", "", typed) == re.sub(r"\d+ bytes free", "", report.text.rstrip("\n"))
        typed = json.loads(tool(*words, "--json").stdout)
        assert typed | {"disk_free": 0} == report.json | {"disk_free": 0}
    assert not (tmp_path / "m").exists()


def test_quantize_and_roundtrip(demo, tmp_path):
    crossdock.quantize(demo / "hf", tmp_path / "a", strategy="channel")
    assert tool("quantize", demo / "hf", tmp_path / "b", "--strategy", "channel").returncode == 0
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    report = crossdock.roundtrip(demo / "hf", via="megatron", tp=2, out=tmp_path / "work", report=tmp_path / "report.json")
    assert report.equal and json.loads((tmp_path / "report.json").read_text())["passed"]


def test_a_difference_is_a_result(demo, tmp_path):
    crossdock.convert(demo / "hf", tmp_path / "f16", to="hf", dtype="fp16")
    report = crossdock.verify(demo / "hf", tmp_path / "f16")
    assert not report.equal and report.remarks and "crossdock.Report" in repr(report)


def test_paths_with_an_equals_sign_and_dashes(demo, tmp_path):
    target = tmp_path / "--to=a b"
    crossdock.convert(str(demo / "hf"), str(target), to="hf")
    assert crossdock.verify(demo / "hf", bytes(target)).equal


def test_a_watch_exports_what_is_there(demo, tmp_path):
    crossdock.convert(demo / "full-state", tmp_path / "run", to="megatron")
    told = []
    assert crossdock.watch(tmp_path / "run", tmp_path / "out", once=True, notice=told.append).consistent and told
    exported, = (path for path in (tmp_path / "out").rglob("config.json"))
    assert crossdock.verify(exported.parent, demo / "hf").equal


def test_the_hook_of_a_watch_runs_in_this_interpreter(demo, tmp_path, monkeypatch):
    (tmp_path / "watched.py").write_text(f"import sys\ndef told(*words, **more):\n    open({str(tmp_path / 'told')!r}, 'w').write(sys.executable)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PATH", str(tmp_path))   # with no other one
    crossdock.convert(demo / "full-state", tmp_path / "run", to="megatron")
    crossdock.watch(tmp_path / "run", tmp_path / "out", once=True, hook="watched.told")
    assert (tmp_path / "told").read_text() == sys.executable
