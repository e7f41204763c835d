"""Golden torch_dist checkpoints by the real Megatron-Core: 0.19.2 (through training's save_checkpoint) and 0.12.1.

expected.json: per checkpoint `tensors` (torch_dist key -> dtype, shape, sha256 of the global tensor, as torch's own
dcp.load reads it), `hub` (param/<hf> and optim/<slot>/<hf> -> the same), and facts of the common state.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent), str(here.parent.parent / "oracle")]
sys.dont_write_bytecode = True

import mcore_env as env
import mcore_write
import numpy
import torch
import torch.distributed.checkpoint as dcp
from reference import fill, slot_of, slots_of, to_megatron
from safetensors.torch import save_file

import golden
import models

BASE = dict(hidden_size=16, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=24, vocab_size=50,
            rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=64)


def model(kind, tied, layers=4):
    config = BASE | {"model_type": kind, "tie_word_embeddings": tied, "num_hidden_layers": layers}
    return config, {name: fill(f"{kind}:{name}", shape, torch.bfloat16) for name, shape in models.shapes(config).items()}


def stored(step):
    """Global tensors by torch's own reader."""
    reader = dcp.FileSystemReader(step)
    tensors = {key: torch.zeros(tuple(item.size), dtype=item.properties.dtype) for key, item in reader.read_metadata().state_dict_metadata.items()
               if hasattr(item, "size")}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def describe(step, parameters, state=None):
    hub = {f"param/{name}": tensor for name, tensor in parameters.items()} | (state or {})
    return {"tensors": {key: golden.tensor_info(tensor) for key, tensor in stored(step).items()},
            "hub": {name: golden.tensor_info(tensor) for name, tensor in hub.items()}}


def main():
    os.chdir(here)                                               # paths inside the files stay relative
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    expected = {}

    config, parameters = model("qwen3", tied=False, layers=3)
    state = slots_of(parameters)
    layout = env.Layout(tp=2, pp=2, first=1, divisor=4)
    shutil.rmtree("adam_tp2_pp2", ignore_errors=True)
    step = mcore_write.save("adam_tp2_pp2", config, parameters, layout, state)
    expected["adam_tp2_pp2"] = {"step": step.name, "common": "common_state/shard_0_1", "padded_vocab_size": 56, "vocab_size": 50, "optimizer_step": 7,
                                "iteration": 20, "consumed_train_samples": 160, **describe(step, parameters, state)}

    config, parameters = model("llama", tied=True, layers=3)
    layout = env.Layout(tp=1, pp=2, first=1, divisor=1, numbered=True)
    shutil.rmtree("numbered_pp2", ignore_errors=True)
    step = mcore_write.save("numbered_pp2", config, parameters, layout, common=True, no_save_rng=True)
    expected["numbered_pp2"] = {"step": step.name, "common": "common.pt", "padded_vocab_size": 50, "vocab_size": 50, "iteration": 20, **describe(step, parameters)}

    for name, flat in (("old_0_12", False), ("old_0_12_flat", True)):
        config, parameters = model("llama", tied=False, layers=2)
        shutil.rmtree(name, ignore_errors=True)
        reference = to_megatron(parameters, config, 52, pad=77.0)
        state = slots_of(parameters) if flat else None
        for slot, key in (("master", "fp32_param"), ("adam_mu", "exp_avg"), ("adam_nu", "exp_avg_sq")) if flat else ():
            reference |= {f"optimizer.state.{key}.{name_}": tensor for name_, tensor in to_megatron(slot_of(state, slot), config, 52, pad=0.5).items()}
        save_file({key: tensor.contiguous() for key, tensor in reference.items()}, "reference.tmp")
        pathlib.Path("config.tmp").write_text(json.dumps(dict(
            num_layers=2, hidden_size=16, ffn_hidden_size=24, num_attention_heads=4, num_query_groups=2, kv_channels=4, swiglu=True, group_query_attention=True,
            add_bias_linear=False, add_qkv_bias=False, qk_layernorm=False, normalization="RMSNorm", norm_epsilon=1e-6, rotary_base=10000, position_embedding_type="rope",
            untie_embeddings_and_output_weights=True, vocab_size=50, padded_vocab_size=52, make_vocab_size_divisible_by=2, max_position_embeddings=64, seq_length=64,
            tensor_model_parallel_size=2, pipeline_model_parallel_size=1, bf16=True, iteration=20, consumed_train_samples=160)))
        step = pathlib.Path(name) / "iter_0000020"
        subprocess.run([sys.executable, str(here.parent.parent / "oracle" / "mcore_old_write.py"), "reference.tmp", "config.tmp", str(step)] + ["--flat"] * flat,
                       check=True, env=os.environ | {"PYTHONPATH": str(pathlib.Path(sys.prefix) / "mcore-old")})
        (step.parent / "latest_checkpointed_iteration.txt").write_text("20")
        os.remove("reference.tmp")
        os.remove("config.tmp")
        expected[name] = {"step": step.name, "common": "common.pt", "padded_vocab_size": 52, "vocab_size": 50, "iteration": 20, **describe(step, parameters, state)}
        if flat:                                                 # the logical tensors; `tensors` has the stored (flattened) shapes
            expected[name]["logical"] = {key: golden.tensor_info(tensor) for key, tensor in reference.items()}
        else:
            found = stored(step)
            for key, tensor in reference.items():
                assert torch.equal(found[key], tensor), key
    golden.write_json(here / "expected.json", expected)
    golden.write_manifest(here, golden.versions("torch", "megatron-core", "safetensors") | {"megatron-core (old_0_12*)": "0.12.1"}, limit=200_000)


main()
