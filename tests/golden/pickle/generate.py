"""Golden pickles of every protocol, by Python's own pickler, with a JSON description of what they hold."""
import argparse
import collections
import os
import pathlib
import pickle
import sys

os.environ["OMP_NUM_THREADS"] = "1"
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

from golden import describe, versions, write_json, write_manifest


def plain():
    shared = ["shared", 1]
    return {
        "none": None, "yes": True, "no": False,
        "ints": [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -(2**31), -(2**31) - 1, 2**63, -(2**63), 2**100, -(2**100), 2**2100],
        "floats": [0.0, -0.0, 1.5, float("inf"), float("-inf"), 5e-324], "strings": ["", "a", "x" * 300, "naïve", "☃", "𝄞", "a\nb\\c'd\"", "\0"],
        "bytes": [b"", b"\x00\xff\n", b"y" * 300], "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "lists": [[], [[]]], "dicts": [{}, {"a": {}}, {1: 2, (1, 2): 3}],
        "shared": [shared, shared], "many": list(range(1100)), "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "namespace": argparse.Namespace(a=1, b="two"),
    }


def newer():
    return {"set": {1, 2}, "frozen": frozenset({"x"}), "bytearray": bytearray(b"abc"), "empty_set": set(), "long": "z" * 12000}


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Built:
    """BUILD on an object of a class that may be known: state must not become an attribute that something calls."""

    def __reduce__(self):
        return argparse.Namespace, (), {"__class__": "x", "__reduce__": "y", "fine": 1}


def main():
    expected = {}
    for protocol in range(6):
        name = f"plain.{protocol}.pkl"
        (here / name).write_bytes(pickle.dumps(plain(), protocol=protocol))
        expected[name] = {"same_as": "plain"}
    expected["plain"] = describe(plain())
    for protocol in (2, 4, 5):
        name = f"newer.{protocol}.pkl"
        (here / name).write_bytes(pickle.dumps(newer(), protocol=protocol))
        expected[name] = {"same_as": "newer"}
    expected["newer"] = describe(newer())

    recursive = [1]
    recursive.append(recursive)
    (here / "recursive.pkl").write_bytes(pickle.dumps(recursive, protocol=2))
    expected["recursive.pkl"] = {"recursive": "list"}

    # Each must be refused (never run), and the name of what it would call shown.
    import builtins
    unsafe = {
        "os_system": Call(os.system, "false"), "eval": Call(builtins.eval, "1+1"), "exec": Call(builtins.exec, "pass"), "getattr": Call(builtins.getattr, "a", "upper"),
        "nested": {"a": [argparse.Namespace(b=Call(os.system, "false"))]},
    }
    for name, value in unsafe.items():
        for protocol in (0, 2, 4):
            (here / f"unsafe_{name}.{protocol}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
            expected[f"unsafe_{name}.{protocol}.pkl"] = {"unsafe": name}
    (here / "built.pkl").write_bytes(pickle.dumps(Built(), protocol=2))
    expected["built.pkl"] = {"namespace": {"__class__": {"str": "x"}, "__reduce__": {"str": "y"}, "fine": {"int": "1"}}}

    whole = (here / "plain.4.pkl").read_bytes()
    for name, data in {"empty": b"", "no_stop": whole[:-1], "cut": whole[: len(whole) // 2], "stack_underflow": b"\x80\x02R.", "bad_opcode": b"\x80\x02\xff.",
                       "bad_memo": b"\x80\x02h\x05.", "huge_string": b"\x80\x02X\xff\xff\xff\xffabc.", "huge_long": b"\x80\x02\x8b\xff\xff\xff\x7fa.", "protocol9": b"\x80\x09N.",
                       "deep": b"\x80\x02" + b"]" * 20000 + b"a" * 19999 + b".", "mark_missing": b"\x80\x02}X\x01\x00\x00\x00au.", "text_persid": b"P0\n.", "inst": b"(ios\nsystem\n."}.items():
        (here / f"broken_{name}.pkl").write_bytes(data)
        expected[f"broken_{name}.pkl"] = {"broken": name}
    write_json(here / "expected.json", expected)
    write_manifest(here, versions())


main()
