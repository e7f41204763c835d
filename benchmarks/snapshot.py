#!/usr/bin/env python3
"""How long a save in the background keeps the loop waiting, and what memory it takes: `Exporter(mode="snapshot")` of one rank.

    PYTHONPATH=SITE python benchmarks/snapshot.py [--gib 1] [--saves 5] [--threads 2] [--dtype keep|fp8] [--dir DIR]

needs the installed package (scripts/python_wheel.sh) and nothing else. A Llama of the given size is made, without weights on the disk; its tensors
are held in memory; each save is begun when the one before has ended. Prints, of each save, the seconds that `save` took, those of one plain copy of
the same bytes between touched memory (the quickest of three, just before), and their ratio: the loop is to wait no longer than 1.2 copies. Then
the peak of the process's memory above what it held before the first save: to stay below the tensors' bytes, of the snapshot, plus `memory`.
"""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "limits"))

import crossdock
import models
from crossdock.roundtrip import memory_for

MEMORY = 64 << 20


def peak_and_now():
    """Bytes of memory of this process: the most so far, and now."""
    fields = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) << 10 for name in ("VmHWM", "VmRSS"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("keep", "fp8"), default="keep")
    parser.add_argument("--dir")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.dir))
    try:
        models.write_llama(folder / "hf", layers=max(1, round(args.gib * (1 << 30) / 95e6)))
        tensors, held = memory_for(crossdock.load_plan(folder / "hf").tensors)
        size = len(held)
        held.write(b"\x3f\x3c" * (size // 2))   # numbers, and every page touched
        exporter = crossdock.Exporter(folder / "out", folder / "hf", dtype=args.dtype, mode="snapshot", overwrite=True, threads=args.threads, memory=MEMORY)
        other = mmap.mmap(-1, size)
        to, source = (ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in (other, held))
        ctypes.memset(to, 0, size)
        pathlib.Path("/proc/self/clear_refs").write_text("5")   # the peak begins anew
        _, before = peak_and_now()
        exporter.validate()
        rows = []
        for step in range(args.saves):
            copy = []
            for _ in range(3):
                begin = time.perf_counter()
                ctypes.memmove(to, source, size)
                copy.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            job = exporter.save(step, tensors)
            blocked = time.perf_counter() - begin
            job.wait()
            rows.append({"blocked_seconds": round(blocked, 4), "copy_seconds": round(min(copy), 4), "ratio": round(blocked / min(copy), 3)})
            print(json.dumps(rows[-1]), flush=True)
        peak, _ = peak_and_now()
        print(json.dumps({"bytes": size, "median_ratio": statistics.median(row["ratio"] for row in rows), "peak_above": peak - before, "allowed": size + MEMORY}))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
