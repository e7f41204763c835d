"""Checkpoints of other ages, as the real libraries write them: legacy trees of training's own save_checkpoint, flattened optimizer
shards of megatron-core 0.12.1. Everything bit for bit, and on to the trainer of today."""
import pytest

import tool

tool.require()

import torch

import full_state
import legacy_write
import mcore_env as env
import mcore_load
import models
from reference import assert_same, raw_of, read_directory, slots_of

LEGACY = [("qwen3", env.Layout(2, 2)), ("llama32_tied", env.Layout(2, 2)), ("llama3_gqa", env.Layout(1, 2, first=3)), ("llama2_mha", env.Layout(4, 1)),
          ("qwen2_tied", env.Layout(1, 3)), ("qwen3_tied", env.Layout(1, 1)), ("mqa", env.Layout(2, 1))]


@pytest.mark.parametrize("case,layout", LEGACY, ids=[f"{case}-{layout}" for case, layout in LEGACY])
def test_legacy_trees_with_the_plain_optimizer(workshop, case, layout, tmp_path):
    config, parameters = models.parameters(case)
    state = slots_of(parameters)
    step = legacy_write.save(tmp_path / "old", config, parameters, layout, state)
    assert sorted(path.name for path in step.iterdir())[0].startswith("mp_rank_00")
    tool.convert(tmp_path / "old", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0])
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7 and counters.get("step") == 20, counters
    tool.convert(tmp_path / "old", tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf(case)[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))


@pytest.mark.parametrize("case,layout", LEGACY[:2], ids=[case for case, _ in LEGACY[:2]])
def test_legacy_trees_go_on_in_torch_dist(workshop, case, layout, tmp_path):
    """The trainer of today loads what an old tree became, under another layout, with its Adam state."""
    config, parameters = models.parameters(case)
    state = slots_of(parameters)
    legacy_write.save(tmp_path / "old", config, parameters, layout, state)
    tool.convert(tmp_path / "old", tmp_path / "new", "--to", "megatron", "--tp", 1, "--pp", 2)
    mcore_load.check(tool.step_of(tmp_path / "new"), config, parameters, state, mcore_load.layouts_for(config)[:3])


def test_a_missing_rank_is_named(workshop, tmp_path):
    config, parameters = models.parameters("qwen3")
    step = legacy_write.save(tmp_path / "old", config, parameters, env.Layout(2, 2))
    (step / "mp_rank_01_001").rename(tmp_path / "elsewhere")
    text = tool.convert(tmp_path / "old", tmp_path / "hf", "--to", "hf", expect=3)
    tool.refused(text, "mp_rank_01_001")


def test_a_stale_copy_of_a_tied_embedding_is_refused(workshop, tmp_path):
    config, parameters = models.parameters("llama32_tied")
    step = legacy_write.save(tmp_path / "old", config, parameters, env.Layout(1, 2))
    path = step / "mp_rank_00_001" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    content["model"]["output_layer.weight"] += 1
    torch.save(content, path)
    text = tool.convert(tmp_path / "old", tmp_path / "hf", "--to", "hf", expect=3)
    tool.refused(text, "output_layer.weight", "differ")


def test_interleaved_rotary_is_undone(workshop, tmp_path):
    """B03: a run with rotary_interleaved rotates neighbours; Hugging Face rotates halves. Rows of q and k go even first, v stays."""
    config, parameters = models.parameters("qwen3")
    state = slots_of(parameters)
    legacy_write.save(tmp_path / "old", config, parameters, env.Layout(2, 1), state, rotary_interleaved=True)
    tool.convert(tmp_path / "old", tmp_path / "full", "--to", "full-state")
    head_dim = env.heads_of(config)[2]
    order = [*range(0, head_dim, 2), *range(1, head_dim, 2)]

    def undone(name, tensor):
        if not any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")):
            return tensor
        return tensor.reshape(-1, head_dim, *tensor.shape[1:])[:, order].reshape(tensor.shape).contiguous()

    wanted = {f"param/{name}": tensor for name, tensor in parameters.items()} | state
    assert_same(full_state.read(tmp_path / "full")[0], raw_of({name: undone(name, tensor) for name, tensor in wanted.items()}))
