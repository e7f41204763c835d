#!/usr/bin/env python3
"""Cases from users' daily life about how the work is done, resumed and stopped, and which source is taken: each test carries
the number of its case.

Needs only Python and CROSSDOCK, the program under test. Cases that need the real libraries are in tests/oracle."""
import hashlib
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, PROGRAM, main  # noqa: E402
import models  # noqa: E402
import moe_checkpoint  # noqa: E402

TRACKER = "latest_checkpointed_iteration.txt"


class Work(Case):
    def test_b101_memory_is_bounded_and_told(self):
        # 2 GiB, largest tensor 64 MiB; sparse but for a page in each MiB.
        total = models.write_llama(self.path("hf"), layers=15, hidden=4096, ffn=8192, heads=32, kv_heads=8, vocab=8192)
        self.assertGreater(total, 2 << 30)
        for file in os.listdir(self.path("hf")):
            if file.endswith(".safetensors"):
                mark_pages(self.path("hf", file))
        plan = self.json("plan", "hf", "bounded", "--to", "full-state", "--memory", "512MiB")
        self.assertLessEqual(plan["expected_peak_memory"], (512 + 256) << 20)
        summary = self.json("convert", "hf", "bounded", "--to", "full-state", "--memory", "512MiB")
        self.assertLessEqual(summary["peak_anonymous"], (512 + 256) << 20)
        digests = digests_of(self.path("bounded"))
        shutil.rmtree(self.path("bounded"))
        self.run_tool("convert", "hf", "free", "--to", "full-state", "--memory", "8GiB", "--threads", 3)
        self.assertEqual(digests_of(self.path("free")), digests)

    def test_b105_a_machine_without_anything(self):
        items = self.model()
        needed = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False).stdout
        for library in ("python", "torch", "cuda", "nccl"):
            self.assertNotIn(library, needed)
        start = time.monotonic()
        done = subprocess.run([PROGRAM, "--help"], env={}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertLess(time.monotonic() - start, 5)   # "at once", on a machine that does other things too
        alone = ["unshare", "--net"] if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0 else []
        done = subprocess.run([*alone, PROGRAM, "convert", "hf", "out", "--to", "hf"], cwd=self.root, env={"PATH": "/usr/bin:/bin"}, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.same("out", items)

    def test_b112_files_keep_to_the_umask(self):
        self.model()
        for mask, file_mode, dir_mode in ((0o022, 0o644, 0o755), (0o027, 0o640, 0o750)):
            for to in ("hf", "full-state", "megatron"):
                target = f"{to}-{mask:o}"
                self.run_tool("convert", "hf", target, "--to", to, umask=mask)
                for folder, _, files in os.walk(self.path(target)):
                    self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), dir_mode, folder)
                    for file in files:
                        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, file)).st_mode), file_mode, file)

    def test_b114_space_is_checked_before_the_start(self):
        self.model()
        os.makedirs(self.path("small"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", self.path("small")], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no small file system can be mounted here (needs root)")
        self.addCleanup(subprocess.run, ["umount", self.path("small")], check=False)
        self.refused("small/out", "convert", "hf", "small/out", "--to", "full-state", expect=4, says=["not enough space", "bytes free"])
        self.assertEqual(os.listdir(self.path("small")), [])

    def test_b114_a_file_system_that_others_fill_on_the_way(self):
        models.write_llama(self.path("hf"), layers=2)
        os.makedirs(self.path("small"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", self.path("small")], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no small file system can be mounted here (needs root)")
        self.addCleanup(subprocess.run, ["umount", self.path("small")], check=False)
        words = ["convert", "hf", "small/out", "--to", "hf", "--max-shard-size", "5MB"]
        for _ in range(20):   # until it is met between its first file and its last
            child = subprocess.Popen([PROGRAM, *words, "--quiet"], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            while child.poll() is None and not any(n.endswith(".safetensors") for _, _, files in os.walk(self.path("small")) for n in files):
                pass
            child.send_signal(signal.SIGSTOP)
            with open(self.path("small", "others"), "wb", buffering=0) as file:
                try:
                    while file.write(bytes(1 << 16)):
                        pass
                except OSError:   # full
                    pass
            child.send_signal(signal.SIGCONT)
            said, _ = child.communicate()
            if child.returncode != 0:
                break
            os.remove(self.path("small", "others"))
            shutil.rmtree(self.path("small", "out"))
        self.assertEqual(child.returncode, 4, said)
        self.assertIn("No space left", said)
        self.assertEqual(os.listdir(self.path("small")), ["others"], "something of the run stayed")
        os.remove(self.path("small", "others"))
        self.run_tool(*words)
        self.run_tool("verify", "hf", "small/out")

    def test_b114_space_that_runs_out_on_the_way(self):
        self.model()
        self.run_tool("convert", "hf", "out", "--to", "full-state")
        before = digests_of(self.path("out"))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        message = self.text("convert", "hf", "out", "--to", "full-state", "--force", expect=4, preexec_fn=limit)
        self.assertIn("model", message)
        self.assertNotIn("--resume", message)   # nothing was left to go on with
        self.assertEqual(digests_of(self.path("out")), before)
        self.assertEqual(sorted(os.listdir(self.root)), ["hf", "out"], "the staging directory stayed")
        self.run_tool("convert", "hf", "out", "--to", "full-state", "--force")
        self.assertEqual(digests_of(self.path("out")), before)


class Targets(Case):
    TARGETS = (["megatron", "--tp", 2, "--pp", 2], ["megatron-legacy", "--tp", 2, "--pp", 2], ["dcp", "--set", "lr=0.1", "--set", "weight_decay=0.1"], ["full-state"], ["hf"])

    def test_the_same_bytes_whatever_threads_and_memory(self):
        self.run_tool("demo", "demo")
        for to in self.TARGETS:
            seen = []
            for threads, memory in ((1, "1MiB"), (3, "64MiB"), (8, "512MiB")):
                self.run_tool("convert", "demo/full-state", "out", "--to", *to, "--threads", threads, "--memory", memory)
                seen.append(digests_of(self.path("out")))
                shutil.rmtree(self.path("out"))
            self.assertGreater(len(seen[0]), 1)
            self.assertTrue(seen[0] == seen[1] == seen[2], to[0])

    def test_two_runs_into_one_target_do_not_mix(self):
        models.write_llama(self.path("big"), layers=16)
        self.run_tool("convert", "big", "alone", "--to", "megatron", "--tp", 2)
        command = [PROGRAM, "convert", "big", "out", "--to", "megatron", "--tp", "2", "--quiet"]
        first = subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(first.kill)
        deadline = time.monotonic() + 60
        while not os.path.isdir(self.path("out")) or not any(name.endswith("-partial") for name in os.listdir(self.path("out"))):
            self.assertIsNone(first.poll(), "it ended before it was stopped")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        first.send_signal(signal.SIGSTOP)     # in the middle of its work, for as long as the others take
        for more in (["--tp", 2], ["--tp", 2, "--force"], ["--tp", 2, "--resume"], ["--tp", 4]):
            done = self.run_tool("convert", "big", "out", "--to", "megatron", *more, expect=4)
            self.assertIn("another process is writing to this target", done.stderr)
        first.send_signal(signal.SIGCONT)
        self.assertEqual((first.wait(timeout=120), first.stderr.read()), (0, ""))
        self.assertEqual(digests_of(self.path("out")), digests_of(self.path("alone")))


def mark_pages(path):
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        for number, at in enumerate(range(1 << 20, size - 8192, 1 << 20)):
            file.seek(at)
            file.write(bytes([0x10 + number % 64, 0x3F]) * 2048)


def digests_of(folder):
    out = {}
    for directory, _, files in os.walk(folder):
        for name in files:
            digest = hashlib.sha256()
            with open(os.path.join(directory, name), "rb") as file:
                while piece := file.read(1 << 22):
                    digest.update(piece)
            out[os.path.relpath(os.path.join(directory, name), folder)] = digest.hexdigest()
    return out


class Steps(Case):
    def two_steps(self, first, second):
        self.megatron("m", "hf", "--iteration", first)
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--iteration", second)

    def set_tracker(self, text):
        path = self.path("m", TRACKER)
        if text is None:
            os.remove(path)
        else:
            with open(path, "w", encoding="ascii") as out:
                out.write(text)

    def test_b108_an_unfinished_step_is_passed_over(self):
        self.two_steps(10, 20)
        os.remove(self.path("m", "iter_0000020", ".metadata"))
        os.remove(self.path("m", "iter_0000020", "metadata.json"))
        self.set_tracker("10")
        self.assertEqual(self.json("inspect", "m")["step"], 10)
        self.refused("out", "convert", "m", "out", "--to", "hf", "--step", 20, says=["incomplete", "iter_0000020"])
        self.refused("out", "convert", "m/iter_0000020", "out", "--to", "hf", says=["incomplete"])
        self.set_tracker(None)
        report = self.json("inspect", "m")
        self.assertEqual(report["step"], 10)
        self.assertTrue([notice for notice in report["notices"] if "iter_0000010" in notice or "tracker" in notice], report["notices"])

    def test_b109_numbers_are_ordered_as_numbers(self):
        items = self.model("hf", num_hidden_layers=12)
        self.two_steps(500, 2500)
        self.set_tracker(None)
        self.assertEqual(self.json("inspect", "m")["step"], 2500)
        self.run_tool("convert", "hf", "ranks", "--to", "megatron", "--pp", 12, "--release")
        self.run_tool("convert", "ranks", "back", "--to", "hf", "--max-shard-size", 4000)
        self.same("back", items)
        index = checkpoint.read_json(self.path("back"), "model.safetensors.index.json")["weight_map"]
        files = [index[f"model.layers.{layer}.mlp.up_proj.weight"] for layer in range(12)]
        self.assertEqual(files, sorted(files), "layer 10 stands before layer 2")
        self.assertIn("model.layers.{0..11}.", self.text("inspect", "back"))

    def test_b132_root_step_and_option(self):
        self.two_steps(10, 20)
        for words, step in ((["m"], 20), (["m/iter_0000010"], 10), (["m", "--step", "10"], 10), (["m", "--ckpt-step=10"], 10), (["m/"], 20)):
            self.assertEqual(self.json("inspect", *words)["step"], step, words)
            self.assertEqual(self.json("plan", *words, "out", "--to", "hf")["source"]["step"], step, words)
        self.refused(None, "inspect", "m", "--step", "15", says=["iter_0000010", "iter_0000020", "--step"])
        self.refused(None, "inspect", ".", says=["`hf`", "`m`"])
        self.refused("out", "convert", ".", "out", "--to", "hf", says=["`hf`", "`m`"])


class Sources(Case):
    def hub_cache(self):
        """cache/models--org--d: blobs, and a snapshot of links to them."""
        items = self.model("plain")
        repo = self.path("cache", "models--org--d")
        snapshot = os.path.join(repo, "snapshots", "abc")
        os.makedirs(snapshot)
        os.makedirs(os.path.join(repo, "blobs"))
        os.makedirs(os.path.join(repo, "refs"))
        with open(os.path.join(repo, "refs", "main"), "w", encoding="ascii") as out:
            out.write("abc")
        for number, name in enumerate(sorted(os.listdir(self.path("plain")))):
            os.rename(self.path("plain", name), os.path.join(repo, "blobs", str(number)))
            os.symlink(os.path.join("..", "..", "blobs", str(number)), os.path.join(snapshot, name))
        return items, repo, snapshot

    def test_b115_a_hub_cache_with_links(self):
        items, repo, snapshot = self.hub_cache()
        before = digests_of(repo)
        for number, source in enumerate((repo, snapshot)):
            self.run_tool("convert", source, f"out{number}", "--to", "hf")
            self.same(f"out{number}", items)
            for name in os.listdir(self.path(f"out{number}")):
                self.assertTrue(stat.S_ISREG(os.lstat(self.path(f"out{number}", name)).st_mode), name)
        self.assertEqual(digests_of(repo), before)
        # A target that is a link is never written through.
        os.symlink(repo, self.path("link"))
        self.run_tool("convert", snapshot, "link", "--to", "hf", expect=2)
        self.assertEqual(digests_of(repo), before)
        weights = os.path.join(snapshot, "model.safetensors")
        os.remove(os.path.join(snapshot, os.readlink(weights)))
        self.refused("out", "convert", repo, "out", "--to", "hf", says=["model.safetensors", os.readlink(weights)])

    def test_b120_duplicate_keys(self):
        items = self.model()
        body = checkpoint.header_of({"model.norm.weight": items["model.norm.weight"]})
        twice = body[:-1] + b"," + body[body.index(b'"model.norm'):]
        self.write_raw("hf", twice)
        self.refused("out", "convert", "hf", "out", "--to", "hf", says=["duplicate key `model.norm.weight`", "model.safetensors"])
        checkpoint.write(self.path("sharded"), shards=2)
        index = self.path("sharded", "model.safetensors.index.json")
        with open(index, encoding="utf-8") as file:
            text = file.read()
        with open(index, "w", encoding="utf-8") as out:
            out.write(text.replace('"weight_map": {', '"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors",'))
        self.refused("out", "convert", "sharded", "out", "--to", "hf", says=["duplicate key `lm_head.weight`", "index.json"])

    def write_raw(self, folder, header):
        with open(self.path(folder, "model.safetensors"), "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header + bytes(32))

    def test_b122_truncated_and_empty_shards(self):
        items = checkpoint.write(self.path("hf"), shards=2)
        path = self.path("hf", "model-00002-of-00002.safetensors")
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            data = size - 8 - int.from_bytes(file.read(8), "little")
        os.truncate(path, size - 10)
        last = list(items)[-1]
        self.refused("out", "convert", "hf", "out", "--to", "full-state",
                     says=["model-00002-of-00002.safetensors", f"expected {data} bytes of data", f"found {data - 10} bytes", last])
        os.truncate(path, 0)
        self.refused("out", "convert", "hf", "out", "--to", "full-state", says=["model-00002-of-00002.safetensors", "0 bytes"])

    def test_b134_look_alikes(self):
        items = self.model()
        self.run_tool("convert", "hf", "state", "--to", "full-state")
        self.megatron()
        shutil.copytree(self.path("hf"), self.path("iter_0000007"))   # a name that lies
        for path, kind in (("hf", "hf"), ("state", "full-state"), ("m", "megatron"), ("iter_0000007", "hf")):
            self.assertEqual(self.json("inspect", path)["format"], kind)
            wrong = "megatron" if kind != "megatron" else "hf"
            self.refused("out", "convert", path, "out", "--to", "hf", "--from", wrong, expect=2, says=[f"`{wrong}`", f"`{kind}`"])
        self.assertIn("(full-state", self.text("convert", "state", "out", "--to", "hf"))
        self.same("out", items)


class Planning(Case):
    """A plan needs config.json and the index; what it says is what it says with the weights there."""

    def plans_alike(self, *words):
        with_weights = self.json("plan", "hf", "out", *words)
        for file in os.listdir(self.path("hf")):
            if file.endswith(".safetensors"):
                os.remove(self.path("hf", file))
        without = self.json("plan", "hf", "out", *words)
        self.assertIn("the weight files are not there", " ".join(without["notices"]))
        self.assertEqual(without["files"], with_weights["files"])
        self.assertEqual(without["slots"], with_weights["slots"])
        self.assertEqual(os.listdir(self.root), ["hf"])
        self.refused("out", "convert", "hf", "out", *words, says=["weight files of the index are missing"])

    def test_before_the_weights_are_there(self):
        checkpoint.write(self.path("hf"), checkpoint.config(), shards=3)
        self.plans_alike("--to", "megatron", "--tp", 2, "--pp", 2)

    def test_before_weights_in_fp8_are_there(self):
        config = checkpoint.config(quantization_config={"quant_method": "fp8", "weight_block_size": [5, 7]})
        items = {}
        for name, (dtype, shape, data) in checkpoint.tensors(config).items():
            items[name] = (dtype, shape, data)
            if "_proj" in name:
                blocks = [-(-shape[0] // 5), -(-shape[1] // 7)]
                items[name] = ("F8_E4M3", shape, bytes(0x38 for _ in range(shape[0] * shape[1])))
                items[name + "_scale_inv"] = ("F32", blocks, struct.pack("<f", 2.0) * (blocks[0] * blocks[1]))
        checkpoint.write(self.path("hf"), config, items, shards=3)
        self.plans_alike("--to", "hf")

    def test_before_copies_beside_a_layer_of_prediction_are_there(self):
        """The index of DeepSeek-V3's release names the embedding and the head once more."""
        config, items = moe_checkpoint.deepseek()
        self.assertTrue(any(name.endswith("shared_head.head.weight") for name in items))
        checkpoint.write(self.path("hf"), config, items, shards=3)
        self.plans_alike("--to", "megatron", "--tp", 2, "--ep", 2)

    def test_before_experts_in_another_spelling_are_there(self):
        config, items = moe_checkpoint.qwen()
        checkpoint.write(self.path("hf"), config, moe_checkpoint.fused(config, items), shards=3)
        self.plans_alike("--to", "megatron", "--ep", 2)

    def test_a_tensor_that_no_rule_names_has_no_shape(self):
        checkpoint.write(self.path("hf"), checkpoint.config(), shards=2)
        index = checkpoint.read_json(self.path("hf", "model.safetensors.index.json"))
        index["weight_map"]["model.layers.0.extra.weight"] = "model-00001-of-00002.safetensors"
        checkpoint.write_json(self.path("hf", "model.safetensors.index.json"), index)
        for file in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
            os.remove(self.path("hf", file))
        self.refused("out", "plan", "hf", "out", "--to", "megatron", says=["no rule of the family says this tensor's shape", "extra.weight", "fetch the weight files"])

    def test_a_download_that_has_begun_is_told_what_it_lacks(self):
        checkpoint.write(self.path("hf"), checkpoint.config(), shards=2)
        os.remove(self.path("hf", "model-00002-of-00002.safetensors"))
        self.refused("out", "plan", "hf", "out", "--to", "megatron", says=["1 of 2 weight files of the index are missing"])


class Signals(Case):
    """What the command line's reference promises of SIGUSR1 and SIGINT, shown on the program itself."""

    def test_a_signal_tells_and_another_stops(self):
        models.write_llama(self.path("big"), layers=16)
        child = subprocess.Popen([PROGRAM, "convert", "big", "out", "--to", "full-state", "--progress", "off"], cwd=self.root,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.kill)
        deadline = time.monotonic() + 60
        while not any(name.endswith("-partial") for name in os.listdir(self.root)):
            self.assertIsNone(child.poll(), "it ended before it was asked anything")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        child.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
        self.assertEqual(child.returncode, 5, said)
        self.assertRegex(said, "^(planning|converting)")      # the answer to SIGUSR1: --progress is off
        self.assertIn("--resume", said)
        self.assertFalse(os.path.lexists(self.path("out")))
        self.run_tool("convert", "big", "out", "--to", "full-state", "--resume")
        self.run_tool("verify", "big", "out")


if __name__ == "__main__":
    main()
