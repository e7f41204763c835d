"""Shared by the generate.py beside the golden files: descriptions of objects and the MANIFEST.

Every expected.json describes tensors as {"dtype", "shape", "sha256"}: the dtype as safetensors spells it, the digest over
the row-major little-endian bytes, so a test in C++ needs no torch. Other values are described by `describe`.
"""
import argparse
import collections
import enum
import functools
import hashlib
import json
import pathlib
import struct
import types

import numpy
import torch

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.uint16: "U16",
    torch.uint32: "U32", torch.uint64: "U64", torch.complex64: "C64", torch.complex128: "C128",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}
KEEP = {"generate.py", "MANIFEST", "README.md"}


def row_major(tensor):
    """The bytes of a tensor in row-major order, whatever its strides are."""
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def tensor_info(tensor):
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
            "sha256": hashlib.sha256(row_major(tensor)).hexdigest()}


def seeded(name, shape, dtype=torch.float32, scale=1.0):
    """Values that depend on the name alone; integers and bytes cover their range."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}[dtype]
        return seeded(name, shape, signed).view(dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        return torch.randint(info.min, min(info.max, 2**63 - 2), shape, generator=generator, dtype=torch.int64).to(dtype)
    if dtype == torch.float8_e8m0fnu:
        return torch.randint(0, 255, shape, generator=generator, dtype=torch.uint8).view(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


def describe(value):
    """A JSON form of any object that occurs here. Scalars of Python keep their type by the key."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, torch.nn.Parameter):
        return {"parameter": tensor_info(value)}
    if isinstance(value, torch.Tensor):
        return {"tensor": tensor_info(value)}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, (torch.dtype, torch.device)):
        return {type(value).__name__: str(value)}
    if isinstance(value, enum.Enum):
        return {"enum": f"{type(value).__module__} {type(value).__qualname__}", "value": describe(value.value)}
    if isinstance(value, numpy.ndarray):
        return {"ndarray": {"dtype": value.dtype.str, "shape": list(value.shape),
                            "sha256": hashlib.sha256(numpy.ascontiguousarray(value).tobytes()).hexdigest()}}
    if isinstance(value, numpy.generic):
        return {"numpy": value.dtype.str, "hex": value.tobytes().hex()}
    if isinstance(value, int):
        return {"int": str(int(value))}
    if isinstance(value, float):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, complex):
        return {"complex": [describe(value.real), describe(value.imag)]}
    if isinstance(value, str):
        if len(value) > 1000:
            return {"str_sha256": hashlib.sha256(value.encode()).hexdigest(), "bytes": len(value.encode())}
        return {"str": value}
    if isinstance(value, (bytes, bytearray)):
        return {type(value).__name__: bytes(value).hex()}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [describe(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {type(value).__name__: sorted((describe(item) for item in value), key=json.dumps)}
    if isinstance(value, dict):
        kind = {collections.OrderedDict: "ordered_dict", collections.defaultdict: "defaultdict"}.get(type(value), "dict")
        return {kind: [[describe(key), describe(item)] for key, item in value.items()]}
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return {"namespace": {key: describe(item) for key, item in vars(value).items()}}
    if isinstance(value, pathlib.PurePath):
        return {"path": str(value)}
    if isinstance(value, functools.partial):
        return {"partial": value.func.__name__, "args": describe(value.args)}
    return {"object": f"{type(value).__module__} {type(value).__qualname__}"}


def write_json(path, value):
    """One line a top-level key: compact, and a diff still names the file that changed."""
    rows = [json.dumps(key) + ": " + json.dumps(item, sort_keys=True, separators=(",", ":")) for key, item in sorted(value.items())]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def write_manifest(folder, versions, limit=60_000):
    """MANIFEST: library versions, then sha256, size and name of every golden file."""
    lines = ["# made by generate.py with " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))]
    total = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in KEEP or "__pycache__" in path.parts:
            continue
        data = path.read_bytes()
        total += len(data)
        if len(data) > limit:
            raise SystemExit(f"{path}: {len(data)} bytes, golden files stay below {limit}")
        lines.append(f"{hashlib.sha256(data).hexdigest()} {len(data):6d} {path.relative_to(folder).as_posix()}")
    (folder / "MANIFEST").write_text("\n".join(lines) + "\n")
    print(f"{folder.name}: {len(lines) - 1} files, {total} bytes")


def versions(*names):
    import importlib.metadata
    import platform
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
