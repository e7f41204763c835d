"""Plain PyTorch DCP: real FSDP2 checkpoints are read, ours are loaded by real FSDP2, bit for bit, weights and Adam state."""
import pathlib
import shutil

import pytest

import tool

tool.require()

import torch
import torch.distributed.checkpoint as dcp
import transformers                                              # noqa: F401  imported before ranks are forked

import mcore_env as env
import dcp_ranks
import full_state
import mcore_load
import models
from reference import assert_same, raw_of, read_directory

# name -> (case, mesh, tensor-parallel size, parameter groups): dims that no rank count divides, HSDP, two axes on one weight.
SAVES = {
    "fsdp2": ("llama3_gqa", (2,), 1, 2),
    "fsdp4": ("qwen3", (4,), 1, 1),
    "hsdp": ("qwen3_tied", (2, 2), 1, 1),
    "tp": ("llama3_gqa", (2,), 2, 1),
}


def world(mesh, tp):
    return torch.Size(mesh).numel() * tp


@pytest.fixture(scope="module")
def saved(workshop):
    made = {}

    def make(name):
        if name not in made:
            case, mesh, tp, groups = SAVES[name]
            target = workshop.root / f"dcp-{name}"
            before, after = env.run_ranks(world(mesh, tp), dcp_ranks.save, str(target), case, mesh, tp, groups)[0]
            made[name] = target, before, after
        return made[name]
    return make


def parameters_of(state):
    return {name.removeprefix("param/"): tensor for name, tensor in state.items() if name.startswith("param/")}


def untied(case, state):
    """The hub holds a tied weight once."""
    tied = models.CONFIGS[case]["tie_word_embeddings"]
    return {name: tensor for name, tensor in state.items() if not (tied and name.endswith("/lm_head.weight"))}


@pytest.mark.parametrize("name", SAVES)
def test_weights_of_real_saves_are_read(saved, name, tmp_path):
    directory, before, _ = saved(name)
    text = tool.convert(directory, tmp_path / "hf", "--to", "hf")
    assert "under `model.`" in text, text
    expected = untied(SAVES[name][0], before)
    found = read_directory(tmp_path / "hf")[0]
    if models.CONFIGS[SAVES[name][0]]["tie_word_embeddings"]:
        found.pop("lm_head.weight", None)
    assert_same(found, raw_of(parameters_of(expected)))


@pytest.mark.parametrize("name", SAVES)
def test_state_of_real_saves_is_read(saved, name, tmp_path):
    directory, before, _ = saved(name)
    tool.convert(directory, tmp_path / "full", "--to", "full-state", "--verify")
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, raw_of(untied(SAVES[name][0], before)))
    assert counters == {"adam_count": 3} and metadata["optimizer"] == "adam", (counters, metadata)


def loads(directory, name, before, after, steps=3):
    """The real optimizer takes the state and makes the step that the source's own optimizer made."""
    case, mesh, tp, groups = SAVES[name]
    state, counts, stepped, settings = env.run_ranks(world(mesh, tp), dcp_ranks.load, str(directory), case, mesh, tp, groups, steps)[0]
    assert counts == {steps}, counts
    assert_same(raw_of(state), raw_of(before))
    assert_same(raw_of(stepped), raw_of(after))
    expected = {key: value for key, value in dcp_ranks.ADAMW.items()} | {"amsgrad": False}
    assert settings[0] == expected, settings
    if groups == 2:
        assert settings[1] == expected | {"weight_decay": 0.0}, settings


@pytest.mark.parametrize("name", SAVES)
def test_back_from_full_state_the_next_step_is_the_same(saved, name, tmp_path):
    directory, before, after = saved(name)
    tool.convert(directory, tmp_path / "full", "--to", "full-state")
    tool.convert(tmp_path / "full", tmp_path / "dcp", "--to", "dcp", "--verify")
    loads(tmp_path / "dcp", name, before, after)


def test_dcp_to_dcp_in_small_files(saved, tmp_path):
    directory, before, after = saved("fsdp2")
    tool.convert(directory, tmp_path / "dcp", "--to", "dcp", "--max-shard-size", "40KB")
    assert len(list((tmp_path / "dcp").glob("__*_0.distcp"))) > 5
    loads(tmp_path / "dcp", "fsdp2", before, after)
    tool.run("verify", directory, tmp_path / "dcp")


@pytest.fixture(scope="module")
def muon(workshop):
    """A real save of torch.optim.Muon and AdamW: (directory, state, state one step later)."""
    target = workshop.root / "dcp-muon"
    return target, *env.run_ranks(2, dcp_ranks.save_muon, str(target), "llama3_gqa", (2,))[0]


def test_muon_of_torch_goes_on(muon, tmp_path):
    """Read by name, written under the names that get_state_dict has, loaded by the real optimizers, which make the source's own next step."""
    directory, before, after = muon
    told = tool.convert(directory, tmp_path / "full", "--to", "full-state", "--require-optim", "--verify")
    assert "their optimizer state those under `optim.state.`" in told, told
    found, counters, metadata = full_state.read(tmp_path / "full")
    assert_same(found, raw_of(before))
    assert counters == {"adam_count": 3, "muon_count": 3} and (metadata["optimizer"], metadata["muon_momentum"], metadata["muon_beta"]) == ("muon", "ema", "0.9"), (counters, metadata)
    for source in (directory, tmp_path / "full"):
        target = tmp_path / f"dcp-{source.name}"
        tool.convert(source, target, "--to", "dcp")
        state, stepped, settings = env.run_ranks(2, dcp_ranks.load_muon, str(target), "llama3_gqa", (2,))[0]
        assert_same(raw_of(state), raw_of(before))
        assert_same(raw_of(stepped), raw_of(after))
        assert settings[0]["momentum"] == 0.9 and settings[0]["lr"] == 5e-3 and settings[0]["weight_decay"] == 0.03, settings
        assert settings[1]["lr"] == 3e-3 and settings[1]["betas"] == (0.8, 0.95), settings
        ours, theirs = (dcp.FileSystemReader(str(path)).read_metadata().state_dict_metadata for path in (target, directory))
        assert set(theirs) <= set(ours), sorted(set(theirs) - set(ours))[:6]


def test_momentum_of_sgd_is_not_taken_for_muons(workshop, tmp_path):
    """SGD calls its momentum the same, and keeps a plain sum of gradients."""
    directory, _, tensors = workshop.hf("llama3_gqa")
    tensors = dict(tensors)
    state = {name: {"momentum_buffer": tensor.float()} for name, tensor in tensors.items()}
    save_here(tmp_path / "sgd", {"model": tensors, "optim": {"state": state, "param_groups": [{"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0.0, "params": list(tensors)}]}}, directory)
    tool.refused(tool.convert(tmp_path / "sgd", tmp_path / "no", "--to", "full-state", expect=3), "momentum_buffer")


def test_torch_reads_the_nesting(saved, tmp_path):
    """dcp_to_torch_save rebuilds nested dicts from planner_data alone."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    directory, before, _ = saved("fsdp2")
    tool.convert(directory, tmp_path / "dcp", "--to", "dcp")
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "all.pt")
    dcp_to_torch_save(directory, tmp_path / "theirs.pt")
    ours, theirs = (torch.load(tmp_path / name, weights_only=False) for name in ("all.pt", "theirs.pt"))
    assert_same(raw_of(ours["model"]), raw_of(parameters_of(before)))
    assert ours["optim"]["state"].keys() == theirs["optim"]["state"].keys()
    for name, item in theirs["optim"]["state"].items():
        mine = ours["optim"]["state"][name]
        assert mine.keys() == item.keys() and all(torch.equal(mine[key], item[key]) and mine[key].dtype == item[key].dtype for key in item), name
    for mine, their in zip(ours["optim"]["param_groups"], theirs["optim"]["param_groups"], strict=True):
        assert mine == their, (mine, their)


def test_hugging_face_to_dcp_gives_equal_logits(workshop, tmp_path):
    directory, config, _ = workshop.hf("qwen3_tied", "float32")
    tool.convert(directory, tmp_path / "dcp", "--to", "dcp")
    logits = env.run_ranks(2, dcp_ranks.load_weights, str(tmp_path / "dcp"), "qwen3_tied", (2,))
    model = models.build("qwen3_tied", torch.float32)[0].eval()
    with torch.no_grad():
        expected = model(models.tokens(model.config.vocab_size), use_cache=False).logits
    assert torch.equal(logits[0], expected) and expected.abs().sum() > 0


def test_to_megatron_and_back(saved, tmp_path):
    """Masters become the float32 parameters; moments and step travel; the way back is exact."""
    directory, before, after = saved("fsdp4")
    layout = env.Layout(2, 2)
    tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--dtype", "bf16", "--iteration", "3", *tool.layout_words(layout),
                 "--set", "lr=1e-3", "--set", "min_lr=1e-5", "--verify")
    config, _ = models.parameters("qwen3")
    state = {name: tensor for name, tensor in before.items() if not name.startswith("param/")}
    state |= {name.replace("param/", "optim/master/"): tensor for name, tensor in before.items() if name.startswith("param/")}
    halves = {name: tensor.to(torch.bfloat16) for name, tensor in parameters_of(before).items()}
    mcore_load.check(tool.step_of(tmp_path / "megatron"), config, halves, state, groups={"step": 3})
    text = tool.convert(tmp_path / "megatron", tmp_path / "back", "--to", "dcp", "--params-from", "master", "--dtype", "fp32", "--set", "lr=3e-3", "--verify")
    assert "master" in text
    loads(tmp_path / "back", "fsdp4", before, after)
    text = tool.convert(tmp_path / "megatron", tmp_path / "coarse", "--to", "dcp")
    assert "--params-from master" in text and "master weights" in text, text


@pytest.mark.parametrize("files", [1, 2])
def test_safetensors_of_ranks_are_read(workshop, tmp_path, files):
    state = env.run_ranks(2, dcp_ranks.save_safetensors, str(tmp_path / "shards"), "qwen2", (2,), False, files)[0]
    assert len(list((tmp_path / "shards").glob("shard-*.safetensors"))) == 2 * files
    tool.convert(tmp_path / "shards", tmp_path / "hf", "--to", "hf", "--from", "dcp")
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters_of(state)))
    shutil.copytree(tmp_path / "shards", tmp_path / "lost")
    next((tmp_path / "lost").glob("shard-00001-*")).unlink()
    tool.refused(tool.convert(tmp_path / "lost", tmp_path / "no", "--to", "hf", expect=3), "a rank's file is missing")
    shutil.copytree(tmp_path / "shards", tmp_path / "last")
    next((tmp_path / "last").glob("shard-00002-*")).unlink()
    tool.refused(tool.convert(tmp_path / "last", tmp_path / "no", "--to", "hf", expect=3), "model.embed_tokens.weight" if files == 1 else "shape")


def test_consolidated_safetensors_are_a_hugging_face_directory(workshop, tmp_path):
    state = env.run_ranks(2, dcp_ranks.save_safetensors, str(tmp_path / "whole"), "qwen2", (2,), True, 2)[0]
    tool.convert(tmp_path / "whole", tmp_path / "full", "--to", "full-state")
    found, _, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of(state))


def save_here(target, state, config=None):
    """One process, no ranks: any nesting of plain tensors."""
    dcp.save(state, checkpoint_id=str(target), no_dist=True)
    if config:
        shutil.copy(config / "config.json", target)


@pytest.mark.parametrize("nest", [
    ("", lambda weights: dict(weights)),
    ("state_dict.model.", lambda weights: {"state_dict": {"model": weights}}),
    ("app.model.", lambda weights: {"app": {"model": weights}, "epoch": 3, "rng": torch.zeros(7, dtype=torch.uint8)}),
    ("model.", lambda weights: {"model": {f"module._orig_mod.{name}": tensor for name, tensor in weights.items()}}),
    ("net.", lambda weights: {"net": {name.removeprefix("model."): tensor for name, tensor in weights.items()}}),
], ids=["root", "lightning", "app", "wrapped", "base"])
def test_levels_and_wrappers(workshop, tmp_path, nest):
    source, _, tensors = workshop.hf("llama32_tied")
    prefix, make = nest
    save_here(tmp_path / "dcp", make(dict(tensors)), source)
    text = tool.convert(tmp_path / "dcp", tmp_path / "hf", "--to", "hf")
    assert f"the weights are taken to be the keys {f'under `{prefix}`' if prefix else 'at the root'}" in text, text
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))


def test_config_of_the_directory_above_or_a_template(workshop, tmp_path):
    source, _, tensors = workshop.hf("llama3_gqa")
    save_here(tmp_path / "run" / "dcp", {"model": dict(tensors)})
    tool.refused(tool.convert(tmp_path / "run" / "dcp", tmp_path / "hf", "--to", "hf", expect=3), "config.json", "--hf-template")
    tool.convert(tmp_path / "run" / "dcp", tmp_path / "templated", "--to", "hf", "--hf-template", source)
    shutil.copy(source / "config.json", tmp_path / "run")
    tool.convert(tmp_path / "run" / "dcp", tmp_path / "above", "--to", "hf")
    for made in ("templated", "above"):
        assert_same(read_directory(tmp_path / made)[0], raw_of(tensors))


def adam(tensors, step):
    return {name: {"step": torch.tensor(float(step(index))), "exp_avg": tensor.float() * 2, "exp_avg_sq": tensor.float() ** 2}
            for index, (name, tensor) in enumerate(tensors.items())}


def test_refusals(workshop, tmp_path):
    source, _, tensors = workshop.hf("llama3_gqa")
    tensors = dict(tensors)
    group = [{"lr": 0.1, "weight_decay": 0.0, "params": list(tensors)}]
    save_here(tmp_path / "steps", {"model": tensors, "optim": {"state": adam(tensors, lambda i: 3 + i % 2), "param_groups": group}}, source)
    tool.refused(tool.convert(tmp_path / "steps", tmp_path / "no", "--to", "full-state", expect=3), "different steps", "--no-optim")
    tool.convert(tmp_path / "steps", tmp_path / "yes", "--to", "full-state", "--no-optim")

    numbered = {index: item for index, item in enumerate(adam(tensors, lambda i: 3).values())}
    save_here(tmp_path / "numbers", {"model": tensors, "optim": {"state": {str(i): v for i, v in numbered.items()}, "param_groups": group}}, source)
    tool.refused(tool.convert(tmp_path / "numbers", tmp_path / "no", "--to", "full-state", expect=3), "by the parameters' numbers", "get_state_dict")
    tool.convert(tmp_path / "numbers", tmp_path / "hf", "--to", "hf")

    save_here(tmp_path / "twice", {"model": tensors, "ema": tensors}, source)
    tool.refused(tool.convert(tmp_path / "twice", tmp_path / "no", "--to", "hf", expect=3), "several sets of weights", "ema.", "model.")

    amsgrad = adam(tensors, lambda i: 3)
    for item in amsgrad.values():
        item["max_exp_avg_sq"] = item["exp_avg_sq"]
    save_here(tmp_path / "amsgrad", {"model": tensors, "optim": {"state": amsgrad, "param_groups": group}}, source)
    tool.refused(tool.convert(tmp_path / "amsgrad", tmp_path / "no", "--to", "full-state", expect=3), "max_exp_avg_sq")
    tool.convert(tmp_path / "amsgrad", tmp_path / "plain", "--to", "full-state", "--no-optim")

    save_here(tmp_path / "optimizer", {"optim": {"state": adam(tensors, lambda i: 3), "param_groups": group}}, source)
    tool.refused(tool.convert(tmp_path / "optimizer", tmp_path / "no", "--to", "hf", expect=3), "no weights")

    shutil.copytree(tmp_path / "twice", tmp_path / "cut")
    (tmp_path / "cut" / ".metadata").unlink()
    tool.refused(tool.convert(tmp_path / "cut", tmp_path / "no", "--to", "hf", expect=3), "incomplete", ".metadata")


def test_compressed_blobs_are_refused_by_name(workshop, tmp_path):
    from torch.distributed.checkpoint._extension import StreamTransformExtension

    class Through(StreamTransformExtension):
        """Changes nothing; what counts is what the metadata says of it."""
        registry_name = staticmethod(lambda: "stream.through")
        from_descriptor = staticmethod(lambda version: Through())

        def get_descriptor(self):
            return "stream.through/1"

        def transform_to(self, output):
            import io

            class Writer(io.RawIOBase):
                writable = lambda self: True
                write = lambda self, data: output.write(data)
            return Writer()

        def transform_from(self, input):
            return input

    source, _, tensors = workshop.hf("llama3_gqa")
    writer = dcp.FileSystemWriter(str(tmp_path / "dcp"), _extensions=[Through()])
    dcp.save({"model": dict(tensors)}, storage_writer=writer, no_dist=True)
    shutil.copy(source / "config.json", tmp_path / "dcp")
    tool.refused(tool.convert(tmp_path / "dcp", tmp_path / "no", "--to", "hf", expect=3), "transformed", "model.", "stream.through/1")


def test_flattened_state_has_a_group_a_parameter(workshop, tmp_path):
    """get_optimizer_state_dict(flatten_optimizer_state_dict=True): groups are found again by their settings."""
    source, _, tensors = workshop.hf("llama3_gqa")
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    flat = {}
    for name, item in adam(tensors, lambda i: 5).items():
        flat |= {f"state.{name}.{key}": tensor for key, tensor in item.items()}
        decay = 0.1 if tensors[name].ndim > 1 else 0.0
        flat |= {f"param_groups.{name}.{key}": value for key, value in {"lr": 0.25, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": decay}.items()}
    save_here(tmp_path / "dcp", {"model": dict(tensors), "optim": flat}, source)
    tool.convert(tmp_path / "dcp", tmp_path / "back", "--to", "dcp")
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save(tmp_path / "back", tmp_path / "all.pt")
    groups = torch.load(tmp_path / "all.pt", weights_only=False)["optim"]["param_groups"]
    assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.1]
    for group in groups:
        assert sorted(group["params"]) == sorted(name for name, tensor in tensors.items() if (tensor.ndim > 1) == (group["weight_decay"] > 0))
        assert (group["lr"], group["betas"], group["eps"]) == (0.25, (0.9, 0.99), 1e-6)


def test_settings_that_nobody_says_are_asked_for(workshop, tmp_path):
    directory = workshop.full_state("qwen3")[0]
    template = ("--hf-template", workshop.hf("qwen3")[0])
    tool.refused(tool.convert(directory, tmp_path / "no", "--to", "dcp", *template, expect=2), "--set lr=VALUE", "--set weight_decay=VALUE")
    tool.refused(tool.convert(directory, tmp_path / "no", "--to", "dcp", *template, "--set", "seq_length=4", expect=2), "seq_length")
    tool.convert(directory, tmp_path / "dcp", "--to", "dcp", *template, "--set", "lr=0.5", "--set", "weight_decay=0.25", "--set", "adam_beta2=0.95")
    items = dcp.FileSystemReader(str(tmp_path / "dcp")).read_metadata().state_dict_metadata
    assert "optim.param_groups.0.betas" in items and "step" in items
