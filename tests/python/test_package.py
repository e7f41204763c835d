"""What a user of the package meets first: it imports fast and alone, says what it is, and ends when told to."""
import ast
import inspect
import json
import os
import pickle
import pydoc
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

import crossdock
import models
from conftest import alone, tool, visible


def test_imports_alone_and_fast():
    """What an import costs is told, and gated by what is imported: clocks are of the machine, which may be busy with something else."""
    code = """
import sys, time
before = set(sys.modules)
start = time.process_time()
import crossdock
print((time.process_time() - start) * 1000)
print(*sorted(set(sys.modules) - before))
"""
    child = alone(code)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    took, modules = output.splitlines()
    print(f"import: {float(took):.1f} ms of CPU: {modules}")
    modules = modules.split()
    assert {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"crossdock"}
    assert len(modules) < 25
    assert not {"asyncio", "inspect", "json", "logging", "subprocess", "typing", "ctypes", "importlib.metadata"} & set(modules)


def test_command_and_module_are_of_one_version():
    assert tool("--version").stdout == f"crossdock {crossdock.__version__}\n"
    import importlib.metadata
    assert importlib.metadata.version("crossdock") == crossdock.__version__
    assert all("extra ==" in wanted for wanted in importlib.metadata.requires("crossdock") or [])


def test_everything_public_is_explained_and_typed():
    for name in crossdock.__all__:
        assert pydoc.getdoc(getattr(crossdock, name)), name
    folder = os.path.dirname(crossdock.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed"))
    with open(os.path.join(folder, "_core.pyi")) as file:
        stub = {node.name for node in ast.parse(file.read()).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    from crossdock import _core
    assert {name for name in dir(_core) if not name.startswith("_")} == {name for name in stub if not name.startswith("_")}


def _usage(folder, demo):
    crossdock.convert(demo / "hf", folder / "out", to="megatron", tp=3)


def _corrupt(folder, demo):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    crossdock.inspect(folder)


def _incomplete(folder, demo):
    crossdock.inspect(folder / "nothing")


def _unsafe(folder, demo):
    (folder / "config.json").write_bytes((demo / "hf" / "config.json").read_bytes())
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    crossdock.inspect(folder)


def _unsupported(folder, demo):
    crossdock.inspect("s3://bucket/model")


def _io(folder, demo):
    (folder / "out").write_text("a file where a directory would be")
    crossdock.convert(demo / "hf", folder / "out" / "below", to="megatron")


def _no_space(folder, demo):
    # Files of zeros that take no room, and more of them than the disk has.
    layer = 2 * (2 * 8192 * 8192 + 2 * 4096 * 8192 + 3 * 28672 * 8192)
    models.write_llama(folder / "hf", layers=int(shutil.disk_usage(folder).free * 1.25) // layer + 8, hidden=8192, ffn=28672)
    crossdock.convert(folder / "hf", folder / "out", to="hf")


CASES = [
    (_usage, crossdock.UsageError, "usage"), (_corrupt, crossdock.CorruptError, "corrupt"),
    (_incomplete, crossdock.IncompleteError, "incomplete"), (_unsafe, crossdock.UnsafeError, "unsafe"),
    (_unsupported, crossdock.UnsupportedError, "unsupported"), (_io, crossdock.IoError, "io"), (_no_space, crossdock.NoSpaceError, "no_space"),
]


@pytest.mark.parametrize("cause, cls, code", CASES, ids=[case[2] for case in CASES])
def test_every_code_is_an_exception_of_its_own(cause, cls, code, tmp_path, demo):
    with pytest.raises(crossdock.Error) as caught:
        cause(tmp_path, demo)
    error = caught.value
    assert type(error) is cls and error.code == code
    assert error.message and str(error).startswith(error.message)
    if error.hint:
        assert f"hint: {error.hint}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and again.__dict__ == error.__dict__ and str(again) == str(error)


def test_errors_say_what_the_command_line_says(demo, tmp_path):
    for words, call in [
        (["convert", demo / "hf", tmp_path / "o", "--to", "megatron", "--tp", "3"],
         lambda: crossdock.convert(demo / "hf", tmp_path / "o", to="megatron", tp=3)),
        (["verify", demo / "hf", tmp_path / "none"], lambda: crossdock.verify(demo / "hf", tmp_path / "none")),
        (["families", "qwen33"], lambda: crossdock.families("qwen33")),
    ]:
        with pytest.raises(crossdock.Error) as caught:
            call()
        assert tool(*words).stderr == f"error: {caught.value}\n"


def test_unknown_options_name_the_nearest(demo, tmp_path):
    with pytest.raises(crossdock.UsageError, match="`convert` takes no `tpp`\nhint: did you mean `tp`?"):
        crossdock.convert(demo / "hf", tmp_path / "o", to="megatron", tpp=2)
    with pytest.raises(crossdock.UsageError, match="`inspect` takes no `tp`"):
        crossdock.inspect(demo / "hf", tp=2)
    for word in ("json", "quiet", "verbose"):
        with pytest.raises(crossdock.UsageError, match=f"takes no `{word}`"):
            crossdock.inspect(demo / "hf", **{word: True})
    with pytest.raises(crossdock.UsageError, match="needs `--to FORMAT`"):
        crossdock.convert(demo / "hf", tmp_path / "o")


def test_variables_of_the_environment_set_nothing(demo, monkeypatch):
    monkeypatch.setenv("CROSSDOCK_TP", "3")
    assert "tp" not in str(crossdock.plan(demo / "hf", demo / "no", to="megatron").json.get("layout", ""))


def test_progress_comes_in_the_calling_thread(demo, tmp_path):
    events, threads, notices = [], set(), []

    def progress(phase, done, total, current):
        threads.add(threading.get_ident())
        events.append((phase, done, total, current))

    crossdock.convert(demo / "full-state", tmp_path / "m", to="megatron", progress=progress, notice=notices.append)
    assert threads == {threading.get_ident()}
    assert events and all(isinstance(e[0], str) and 0 <= e[1] <= max(e[1], e[2]) for e in events)
    assert max(e[2] for e in events) > 0
    with pytest.raises(crossdock.UsageError, match="callable"):
        crossdock.inspect(demo / "hf", progress=3)


def test_an_exception_in_progress_stops_and_is_raised(large, tmp_path):
    class Enough(Exception):
        pass

    def progress(phase, done, total, current):
        if done > 0:
            raise Enough(phase)

    with pytest.raises(Enough):
        crossdock.convert(large, tmp_path / "m", to="megatron", progress=progress, threads=1)
    assert not visible(tmp_path / "m")


def test_other_threads_go_on(large, tmp_path):
    """Four threads of Python count while the engine works; with the GIL held none would."""
    ticks, running = [0], [True]

    def count():
        while running[0]:
            ticks[0] += 1
            time.sleep(0.001)

    class Enough(Exception):
        pass

    seen = []

    def progress(phase, done, total, current):
        seen.append(ticks[0])
        if len(seen) > 3 and seen[-1] > seen[0] + 20:
            raise Enough

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with pytest.raises(Enough):
            crossdock.convert(large, tmp_path / "m", to="megatron", progress=progress, threads=1)
    finally:
        running[0] = False
        thread.join()


INTERRUPTED = """
import signal, sys, crossdock
signal.signal(signal.SIGINT, signal.default_int_handler)   # what a shell starts in the background ignores it
def progress(phase, done, total, current):
    if done > 0:
        print("working", flush=True)
try:
    crossdock.convert(sys.argv[1], sys.argv[2], to="megatron", progress=progress, threads=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(42)
"""


def test_ctrl_c_stops_and_what_was_done_can_be_resumed(large, tmp_path):
    child = alone(INTERRUPTED, large, tmp_path / "m")
    assert child.stdout.readline() == "working\n"
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 42 and output.endswith("interrupted\n"), output + errors
    assert time.monotonic() - start < 60
    assert not visible(tmp_path / "m")


def test_what_was_stopped_can_be_gone_on_with(demo, tmp_path):
    class Enough(Exception):
        pass

    def progress(phase, done, total, current):
        if phase == "syncing":
            raise Enough

    with pytest.raises(Enough):
        crossdock.convert(demo / "full-state", tmp_path / "m", to="megatron", progress=progress)
    crossdock.convert(demo / "full-state", tmp_path / "m", to="megatron", resume=True)
    assert crossdock.verify(demo / "full-state", tmp_path / "m").equal


def test_signatures_show_what_must_be_given():
    assert list(inspect.signature(crossdock.convert).parameters)[:3] == ["source", "target", "to"]
    assert subprocess.run([sys.executable, "-m", "pydoc", "crossdock"], capture_output=True, check=True).stdout
