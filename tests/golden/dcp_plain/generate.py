"""Golden plain DCP directories by torch: a tied Llama under FSDP2 on two gloo ranks, AdamW after two steps, and the same
weights through HuggingFaceStorageWriter (sharded safetensors).

expected.json: per directory, param/<hf> and optim/<slot>/<hf> -> dtype, shape, sha256 of the whole tensor.
"""
import os
import pathlib
import shutil
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent), str(here.parent.parent / "oracle")]
sys.dont_write_bytecode = True

import mcore_env as env
import torch
import torch.distributed.checkpoint as dcp
import transformers                                              # noqa: F401  imported before ranks are forked
from torch.distributed.checkpoint.state_dict import get_state_dict

import dcp_ranks
import golden
import models

MODEL = dict(model_type="llama", hidden_size=12, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1, head_dim=4, intermediate_size=10,
             vocab_size=17, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True)


def save(rank):
    models.CONFIGS["golden"] = MODEL
    model, optimizer = dcp_ranks.build("golden", (2,))
    dcp_ranks.train(model, optimizer, 2)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state}, storage_writer=dcp.FileSystemWriter("fsdp2", thread_count=2))
    found, _ = dcp_ranks.snapshot(model, optimizer)
    if rank == 0:
        pathlib.Path("fsdp2/config.json").write_text(model.config.to_json_string(use_diff=False))
    return {name: golden.tensor_info(tensor) for name, tensor in found.items()}


def save_safetensors(rank):
    models.CONFIGS["golden"] = MODEL
    found = dcp_ranks.save_safetensors(rank, "safetensors", "golden", (2,))
    return {name: golden.tensor_info(tensor) for name, tensor in found.items()}


def main():
    os.chdir(here)                                               # paths inside the files stay relative
    for name in ("fsdp2", "safetensors"):
        shutil.rmtree(name, ignore_errors=True)
    expected = {"fsdp2": env.run_ranks(2, save)[0], "safetensors": env.run_ranks(2, save_safetensors)[0]}
    golden.write_json(here / "expected.json", expected)
    golden.write_manifest(here, golden.versions("torch", "transformers", "safetensors"))


main()
