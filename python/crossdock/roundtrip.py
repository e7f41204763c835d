# SPDX-License-Identifier: Apache-2.0
"""Loads a Hugging Face directory into the ranks of a layout, as a trainer would, and saves it back without a step; then compares.

    torchrun --nproc-per-node 4 -m crossdock.roundtrip HF_DIR --tp 2 --pp 2
    python -m crossdock.roundtrip HF_DIR --tp 2 --pp 2          starts the ranks itself

Each rank holds its own part only, in plain memory: neither torch nor Megatron-Core is needed. The ranks are found from torchrun (RANK, WORLD_SIZE), Slurm
or Open MPI; they meet in a directory beside the output, which all of them must see. Rank 0 writes `roundtrip_comparison.json` (docs/reference/cli.md) into
`--out`, where the saved directory stays as `hf` with `--keep`. Exit status of rank 0: 0 equal, 1 different, else as of `crossdock`; the other ranks end
with 0 once all have saved, and do not wait for the comparison. Layers of multi-token prediction are not held by the ranks but copied from HF_DIR, which is
said; a model with a vision tower is refused.
`--profile FILE` writes where the time went: for each rank the seconds of planning, making memory, reading, agreeing and saving.
"""

import argparse
import contextlib
import json
import math
import mmap
import os
import shutil
import subprocess
import sys
import time
import types

from . import Error, UsageError, _commands
from ._exporter import Exporter
from ._layout import Layout
from ._live import load_plan
from .comm import FileComm

# Bytes of an element, and what Python's memoryview calls an integer of that size.
_INTEGERS = {8: "Q", 4: "I", 2: "H", 1: "B"}
_SIZES = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}  # others: 1

_STATUS = {"usage": 2, "io": 4, "no_space": 4, "cancelled": 5}   # of `crossdock`; what is wrong with the input is 3

_RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


def arguments(words=None):
    parser = argparse.ArgumentParser(prog="python -m crossdock.roundtrip", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("hf_dir", metavar="HF_DIR")
    for name in ("tp", "pp", "vpp", "ep"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("etp", "encoder-tp", "first-stage-layers", "last-stage-layers"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--pipeline-layers", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--pipeline-layout")
    parser.add_argument("--account-for-embedding", action="store_true")
    parser.add_argument("--account-for-loss", action="store_true")
    parser.add_argument("--out", default="roundtrip", help="directory for the report and the saved directory; default: roundtrip")
    parser.add_argument("--report", help="default: roundtrip_comparison.json in --out")
    parser.add_argument("--exact", choices=("bit", "close"), default="bit")
    parser.add_argument("--keep", action="store_true", help="leave what was saved, as `hf` in --out")
    parser.add_argument("--profile", metavar="FILE")
    parser.add_argument("--family")
    parser.add_argument("--memory", default="512MiB", help="bytes of buffers of a rank, beside its tensors")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that a rank waits for the slowest")
    return parser.parse_args(words)


def layout_of(args):
    return Layout(args.tp, args.pp, args.ep, args.etp, encoder_tp=args.encoder_tp, vpp=args.vpp, pipeline_layers=args.pipeline_layers,
                  first_stage_layers=args.first_stage_layers, last_stage_layers=args.last_stage_layers, pipeline_layout=args.pipeline_layout,
                  account_for_embedding=args.account_for_embedding, account_for_loss=args.account_for_loss)  # fmt: skip


def fewest_ranks(layout):
    """The ranks on which a layout is whole: a stage has as many as hold its dense tensors and its experts."""
    return layout.pp * math.lcm(layout.tp, layout.ep * (layout.etp or layout.tp))


def place_in_world(environment=os.environ):
    """(rank, ranks) as a launcher tells them; None without a launcher."""
    for rank, size in _RANKS:
        if rank in environment and size in environment:
            return int(environment[rank]), int(environment[size])
    return None


class Clock:
    """Seconds of each phase of a rank."""

    def __init__(self):
        self.phases, self._last = {}, time.perf_counter()

    def note(self, phase):
        now = time.perf_counter()
        self.phases[phase] = round(now - self._last, 6)
        self._last = now


def memory_for(tensors):
    """Name -> (memory, dtype) for TensorInfos, in one piece; the second value keeps it."""
    starts, total = {}, 0
    for name, info in tensors.items():
        starts[name] = total
        total += -(-math.prod(info.shape) * _SIZES.get(info.dtype, 1) // 64) * 64
    held = mmap.mmap(-1, max(total, 1))
    made = {}
    for name, info in tensors.items():
        item = _SIZES.get(info.dtype, 1)
        view = memoryview(held)[starts[name] : starts[name] + math.prod(info.shape) * item]
        made[name] = (view.cast(_INTEGERS[item], shape=list(info.shape)), info.dtype)
    return made, held


def predicts(args):
    """Whether the directory stores layers of multi-token prediction: the same on all ranks, whichever of them would hold the layers."""
    names = load_plan(args.hf_dir, family=args.family).tensors
    return any(name.startswith("mtp.") or ".mtp." in name for name in names)


def run_rank(args, rank, size):
    """One rank's part. Returns the exit status: that of the comparison on rank 0, 0 on the others when all have saved."""
    layout, clock = layout_of(args), Clock()
    if size < fewest_ranks(layout):
        raise UsageError(f"the layout needs {fewest_ranks(layout)} ranks, and there are {size}", message="too few ranks", expected=str(fewest_ranks(layout)), found=str(size))
    meeting = os.path.join(args.out, ".ranks")
    comm = FileComm(meeting, rank, size, timeout_sec=args.timeout)
    layout.world_size = size
    try:
        copied = predicts(args)
        plan = load_plan(args.hf_dir, layout, rank, family=args.family, mtp="drop" if copied else "keep")
        clock.note("plan")
        tensors, held = memory_for(plan.tensors)
        clock.note("memory")
        read = plan.read_into(tensors, threads=args.threads, memory=args.memory)
        clock.note("read")
        failed = ""
    except (Error, OSError, MemoryError) as error:
        failed = f"{_status(error)} rank {rank}: {_words(error)}"
    # All ranks read before any saves: one that could not must not leave the others waiting for its part.
    others = [text.decode() for text in comm.allgather_bytes(failed.encode())]
    if any(others):
        status, text = next(text for text in others if text).split(" ", 1)
        if rank == 0:
            print(f"error: {text}", file=sys.stderr)
        return int(status)
    target = os.path.join(args.out, "hf")
    exporter = Exporter(target, args.hf_dir, layout, rank, comm=comm, overwrite=True, memory=args.memory, threads=args.threads, family=args.family,
                        mtp="template" if copied else "keep")  # fmt: skip
    exporter.validate()
    clock.note("agree")
    exporter.save(0, tensors).wait()
    clock.note("save")
    profiles = comm.allgather_bytes(json.dumps({"rank": rank, "bytes": sum(view.nbytes for view, _ in tensors.values()), "bytes_read": read.bytes_read,
                                                "seconds": clock.phases}).encode())  # fmt: skip
    if rank:
        return 0
    if copied:
        print("layers of multi-token prediction were copied from the directory, not through the ranks", file=sys.stderr)
    return compare(args, target, profiles)


def compare(args, target, profiles):
    """Rank 0: the report, the profile, and what is left behind. Returns the exit status."""
    start = time.perf_counter()
    report = os.path.join(args.out, "roundtrip_comparison.json") if args.report is None else args.report
    result = _commands.verify(args.hf_dir, target, exact=args.exact, report=report, memory=args.memory)
    if args.profile:
        with open(args.profile, "w") as file:
            json.dump({"ranks": [json.loads(one) for one in profiles], "verify_seconds": round(time.perf_counter() - start, 6)}, file, indent=2)
            file.write("\n")
    for line in result.remarks:
        print(line, file=sys.stderr)
    print(result.text, end="" if result.text.endswith("\n") else "\n")
    if not args.keep:
        shutil.rmtree(target)
    return 0 if result.equal else 1


def _status(error):
    return _STATUS.get(error.code, 3) if isinstance(error, Error) else _STATUS["io"]


def _words(error):
    return str(error) or type(error).__name__


def start_ranks(args, words):
    """Without a launcher: a process a rank, on this machine. Returns the exit status of the first that failed."""
    size = fewest_ranks(layout_of(args))
    if size == 1:
        return run_rank(args, 0, 1)
    processes = [subprocess.Popen([sys.executable, "-m", "crossdock.roundtrip", *words], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size)})
                 for rank in range(size)]  # fmt: skip
    try:
        statuses = [process.wait() for process in processes]
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    return next((status for status in statuses if status != 0), 0)


def main(words=None):
    words = sys.argv[1:] if words is None else words
    args = arguments(words)
    place = place_in_world()
    try:
        os.makedirs(args.out, exist_ok=True)
        if place is None:
            return start_ranks(args, words)
        return run_rank(args, *place)
    except (Error, OSError, MemoryError) as error:
        print(f"error: {_words(error)}", file=sys.stderr)
        return _status(error)
    finally:
        if place is None:   # else another rank may still look into it; what is left there harms no later run
            shutil.rmtree(os.path.join(args.out, ".ranks"), ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(args.out)   # only what holds nothing


class _Module(types.ModuleType):
    """`crossdock.roundtrip` is a command as a function too; once this module is imported it has to be both."""

    def __call__(self, *args, **options):
        return _commands.roundtrip(*args, **options)


if __name__ == "__main__":
    sys.exit(main())
sys.modules[__name__].__class__ = _Module
