"""Online save from Python: ranks as threads and as processes that meet in a directory; hooks that work, raise and hang. What real models do
stands in tests/oracle/test_live_save.py."""
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import crossdock
from crossdock.comm import FileComm
from conftest import visible


def tensors_of(reference, layout, rank):
    """What a rank of the run holds: its part of the reference, in memory of its own."""
    plan = crossdock.load_plan(reference, layout, rank)
    held = {name: numpy.zeros(info.shape, numpy.uint16 if info.dtype == "BF16" else numpy.float32) for name, info in plan.tensors.items()}
    given = {name: (array, plan.tensors[name].dtype) for name, array in held.items()}
    plan.read_into(given, threads=1)
    return given


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


def as_ranks(count, body):
    """Runs body(rank) in a thread each; the first exception is raised."""
    failed = []

    def run(rank):
        try:
            body(rank)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.fixture(scope="module")
def run(demo, tmp_path_factory):
    """(reference, layout, tensors of each rank, the run's checkpoint as a legacy tree) of four ranks."""
    folder = tmp_path_factory.mktemp("run")
    layout = crossdock.Layout(tp=2, pp=2)
    crossdock.convert(demo / "hf", folder / "tree", to="megatron-legacy", tp=2, pp=2)
    return demo / "hf", layout, [tensors_of(demo / "hf", layout, rank) for rank in range(4)], folder / "tree"


@pytest.mark.parametrize("dtype,fp8,words", [
    ("keep", None, {}),
    ("fp32", None, {"dtype": "fp32"}),
    ("fp8", {"strategy": "block", "block": (16, 24), "scale_fmt": "ue8m0"}, {"fp8": "block", "fp8_block_size": (16, 24), "scale_fmt": "ue8m0"}),
    ("fp8", {"strategy": "channel"}, {"fp8": "channel"}),
    ("fp8", {"strategy": "tensor"}, {"fp8": "tensor"}),
], ids=lambda value: str(value) if isinstance(value, str) else "")
def test_ranks_write_what_convert_writes(run, tmp_path, dtype, fp8, words):
    reference, layout, held, run_tree = run
    crossdock.convert(run_tree, tmp_path / "offline", to="hf", hf_template=reference, **words)
    jobs = {}

    def save(rank):
        exporter = crossdock.Exporter(tmp_path / "online" / "{rollout_id:03d}", reference, layout, rank, dtype=dtype, fp8=fp8, threads=1,
                                      comm=FileComm(tmp_path / "meet", rank, 4, timeout_sec=60), mode="snapshot" if rank % 2 == 0 and dtype == "keep" else "sync")
        exporter.validate()
        assert exporter.tensors.keys() == held[rank].keys()
        jobs[rank] = exporter.save(5, held[rank], final=True)
        report = jobs[rank].result()
        assert report.path == str(tmp_path / "online" / "005") and report.step == 5 and jobs[rank].done()

    as_ranks(4, save)
    assert tree(tmp_path / "online" / "005") == tree(tmp_path / "offline")
    assert os.listdir(tmp_path / "online") == ["005"]
    reports = [job.result() for job in jobs.values()]
    assert sum(report.own_bytes for report in reports) == reports[0].bytes


def test_one_rank_needs_no_connection_and_the_default_place_is_replaced(demo, tmp_path):
    held = tensors_of(demo / "hf", crossdock.Layout(), 0)
    exporter = crossdock.Exporter(None, demo / "hf", save=tmp_path / "run", threads=1)
    for step in (1, 2):
        report = exporter.save(step, iter(held.items())).result()
        assert report.path == str(tmp_path / "run" / "release_hf_weights")
    assert os.listdir(tmp_path / "run") == ["release_hf_weights"]
    exporter.flush()
    second = crossdock.Exporter(tmp_path / "hf", demo / "hf", threads=1)
    assert second.save(3, held).result().path == str(tmp_path / "hf" / "iter_0000003")


HOOKS = """
import time
calls = []
def good(args, hf_path, rollout_id, *, dtype, is_lora):
    calls.append((args, hf_path, rollout_id, dtype, is_lora))
def bad(args, hf_path, rollout_id, **more):
    calls.append("bad")
    raise ValueError("the hub is down")
def slow(args, hf_path, rollout_id, **more):
    time.sleep(6)
def flush(timeout_sec=1800.0):
    calls.append(("flush", timeout_sec))
def held(args, hf_path, rollout_id, **more):
    args.wait(120)
    calls.append(rollout_id)
def leaves(args, hf_path, rollout_id, **more):
    calls.append("leaves")
    raise SystemExit(3)
"""


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "my_hooks.py").write_text(HOOKS)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, "my_hooks", raising=False)
    import my_hooks
    return my_hooks


@pytest.mark.parametrize("mode", ["sync", "snapshot"])
def test_hooks_are_told_once_on_rank_0(run, tmp_path, hooks, mode):
    reference, layout, held, _ = run

    def save(rank):
        exporter = crossdock.Exporter(tmp_path / "out" / "{step}", reference, layout, rank, comm=FileComm(tmp_path / "meet", rank, 4, timeout_sec=60), mode=mode,
                                      post_hook="my_hooks.good", args="the arguments", threads=1)
        exporter.save(1, held[rank])
        exporter.save(2, held[rank], final=True)

    as_ranks(4, save)
    told, flushed = hooks.calls[:2], hooks.calls[2:]
    assert told == [("the arguments", str(tmp_path / "out" / str(step)), step, "bf16", False) for step in (1, 2)]
    assert len(flushed) == 1 and flushed[0][0] == "flush" and 1700 < flushed[0][1] <= 1800


def test_hooks_that_raise_or_hang_stop_nothing(demo, tmp_path, hooks, caplog):
    held = tensors_of(demo / "hf", crossdock.Layout(), 0)
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", post_hook="my_hooks.bad", threads=1)
    with caplog.at_level(logging.ERROR, "crossdock"):
        assert exporter.save(1, held, final=True).result().step == 1
    assert hooks.calls[0] == "bad" and hooks.calls[1][0] == "flush"
    assert "the hub is down" in caplog.text
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", post_hook="my_hooks.slow", mode="snapshot", threads=1)
    job = exporter.save(2, held)
    end = time.monotonic() + 60
    while not (tmp_path / "2").exists() and time.monotonic() < end:
        time.sleep(0.02)
    exporter.flush(timeout_sec=0.5)
    assert not job.done()


@pytest.mark.parametrize("words", ["", "timeout_sec=1800.0"])
def test_a_flush_that_hangs_is_left_after_its_time(demo, tmp_path, hooks, caplog, words):
    gate = threading.Event()
    exec(f"def flush({words}):\n    gate.wait(120)", {"gate": gate}, hooks.__dict__)
    held = tensors_of(demo / "hf", crossdock.Layout(), 0)
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", post_hook="my_hooks.good", threads=1)
    exporter.save(1, held)
    begun = time.monotonic()
    with caplog.at_level(logging.ERROR, "crossdock"):
        exporter.flush(timeout_sec=0.5)
    assert time.monotonic() - begun < 30 and "my_hooks.good has not returned" in caplog.text
    gate.set()


def test_a_save_does_not_wait_for_a_hook_that_hangs(demo, tmp_path, hooks):
    held, gate = tensors_of(demo / "hf", crossdock.Layout(), 0), threading.Event()
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", post_hook="my_hooks.held", args=gate, mode="snapshot", threads=1)
    jobs = [exporter.save(step, held) for step in (1, 2, 3)]
    end = time.monotonic() + 60
    while not (tmp_path / "3").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert (tmp_path / "3").exists() and hooks.calls == [] and not jobs[0].done()
    gate.set()
    assert [job.wait(60).step for job in jobs] == [1, 2, 3] and hooks.calls == [1, 2, 3]


def test_an_error_in_the_background_is_told(demo, tmp_path, caplog):
    held = tensors_of(demo / "hf", crossdock.Layout(), 0)

    class Failing:
        rank, size, calls, fails_at = 0, 1, 0, None

        def allgather_bytes(self, data):
            self.calls += 1
            if self.calls == self.fails_at:
                raise RuntimeError("the line \udc00 is cut")   # no UTF-8 either
            return [data]

    comm = Failing()
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", comm=comm, mode="snapshot", threads=1)
    exporter.save(1, held).wait()
    comm.calls = 0
    exporter.save(2, held).wait()
    comm.calls, comm.fails_at = 0, comm.calls   # the last of a save, when all is written
    exporter.save(3, held)
    with caplog.at_level(logging.ERROR, "crossdock"):
        exporter.save(4, held).wait()
        assert caplog.text.count("the save of step 3 failed") == 1 and "RuntimeError: the line " in caplog.text and "udc00 is cut" in caplog.text
        exporter.save(5, held).wait()
        comm.calls = 0
        with pytest.raises(crossdock.IoError):
            exporter.save(6, held).wait()
        exporter.save(7, held).wait()
    assert "step 6" not in caplog.text   # whom it is raised at has been told


def test_a_hook_may_stand_in_another_module_and_leave(demo, tmp_path, hooks, caplog):
    (tmp_path / "modules" / "again.py").write_text("from my_hooks import leaves\nflushed = []\ndef flush():\n    flushed.append(1)\n")
    held = tensors_of(demo / "hf", crossdock.Layout(), 0)
    exporter = crossdock.Exporter(tmp_path / "{step}", demo / "hf", post_hook="again.leaves", threads=1)
    with caplog.at_level(logging.ERROR, "crossdock"):
        exporter.save(1, held, final=True)
    import again
    assert hooks.calls == ["leaves"] and again.flushed == [1]
    assert "the hook again.leaves failed" in caplog.text


def test_only_the_first_rank_imports_the_hook(demo, tmp_path):
    class Second:
        rank, size = 1, 2

    options = dict(comm=Second(), post_hook="no_such_module.fn")
    assert crossdock.Exporter(tmp_path / "{step}", demo / "hf", crossdock.Layout(tp=2), 1, **options)


LEAVES = textwrap.dedent("""
    import sys, time, crossdock, crossdock._exporter
    crossdock._exporter._HOOK_AT_EXIT = 0.5
    sys.path[:0] = sys.argv[1:3]
    from test_save import tensors_of
    exporter = crossdock.Exporter(sys.argv[4], sys.argv[3], post_hook=sys.argv[5], mode="snapshot", threads=1)
    exporter.save(1, tensors_of(sys.argv[3], crossdock.Layout(), 0))
""")


@pytest.mark.parametrize("hook,says", [("ends.quick", ["told", "flushed"]), ("ends.never", [])])
def test_the_end_of_the_program_waits_for_the_save_and_flushes(demo, tmp_path, hook, says):
    (tmp_path / "ends.py").write_text(textwrap.dedent("""
        import threading
        def quick(*words, **more):
            print("told", flush=True)
        def never(*words, **more):
            threading.Event().wait()
        def flush():
            print("flushed", flush=True)
    """))
    words = [str(pathlib.Path(__file__).parent), str(tmp_path), str(demo / "hf"), str(tmp_path / "out" / "{step}"), hook]
    done = subprocess.run([sys.executable, "-c", LEAVES, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and done.stdout.split() == says, done.stdout + done.stderr
    assert (tmp_path / "out" / "1" / "config.json").exists()
    assert ("has not returned" in done.stderr) == (hook == "ends.never")


def test_a_forked_child_ends_without_the_jobs_of_its_parent(demo, tmp_path):
    code = textwrap.dedent("""
        import os, sys, crossdock, crossdock._exporter
        exporter = crossdock.Exporter(sys.argv[2], sys.argv[1])
        crossdock._exporter.Exporter._leave = lambda self: print("left", flush=True)
        if os.fork() == 0:
            sys.exit(0)
        print("child", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    """)
    done = subprocess.run([sys.executable, "-c", code, demo / "hf", tmp_path / "{step}"], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["child 0", "left"], done.stdout + done.stderr


def test_what_is_mistyped_is_told_at_the_start(demo, tmp_path):
    def made(dst=tmp_path / "{step}", reference=demo / "hf", **options):
        return crossdock.Exporter(dst, reference, **options)

    for options, words in (
        ({"post_hook": "no_such_module.fn"}, "cannot be imported"), ({"post_hook": "os.no_such_function"}, "cannot be imported"), ({"post_hook": "fn"}, "dotted path"),
        ({"post_hook": "os.sep"}, "no function"), ({"dst": tmp_path / "{epoch}"}, "field"), ({"dtype": "int4"}, "int4"), ({"fp8": {}}, "FP8"),
        ({"dtype": "fp8", "fp8": {"strategy": "row"}}, "row"), ({"dtype": "fp8", "fp8": {"size": 1}}, "no such option"), ({"mode": "later"}, "snapshot"),
        ({"dtype": "fp8", "fp8": {"block": (0, 128)}}, "positive"), ({"on_error": "ignore"}, "raise"), ({"reference": None}, "reference"), ({"dst": None}, "dst"), ({"rank": 1}, "rank 1"),
    ):  # fmt: skip
        with pytest.raises(crossdock.UsageError, match=words):
            made(**options)
    with pytest.raises(crossdock.IncompleteError):
        made(reference=tmp_path).validate()
    with pytest.raises(crossdock.UsageError, match="block size"):
        made(dtype="fp8", fp8={"strategy": "channel", "block": (8, 8)}).validate()
    with pytest.raises(crossdock.UsageError, match="callable"):
        made().save(1, {}, progress=3)
    missing = made()
    with pytest.raises(crossdock.UsageError, match="missing: "):
        missing.save(1, {})
    assert not (tmp_path / "1").exists()


def test_a_rank_that_raises_ends_the_save_for_all_and_nothing_else(run, tmp_path, caplog):
    reference, layout, held, _ = run
    def half(rank):
        for count, item in enumerate(held[rank].items()):
            if count == 3:
                raise ZeroDivisionError("in the loop")
            yield item

    def save(rank):
        exporter = crossdock.Exporter(tmp_path / "out" / "{step}", reference, layout, rank, comm=FileComm(tmp_path / "meet", rank, 4, timeout_sec=60), on_error="raise" if rank < 3 else "log", threads=1)
        exporter.save(1, held[rank])
        if rank == 2:
            with pytest.raises(ZeroDivisionError):
                exporter.save(2, half(rank))
        elif rank == 3:
            job = exporter.save(2, held[rank])
            assert "in the loop" in str(job.error)
            with pytest.raises(crossdock.CancelledError):
                job.wait()
        else:
            with pytest.raises(crossdock.CancelledError, match="ZeroDivisionError: in the loop"):
                exporter.save(2, held[rank])
        exporter.save(3, held[rank])

    with caplog.at_level(logging.ERROR, "crossdock"):
        as_ranks(4, save)
    assert sorted(os.listdir(tmp_path / "out")) == ["1", "3"]
    assert tree(tmp_path / "out" / "1") == tree(tmp_path / "out" / "3")
    assert "in the loop" in caplog.text


KILLED = textwrap.dedent("""
    import os, signal, sys
    import numpy, crossdock
    from crossdock.comm import FileComm
    sys.path.insert(0, sys.argv[1])
    from test_save import tensors_of
    reference, out, meet, seconds, rank, dies_at = *sys.argv[2:6], int(sys.argv[6]), int(sys.argv[7])
    layout = crossdock.Layout(tp=2)
    class Comm(FileComm):
        calls = 0
        def __init__(self, *words, **more):
            super().__init__(*words, **more)
            self._inner, self._core = self._core, self     # called through Python, so that it can be killed in between
        def allgather_bytes(self, data):
            Comm.calls += 1
            if Comm.calls == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return self._inner.allgather_bytes(bytes(data))
    exporter = crossdock.Exporter(out, reference, layout, rank, overwrite=True, comm=Comm(meet, rank, 2, timeout_sec=float(seconds)), threads=1)
    try:
        exporter.save(1, tensors_of(reference, layout, rank))
        print("saved")
    except crossdock.IoError as error:
        print("lost", error)
""")


def test_a_killed_rank_leaves_the_old_directory_and_the_next_save_clears_up(demo, tmp_path):
    def start(root, dies_at, seconds):
        words = [str(pathlib.Path(__file__).parent), str(demo / "hf"), str(root / "out" / "hf"), str(root / "meet"), str(seconds)]
        return [subprocess.Popen([sys.executable, "-c", KILLED, *words, str(rank), str(at)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for rank, at in enumerate(dies_at)]

    def end(processes):
        return [process.communicate(timeout=240) + (process.returncode,) for process in processes]

    # Before it said that it had written; that it was there; rank 0 itself, with everything written. Side by side: each waits its time out.
    roots = [tmp_path / name for name in ("written", "there", "first")]
    for ranks in [start(root, (0, 0), 120) for root in roots]:
        assert [out.strip() for out, _, _ in end(ranks)] == ["saved", "saved"]
    before = [tree(root / "out") for root in roots]
    assert all("hf/config.json" in files for files in before)
    cases = (((0, 7), 0), ((0, 5), 0), ((7, 0), 1))
    for root, (_, survivor), ranks, files in zip(roots, cases, [start(root, dies_at, 30) for root, (dies_at, _) in zip(roots, cases)], before):
        results = end(ranks)
        assert results[1 - survivor][2] == -signal.SIGKILL
        assert "did not come" in results[survivor][0], results
        assert {name: data for name, data in tree(root / "out").items() if not name.startswith(".")} == files
    for root, files, ranks in zip(roots, before, [start(root, (0, 0), 120) for root in roots]):
        assert [out.strip() for out, _, _ in end(ranks)] == ["saved", "saved"]
        assert tree(root / "out") == files


WAITS = textwrap.dedent("""
    import sys, time, crossdock
    from crossdock.comm import FileComm
    sys.path.insert(0, sys.argv[1])
    from test_save import tensors_of
    reference, out, meet, mode, behave = sys.argv[2:7]
    layout, rank = crossdock.Layout(tp=2), int(behave == "comes late")
    exporter = crossdock.Exporter(out, reference, layout, rank, overwrite=True, comm=FileComm(meet, rank, 2, timeout_sec=300), threads=1, mode=mode)
    held = tensors_of(reference, layout, rank)
    exporter.save(1, held).wait()
    if rank == 1:
        print("saved", flush=True)
        sys.stdin.readline()
    print("waits", flush=True)
    try:
        exporter.save(2, held).wait()
    except crossdock.IoError as error:
        print("told", error)
""")


@pytest.mark.parametrize("mode", ["sync", "snapshot"])
def test_ctrl_c_ends_the_waiting_for_a_stalled_rank(demo, tmp_path, mode):
    """Long before the time-out, and that other rank is told when it comes."""
    words = [str(pathlib.Path(__file__).parent), str(demo / "hf"), str(tmp_path / "out" / "hf"), str(tmp_path / "meet"), mode]
    waiting, stalled = (subprocess.Popen([sys.executable, "-c", WAITS, *words, behave], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True) for behave in ("waits", "comes late"))
    assert stalled.stdout.readline() == "saved\n" and waiting.stdout.readline() == "waits\n"
    before = tree(tmp_path / "out")
    stalled.send_signal(signal.SIGSTOP)
    time.sleep(1)
    begun = time.monotonic()
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=60)
    assert time.monotonic() - begun < 20 and waiting.returncode == -signal.SIGINT, said
    assert "KeyboardInterrupt" in said and "nanobind" not in said
    stalled.send_signal(signal.SIGCONT)
    told, said = stalled.communicate("\n", timeout=60)
    assert "rank 0 was interrupted" in told, told + said
    assert tree(tmp_path / "out") == before and visible(tmp_path / "out") == ["hf"]


def test_a_snapshot_takes_the_bytes_of_the_tensors_and_no_more_than_memory_beside_them():
    """What benchmarks/snapshot.py measures of the memory, also where values are quantized; its clocks are of the machine and gate nothing."""
    program = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "snapshot.py"
    for dtype in ("keep", "fp8"):
        done = subprocess.run([sys.executable, program, "--gib", "0.1", "--saves", "2", "--dtype", dtype], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["bytes"] <= last["peak_above"] <= last["allowed"], last


def test_connections_may_be_anybodys(demo, tmp_path):
    class Mine:
        rank, size = 0, 1
        called = 0

        def allgather_bytes(self, data):
            assert isinstance(data, bytes)
            Mine.called += 1
            return [data]

    held = tensors_of(demo / "hf", crossdock.Layout(), 0)
    crossdock.Exporter(tmp_path / "{step}", demo / "hf", comm=Mine(), threads=1).save(1, held)
    assert Mine.called >= 5

    class Broken(Mine):
        def allgather_bytes(self, data):
            raise RuntimeError("connection reset")

    with pytest.raises(crossdock.IoError, match="RuntimeError: connection reset"):
        crossdock.Exporter(tmp_path / "{step}", demo / "hf", comm=Broken(), threads=1).save(2, held)
    assert json.loads((tmp_path / "1" / "config.json").read_text())["model_type"] == "qwen3" and not (tmp_path / "2").exists()


def test_a_run_saves_itself_with_its_optimizer(run, tmp_path):
    """Ranks without torch hand over moments that two copies of the model divide; what resumes from the iteration reads back what they held."""
    reference, _, _, _ = run
    layout = crossdock.Layout(tp=2, world_size=4)
    held = [tensors_of(reference, layout, rank) for rank in range(4)]
    common = crossdock_common(reference, tmp_path)
    rng = numpy.random.default_rng(7)
    whole = [{f"optimizer.{state}.{name}": rng.standard_normal(array.size).astype(numpy.float32) for name, (array, _) in held[rank].items() for state in ("param", "exp_avg", "exp_avg_sq")}
             for rank in range(2)]

    def part(rank):
        """Ranks 0 and 2 are copies of each other, and divide what rank 0 of the tensor ranks has; a copy's norms are those of the other rank."""
        out = {}
        for name, array in whole[rank % 2].items():
            array = whole[0][name] if "norm" in name else array
            middle = array.size // 2
            begin, end = (0, middle) if rank < 2 else (middle, array.size)
            out[f"{name}[{begin}:{end}]"] = array[begin:end].copy()
        return out

    def save(rank):
        mine = part(rank)
        saver = crossdock.Checkpointer(tmp_path / "run", reference, layout, rank, optimizer="distributed", states=mine, threads=1,
                                       comm=FileComm(tmp_path / "meet", rank, 4, timeout_sec=60), mode="snapshot")
        saver.validate()
        assert saver.tensors.keys() == held[rank].keys() | mine.keys()
        with pytest.raises(crossdock.UsageError, match="common state"):
            saver.save(5, {**held[rank], **mine}, final=True)
        saver.save(5, {**held[rank], **mine}, common=common if rank == 0 else b"", final=True)

    as_ranks(4, save)
    assert (tmp_path / "run" / "latest_checkpointed_iteration.txt").read_text() == "5"
    found = crossdock.inspect(tmp_path / "run", tensors=True).json["tensors"]
    assert sum(one["name"].startswith("optimizer.state.") for one in found) == 3 * sum(not one["name"].startswith("optimizer.") for one in found)
    crossdock.convert(tmp_path / "run", tmp_path / "legacy", to="megatron-legacy", tp=2)
    crossdock.convert(tmp_path / "run", tmp_path / "hf", to="hf", no_optim=True)
    assert crossdock.verify(tmp_path / "hf", reference).equal
    with pytest.raises(crossdock.IncompleteError, match="no rank holds a part"):
        crossdock.Checkpointer(tmp_path / "run", reference, crossdock.Layout(), 0, optimizer="distributed", states=["optimizer.exp_avg.decoder.final_layernorm.weight[0:2]"]).validate()
    with pytest.raises(crossdock.UsageError, match="without `optimizer`"):
        crossdock.Checkpointer(tmp_path / "run", reference, states=["optimizer.exp_avg.x"])
    with pytest.raises(crossdock.UsageError, match="adamw"):
        crossdock.Checkpointer(tmp_path / "run", reference, optimizer="adamw")


def crossdock_common(reference, folder):
    """The bytes of a common.pt of step 5, without torch: those of a conversion of the full state that lies beside the reference."""
    crossdock.convert(reference.parent / "full-state", folder / "other", to="megatron", iteration=5)
    return (folder / "other" / "iter_0000005" / "common.pt").read_bytes()
