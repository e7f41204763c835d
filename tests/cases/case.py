"""What every case has: a directory of its own, the program under test, and the ways to ask it something."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "limits"))
import checkpoint  # noqa: E402
from runner import PROGRAM, main  # noqa: E402, F401


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="crossdock-cases-")
        self.addCleanup(shutil.rmtree, self.root, True)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def run_tool(self, *words, expect=0, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSSDOCK_")}
        done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              cwd=self.root, env=environment, timeout=600, check=False, **more)
        self.assertEqual(done.returncode, expect, f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def text(self, *words, expect=0, **more):
        done = self.run_tool(*words, expect=expect, **more)
        return done.stdout + done.stderr

    def json(self, *words, expect=0):
        return json.loads(self.run_tool(*words, "--json", expect=expect).stdout)

    def refused(self, target, *words, says=(), expect=3):
        """One message that says everything in `says`, and nothing at the target."""
        done = self.run_tool(*words, expect=expect)
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        for word in says:
            self.assertIn(word, done.stderr)
        if target is not None:
            self.assertFalse(os.path.lexists(self.path(target)), f"something lies at {target}")
        return done.stderr

    def model(self, name="hf", **changes):
        return checkpoint.write(self.path(name), checkpoint.config(**changes))

    def megatron(self, name="m", source="hf", *words):
        if not os.path.exists(self.path(source)):
            self.model(source)
        self.run_tool("convert", source, name, "--to", "megatron", *words)
        return self.path(name)

    def same(self, folder, items):
        found = checkpoint.read(self.path(folder))
        self.assertEqual(sorted(found), sorted(items))
        for name, (dtype, shape, data) in items.items():
            self.assertEqual(found[name][:2], (dtype, shape), name)
            self.assertTrue(found[name][2] == data, f"{name} has other bytes")
