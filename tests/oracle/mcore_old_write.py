"""Producer of torch_dist checkpoints by megatron-core 0.12.1, the last generation with the old .metadata (mcore_data) and
flattened optimizer shards. A program of its own, since two versions do not fit in one process:

    PYTHONPATH=ENV/mcore-old python mcore_old_write.py REFERENCE.safetensors CONFIG.json ITER_DIR [--flat] [--zarr] [--next ...]

REFERENCE holds the global tensors under torch_dist keys (homogeneous layers, vocabulary padded). Four ranks, TP2 x DP2.
--flat adds optimizer.state.{fp32_param,exp_avg,exp_avg_sq}.KEY as flattened shards cut unevenly over DP.
--zarr writes the retired zarr backend instead of torch_dist; it needs the packages zarr 2 and ml_dtypes on PYTHONPATH.
"""
import json
import os
import sys
import warnings
from argparse import Namespace

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
warnings.filterwarnings("ignore")

import numpy
import torch

torch.set_num_threads(1)
torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = torch.cuda.empty_cache = lambda *args, **kwargs: None
numpy.product = numpy.prod

import megatron.core
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
from megatron.core.dist_checkpointing.strategies import filesystem_async
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import SerializationFormat

assert megatron.core.__version__.startswith("0.12"), megatron.core.__version__
_write_item = filesystem_async._write_item


def write_item(*args, **kwargs):
    return _write_item(*args, **kwargs, serialization_format=SerializationFormat.TORCH_SAVE)


filesystem_async._write_item = write_item
TP = DP = 2


def sharded(key, tensor, tp, dp):
    """This rank's pieces of a global tensor [L, ...] or [...]."""
    layers = tensor.shape[0] if key.startswith("decoder.layers.") else None
    axis = {"linear_qkv.weight": 0, "linear_qkv.bias": 0, "linear_proj.weight": 1, "linear_fc1.weight": 0, "linear_fc2.weight": 1,
            "word_embeddings.weight": 0, "output_layer.weight": 0}.get(next((end for end in (
                "linear_qkv.weight", "linear_qkv.bias", "linear_proj.weight", "linear_fc1.weight", "linear_fc2.weight",
                "word_embeddings.weight", "output_layer.weight") if key.endswith(end)), None))
    for index in range(layers or 1):
        whole = tensor[index] if layers else tensor
        prepend = [(0, index, layers)] if layers else []
        extra = 1 if layers else 0
        if key.endswith("linear_fc1.weight"):                    # gate and up are cut separately
            for half, part in enumerate(whole.chunk(2)):
                yield f"{index}.{half}", part.chunk(TP)[tp], [*prepend, (extra, half * TP + tp, 2 * TP)], extra, (0, dp)
        elif axis is None:
            yield f"{index}", whole, prepend, extra, (tp, dp)
        else:
            yield f"{index}", whole.chunk(TP, dim=axis)[tp], [*prepend, (axis + extra, tp, TP)], extra, (0, dp)


def strategy(backend):
    """zarr wants TensorStore for nothing but the numpy type bfloat16, which ml_dtypes registers."""
    if backend == "zarr":
        import types

        import ml_dtypes  # noqa: F401
        sys.modules.setdefault("tensorstore", types.ModuleType("tensorstore"))
    return get_default_save_sharded_strategy(backend, 1)


def main_rank(rank, reference, config, target, flat, backend, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=TP * DP)
    tp, dp = rank % TP, rank // TP
    state = {"args": Namespace(**config), "checkpoint_version": 3.0, "iteration": 20, "num_floating_point_operations_so_far": 5,
             "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 160}, "model": {}, "optimizer_state": {}}
    if flat:
        shared = {"lr": 1e-3, "max_lr": 1e-3, "min_lr": 1e-5, "betas": (0.9, 0.95), "eps": 1e-8, "bias_correction": True, "lr_mult": 1.0,
                  "is_expert_parallel": False, "is_decoupled_lr": False, "step": 7}
        groups = [shared | {"wd_mult": 1.0, "weight_decay": 0.1}, shared | {"wd_mult": 0.0, "weight_decay": 0.0}]
        state["optimizer"] = {"optimizer": {"param_groups": groups}, "param_state_sharding_type": "fully_sharded_model_space"}
    for key, tensor in load_file(reference).items():
        if key.startswith("optimizer.state.") != flat and key.startswith("optimizer.state."):
            continue
        model_key = key.split(".", 3)[3] if key.startswith("optimizer.state.") else key
        for name, piece, offsets, prepend, replica in sharded(model_key, tensor, tp, dp):
            piece = piece.contiguous()
            if not key.startswith("optimizer.state."):
                state["model"][f"{key}/{name}"] = ShardedTensor.from_rank_offsets(
                    key, piece, *offsets, replica_id=(0, replica[0], replica[1]), prepend_axis_num=prepend)
                continue
            cut = piece.numel() // 3
            part = slice(0, cut) if dp == 0 else slice(cut, piece.numel())
            if part.start == part.stop:
                continue
            state["optimizer_state"][f"{key}/{name}"] = ShardedTensor.from_rank_offsets_flat(
                key, piece.reshape(-1)[part].clone(), piece.shape, *offsets, flattened_range=part,
                replica_id=(0, replica[0], 0), prepend_axis_num=prepend)
    state["rng_state"] = ShardedObject("rng_state", [{"torch_rng_state": torch.zeros(16, dtype=torch.uint8)}], (1, TP), (0, tp), replica_id=dp)
    for layer in range(config["num_layers"]):
        state["model"][f"extra.{layer}"] = ShardedObject("decoder.layers.self_attention.linear_qkv._extra_state", torch.empty(0, dtype=torch.uint8),
                                                         (config["num_layers"],), (layer,), replica_id=rank)
    dist_checkpointing.save(state, target, strategy(backend))
    torch.distributed.barrier()


def main():
    import tempfile
    words = " ".join(sys.argv[1:]).split(" --next ")             # several checkpoints for one start of the process
    for reference, config, target, *rest in (job.split() for job in words):
        os.makedirs(target, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(
                main_rank, (reference, json.load(open(config)), target, "--flat" in rest, "zarr" if "--zarr" in rest else "torch_dist", folder), nprocs=TP * DP, start_method="fork")


if __name__ == "__main__":
    main()
