#!/usr/bin/env python3
"""Cases about exports beside a run that trains: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test."""
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from case import Case, PROGRAM, main  # noqa: E402

TRACKER = "latest_checkpointed_iteration.txt"
PATIENCE = 60          # seconds until something that must happen has happened


def digest(folder):
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(root, name)
            total.update(os.path.relpath(path, folder).encode())
            with open(path, "rb") as file:
                total.update(file.read())
    return total.hexdigest()


def runs(pid):
    """Whether a process is there that has not ended, waited for or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Watch(Case):
    def setUp(self):
        super().setUp()
        self.items = self.model()
        self.run_tool("convert", "hf", "steps", "--to", "megatron", "--iteration", 10, "--tp", 2)

    def step(self, number, root="run", tracked=True):
        """A step as the trainer leaves it; its tracker last."""
        name = f"iter_{number:07d}"
        shutil.copytree(self.path("steps", "iter_0000010"), self.path(root, name))
        if tracked:
            self.track(number, root)
        return self.path(root, name)

    def track(self, number, root="run"):
        with open(self.path(root, TRACKER), "w") as file:
            file.write(str(number))

    def watch(self, *words):
        process = subprocess.Popen([PROGRAM, "watch", "run", "out", "--to", "hf", "--interval", "1", *map(str, words)], cwd=self.root,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def until(self, what, process=None):
        end = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), end, "it did not happen")
            self.assertTrue(process is None or process.poll() is None, "the watch has ended")
            time.sleep(0.05)

    def exported(self, number):
        return os.path.exists(self.path("out", f"iter_{number:07d}", "config.json"))

    def test_b124_each_complete_step_once_and_in_order(self):
        self.step(10)
        process = self.watch()
        self.until(lambda: self.exported(10), process)
        first = os.stat(self.path("out", "iter_0000010")).st_ino
        slow = self.step(20, tracked=False)                     # whole, and its save not yet announced
        os.rename(os.path.join(slow, "metadata.json"), self.path("late"))
        self.step(15, tracked=False)
        self.track(15)
        self.until(lambda: self.exported(15), process)
        os.rename(self.path("late"), os.path.join(slow, "metadata.json"))
        time.sleep(2.5)                                         # two looks, and the tracker says 15
        self.assertFalse(self.exported(20))
        self.step(30)
        self.until(lambda: self.exported(30), process)
        self.assertLess(os.stat(self.path("out", "iter_0000020")).st_mtime_ns, os.stat(self.path("out", "iter_0000030")).st_mtime_ns)
        before = digest(self.path("run"))
        process.send_signal(signal.SIGTERM)
        out, talk = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 5, talk)
        self.assertEqual([line.split()[2] for line in talk.splitlines() if line.startswith("note: step")], ["10", "15", "20", "30"])
        for number in (10, 15, 20, 30):
            self.same(os.path.join("out", f"iter_{number:07d}"), self.items)
        self.assertEqual(digest(self.path("run")), before)
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["iter_0000010", "iter_0000015", "iter_0000020", "iter_0000030", TRACKER])
        self.assertEqual(sorted(os.listdir(self.path("out"))), [f"iter_{number:07d}" for number in (10, 15, 20, 30)])
        told = self.json("watch", "run", "out", "--to", "hf", "--once")     # another watch begins where the first one ended
        self.assertEqual((told["exported"], told["failed"]), ([], []))
        self.assertEqual(os.stat(self.path("out", "iter_0000010")).st_ino, first)

    def test_b124_what_is_exported_is_what_convert_writes(self):
        self.step(10)
        for words in ([], ["--fp8", "block"], ["--dtype", "fp32", "--max-shard-size", "200KB"]):
            told = self.json("watch", "run", "out/{rollout_id:04d}", "--once", *words)
            self.assertEqual([(one["step"], one["path"]) for one in told["exported"]], [(10, self.path("out", "0010"))])
            self.run_tool("convert", "run", "single", "--to", "hf", *words)
            self.assertEqual(digest(self.path("out", "0010")), digest(self.path("single")))
            shutil.rmtree(self.path("out"))
            shutil.rmtree(self.path("single"))

    def test_b124_a_killed_export_is_taken_up_again(self):
        for number in (10, 20, 30):
            self.step(number)
        for delay in (0.0, 0.01, 0.02, 0.04):
            process = self.watch("--once")
            time.sleep(delay)
            process.kill()
            process.communicate()
            for name in os.listdir(self.path("out")) if os.path.exists(self.path("out")) else []:
                if not name.startswith("."):
                    self.same(os.path.join("out", name), self.items)        # whole or not there
        self.run_tool("watch", "run", "out", "--once")
        self.assertEqual(sorted(os.listdir(self.path("out"))), [f"iter_{number:07d}" for number in (10, 20, 30)])
        for number in (10, 20, 30):
            self.same(os.path.join("out", f"iter_{number:07d}"), self.items)

    def test_b124_a_bad_step_is_told_and_the_others_are_exported(self):
        os.truncate(os.path.join(self.step(10), ".metadata"), 100)
        self.step(20)
        told = self.json("watch", "run", "out", "--to", "hf", "--once", expect=3)
        self.assertEqual((told["failed"], [one["step"] for one in told["exported"]]), ([10], [20]))
        self.assertIn("iter_0000010", self.text("watch", "run", "out", "--to", "hf", "--once", expect=3))
        self.same("out/iter_0000020", self.items)

    def test_b124_what_cannot_be_watched(self):
        self.step(10)
        self.refused(None, "watch", "run", "run", "--to", "hf", "--once", says=("among the run's own steps",), expect=2)
        self.refused(None, "watch", "run", "run/{step}", "--to", "hf", "--once", says=("among the run's own steps",), expect=2)
        self.refused(None, "watch", "run", "run/iter_{step:07d}/hf", "--once", says=("among the run's own steps",), expect=2)
        self.refused("out", "watch", "run", "out", "--to", "megatron", "--once", says=("--to megatron", "--to hf"))
        self.refused("out", "watch", "nowhere", "out", "--to", "hf", "--once", says=("nowhere",))
        self.refused("out", "watch", "run", "out/{iteration}", "--once", says=("{iteration}", "{step}"), expect=2)
        self.refused("out", "watch", "run", "out", "--once", "--step", 10, says=("--step",), expect=2)
        self.refused("out", "watch", "run", "out", "--once", "--hook-timeout", 3, says=("--hook",), expect=2)
        self.run_tool("convert", "hf", "legacy", "--to", "megatron-legacy", "--iteration", 10)
        os.remove(self.path("legacy", TRACKER))                 # nothing else tells that such a step is complete
        self.assertEqual(self.json("watch", "legacy", "out", "--once")["exported"], [])

    def test_b126_a_command_after_each_export(self):
        self.step(10)
        command = 'test -f "$EXPORT_HF_PATH/config.json" && echo "$EXPORT_STEP $EXPORT_DTYPE $EXPORT_HF_PATH" >> called; cat; echo said; exit 3'
        for numbers in ([10], [20, 30]):
            for number in numbers if numbers != [10] else []:
                self.step(number)
            done = self.run_tool("watch", "run", "out", "--to", "hf", "--once", "--hook-cmd", command)
            self.assertNotIn("said", done.stdout)
            self.assertEqual(done.stderr.count("it ended with status 3"), len(numbers))
        with open(self.path("called")) as file:
            self.assertEqual(file.read().splitlines(), [f"{number} bf16 {self.path('out', f'iter_{number:07d}')}" for number in (10, 20, 30)])
        self.run_tool("watch", "run", "out", "--to", "hf", "--once", "--hook-cmd", "true\necho other >> called")     # another hook has not seen them
        with open(self.path("called")) as file:
            self.assertEqual(file.read().count("other"), 3)

    def test_b126_a_python_function(self):
        self.step(10)
        os.makedirs(self.path("code", "pkg"))
        with open(self.path("code", "pkg", "hooks.py"), "w") as file:
            file.write("import os\n"
                       "def good(args, hf_path, rollout_id, *, dtype, is_lora):\n"
                       "    with open(os.path.join(os.path.dirname(__file__), 'log'), 'a') as log:\n"
                       "        print(args.rollout_id, hf_path, rollout_id, dtype, is_lora, os.path.exists(hf_path + '/config.json'), file=log)\n"
                       "def bad(args, hf_path, rollout_id, *, dtype, is_lora):\n"
                       "    raise ValueError('no such bucket')\n"
                       "def flush(timeout_sec):\n"
                       "    with open(os.path.join(os.path.dirname(__file__), 'log'), 'a') as log:\n"
                       "        print('flush', timeout_sec, file=log)\n"
                       "number = 3\n")
        words = ["watch", "run", "out", "--to", "hf", "--once", "--fp8", "--python", sys.executable]
        os.environ["PYTHONPATH"] = self.path("code")
        self.addCleanup(os.environ.pop, "PYTHONPATH")
        self.run_tool(*words, "--hook", "pkg.hooks.good", "--hook-timeout", 50)
        with open(self.path("code", "pkg", "log")) as file:
            called, flushed = file.read().splitlines()
        self.assertEqual(called, f"10 {self.path('out', 'iter_0000010')} 10 fp8 False True")
        self.assertRegex(flushed, r"^flush [0-9.]+$")
        self.assertLessEqual(float(flushed.split()[1]), 50)         # what the call has left of its time
        talk = self.text(*words, "--hook", "pkg.hooks.bad")
        self.assertIn("ValueError: no such bucket", talk)
        self.assertIn("the hook of step 10 failed", talk)
        shutil.rmtree(self.path("out"))
        for name in ("pkg.hooks.missing", "pkg.nowhere.good", "pkg.hooks.number", "good", "pkg."):
            self.assertIn("\nerror: " if name.startswith("pkg.") and name != "pkg." else "error: ", self.text(*words, "--hook", name, expect=2))     # after what Python says
            self.assertFalse(os.path.exists(self.path("out")))
        self.refused("out", *words, "--hook", "pkg.hooks.good", "--hook-cmd", "true", says=("contradict",), expect=2)

    def test_b126_a_hook_that_hangs_is_ended(self):
        self.step(10)
        start = time.monotonic()
        talk = self.text("watch", "run", "out", "--to", "hf", "--once", "--hook-timeout", 1, "--hook-cmd", "sleep 300 & echo $! > pid; sleep 300")
        self.assertLess(time.monotonic() - start, 100)
        self.assertIn("took longer than 1 s", talk)
        self.same("out/iter_0000010", self.items)
        with open(self.path("pid")) as file:
            pid = int(file.read())
        self.until(lambda: not runs(pid))
        # Ended with the watch a hook does not count as called.
        self.hook("true")
        self.run_tool("watch", "run", "out", "--once", "--hook-cmd", "sh hook")
        self.step(20)
        self.hook("echo begun > begun; sleep 300")
        process = self.watch("--hook-cmd", "sh hook")
        self.until(lambda: os.path.exists(self.path("begun")), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 5)
        self.hook('echo "$EXPORT_STEP again"')
        talk = self.text("watch", "run", "out", "--once", "--hook-cmd", "sh hook")
        self.assertEqual(("10 again" in talk, "20 again" in talk), (False, True))

    def hook(self, script):
        with open(self.path("hook"), "w") as file:
            file.write(script)


if __name__ == "__main__":
    main()
