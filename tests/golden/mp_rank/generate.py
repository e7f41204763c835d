"""Golden legacy iterations, written by torch.save as Megatron-LM's save_checkpoint does. Run with the oracle environment's python.

`views`: two stages of one tensor rank; transposed, offset and wide views, a tied pair, small state; the second rank's file in the
form of old torch. `adam`: an optimizer inside the model file, and one in distrib_optim.pt.
"""
import argparse
import collections
import os
import pathlib
import shutil
import sys

os.environ["OMP_NUM_THREADS"] = "1"
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

import numpy
import torch

from golden import seeded, tensor_info, versions, write_json, write_manifest

torch.set_num_threads(1)
expected = {}


def save(case, rank, name, value, **options):
    folder = here / case / "iter_0000005" / rank
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(value, folder / name, **options)
    row = expected.setdefault(case, {})

    def walk(item, path):
        if isinstance(item, torch.Tensor):
            row[f"{rank}/{name}#{path}"] = tensor_info(item)
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, (list, tuple)) else ()
        for key, below in pairs:
            walk(below, f"{path}/{key}" if path else str(key))

    walk(value, "")


def common(rank):
    numpy_state = ("MT19937", numpy.arange(4, dtype=numpy.uint32), 4, 0, 0.0)
    return {"args": argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=2, params_dtype=torch.bfloat16),
            "checkpoint_version": 3.0, "iteration": 5, "num_floating_point_operations_so_far": 7,
            "rng_state": [{"np_rng_state": numpy_state, "torch_rng_state": seeded(f"rng{rank}", (40,), torch.uint8)}]}


def views():
    wide = seeded("wide", (6, 8), torch.bfloat16)
    tied = seeded("tied", (4, 6), torch.bfloat16)
    model = collections.OrderedDict([
        ("embedding.word_embeddings.weight", tied), ("decoder.layers.0.transposed.weight", wide.t()),
        ("decoder.layers.0.columns.weight", wide[:, 2:5]), ("decoder.layers.0.rows.weight", wide[2:4]),
        ("decoder.layers.0.every.weight", wide[::2, 1::3]), ("decoder.layers.0._extra_state", None),
        ("decoder.layers.0.scalar", seeded("scalar", (), torch.bfloat16)), ("decoder.layers.0.empty", torch.empty(0, 3)),
        ("output_layer.weight", tied)])
    save("views", "mp_rank_00_000", "model_optim_rng.pt", {**common(0), "model": model})
    chunks = {f"model{v}": collections.OrderedDict([("decoder.layers.0.weight", seeded(f"chunk{v}", (3, 4), torch.bfloat16).t())])
              for v in range(2)}
    save("views", "mp_rank_00_001", "model_optim_rng.pt", {**common(1), **chunks}, _use_new_zipfile_serialization=False)
    # Large storages of which each file carries a view: only the view counts.
    (here / "views" / "iter_0000005" / "mp_rank_00_000" / "layer_wise_optimizer_0.pt").write_bytes(b"not read")


def adam():
    model = collections.OrderedDict([("a.weight", seeded("a", (3, 4), torch.bfloat16)), ("a.bias", seeded("b", (3,), torch.bfloat16))])
    state = {i: {"exp_avg": seeded(f"m{i}", shape), "exp_avg_sq": seeded(f"v{i}", shape), "step": torch.tensor(5.0)}
             for i, shape in enumerate([(3, 4), (3,)])}
    groups = [{"lr": 1e-3, "wd_mult": 1.0, "params": [0]}, {"lr": 1e-3, "wd_mult": 0.0, "params": [1]}]
    masters = [[seeded("a", (3, 4))], [seeded("b", (3,))]]
    save("adam", "mp_rank_00", "model_optim_rng.pt",
         {**common(0), "model": model, "optimizer": {"optimizer": {"state": state, "param_groups": groups}, "fp32_from_fp16_params": masters,
                                                      "grad_scaler": {"scale": torch.tensor([65536.0]), "growth_tracker": 3}}})
    gbuf = {name: seeded(name, (15,)) for name in ("param", "exp_avg", "exp_avg_sq")}
    save("adam", "mp_rank_00", "distrib_optim.pt",
         {"buckets_coalesced": True, 0: {(torch.bfloat16, torch.float32): {**gbuf, "numel_unpadded": 15}}})


for name in ("views", "adam"):
    shutil.rmtree(here / name, ignore_errors=True)
views()
adam()
write_json(here / "expected.json", expected)
write_manifest(here, versions("torch", "numpy"))
