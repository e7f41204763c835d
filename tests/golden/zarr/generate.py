"""A golden iteration in Megatron's retired zarr format, by the real megatron-core 0.12.1: TP2 x DP2, Adam state cut unevenly over DP.

It needs, beside the environment of scripts/setup_test_env.sh, the packages of requirements.txt in a folder that ZARR_PACKAGES names
(pip install --target FOLDER --no-deps -r requirements.txt). expected.json: `tensors` (key -> dtype, shape, sha256 of the
array as the zarr library reads it), `hub` (param/<hf>, optim/<slot>/<hf> -> the same).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [os.environ["ZARR_PACKAGES"], str(here.parent), str(here.parent.parent / "oracle")]
sys.dont_write_bytecode = True

import ml_dtypes  # noqa: F401
import numpy
import torch
import zarr
from reference import fill, slot_of, slots_of, to_megatron
from safetensors.torch import save_file

import golden
import models

CONFIG = dict(model_type="llama", hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=24,
              vocab_size=50, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=64, tie_word_embeddings=False)
ARGS = dict(
    num_layers=2, hidden_size=16, ffn_hidden_size=24, num_attention_heads=4, num_query_groups=2, kv_channels=4, swiglu=True, group_query_attention=True,
    add_bias_linear=False, add_qkv_bias=False, qk_layernorm=False, normalization="RMSNorm", norm_epsilon=1e-6, rotary_base=10000,
    position_embedding_type="rope", untie_embeddings_and_output_weights=True, vocab_size=50, padded_vocab_size=52, make_vocab_size_divisible_by=2,
    max_position_embeddings=64, seq_length=64, tensor_model_parallel_size=2, pipeline_model_parallel_size=1, bf16=True, iteration=20,
    consumed_train_samples=160)


def array(path):
    """As zarr reads it; the type that NumPy has no letter for is put in its place."""
    if json.loads((path / ".zarray").read_text())["dtype"] != "bfloat16":
        return torch.from_numpy(zarr.open(str(path), "r")[...])
    copy = here / "copy.tmp"
    shutil.copytree(path, copy)
    (copy / ".zarray").write_text((copy / ".zarray").read_text().replace('"bfloat16"', '"<i2"'))
    values = torch.from_numpy(numpy.ascontiguousarray(zarr.open(str(copy), "r")[...])).view(torch.bfloat16)
    shutil.rmtree(copy)
    return values


def main():
    os.chdir(here)
    parameters = {name: fill(f"llama:{name}", shape, torch.bfloat16) for name, shape in models.shapes(CONFIG).items()}
    state = slots_of(parameters)
    reference = to_megatron(parameters, CONFIG, 52, pad=77.0)
    for slot, key in (("master", "fp32_param"), ("adam_mu", "exp_avg"), ("adam_nu", "exp_avg_sq")):
        reference |= {f"optimizer.state.{key}.{name}": tensor for name, tensor in to_megatron(slot_of(state, slot), CONFIG, 52, pad=0.5).items()}
    save_file({key: tensor.contiguous() for key, tensor in reference.items()}, "reference.tmp")
    pathlib.Path("config.tmp").write_text(json.dumps(ARGS))
    shutil.rmtree("old_0_12", ignore_errors=True)
    step = pathlib.Path("old_0_12/iter_0000020")
    paths = [str(pathlib.Path(sys.prefix) / "mcore-old"), os.environ["ZARR_PACKAGES"]]
    subprocess.run([sys.executable, str(here.parent.parent / "oracle" / "mcore_old_write.py"), "reference.tmp", "config.tmp", str(step), "--flat", "--zarr"],
                   check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    (step.parent / "latest_checkpointed_iteration.txt").write_text("20")
    os.remove("reference.tmp")
    os.remove("config.tmp")
    found = {path.parent.name: array(path.parent) for path in sorted(step.glob("*/.zarray")) if not path.parent.name.endswith(".sync")}
    assert found.keys() == reference.keys()
    for key, tensor in reference.items():
        assert torch.equal(found[key], tensor), key
    hub = {f"param/{name}": tensor for name, tensor in parameters.items()} | state
    golden.write_json(here / "expected.json", {"old_0_12": {
        "step": step.name, "iteration": 20, "padded_vocab_size": 52, "vocab_size": 50,
        "tensors": {key: golden.tensor_info(tensor) for key, tensor in found.items()},
        "hub": {name: golden.tensor_info(tensor) for name, tensor in hub.items()}}})
    golden.write_manifest(here, golden.versions("torch", "safetensors") | {"megatron-core": "0.12.1", "zarr": zarr.__version__}, limit=100_000)


main()
