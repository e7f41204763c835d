"""FP8 bytes and scales of matrices as the real torch computes them on a CPU, for every kind of group, input and scale.

expected.json: a case a line. The elements are made from (kind, seed) by `elements` below, and in the same way by the test, so
that no input is stored; `q` and `s` are digests of the bytes and of the little-endian scales, `q_start` and `s_start` their
first ones. Two things are not torch's: a NaN code is written 0x7F whatever its sign, and a NaN scale 0x7FC00000.
"""
import hashlib
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

import numpy
import torch

from golden import versions, write_json, write_manifest

torch.set_num_threads(1)
U = numpy.uint64


def mix(seed, count):
    """splitmix64 of seed * 2^32 + i."""
    with numpy.errstate(over="ignore"):
        z = U(seed << 32) + numpy.arange(count, dtype=U) + U(0x9E3779B97F4A7C15)
        z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
        return z ^ (z >> U(31))


def trailing_zeros(v):
    """Of the low 16 bits; 16 when they are all zero. Half of the elements have none, a quarter one, ..."""
    low = (v & U(0xFFFF)) | U(0x10000)
    return numpy.bitwise_count((low & (~low + U(1))) - U(1)).astype(U)


def elements(kind, seed, count, dtype):
    """Patterns of `count` elements of a type."""
    v = mix(seed, count)
    sign, zeros = v >> U(63), trailing_zeros(v >> U(24))
    wide = {"F32": (31, 23, 255), "BF16": (15, 7, 255), "F16": (15, 10, 31)}[dtype]
    top, mantissa_bits, full = wide
    mantissa = v & U((1 << mantissa_bits) - 1)
    if kind == "patterns":  # every pattern of 16 bits in turn
        bits = numpy.arange(count, dtype=U) & U(0xFFFF)
        finite = (bits >> U(mantissa_bits)) & U(full) != U(full)
        return numpy.where(finite, bits, U(0))
    if kind == "bits":  # any finite number
        bits = v & U((1 << (top + 1)) - 1)
        finite = (bits >> U(mantissa_bits)) & U(full) != U(full)
        return numpy.where(finite, bits, bits ^ U(1 << mantissa_bits))
    if kind == "zeros":
        return sign << U(top)
    if kind == "tiny":  # denormals, and the least normal numbers
        return (sign << U(top)) | ((zeros & U(1)) << U(mantissa_bits)) | mantissa
    base = U(12 if dtype == "F16" else 121)  # as weights are spread: most below 2^-6 (2^-3 in F16), down to 2^-22
    exponent = numpy.where(zeros < base, base - zeros, U(0))
    bits = (sign << U(top)) | (exponent << U(mantissa_bits)) | mantissa
    if kind == "nonfinite":
        what = (v >> U(40)) & U(0xFF)
        infinity = U(full << mantissa_bits)
        bits = numpy.where(what == U(0), (sign << U(top)) | infinity | U(1 << (mantissa_bits - 1)) | (mantissa & U(3)), bits)
        bits = numpy.where(what == U(1), (sign << U(top)) | infinity, bits)
    return bits


def tensor(kind, seed, rows, cols, dtype):
    bits = elements(kind, seed, rows * cols, dtype)
    if dtype == "F32":
        return torch.from_numpy(bits.astype(numpy.uint32).view(numpy.float32)).reshape(rows, cols)
    return torch.from_numpy(bits.astype(numpy.uint16).view(numpy.int16)).view({"BF16": torch.bfloat16, "F16": torch.float16}[dtype]).reshape(rows, cols)


def up_to_power_of_two(scale):
    bits = scale.view(torch.int32)
    exponent = ((bits >> 23) + (bits & 0x7FFFFF).bool().int()).clamp(1, 254)
    return torch.where(scale.isfinite(), (exponent << 23).view(torch.float32), scale)


def quantize(w, block_rows, block_cols, ue8m0, relax):
    rows, cols = w.shape
    down, across = -(-rows // block_rows), -(-cols // block_cols)
    padded = torch.zeros(down * block_rows, across * block_cols)
    padded[:rows, :cols] = w.float()
    amax = padded.view(down, block_rows, across, block_cols).abs().amax(dim=(1, 3))
    scale = amax.clamp(min=1e-12) / torch.tensor(448.0)
    if ue8m0:
        scale = up_to_power_of_two(scale)
    if relax:  # a scale without dimensions, beside which a 16-bit tensor keeps its type
        assert scale.numel() == 1
        quotient = w / scale[0, 0]
        assert quotient.dtype == w.dtype
    else:
        spread = scale.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_cols, 1)[:, :cols]
        quotient = w.float() / spread
    codes = quotient.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.where(codes == 0xFF, torch.tensor(0x7F, dtype=torch.uint8), codes), torch.where(scale.isnan(), torch.tensor(float("nan")), scale)


def case(kind, seed, dtype, rows, cols, block_rows, block_cols, ue8m0=False, relax=False):
    q, s = quantize(tensor(kind, seed, rows, cols, dtype), block_rows, block_cols, ue8m0, relax)
    q = q.contiguous().numpy().tobytes()
    s = s.contiguous().view(torch.int32).numpy().astype("<u4").tobytes()
    return {"kind": kind, "seed": seed, "dtype": dtype, "shape": [rows, cols], "block": [block_rows, block_cols], "ue8m0": ue8m0, "relax": relax,
            "q": hashlib.sha256(q).hexdigest(), "s": hashlib.sha256(s).hexdigest(), "q_start": q[:16].hex(), "s_start": s[:16].hex()}


def main():
    cases = []
    for dtype in ("BF16", "F16"):
        for block in ((128, 128), (1, 256), (256, 256), (1, 1), (256, 1)):
            cases.append(case("patterns", 0, dtype, 256, 256, *block))
            cases.append(case("patterns", 0, dtype, 256, 256, *block, ue8m0=True))
        cases.append(case("patterns", 0, dtype, 256, 256, 256, 256, relax=True))
    seed = 0
    for dtype in ("BF16", "F16", "F32"):
        for kind in ("weights", "bits", "tiny", "zeros", "nonfinite"):
            for rows, cols, block_rows, block_cols in ((130, 257, 128, 128), (5, 300, 1, 300), (37, 83, 37, 83), (9, 31, 2, 3), (3, 70, 64, 33), (7, 5, 1, 1)):
                seed += 1
                cases.append(case(kind, seed, dtype, rows, cols, block_rows, block_cols, ue8m0=seed % 4 == 0))
            for whole in ((37, 83), (300, 200)):
                seed += 1
                cases.append(case(kind, seed, dtype, *whole, *whole, relax=True))
    write_json(here / "expected.json", {f"{i:03d}": row for i, row in enumerate(cases)})
    write_manifest(here, versions("torch", "numpy"))


main()
