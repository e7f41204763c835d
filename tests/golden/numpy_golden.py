"""Shared by the generate.py of golden files that numpy describes: values, their digests, and the MANIFEST.

Dtypes as safetensors spells them; digests over the row-major little-endian bytes, so a test in C++ needs no jax.
"""
import hashlib
import importlib.metadata
import platform

import ml_dtypes
import numpy as np

NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
         "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int4": "I8"}


def seeded(name, shape, dtype):
    """Values that depend on the name alone."""
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    if np.dtype(dtype) == bool:
        return generator.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype) == ml_dtypes.int4:
        return generator.integers(-8, 8, shape).astype(ml_dtypes.int4)
    if np.issubdtype(dtype, np.integer):
        return generator.integers(0, 100, shape).astype(dtype)
    return generator.standard_normal(shape).astype(np.float32).astype(dtype)


def info(array):
    plain = array.astype(np.int8) if array.dtype == ml_dtypes.int4 else array
    return {"dtype": NAMES[str(array.dtype)], "shape": list(array.shape), "sha256": hashlib.sha256(plain.tobytes("C")).hexdigest()}


def forget_place(folder):
    """Orbax writes where it wrote. The files lie elsewhere for everybody else."""
    for path in folder.rglob("commit_success.txt"):
        path.write_text(path.read_text().replace(str(folder), "/checkpoints"))


def write_manifest(folder, packages):
    """MANIFEST: versions, then sha256, size and name of every golden file."""
    made = {name: importlib.metadata.version(name) for name in packages} | {"python": platform.python_version()}
    lines = ["# made by generate.py with " + ", ".join(f"{name} {version}" for name, version in sorted(made.items()))]
    total = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("generate.py", "MANIFEST") and "__pycache__" not in path.parts:
            data = path.read_bytes()
            total += len(data)
            lines.append(f"{hashlib.sha256(data).hexdigest()} {len(data):6d} {path.relative_to(folder).as_posix()}")
    (folder / "MANIFEST").write_text("\n".join(lines) + "\n")
    print(len(lines) - 1, "files,", total, "bytes")
