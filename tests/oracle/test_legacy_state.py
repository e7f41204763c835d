"""Optimizer state of models with experts, of Muon and of layers of multi-token prediction in legacy trees: what training saves comes back by
name, and training loads what the tool writes, every slot of every tensor."""
import pytest

import tool

tool.require()
tool.needs("emerging")

import torch

import full_state
import legacy_state
import mcore_env as env
import mcore_muon
import models
import rotation
from reference import assert_same, raw_of, slots_of

HYPER = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1", "--set", "adam_beta2=0.95", "--set", "seq_length=64"]
# Ranks of one pair (tensor, expert) share a directory, and where ETP is less than TP some pairs have none that writes.
CELLS = {f"{case}-{layout}-{form}-{kind}": (case, layout, form, kind) for case, layout, form, kind in [
    ("qwen3_moe", env.Layout(1, 1, dp=2, ep=2), "grouped", "plain"), ("qwen3_moe", env.Layout(1, 1, dp=2, ep=2), "sequential", "distributed"),
    ("mixtral", env.Layout(2, 1, dp=3, ep=3, etp=1), "grouped", "distributed"), ("mixtral", env.Layout(1, 2, dp=3, ep=3, first=2), "sequential", "plain"),
    ("qwen3_moe_mixed", env.Layout(2, 1, dp=2, ep=2), "grouped", "distributed"), ("deepseek_v3", env.Layout(2, 1, ep=2, etp=1), "grouped", "plain"),
    ("deepseek_v3", env.Layout(1, 2, dp=2, ep=2, first=4), "sequential", "distributed"), ("deepseek_v2_lite", env.Layout(2, 1), "grouped", "distributed"),
    ("qwen2_moe", env.Layout(2, 2, dp=2, ep=2, first=1), "local", "plain"),
    ("qwen3", env.Layout(2, 2), "grouped", "muon"), ("qwen2_tied", env.Layout(1, 3), "grouped", "muon"), ("qwen3_moe", env.Layout(2, 1, ep=2, etp=1), "grouped", "muon"),
    ("deepseek_v3", env.Layout(1, 1, dp=2, ep=2), "sequential", "muon")]}


def words_of(layout, form, kind):
    muon = kind == "muon"
    words = [*tool.layout_words(layout), *HYPER, *(["--set", "muon_momentum=0.9"] if muon else []), *(["--set", "use_distributed_optimizer=True"] if kind == "distributed" else [])]
    if form != "grouped":
        words += ["--set", "transformer_impl=local"] if form == "local" else ["--set", "moe_grouped_gemm=False"]
    return words


@pytest.mark.parametrize("cell", rotation.chosen(CELLS, rotation.seed(), 4))
def test_state_of_legacy_trees(workshop, cell, tmp_path):
    case, layout, form, kind = CELLS[cell]
    _, config, parameters = workshop.hf(case)
    muon = kind == "muon"
    state = full_state.write(tmp_path / "full", case, config, parameters, state=muon_state(parameters) if muon else None, **({"muon_count": 7} if muon else {}))
    expected = raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state)

    step = legacy_state.save(tmp_path / "saved", config, parameters, state, layout, form, kind)
    assert any(step.glob("mp_rank_*/distrib_optim.pt")) == (kind == "distributed")
    back(tmp_path / "saved", tmp_path / "read", expected, "--hf-template", workshop.hf(case)[0])

    tool.convert(tmp_path / "full", tmp_path / "ours", "--to", "megatron-legacy", "--iteration", 20, *words_of(layout, form, kind))
    seen = legacy_state.check(tmp_path / "ours", config, parameters, state, layout, form, kind)
    assert ("momentum_buffer" in seen) == muon, seen
    back(tmp_path / "ours", tmp_path / "again", expected)


def muon_state(parameters):
    """A router's correction is a buffer: it has none."""
    return {name: tensor for name, tensor in mcore_muon.state_of(parameters).items() if not name.endswith("e_score_correction_bias")}


def back(source, target, expected, *words):
    tool.convert(source, target, "--to", "full-state", "--require-optim", *words)
    found, counters, _ = full_state.read(target)
    assert_same(found, expected)
    assert counters.get("adam_count") == 7 and counters.get("step") == 20, counters


def with_prediction(case):
    """(config, parameters) of a model with one layer of multi-token prediction, which has experts as the last decoder layer has."""
    import models_experts
    config, _ = models.parameters(case)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    shapes = models_experts.shapes(config | {"num_hidden_layers": layers + 1})
    at = f"model.layers.{layers}."
    shapes |= {at + "enorm.weight": (hidden,), at + "hnorm.weight": (hidden,), at + "eh_proj.weight": (hidden, 2 * hidden), at + "shared_head.norm.weight": (hidden,)}
    parameters = {name: models.fill(f"mtp:{name}", shape, torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16) for name, shape in shapes.items()}
    return config | {"num_nextn_predict_layers": 1}, parameters


PREDICTING = {f"{layout}-{kind}": (layout, kind) for layout, kind in [
    (env.Layout(1, 2, dp=2, ep=2, first=4), "distributed"), (env.Layout(2, 1, ep=2, etp=1), "distributed"), (env.Layout(2, 2, ep=1, first=4), "muon")]}


@pytest.mark.parametrize("cell", rotation.chosen(PREDICTING, rotation.seed(), 1))
def test_layers_of_multi_token_prediction(cell, tmp_path):
    """Megatron loads the one form and saves the other, both ways: embedding beside the layer on the last stage, experts, every slot.
    Experts one by one, as the stand-in for the grouped module does not say which of its copies is saved by name."""
    layout, kind = PREDICTING[cell]
    config, parameters = with_prediction("deepseek_v3")
    muon = kind == "muon"
    state = full_state.write(tmp_path / "full", "deepseek_v3", config, parameters, state=muon_state(parameters) if muon else None, **({"muon_count": 7} if muon else {}))
    expected = raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state)
    words = words_of(layout, "sequential", kind)
    tool.convert(tmp_path / "full", tmp_path / "dist", "--to", "megatron", "--iteration", 20, *words)
    tool.convert(tmp_path / "full", tmp_path / "ours", "--to", "megatron-legacy", "--iteration", 20, *words)
    legacy_state.carry(tmp_path / "ours", tmp_path / "named", config, layout, "sequential", kind, mtp=1, from_torch_dist=False)
    # Megatron-Core 0.19.2 shifts, in what it saves by name, the state that follows a padded bucket: here the shared embedding's, which has one to itself.
    shifted = layout.pp > 1 and kind == "distributed"
    tool.convert(tmp_path / "named", tmp_path / "loaded", "--to", "full-state", "--require-optim", "--hf-template", tmp_path / "full")
    found, counters, _ = full_state.read(tmp_path / "loaded")
    told = {name for name in expected if not (shifted and name.startswith("optim/") and name.endswith("embed_tokens.weight"))}
    assert_same({name: found[name] for name in told}, {name: expected[name] for name in told})
    assert set(found) == set(expected) and counters.get("adam_count") == 7, counters
    legacy_state.carry(tmp_path / "dist", tmp_path / "saved", config, layout, "sequential", kind, mtp=1)
    back(tmp_path / "saved", tmp_path / "read", expected, "--hf-template", tmp_path / "full")
