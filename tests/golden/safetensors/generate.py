"""Golden safetensors files, all written by the reference library."""
import hashlib
import os
import pathlib
import sys

os.environ["OMP_NUM_THREADS"] = "1"
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

import torch
from safetensors.torch import save_file

from golden import DTYPES, seeded, tensor_info, versions, write_json, write_manifest

torch.set_num_threads(1)


def main():
    dtypes = [dtype for dtype in DTYPES if dtype != torch.complex128]
    every = {}
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        every[name] = seeded(name, (3, 5), dtype)
        every[name + ".scalar"] = seeded(name + ".scalar", (), dtype)
        every[name + ".empty"] = seeded(name + ".empty", (0, 4), dtype)
    odd = {name: seeded(name, (2, 3), torch.bfloat16) for name in
           ["", "b", "a.10", "a.2", "B", "naïve", "☃", "𝄞", "line\nbreak", "nul\0inside", "quote\"back\\slash/", "\u007f\u0080", "x" * 300]}
    model = {f"model.layers.{layer}.{part}.weight": seeded(f"{layer}.{part}", shape, torch.bfloat16) for layer in range(12)
             for part, shape in {"self_attn.q_proj": (8, 6), "self_attn.k_proj": (4, 6), "mlp.down_proj": (6, 10), "input_layernorm": (6,)}.items()}
    model["model.embed_tokens.weight"] = seeded("embed", (11, 6), torch.bfloat16)
    model["router.bias"] = seeded("bias", (5,), torch.float32)
    files = {
        "dtypes.safetensors": (every, None), "dtypes_pt.safetensors": (every, {"format": "pt"}), "names.safetensors": (odd, {"format": "pt"}), "model.safetensors": (model, {"format": "pt"}),
        "empty.safetensors": ({}, None), "empty_pt.safetensors": ({}, {"format": "pt"}), "metadata_text.safetensors": ({"a": seeded("a", (1,))}, {"note": "naïve ☃ 𝄞 \" \\ \n \u0001 /"}),
        "one_byte.safetensors": ({"a": seeded("a", (1,), torch.uint8)}, None), "huge_empty.safetensors": ({"a": torch.empty((0, 2**40), dtype=torch.float32)}, None),
    }
    expected = {}
    for name, (tensors, metadata) in files.items():
        save_file(tensors, here / name, metadata=metadata)
        expected[name] = {"metadata": metadata, "tensors": {key: tensor_info(tensor) for key, tensor in tensors.items()}}
    packed = torch.arange(6, dtype=torch.uint8).reshape(2, 3).mul(37).view(torch.float4_e2m1fn_x2)
    save_file({"f4": packed}, here / "f4.safetensors")           # the header counts values: shape [2, 6]
    expected["f4.safetensors"] = {"metadata": None, "tensors": {"f4": {
        "dtype": "F4", "shape": [2, 6], "sha256": hashlib.sha256(packed.view(torch.uint8).numpy().tobytes()).hexdigest()}}}
    for name in expected:
        (here / name).chmod(0o644)
    write_json(here / "expected.json", expected)
    write_manifest(here, versions("torch", "safetensors"))


main()
