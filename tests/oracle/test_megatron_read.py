"""What training's own save_checkpoint writes, under many layouts, read by the tool: parameters and Adam's state bit for bit."""
import pytest

import tool

tool.require()

import json
import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import save_file

import full_state
import mcore_env as env
import mcore_load
import models
from reference import as_torch, assert_same, raw_of, read_directory, slot_of, slots_of, to_megatron

# (case, layout, common.pt as until 0.18). Not every layout of a tied model will do: with PP > 1 the shared embedding has a
# bucket of its own, and where the bucket before it ends in padding (an odd multiple of 64 elements), Megatron-Core 0.19.2
# itself saves the embedding's optimizer state shifted by that padding. llama32_tied at TP2 PP2 with 3 + 1 layers is such a case.
SAVED = [
    ("qwen3", env.Layout(1, 1), False), ("qwen3", env.Layout(2, 2), False), ("qwen3", env.Layout(2, 1, dp=2), True), ("qwen3_tied", env.Layout(1, 2, first=2), True),
    ("llama3_gqa", env.Layout(2, 2, first=3), False), ("llama32_tied", env.Layout(1, 2, last=1), False), ("qwen2", env.Layout(2, 2, cells="Ettt|tL"), False),
    ("qwen2_tied", env.Layout(1, 3), True), ("mistral", env.Layout(2, 1, divisor=64), False), ("llama2_mha", env.Layout(4, 1), False), ("mqa", env.Layout(1, 2), False),
    ("llama31_scaled", env.Layout(2, 2), True)]


@pytest.mark.parametrize("case,layout,common", SAVED, ids=[f"{case}-{layout}{'-common' if common else ''}" for case, layout, common in SAVED])
def test_real_save_to_full_state_and_hf(workshop, case, layout, common, tmp_path):
    root, step, config, parameters, state = workshop.megatron(case, layout, True, common)
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0])
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7 and counters.get("step") == 20, counters
    assert metadata.get("consumed_train_samples") == "160" and metadata.get("step") == "20" and metadata.get("optimizer") == "adam", metadata
    tool.convert(step, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf(case)[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))


@pytest.mark.parametrize("case", ["qwen2", "llama32_tied", "qwen3"])
def test_without_a_template_the_arguments_suffice(workshop, case, tmp_path):
    """B71: a plain Megatron-LM checkpoint, no run_config.yaml: the architecture comes from the stored arguments."""
    layout = next(layout for name, layout, common in SAVED if name == case and layout.world > 1)
    root, step, config, parameters, state = workshop.megatron(case, layout, True, False)
    text = tool.convert(root, tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))
    assert torch.equal(models.logits(tmp_path / "hf"), workshop.hf_logits(case)), text


def test_numbered_layers(workshop, tmp_path):
    root, step, config, parameters, _ = workshop.megatron("qwen3", env.Layout(2, 2, numbered=True), optimizer=False)
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))


def test_numbered_layers_with_adam(workshop, tmp_path):
    root, step, config, parameters, state = workshop.megatron("llama32_tied", env.Layout(1, 2, numbered=True))
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("llama32_tied")[0])
    assert_same(full_state.read(tmp_path / "full")[0], raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))


def test_weights_only_release(workshop, tmp_path):
    root, step, config, parameters, _ = workshop.megatron("qwen3", env.Layout(1, 1), optimizer=False, release=True)
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))
    text = tool.convert(root, tmp_path / "none", "--to", "full-state", "--require-optim", expect=3)
    tool.refused(text, "optim")


def test_singleton_local_shards(workshop, tmp_path):
    """fc1 as two keys, weight_w and weight_v, with numbered layers: the other form that Megatron-Core can store."""
    import mcore_write
    config, parameters = models.parameters("qwen3")
    step = mcore_write.save_singleton(tmp_path / "root", config, parameters, env.Layout(2, 2))
    tool.convert(tmp_path / "root", tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))


def old_reference(folder, case, flat):
    """Writes what mcore_old_write.py reads; returns its words and what the checkpoint will hold."""
    config, parameters = models.parameters(case)
    state = slots_of(parameters)
    vocabulary = 512
    reference = to_megatron(parameters, config, vocabulary, pad=77.0)
    if flat:
        for key, slot in (("fp32_param", "master"), ("exp_avg", "adam_mu"), ("exp_avg_sq", "adam_nu")):
            reference |= {f"optimizer.state.{key}.{name}": tensor for name, tensor in to_megatron(slot_of(state, slot), config, vocabulary, pad=0.5).items()}
    save_file({key: tensor.contiguous() for key, tensor in reference.items()}, folder / f"{case}.safetensors")
    heads, groups, head_dim = env.heads_of(config)
    (folder / f"{case}.json").write_text(json.dumps(dict(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], ffn_hidden_size=config["intermediate_size"], num_attention_heads=heads,
        num_query_groups=groups, group_query_attention=True, kv_channels=head_dim, swiglu=True, add_bias_linear=False, add_qkv_bias=config["model_type"] == "qwen2",
        qk_layernorm=config["model_type"] == "qwen3", normalization="RMSNorm", norm_epsilon=config["rms_norm_eps"], rotary_base=int(env.rope_of(config)[0]),
        position_embedding_type="rope", untie_embeddings_and_output_weights=not config["tie_word_embeddings"], vocab_size=config["vocab_size"], padded_vocab_size=vocabulary,
        make_vocab_size_divisible_by=128, max_position_embeddings=config["max_position_embeddings"], seq_length=64, tensor_model_parallel_size=2,
        pipeline_model_parallel_size=1, bf16=True, consumed_train_samples=160, iteration=20)))
    root = folder / f"old-{case}"
    root.mkdir()
    (root / "latest_checkpointed_iteration.txt").write_text("20")
    words = [str(folder / f"{case}.safetensors"), str(folder / f"{case}.json"), str(root / "iter_0000020")] + ["--flat"] * flat
    return words, (root, parameters, state)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Checkpoints of megatron-core 0.12.1, both by one process: qwen2 (model only) and qwen3 (with flattened Adam shards)."""
    folder = tmp_path_factory.mktemp("old")
    first, qwen2 = old_reference(folder, "qwen2", False)
    second, qwen3 = old_reference(folder, "qwen3", True)
    program = pathlib.Path(__file__).with_name("mcore_old_write.py")
    done = subprocess.run([sys.executable, str(program), *first, "--next", *second], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(pathlib.Path(sys.prefix) / "mcore-old")})
    assert done.returncode == 0, done.stderr[-3000:]
    return {"qwen2": qwen2, "qwen3": qwen3}


def test_old_metadata_of_0_12(workshop, old, tmp_path):
    root, parameters, _ = old["qwen2"]
    tool.run("inspect", root)
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen2")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))


def test_old_flattened_optimizer(workshop, old, tmp_path):
    """Flattened shards of 0.12, cut unevenly over data-parallel ranks: read whole, and loaded by the Megatron-Core of today."""
    root, parameters, state = old["qwen3"]
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0])
    found, counters, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7, counters
    tool.convert(root, tmp_path / "new", "--to", "megatron", "--tp", 1, "--pp", 2, "--first-stage-layers", 1)
    config, _ = models.parameters("qwen3")
    mcore_load.check(tool.step_of(tmp_path / "new"), config, parameters, state, mcore_load.layouts_for(config)[:3])
