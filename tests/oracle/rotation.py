"""Which cells of a large table a run takes: chosen by the commit under test, so that a run can be repeated and commits rotate
through all. CROSSDOCK_MATRIX=all takes every cell, CROSSDOCK_MATRIX=<seed> those of a seed."""
import hashlib
import os
import pathlib
import subprocess


def seed():
    """Of this commit; where there is none, of the source's version."""
    said = os.environ.get("CROSSDOCK_MATRIX", "")
    if said:
        return said
    root = pathlib.Path(__file__).resolve().parent
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "0"


def chosen(cells, word, count):
    """The `count` cells whose name and seed together have the smallest digests: each cell is as likely as any other."""
    if word == "all":
        return sorted(cells)
    return sorted(cells, key=lambda name: hashlib.sha256(f"{word} {name}".encode()).digest())[:count]


def pick(cells, kind, count):
    """The run's choice of `count` cells; `kind` names the table, so that tables rotate independently of each other."""
    word = seed()
    return chosen(cells, word if word == "all" else f"{word} {kind}", count)
