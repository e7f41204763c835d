"""Legacy trees (--ckpt-format torch) of models with experts and with multi-latent attention: what training saves comes back as the
files of Hugging Face, and what the tool writes is loaded by training's own load_checkpoint, names, order and bits, on every rank."""
import shutil

import pytest

import tool

tool.require()

import torch

import legacy_experts
import mcore_env as env
import mcore_load
import mcore_write
import models_experts
from reference import assert_same, read_directory

# Where experts have fewer tensor ranks than the rest, not every pair of ranks exists: TP2 EP2 ETP1 has two directories.
SAVED = [
    ("qwen3_moe", env.Layout(1, 1, dp=2, ep=2), "grouped"), ("qwen3_moe", env.Layout(2, 2, dp=2, ep=2, first=3), "sequential"),
    ("qwen3_moe_mixed", env.Layout(2, 1, dp=2, ep=2), "grouped"), ("mixtral", env.Layout(1, 2, dp=3, ep=3, first=2), "sequential"),
    ("qwen2_moe", env.Layout(2, 2, dp=2, ep=2, first=1), "local"), ("deepseek_v2", env.Layout(2, 1, ep=2, etp=1), "local"),
    ("deepseek_v2_lite", env.Layout(2, 1), "grouped"), ("deepseek_v3", env.Layout(2, 1, dp=3, ep=3, etp=1), "grouped"),
    ("deepseek_v3", env.Layout(2, 2, dp=2, ep=2, first=4), "sequential")]
LOADED = SAVED + [("mixtral", env.Layout(2, 1, dp=2, ep=2), "local"), ("qwen2_moe", env.Layout(1, 2, dp=3, ep=3, first=1), "grouped"),
                  ("qwen3_moe_mixed", env.Layout(2, 2, dp=2, ep=2, first=3), "sequential")]
WORDS = {"grouped": [], "sequential": ["--set", "moe_grouped_gemm=False"], "local": ["--set", "transformer_impl=local"]}


def named(cells):
    return [pytest.param(*cell, id="-".join(map(str, cell))) for cell in cells]


def same_files(workshop, case, found):
    assert_same(read_directory(found)[0], read_directory(workshop.hf(case)[0])[0])


@pytest.mark.parametrize("case,layout,form", named(SAVED))
def test_what_training_saves_comes_back(workshop, case, layout, form, tmp_path):
    source, config, parameters = workshop.hf(case)
    root = tmp_path / "run"
    step = legacy_experts.save(root, config, parameters, layout, form)
    if layout.expert_tp < layout.tp:                             # fewer directories than the grid of ranks has cells
        assert len(list(step.glob("mp_rank_*"))) < layout.tp * layout.ep
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", source)
    stored = read_directory(tmp_path / "hf")[0]
    assert_same(stored, {name: raw for name, raw in narrowed(read_directory(source)[0], stored).items()})


def narrowed(expected, stored):
    """transformers keeps some routers in F32; the models here train in bf16, which holds the same values."""
    result = {}
    for name, (dtype, shape, data) in expected.items():
        if dtype == "F32" and stored.get(name, [None])[0] == "BF16":
            wide = torch.frombuffer(bytearray(data), dtype=torch.float32)
            assert torch.equal(wide.to(torch.bfloat16).float(), wide), name
            dtype, data = "BF16", wide.to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
        result[name] = (dtype, shape, data)
    return result


@pytest.mark.parametrize("case,layout,form", named(LOADED))
def test_loaded_by_training(workshop, case, layout, form, tmp_path):
    source, config, parameters = workshop.hf(case)
    root = tmp_path / "run"
    tool.convert(source, root, "--to", "megatron-legacy", "--iteration", 20, *tool.layout_words(layout), *WORDS[form])
    assert legacy_experts.check(root, config, parameters, layout, form) > 20
    tool.convert(root, tmp_path / "hf", "--to", "hf")
    same_files(workshop, case, tmp_path / "hf")


@pytest.mark.parametrize("case,layout,other", [("qwen3_moe", env.Layout(2, 1, dp=2, ep=2), env.Layout(1, 2, dp=3, ep=3, first=2)),
                                               ("deepseek_v3", env.Layout(1, 2, dp=2, ep=2, first=4), env.Layout(2, 1, ep=2, etp=1))], ids=["qwen3_moe", "deepseek_v3"])
def test_between_legacy_and_torch_dist(workshop, case, layout, other, tmp_path):
    _, config, parameters = workshop.hf(case)
    legacy_experts.save(tmp_path / "legacy", config, parameters, layout, "grouped")
    tool.convert(tmp_path / "legacy", tmp_path / "dist", "--to", "megatron", *tool.layout_words(other))
    assert mcore_load.check(tool.step_of(tmp_path / "dist"), config, parameters, None, [other]) > 20
    mcore_write.save(tmp_path / "saved", config, parameters, other)
    tool.convert(tmp_path / "saved", tmp_path / "cut", "--to", "megatron-legacy", *tool.layout_words(layout))
    assert legacy_experts.check(tmp_path / "cut", config, parameters, layout, "sequential") > 20   # as its arguments say


def pack(path, experts):
    """One rank's sequential experts as GroupedMLP (megatron-core up to 0.16) held them: two matrices, read as [experts, rows, columns]."""
    content = torch.load(path, weights_only=False)
    model = content["model"]
    for prefix in sorted({name.split("local_experts.")[0] for name in model if "local_experts." in name}):
        for number, matrix in ((1, "linear_fc1"), (2, "linear_fc2")):
            weights = [model.pop(f"{prefix}local_experts.{index}.{matrix}.weight").T for index in range(experts)]
            together = torch.stack(weights)                      # [experts, in, out]
            model[f"{prefix}weight{number}"] = together.reshape(together.shape[1], -1) if number == 1 else together.reshape(-1, together.shape[2])
    for name in [name for name in model if "local_experts." in name]:
        del model[name]
    torch.save(content, path)


def test_one_matrix_of_all_experts(workshop, tmp_path):
    case, layout = "qwen3_moe", env.Layout(2, 1, dp=2, ep=2)
    source, config, parameters = workshop.hf(case)
    step = legacy_experts.save(tmp_path / "run", config, parameters, layout, "sequential")
    for path in step.glob("mp_rank_*/model_optim_rng.pt"):
        pack(path, models_experts.experts_of(config) // layout.ep)
    tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source)
    same_files(workshop, case, tmp_path / "hf")


def test_experts_whose_ranks_share_a_file_are_refused(workshop, tmp_path):
    """With TP1 and ETP2 both ranks write mp_rank_00: Megatron keeps half of every expert."""
    case, layout = "qwen3_moe", env.Layout(1, 1, dp=2, etp=2)
    source, config, parameters = workshop.hf(case)
    step = legacy_experts.save(tmp_path / "run", config, parameters, layout, "grouped")
    assert [path.name for path in step.glob("mp_rank_*")] == ["mp_rank_00"]
    tool.refused(tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source, expect=3), "wrote the same file", "torch_dist")
    tool.refused(tool.convert(source, tmp_path / "out", "--to", "megatron-legacy", *tool.layout_words(layout), expect=3), "--etp 2", "--to megatron")


def test_a_lost_directory_is_named(workshop, tmp_path):
    case, layout = "mixtral", env.Layout(1, 1, dp=3, ep=3)
    source, config, parameters = workshop.hf(case)
    step = legacy_experts.save(tmp_path / "run", config, parameters, layout, "grouped")
    shutil.rmtree(step / "mp_rank_00_001")
    tool.refused(tool.convert(tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-template", source, expect=3), "mp_rank_00_001")
