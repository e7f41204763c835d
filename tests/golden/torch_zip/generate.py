"""Golden .pt files, all written by torch.save. Run with the oracle environment's python."""
import argparse
import collections
import datetime
import functools
import io
import os
import pathlib
import random
import signal
import sys
import types

os.environ["OMP_NUM_THREADS"] = "1"
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

import numpy
import torch

from golden import describe, seeded, versions, write_json, write_manifest

torch.set_num_threads(1)

ALL_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
              torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128,
              torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


class Unknown:
    """Lives in no module that a reader could know; see `foreign`."""

    def __init__(self):
        self.answer = 42
        self.weights = seeded("unknown.weights", (2, 3))


class UnknownDict(dict):
    """A dict subclass: NEWOBJ, SETITEMS and BUILD on one object."""


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left, self.right = 1, "two"


def foreign():
    """Classes whose module does not exist where the file is read."""
    module = types.ModuleType("trainer_of_somebody.config")
    package = types.ModuleType("trainer_of_somebody")
    sys.modules.update({"trainer_of_somebody": package, "trainer_of_somebody.config": module})
    import enum
    module.Mode = enum.Enum("Mode", {"FAST": 1, "SLOW": 2}, module="trainer_of_somebody.config")
    module.Flag = enum.IntFlag("Flag", {"A": 1, "B": 4}, module="trainer_of_somebody.config")
    for kind in (Unknown, UnknownDict, Slotted):
        kind.__module__ = "trainer_of_somebody.config"
        setattr(module, kind.__name__, kind)
    return module


def dtypes():
    tensors = {}
    for dtype in ALL_DTYPES:
        name = str(dtype).removeprefix("torch.")
        tensors[name] = seeded(name, (3, 5), dtype)
        tensors[name + ".scalar"] = seeded(name + ".scalar", (), dtype)
        tensors[name + ".empty"] = seeded(name + ".empty", (0, 4), dtype)
    return tensors


def views():
    base = seeded("base", (6, 8), torch.bfloat16)
    large = seeded("large", (64, 32))
    tied = seeded("tied", (7, 4))
    return {
        "base": base, "transposed": base.t(), "columns": base[:, 2:5], "offset": base[2:4], "every_second": base[::2, 1::3],
        "expanded": seeded("row", (1, 4)).expand(3, 4), "permuted": seeded("cube", (2, 3, 4)).permute(2, 0, 1),
        "small_of_large": large[5, :3], "tied.a": tied, "tied.b": tied, "tied.reshaped": tied.view(4, 7),
        "scalar_of_large": large[63, 31], "empty_of_large": large[3:3],
        "requires_grad": seeded("grad", (2, 2)).requires_grad_(),
    }


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("steps", torch.tensor(7))
        for name, tensor in self.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(seeded(name, tensor.shape))


def parameters():
    module = Tiny()
    tagged = torch.nn.Parameter(seeded("tagged", (2, 2)))
    tagged.partition_dim = 0                                     # _rebuild_parameter_with_state
    subclass = seeded("attribute", (2,))
    subclass.tensor_model_parallel = True                        # _rebuild_from_type_v2
    return {"state_dict": module.state_dict(), "parameter": torch.nn.Parameter(seeded("parameter", (3,), torch.bfloat16), False),
            "tagged": tagged, "attribute": subclass}


def common(module):
    """What lies in a common.pt of an older trainer, and worse."""
    numpy.random.seed(5)
    random.seed(5)
    args = argparse.Namespace(
        num_layers=4, hidden_size=16, params_dtype=torch.bfloat16, exit_signal=signal.SIGTERM, mode=module.Mode.SLOW,
        flag=module.Flag.A | module.Flag.B, lr=1.5e-4, betas=(0.9, 0.95), data_path=["a", "b"], save=pathlib.PosixPath("/runs/a"),
        timeout=datetime.timedelta(minutes=10), unknown=module.Unknown(), unknown_dict=module.UnknownDict(a=1), slotted=module.Slotted(),
        activation=functools.partial(max, 1), device=torch.device("cpu"), none=None, yes=True, no=False, text="naïve ☃ 𝄞")
    return {
        "args": args, "checkpoint_version": 3.0, "iteration": 20,
        "rng_state": [{"random_rng_state": random.getstate(), "np_rng_state": numpy.random.get_state(),
                       "torch_rng_state": torch.zeros(16, dtype=torch.uint8)}],
        "optimizer": {"optimizer": {"param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "step": 7}]}, 0: {"by": "integer key"}},
        "numpy": {"f32": numpy.arange(6, dtype="<f4").reshape(2, 3), "fortran": numpy.asfortranarray(numpy.arange(6, dtype="<i8").reshape(2, 3)),
                  "big_endian": numpy.arange(3, dtype=">i4"), "scalar": numpy.float64(2.5), "bool": numpy.array([True, False])},
        "defaults": collections.defaultdict(list, a=[1]), "ordered": collections.OrderedDict(b=1, a=2), "set": {1, 2, 3}, "frozen": frozenset({"x"}),
        "bytes": b"\x00\xff\n", "bytearray": bytearray(b"abc"), "complex": 1 - 2j, "size": torch.Size([2, 3]), "slice": None,
        "simple": types.SimpleNamespace(a=1), "buffer": None,
    }


def numbers():
    return {"ints": [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -128, -129, -(2**31), -(2**31) - 1, 2**40, 2**63, -(2**63), 2**100, -(2**100)],
            "floats": [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308],
            "strings": ["", "a", "x" * 300, "naïve", "☃", "𝄞", "tab\tnewline\n nul\0"], "nested": [[[], ()], {"a": {"b": {}}}], "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]}


def main():
    module = foreign()
    files = {
        "dtypes.pt": (dtypes(), {}), "views.pt": (views(), {}), "parameters.pt": (parameters(), {}), "common.pt": (common(module), {}),
        "numbers.pt": (numbers(), {}), "protocol4.pt": ({"numbers": numbers(), "views": views(), "args": argparse.Namespace(a=torch.float16)}, {"pickle_protocol": 4}),
        "bare.pt": (seeded("bare", (4, 3), torch.bfloat16), {}), "bare_scalar.pt": (seeded("bare_scalar", ()), {}), "bare_empty.pt": ([torch.empty(0, dtype=torch.uint8)], {}),
        "many.pt": ({f"key.{index}": index for index in range(2300)}, {}),
        "legacy_dtypes.pt": ({name: tensor for name, tensor in dtypes().items() if tensor.dtype in ALL_DTYPES[:10]}, {"_use_new_zipfile_serialization": False}),
        "legacy_views.pt": (views(), {"_use_new_zipfile_serialization": False}),
        "legacy_common.pt": (common(module), {"_use_new_zipfile_serialization": False}),
    }
    expected = {}
    for name, (value, options) in files.items():
        if name.startswith("bare"):                              # to a stream: the prefix is "archive"
            stream = io.BytesIO()
            torch.save(value, stream, **options)
            (here / name).write_bytes(stream.getvalue())
        else:
            torch.save(value, here / name, **options)
        again = torch.load(here / name, weights_only=False)
        if name != "common.pt" and name != "legacy_common.pt":   # slotted objects and sets have no stable comparison
            assert describe(again) == describe(value), name
        expected[name] = describe(value) if name != "many.pt" else {"count": len(value), "key": "key.%d", "value": "%d"}
    write_json(here / "expected.json", expected)

    class Evil:
        def __reduce__(self):
            return os.system, ("false",)
    torch.save({"model": seeded("a", (2, 2)), "hook": Evil()}, here / "unsafe.pt")
    torch.save({"model": seeded("a", (2, 2)), "hook": Evil()}, here / "unsafe_legacy.pt", _use_new_zipfile_serialization=False)
    write_manifest(here, versions("torch", "numpy"))


main()
