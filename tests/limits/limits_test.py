#!/usr/bin/env python3
"""What does not flicker: bytes read and written, system calls, peak memory. Clocks are for benchmarks/.

Needs only Python and CROSSDOCK, the program under test. The inputs are sparse files: reading holes costs no disk.
"""
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import dcp_metadata  # noqa: E402
import models  # noqa: E402
import process  # noqa: E402
import runner  # noqa: E402

MIB = 1 << 20
PROGRAM = runner.PROGRAM
ROADS = [("hf-megatron", ["--to", "megatron", "--tp", "2", "--pp", "2"]), ("hf-full-state", ["--to", "full-state"])]
# One thread: how far a second one fills its buffer in a short run is a matter of luck.
RUN = ["--threads", "1", "--memory"]


def output_bytes(folder):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="crossdock-limits-")
        cls.small = os.path.join(cls.folder, "small")
        cls.large = os.path.join(cls.folder, "large")
        cls.small_bytes = models.write_llama(cls.small, layers=8)
        cls.large_bytes = models.write_llama(cls.large, layers=32)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    @functools.cache
    def measured(cls, road, source, budget):
        """(usage, size of the output) of a road under a budget of MiB; run once, however many tests ask."""
        options = dict(ROADS)[road]
        return cls.convert(getattr(cls, source), [*options, *RUN, f"{budget}MiB"], f"{road}-{source}-{budget}")

    @classmethod
    def convert(cls, source, options, name, prefix=()):
        target = os.path.join(cls.folder, name)
        usage = process.run([*prefix, PROGRAM, "convert", source, target, *options, "--quiet"])
        if usage.status != 0:
            raise AssertionError(usage.output)
        size = output_bytes(target)
        shutil.rmtree(target)
        return usage, size

    def test_bytes_read_and_written_are_those_of_the_data(self):
        for road, _ in ROADS:
            with self.subTest(road=road):
                usage, size = self.measured(road, "large", 512)
                self.assertLessEqual(usage.write_chars, 1.02 * size, "bytes written against the size of the output")
                self.assertLessEqual(usage.read_chars, 1.02 * self.large_bytes + 8 * MIB, "bytes read")

    def test_the_way_back_reads_once_too(self):
        megatron = os.path.join(self.folder, "megatron-source")
        self.addCleanup(shutil.rmtree, megatron, True)
        first = process.run([PROGRAM, "convert", self.small, megatron, "--to", "megatron", "--tp", "4", "--quiet"])
        self.assertEqual(first.status, 0, first.output)
        usage, size = self.convert(megatron, ["--to", "hf"], "back")
        self.assertLessEqual(usage.write_chars, 1.02 * size)
        self.assertLessEqual(usage.read_chars, 1.02 * self.small_bytes + 8 * MIB)

    def test_system_calls_grow_with_bytes_not_with_rows(self):
        usage, _ = self.convert(self.small, ["--to", "megatron", "--tp", "8"], "calls")
        # A call a row of a column cut would be a hundred thousand; a call a MiB and a few a tensor are enough.
        tensors = 8 * 9 + 3
        budget = 2 * self.small_bytes // MIB + 40 * 8 * tensors
        self.assertLessEqual(usage.read_calls + usage.write_calls, budget)

    def test_memory_keeps_to_its_budget_and_does_not_grow_with_depth(self):
        for road, _ in ROADS:
            for budget in (64, 512):
                with self.subTest(road=road, memory=budget):
                    small, large = (self.measured(road, source, budget)[0] for source in ("small", "large"))
                    self.assertLessEqual(small.max_rss, (budget + 256) * MIB)
                    self.assertLessEqual(large.max_rss, (budget + 256) * MIB)
                    # Four times the depth may cost five per cent. What grows are the tables, here by 0.4 to 1.0 MiB (a small
                    # budget cuts more tasks); where the buffers are but a few MiB that is more than five per cent of all.
                    self.assertLessEqual(large.anonymous_peak, max(1.05 * small.anonymous_peak, small.anonymous_peak + 1.5 * MIB))

    def test_a_hard_limit_with_page_cache_holds(self):
        group = make_memory_group(1024 * MIB)
        if group is None:
            self.skipTest("no memory cgroup can be made here (needs root and a writable cgroup file system)")
        self.addCleanup(remove_memory_group, group)
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        self.convert(self.large, ["--to", "megatron", "--tp", "2", "--memory", "256MiB"], "cgroup", prefix=enter)


class ManyTensors(unittest.TestCase):
    def test_a_hundred_thousand_small_tensors_cost_a_few_calls_each_and_few_descriptors(self):
        folder = tempfile.mkdtemp(prefix="crossdock-limits-")
        self.addCleanup(shutil.rmtree, folder)
        source, layers = os.path.join(folder, "hf"), 11_111
        models.write_llama(source, layers, hidden=16, ffn=24, heads=4, kv_heads=2, vocab=50, shard_bytes=60_000)
        self.assertGreater(len(os.listdir(source)), 700)
        few = ["sh", "-c", 'ulimit -n 320; exec "$@"', "sh"]
        usage = process.run([*few, PROGRAM, "convert", source, os.path.join(folder, "out"), "--to", "full-state", "--quiet"])
        self.assertEqual(usage.status, 0, usage.output[-2000:])
        tensors = 9 * layers + 3
        self.assertLessEqual(usage.read_calls + usage.write_calls, 3 * tensors)
        # Entries, expressions, chunks and tasks of a tensor together, names included: 2.5 KiB when this was written.
        self.assertLessEqual(usage.anonymous_peak, 3 * 1024 * tensors)


class SystemCopies(unittest.TestCase):
    """What is only moved is copied by copy_file_range where the file system is one that gains by it: on file systems in files, for root."""

    def copied(self, kind, make):
        folder = tempfile.mkdtemp(prefix="crossdock-limits-")
        self.addCleanup(shutil.rmtree, folder)
        image, root = os.path.join(folder, "image"), os.path.join(folder, "root")
        os.mkdir(root)
        with open(image, "wb") as file:
            file.truncate(512 * MIB)
        for command in ([*make, image], ["mount", "-o", "loop", image, root]):
            try:
                done = subprocess.run(command, check=False, capture_output=True, text=True)
            except FileNotFoundError:
                self.skipTest(f"no {command[0]} here: copies inside {kind} were NOT tested")
            if done.returncode != 0:
                self.skipTest(f"copies inside {kind} were NOT tested: {' '.join(command)}: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", root], check=True)
        source, target = os.path.join(root, "hf"), os.path.join(root, "out")
        tensor_bytes = models.write_llama(source, layers=1, vocab=4000)
        plain = os.path.join(folder, "out")
        usage = process.run([PROGRAM, "convert", source, target, "--to", "full-state", "--quiet"])
        self.assertEqual(usage.status, 0, usage.output)
        # From one file system to another it is not copied so: the kernel refuses, and the bytes must be the same.
        across = process.run([PROGRAM, "convert", source, plain, "--to", "full-state", "--quiet"])
        self.assertEqual(across.status, 0, across.output)
        for name in os.listdir(plain):
            self.assertEqual(subprocess.run(["cmp", os.path.join(plain, name), os.path.join(target, name)], check=False).returncode, 0, name)
        # Reading and writing takes a call of each kind for every MiB, a copy one for 8.
        self.assertGreater(across.write_calls, tensor_bytes // MIB)
        for calls in ("read_calls", "write_calls"):
            self.assertLess(getattr(usage, calls), getattr(across, calls) - tensor_bytes // MIB // 2, calls)
        self.assertGreaterEqual(usage.write_chars, tensor_bytes)

    def test_xfs_copies_what_is_only_moved(self):
        self.copied("XFS", ["mkfs.xfs", "-q", "-f"])

    def test_btrfs_copies_what_is_only_moved(self):
        self.copied("Btrfs", ["mkfs.btrfs", "-q", "-f"])


class Planning(unittest.TestCase):
    def test_a_model_of_671_billion_parameters_is_planned_from_its_description_alone(self):
        with tempfile.TemporaryDirectory(prefix="crossdock-planning-") as folder:
            source = os.path.join(folder, "deepseek-v3")
            tensors = models.describe_deepseek_v3(source)
            usage = process.run([PROGRAM, "plan", source, os.path.join(folder, "target"), "--to", "megatron", "--tp", "8", "--pp", "4", "--ep", "8",
                                 "--etp", "1", "--pipeline-layers", "15,15,15,16", "--json"])
            self.assertEqual(usage.status, 0, usage.output)
            self.assertIn(f'"tensors_read": {tensors}', usage.output)
            self.assertLessEqual(usage.max_rss, 1024 * MIB)
            self.assertEqual(os.listdir(folder), ["deepseek-v3"])
            refused = process.run([PROGRAM, "convert", source, os.path.join(folder, "target"), "--to", "megatron"])
            self.assertEqual(refused.status, 3, refused.output)   # only a plan can do without the weights


class Metadata(unittest.TestCase):
    def test_a_million_chunks_are_read_within_half_a_gibibyte(self):
        folder = tempfile.mkdtemp(prefix="crossdock-limits-")
        self.addCleanup(shutil.rmtree, folder)
        step = os.path.join(folder, "iter_0000001")
        dcp_metadata.write(step, tensors=10_000, chunks=100)
        # The model is nobody's, which `inspect` tells (status 3) behind what it found.
        usage = process.run([PROGRAM, "inspect", step, "--json"])
        self.assertEqual(usage.status, 3, usage.output[-2000:])
        self.assertIn('"keys": [', usage.output)
        self.assertEqual(usage.output.count(".some_projection.weight"), 10_000)
        self.assertLess(usage.max_rss, 512 * MIB)


def make_memory_group(limit):
    """A cgroup (v2, else v1) whose memory, page cache included, is bounded; None where that cannot be done."""
    name = f"crossdock-test-{os.getpid()}"
    for root, file in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        path = os.path.join(root, name)
        try:
            if file == "memory.max":
                with open(os.path.join(root, "cgroup.subtree_control"), "w") as control:
                    control.write("+memory")
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, file), "w") as out:
                out.write(str(limit))
            probe = subprocess.run(["sh", "-c", f"echo $$ > {path}/cgroup.procs"], check=False, capture_output=True)
            if probe.returncode == 0:
                return path
        except OSError:
            pass
        os.rmdir(path)
    return None


def remove_memory_group(path):
    try:
        os.rmdir(path)
    except OSError:
        pass


if __name__ == "__main__":
    runner.main()
