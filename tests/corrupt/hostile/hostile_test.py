#!/usr/bin/env python3
"""Hostile indexes and torch files: the program's verdict on each, and how it behaves meanwhile.

Needs only Python and CROSSDOCK, the program under test. A file is taken when its conversion gives the good model's
tensors bit for bit; it is refused when the program says so in one error (exit 3) and leaves nothing. Either way within
bounds of time and memory, and nothing that a file says is run."""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "cases"))
import checkpoint  # noqa: E402
import index_cases  # noqa: E402
import torch_cases  # noqa: E402

PROGRAM = os.path.abspath(os.environ["CROSSDOCK"]) if os.environ.get("CROSSDOCK") else ""
CONFIG = checkpoint.config(num_hidden_layers=1)
SECONDS, MEMORY = 60, 2 << 30


class Hostile(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="crossdock-hostile-")
        self.addCleanup(shutil.rmtree, self.root, True)
        self.good = checkpoint.tensors(CONFIG)

    def convert(self, source):
        limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSSDOCK_")}
        return subprocess.run([PROGRAM, "convert", source, "out", "--to", "hf", "--threads", "2", "--quiet"], cwd=self.root, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, preexec_fn=limits)

    def judge(self, wanted, source):
        before = set(os.listdir(self.root))
        done = self.convert(source)
        if wanted:
            self.assertEqual(done.returncode, 0, done.stderr[:2000])
            self.assertEqual(checkpoint.read(os.path.join(self.root, "out")), self.good)
        else:
            self.assertEqual(done.returncode, 3, done.stderr[:2000] + done.stdout[:2000])
            self.assertTrue(done.stderr.startswith("error: "), done.stderr[:2000])
            self.assertIn("\nhint: ", done.stderr)
            self.assertLess(len(done.stderr), 4000)
            self.assertTrue(done.stderr.isprintable() or set(c for c in done.stderr if not c.isprintable()) == {"\n"}, done.stderr[:2000])
            self.assertEqual(set(os.listdir(self.root)), before)
        self.assertFalse(os.path.exists(os.path.join(self.root, "hacked")))
        shutil.rmtree(os.path.join(self.root, "out"), ignore_errors=True)


def add(kind, name, test):
    setattr(Hostile, f"test_{kind}_{name}", test)


def index_test(wanted, change):
    def test(self):
        checkpoint.write(os.path.join(self.root, "good"), CONFIG, shards=3)
        source = os.path.join(self.root, "source")
        checkpoint.write(source, CONFIG, shards=3)
        change(source)
        self.judge(wanted, source)
    return test


def torch_test(wanted, data):
    def test(self):
        source = os.path.join(self.root, "source")
        os.mkdir(source)
        checkpoint.write_json(os.path.join(source, "config.json"), CONFIG)
        with open(os.path.join(source, "pytorch_model.bin"), "wb") as file:
            file.write(data)
        self.judge(wanted, source)
    return test


for case, verdict, action in index_cases.cases():
    add("index", case, index_test(verdict, action))
for case, verdict, content in torch_cases.cases(checkpoint.tensors(CONFIG)):
    add("torch", case, torch_test(verdict, content))


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(unittest.defaultTestLoader.loadTestsFromTestCase(Hostile))
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(1 if bad else 0)
