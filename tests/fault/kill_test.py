#!/usr/bin/env python3
"""Real SIGKILLs at random moments: afterwards the target is absent, old or new, and --resume ends at the same bytes.

Needs only Python and CROSSDOCK. CROSSDOCK_KILLS sets how many (default 200): every second one of a run into torch_dist, the others
into every other format in turn. The seed is printed.
"""
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "limits"))
import models  # noqa: E402

PROGRAM = os.environ.get("CROSSDOCK", "")
KILLS = int(os.environ.get("CROSSDOCK_KILLS", "200"))
LAYOUT = ["--tp", "2", "--pp", "2"]


def digest(folder):
    """One digest over names and bytes of everything in a checkpoint."""
    total = hashlib.sha256()
    for directory, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            total.update(os.path.relpath(path, folder).encode())
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def visible(root):
    """What a consumer sees; names with a dot are ours."""
    return sorted(n for n in os.listdir(root) if not n.startswith(".")) if os.path.isdir(root) else []


class Road:
    """One target format. `steps` where steps and what points to them lie below the target: it is then built up in place; else the
    whole directory appears at once. `pointer` is the file that is written last, `whole` the one that a complete step holds."""

    def __init__(self, name, options, pointer=None, whole=None):
        self.name, self.options, self.pointer, self.whole = name, options, pointer, whole
        self.digests, self.seconds = [], 0.0

    @property
    def steps(self):
        return self.whole is not None

    def digest_or_none(self, root):
        """The digest of what a consumer would see at `root`, None where that is nothing."""
        if not self.steps:
            return digest(root) if os.path.isdir(root) else None
        names = visible(root)
        if self.pointer is not None and self.pointer not in names:
            # Between the rename of the step and the pointer's there is a whole step that nothing points to yet: that is still the
            # old state for a consumer, when the step is complete.
            return None if all(os.path.exists(os.path.join(root, n, self.whole)) for n in names) else "torn"
        if not names:
            return None
        hidden = [n for n in os.listdir(root) if n.startswith(".")]
        kept = tempfile.mkdtemp(dir=os.path.dirname(root))
        try:
            for name in hidden:
                os.rename(os.path.join(root, name), os.path.join(kept, name))
            return digest(root)
        finally:
            for name in hidden:
                os.rename(os.path.join(kept, name), os.path.join(root, name))
            os.rmdir(kept)

    def left_behind(self, root):
        """Names of ours in the target, or beside it where it is put in place as a whole."""
        return [n for place in (root, os.path.dirname(root)) for n in os.listdir(place) if ".crossdock-" in n]


TORCH_DIST = Road("megatron", LAYOUT, "latest_checkpointed_iteration.txt", "metadata.json")
OTHERS = [
    Road("megatron-legacy", LAYOUT, "latest_checkpointed_iteration.txt", "mp_rank_00_000"),
    Road("hf", ["--max-shard-size", "8MB", "--dtype", "fp32"]),
    Road("hf", ["--fp8", "block"]),
    Road("full-state", []),
    Road("dcp", []),
    Road("maxtext", [], whole="_CHECKPOINT_METADATA"),
    Road("maxtext", ["--compression", "none"], whole="_CHECKPOINT_METADATA"),
]


def convert(road, source, target, *options):
    command = [PROGRAM, "convert", source, target, "--to", road.name, *road.options, "--memory", "64MiB", "--quiet", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(child):
    output, _ = child.communicate()
    return child.returncode, output.decode(errors="replace")


class Loop:
    def __init__(self, folder):
        self.folder = folder
        self.passed = self.failed = 0
        self.resumed = 0
        self.sources = []
        for name, layers in (("one", 6), ("two", 4)):
            path = os.path.join(folder, name)
            models.write_llama(path, layers=layers, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=8000, random=True)
            self.sources.append(path)

    def measure(self, road):
        """What whole runs write, and how long they take: once for every road."""
        for source in self.sources:
            target = source + "-whole"
            start = time.monotonic()
            status, output = finish(convert(road, source, target))
            road.seconds = max(road.seconds, time.monotonic() - start)
            if status != 0:
                sys.exit(f"the run without a kill failed:\n{output}")
            road.digests.append(road.digest_or_none(target))
            shutil.rmtree(target)

    def check(self, number, road, what, good):
        if good:
            return True
        self.failed += 1
        print(f"FAILED  kill {number}, to {road.name} {' '.join(road.options)}: {what}")
        return False

    def once(self, number, road, rng):
        """A run over nothing, or with --force over an old checkpoint, killed at a random moment, then resumed."""
        if not road.digests:
            self.measure(road)
        target = os.path.join(self.folder, "target")
        shutil.rmtree(target, ignore_errors=True)
        replace = rng.random() < 0.5
        if replace:
            status, output = finish(convert(road, self.sources[0], target))
            if not self.check(number, road, f"the old checkpoint could not be made: {output}", status == 0):
                return
        source = self.sources[1]
        force = ["--force"] if replace else []
        child = convert(road, source, target, *force)
        time.sleep(rng.random() * road.seconds * 1.1)
        child.send_signal(signal.SIGKILL)
        finish(child)

        old, new = road.digests
        found = road.digest_or_none(target)
        if not self.check(number, road, f"the target is neither absent, old nor new: {visible(target)}", found in (new, old if replace else None)):
            return
        if found != new:
            status, output = finish(convert(road, source, target, "--resume", *force))
            if not self.check(number, road, f"--resume failed with {status}: {output}", status == 0):
                return
            self.resumed += 1
            if not self.check(number, road, "--resume ended at other bytes", road.digest_or_none(target) == new):
                return
        else:
            # Killed while it cleaned up: the target is complete, and the next command takes away what is left.
            status, output = finish(convert(road, source, target))
            if not self.check(number, road, f"an existing target was not refused ({status}): {output}", status == 2):
                return
        left = road.left_behind(target)
        if self.check(number, road, f"left behind: {left}", not left):
            self.passed += 1


def main():
    if not PROGRAM:
        sys.exit("error: CROSSDOCK must name the program under test")
    seed = int(os.environ.get("CROSSDOCK_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}, {KILLS} kills")
    rng = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="crossdock-kill-")
    try:
        loop = Loop(folder)
        for number in range(KILLS):
            loop.once(number, TORCH_DIST if number % 2 == 0 else OTHERS[number // 2 % len(OTHERS)], rng)
        print(f"{loop.resumed} runs were resumed")
        print(f"{loop.passed} passed, {loop.failed} failed, 0 skipped")
        return 1 if loop.failed else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
