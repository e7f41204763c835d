#!/usr/bin/env python3
"""Real SIGKILLs at random moments: afterwards the target is absent, old or new, and --resume ends at the same bytes.

Needs only Python and CROSSDOCK. CROSSDOCK_KILLS sets how many (default 200). The seed is printed.
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


def convert(source, target, *options):
    command = [PROGRAM, "convert", source, target, "--to", "megatron", "--tp", "2", "--pp", "2", "--memory", "64MiB",
               "--quiet", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(child):
    output, _ = child.communicate()
    return child.returncode, output.decode(errors="replace")


def complete(root):
    return os.path.exists(os.path.join(root, "latest_checkpointed_iteration.txt"))


def visible(root):
    return sorted(n for n in os.listdir(root) if not n.startswith(".")) if os.path.isdir(root) else []


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
        self.digests, self.seconds = [], 0.0
        for source in self.sources:
            target = source + "-whole"
            start = time.monotonic()
            status, output = finish(convert(source, target))
            self.seconds = max(self.seconds, time.monotonic() - start)
            if status != 0:
                sys.exit(f"the run without a kill failed:\n{output}")
            self.digests.append(digest(target))
            shutil.rmtree(target)

    def check(self, number, what, good):
        if good:
            return True
        self.failed += 1
        print(f"FAILED  kill {number}: {what}")
        return False

    def once(self, number, rng):
        """A run over nothing, or with --force over an old checkpoint, killed at a random moment, then resumed."""
        target = os.path.join(self.folder, "target")
        shutil.rmtree(target, ignore_errors=True)
        replace = rng.random() < 0.5
        if replace:
            status, output = finish(convert(self.sources[0], target))
            if not self.check(number, f"the old checkpoint could not be made: {output}", status == 0):
                return
        source = self.sources[1]
        force = ["--force"] if replace else []
        child = convert(source, target, *force)
        time.sleep(rng.random() * self.seconds * 1.1)
        child.send_signal(signal.SIGKILL)
        finish(child)

        found = digest_or_none(target)
        allowed = [self.digests[1]] + ([self.digests[0]] if replace else [None])
        if not self.check(number, f"the target is neither absent, old nor new: {visible(target)}", found in allowed):
            return
        if found != self.digests[1]:
            status, output = finish(convert(source, target, "--resume", *force))
            if not self.check(number, f"--resume failed with {status}: {output}", status == 0):
                return
            self.resumed += 1
            if not self.check(number, "--resume ended at other bytes", digest_or_none(target) == self.digests[1]):
                return
        else:
            # Killed while it cleaned up: the target is complete, and the next command takes away what is left.
            status, output = finish(convert(source, target))
            if not self.check(number, f"an existing target was not refused ({status}): {output}", status == 2):
                return
        left = [n for n in os.listdir(target) if n.startswith(".")]
        if self.check(number, f"left behind: {left}", not left):
            self.passed += 1


def digest_or_none(root):
    """The digest of what a consumer would see at `root`: nothing without a tracker; dot names are ours."""
    if not complete(root):
        return None if not visible(root) else visible_without_tracker(root)
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


def visible_without_tracker(root):
    """Between the rename of the step and the tracker's there is a whole step that nothing points to yet: that is still
    the old state for a consumer, when the step is complete."""
    steps = visible(root)
    whole = all(os.path.exists(os.path.join(root, s, "metadata.json")) for s in steps)
    return None if whole else "torn"


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
            loop.once(number, rng)
        print(f"{loop.resumed} runs were resumed")
        print(f"{loop.passed} passed, {loop.failed} failed, 0 skipped")
        return 1 if loop.failed else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
