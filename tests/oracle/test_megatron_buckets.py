"""dp_reshardable, the default form of Megatron's distributed optimizer: flat buckets without names, whose order the tool
computes from the run's arguments and proves by the master weights."""
import pytest

import tool

tool.require()

import json
import pickle

import torch

import full_state
import mcore_env as env
import mcore_load
import mcore_write
import models
import rotation
from reference import assert_same, raw_of, slots_of

# The tied models have a bucket of their own for the shared embedding; `bucket` closes buckets by size as with overlap.
SAVED = [
    ("qwen3", env.Layout(1, 1)), ("qwen2", env.Layout(2, 1)), ("qwen3", env.Layout(1, 1, dp=2)), ("llama3_gqa", env.Layout(2, 2, dp=2, first=3)),
    ("llama32_tied", env.Layout(1, 2, last=1)), ("qwen2_tied", env.Layout(2, 1, dp=2)), ("llama2_mha", env.Layout(1, 2, dp=2, bucket=20000)),
    ("qwen3", env.Layout(2, 1, bucket=5000)), ("mqa", env.Layout(1, 2, numbered=True)), ("qwen3", env.Layout(1, 1, dp=4, bucket=6000))]
IDS = [f"{case}-{layout}" for case, layout in SAVED]


def save(workshop, case, layout, common=False):
    root, step, config, parameters, state = workshop.megatron(case, layout, True, common, dist_ckpt_optim_fully_reshardable=False, ddp_bucket_size=layout.bucket,
                                                              overlap_grad_reduce=layout.bucket is not None)
    keys = pickle.loads((step / ".metadata").read_bytes()).state_dict_metadata
    assert any(".bucket_idx_0.exp_avg" in key for key in keys) and not any("optimizer.state." in key for key in keys), "not the form under test"
    return root, step, config, parameters, state


@pytest.mark.parametrize("case,layout", SAVED, ids=IDS)
def test_every_state_comes_out_of_its_bucket(workshop, case, layout, tmp_path):
    root, _, _, parameters, state = save(workshop, case, layout)
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0], "--require-optim")
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7 and counters.get("step") == 20, counters
    assert metadata.get("optimizer") == "adam", metadata


@pytest.mark.parametrize("case,layout,target", [("qwen3", env.Layout(1, 1, dp=2), env.Layout(2, 1)), ("llama3_gqa", env.Layout(2, 2, dp=2, first=3), env.Layout(1, 1))],
                         ids=["qwen3", "llama3_gqa"])
def test_another_layout_is_loaded_by_the_real_library(workshop, case, layout, target, tmp_path):
    """And holds what the real library saves as fully_reshardable from the same run."""
    root, _, config, parameters, state = save(workshop, case, layout)
    tool.convert(root, tmp_path / "out", "--to", "megatron", *tool.layout_words(target), "--require-optim")
    mcore_load.check(tool.step_of(tmp_path / "out"), config, parameters, state, layouts=[target], groups={"step": 7})
    whole = workshop.megatron(case, layout)[0]
    report = json.loads(tool.run("verify", whole, tmp_path / "out", "--json"))
    assert report["passed"], report


# Experts: with expert parallelism an optimizer of their own (chained_1), else beside the dense parameters; stages without experts.
EXPERTS = [("qwen3_moe", env.Layout(1, 1, dp=2, ep=2)), ("qwen3_moe_mixed", env.Layout(2, 1, dp=2, ep=2, etp=1, bucket=4000)), ("deepseek_v3", env.Layout(1, 2, dp=2, ep=2, first=1)),
           ("deepseek_v2_lite", env.Layout(2, 1)), ("mixtral", env.Layout(1, 1, dp=4, ep=2, etp=2, bucket=9000))]


CELLS = {f"{case}-{layout}": (case, layout) for case, layout in EXPERTS}


@pytest.mark.parametrize("cell", rotation.chosen(CELLS, rotation.seed(), 3))
def test_experts_come_out_of_the_buckets_of_two_optimizers(workshop, cell, tmp_path):
    case, layout = CELLS[cell]
    root, step, _, parameters, state = save(workshop, case, layout)
    chained = {key.split(".")[0] for key in pickle.loads((step / ".metadata").read_bytes()).state_dict_metadata if "bucket_idx" in key}
    assert ("chained_1" in chained) == (layout.ep > 1), chained
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0], "--require-optim")
    found, counters, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7, counters


def test_experts_states_go_on_under_another_layout(workshop, tmp_path):
    """Swapped experts would pass every shape: the real loader compares each shard."""
    case, layout, target = "qwen3_moe", env.Layout(1, 1, dp=2, ep=2), env.Layout(2, 1, dp=2, ep=2)
    root, _, config, parameters, state = save(workshop, case, layout)
    tool.convert(root, tmp_path / "out", "--to", "megatron", *tool.layout_words(target), "--require-optim")
    mcore_load.check(tool.step_of(tmp_path / "out"), config, parameters, state, layouts=[target], groups={"step": 7})


def tampered(workshop, case, layout, tmp_path, **changes):
    """A copy whose common.pt has other arguments."""
    import shutil
    root, step, *_ = save(workshop, case, layout, common=True)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    path = copy / step.name / "common.pt"
    common = torch.load(path, weights_only=False)
    for name, value in changes.items():
        if value is None:
            delattr(common["args"], name)
        else:
            setattr(common["args"], name, value)
    torch.save(common, path)
    return copy


@pytest.mark.parametrize("changes,words", [
    (dict(tensor_model_parallel_size=1), ["arguments"]), (dict(tensor_model_parallel_size=4), ["arguments"]), (dict(pipeline_model_parallel_size=2), ["arguments"]),
    (dict(tensor_model_parallel_size=None), ["tensor_model_parallel_size"]), (dict(transformer_impl="local"), ["arguments"])],
    ids=["tp1", "tp4", "pp2", "no-tp", "local"])
def test_other_arguments_are_refused(workshop, changes, words, tmp_path):
    copy = tampered(workshop, "qwen2", env.Layout(2, 1), tmp_path, **changes)
    template = workshop.hf("qwen2")[0]
    text = tool.convert(copy, tmp_path / "out", "--to", "full-state", "--hf-template", template, expect=(2, 3))
    tool.refused(text, *words, "--no-optim")
    tool.convert(copy, tmp_path / "hf", "--to", "hf", "--no-optim", "--hf-template", template)


def test_masters_of_other_weights_are_refused(workshop, tmp_path):
    """Sizes and pieces agree, yet one tensor's masters are not its weights': nothing may be carried."""
    config, parameters = models.parameters("qwen3")
    state = slots_of(parameters)
    name = "model.layers.2.self_attn.k_norm.weight"
    state[f"optim/master/{name}"] = state["optim/master/model.layers.2.self_attn.q_norm.weight"]
    mcore_write.save(tmp_path / "root", config, parameters, env.Layout(1, 1), state, dist_ckpt_optim_fully_reshardable=False)
    text = tool.convert(tmp_path / "root", tmp_path / "out", "--to", "full-state", "--hf-template", workshop.hf("qwen3")[0], expect=3)
    tool.refused(text, name, "6 elements differ", "--no-optim")
    assert not (tmp_path / "out").exists()


LEGACY = [("qwen3", env.Layout(1, 1, dp=2)), ("llama3_gqa", env.Layout(2, 2, first=3)), ("llama32_tied", env.Layout(1, 2, last=1)), ("llama2_mha", env.Layout(1, 2, dp=2, bucket=20000))]


@pytest.mark.parametrize("case,layout", LEGACY, ids=[f"{case}-{layout}" for case, layout in LEGACY])
def test_distrib_optim_of_a_legacy_tree(workshop, case, layout, tmp_path):
    root, step, _, parameters, state = workshop.megatron(case, layout, True, False, ckpt_format="torch", use_dist_ckpt=False, ddp_bucket_size=layout.bucket,
                                                         overlap_grad_reduce=layout.bucket is not None)
    assert list(step.glob("mp_rank_*/distrib_optim.pt")), "not the form under test"
    tool.convert(root, tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0], "--require-optim")
    found, counters, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    assert counters.get("adam_count") == 7 and counters.get("step") == 20, counters
