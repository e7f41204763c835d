"""Golden buffer layouts and registration orders by the real Megatron-Core 0.19.2; expected.json alone, no tensors.

`buffers`: for sizes in order of registration, DP, bucket size and padding rule what `_ParamAndGradBuffer` lays out: each
parameter's (start, end, bucket) in the padded buffer, and both sizes of each bucket.
`orders`: `GPTModel.named_parameters()` of small models on every pipeline stage, with TransformerEngine's layer specification
(stand-ins under its names) and with Megatron's own.
"""
import json
import os
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent), str(here.parent.parent / "oracle")]
sys.dont_write_bytecode = True

import mcore_env as env
import torch
from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBuffer

import golden
import models

SIZES = {
    "mixed": [1000, 64, 1, 63, 65, 4096, 40, 128, 300, 7],
    "round": [128, 256, 64, 1024, 512],
    "single": [77],
    "large": [40000, 31, 2000, 31, 65536, 100, 40000],
}
RULES = [(1, None, False), (2, None, False), (3, None, False), (8, None, False), (2, 1000, False), (3, 500, False), (4, 1, False), (2, None, True), (6, 2000, True)]
SHARED = {"none": [], "first": [0], "last": [-1], "middle": [2]}


def buffer_rank(rank):
    found = []
    for name, sizes in SIZES.items():
        for dp, bucket_size, padded in RULES:
            for which, shared in SHARED.items():
                if any(index >= len(sizes) for index in shared):
                    continue
                parameters = [torch.nn.Parameter(torch.zeros(size, dtype=torch.bfloat16)) for size in sizes]
                for index in shared:
                    parameters[index].shared_embedding = True
                config = env.DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True, pad_buckets_for_high_nccl_busbw=padded)
                layout = env.distrib_optimizer.DistributedOptimizer._compute_per_buffer_param_layout(parameters, bucket_size, dp, config)

                class Group:                                     # a data-parallel group of a size that this process has not
                    def size(self):
                        return dp

                    def rank(self):
                        return 0

                class Groups:
                    tp = dp_cp = Group()
                names = {parameter: str(index) for index, parameter in enumerate(parameters)}
                buffer = _ParamAndGradBuffer(config, torch.bfloat16, torch.float32, [(p, names[p]) for p in parameters], Group(), bucket_size, names, 1.0,
                                             list(range(len(parameters))), False, Groups, layout)
                found.append({
                    "name": f"{name}-dp{dp}-size{bucket_size}-{'busbw' if padded else 'plain'}-{which}", "sizes": sizes, "dp": dp, "bucket_size": bucket_size,
                    "high_busbw": padded, "shared": [index % len(sizes) for index in shared],
                    "params": [list(buffer.param_index_map[parameter]) for parameter in parameters],
                    "numel": [bucket.grad_data.numel() for bucket in buffer.buckets],
                    "numel_unpadded": [bucket.numel_unpadded for bucket in buffer.buckets]})
    return found


def order_rank(rank, config, layout, local):
    env.initialize(layout)
    model = env.build_model(config, layout, local=local)
    return [name for name, _ in model.named_parameters()]


def main():
    os.chdir(here)
    orders = {}
    for case in ("llama3_gqa", "llama32_tied", "qwen2", "qwen3"):
        config, _ = models.parameters(case)
        config = config | {"num_hidden_layers": 4}
        for local in (False, True):
            for pp in (1, 2):
                chunks = env.run_ranks(pp, order_rank, config, env.Layout(pp=pp), local)
                orders[f"{case}-{'local' if local else 'te'}-pp{pp}"] = chunks
    (here / "expected.json").write_text(json.dumps({"buffers": env.run_ranks(1, buffer_rank)[0], "orders": orders}, separators=(",", ":")) + "\n")
    golden.write_manifest(here, golden.versions("torch", "megatron-core"), limit=100_000)


if __name__ == "__main__":
    main()
