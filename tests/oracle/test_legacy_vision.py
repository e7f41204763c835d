"""Vision-language models in legacy trees, each rank's own file: the real modules of Megatron-Core load what the tool writes and the tool reads
what they save, under Megatron-Bridge's names; LoongForge's, whose scripts save such files and which does not run here, are cut once more by
rules written down here. Whatever lies between, the directory that transformers wrote comes back bit for bit."""
import json
import re

import pytest

import tool

tool.require()

import torch

from mcore_env import Layout
import mcore_vision
from reference import assert_same, read_directory
from test_vision import expected, form_of, loongforge, written  # noqa: F401

LAYOUTS = [Layout(), Layout(tp=2), Layout(tp=2, pp=2, first=2), Layout(tp=1, pp=3)]
COLUMNS = ("linear_qkv.weight", "linear_qkv.bias", "linear_fc1.weight", "linear_fc1.bias")
ROWS = ("linear_proj.weight", "linear_fc2.weight")


def back(source, target, case, directory, *words):
    tool.convert(source, target, "--to", "hf", *form_of(case), *words)
    assert_same(read_directory(target)[0], read_directory(directory)[0])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_modules_load_what_is_written(written, tmp_path, layout):
    case, tied, directory, hub = written
    one_by_one = ["--set", "moe_grouped_gemm=False"] if case == "qwen3_vl_moe" else []   # as the modules here hold their experts
    text = tool.convert(directory, tmp_path / "tree", "--to", "megatron-legacy", *tool.layout_words(layout), *one_by_one)
    config = json.loads((directory / "config.json").read_text())
    mcore_vision.check(next((tmp_path / "tree").glob("*/mp_rank_00*")).parent, config, expected(case, tied, hub), [layout], how="legacy")
    assert "megatron-bridge" in text, text
    back(tmp_path / "tree", tmp_path / "back", case, directory)
    # Another division, another form, and back.
    tool.convert(tmp_path / "tree", tmp_path / "dist", "--to", "megatron", "--tp", 2, "--pp", 3)
    tool.convert(tmp_path / "dist", tmp_path / "again", "--to", "megatron-legacy", "--tp", 4 if case == "qwen3_vl" else 2)
    back(tmp_path / "again", tmp_path / "end", case, directory)


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=2, pp=2, first=1)], ids=str)
def test_what_modules_save_is_read(written, tmp_path, layout):
    case, tied, directory, hub = written
    config = json.loads((directory / "config.json").read_text())
    mcore_vision.save(tmp_path / "run", config, expected(case, tied, hub), layout)
    back(tmp_path / "run", tmp_path / "back", case, directory, "--hf-template", directory)


def part_of(name, tensor, rank, ranks, gated):
    """What a rank of a tower holds of one tensor."""
    if name.endswith(ROWS):
        return tensor.chunk(ranks, 1)[rank]
    if name.endswith(("linear_fc1.weight", "linear_fc1.bias")) and gated:
        return torch.cat([half.chunk(ranks)[rank] for half in tensor.chunk(2)])
    return tensor.chunk(ranks)[rank] if name.endswith(COLUMNS) else tensor


@pytest.mark.parametrize("tp, encoder", [(1, 1), (2, 2), (2, 1)])
def test_loongforge(written, tmp_path, tp, encoder):
    case, tied, directory, hub = written
    tool.convert(directory, tmp_path / "tree", "--to", "megatron-legacy", "--for", "loongforge", "--tp", tp, "--pp", 3, "--encoder-tp", encoder)
    wanted = loongforge(case, hub, expected(case, tied, hub))
    tower = {name: tensor for name, tensor in wanted.items() if name.startswith("encoder_model.")}
    for rank in range(tp):
        held = {}
        for stage in range(3):
            model = torch.load(next((tmp_path / "tree").glob(f"*/mp_rank_{rank:02d}_{stage:03d}/model_optim_rng.pt")), weights_only=False)["model"]
            if stage:
                assert not any(name.startswith("encoder_model.") for name in model)
            else:
                held = {name: tensor for name, tensor in model.items() if name.startswith("encoder_model.") and not name.endswith("_extra_state")}
                states = {name for name in model if name.startswith("encoder_model.") and name.endswith("_extra_state")}
        seen = set()
        for name, tensor in held.items():
            block = re.fullmatch(r"(encoder_model\.image_encoder\.decoder\.layers\.)(\d+)\.(.*)", name)
            key = block[1] + block[3] if block else name
            whole = tower[key][int(block[2])] if block else tower[key]
            seen.add(key)
            if "text_encoder" in name:
                rows = len(tensor) * tp
                whole = torch.cat([whole, torch.zeros(rows - len(whole), whole.shape[1], dtype=whole.dtype)]).chunk(tp)[rank]
            else:
                whole = part_of(name, whole, rank % encoder, encoder, gated=case == "qwen2_5_vl" and block is not None)
            assert torch.equal(tensor.contiguous().view(torch.uint8), whole.contiguous().view(torch.uint8)), (rank, name)
        assert seen == set(tower), seen ^ set(tower)
        assert "encoder_model.image_encoder.decoder.layers.0.mlp.linear_fc1._extra_state" in states, states
    back(tmp_path / "tree", tmp_path / "back", case, directory)
    # The same tree as torch_dist has what a direct conversion has.
    tool.convert(tmp_path / "tree", tmp_path / "dist", "--to", "megatron", "--for", "loongforge")
    tool.convert(directory, tmp_path / "direct", "--to", "megatron", "--for", "loongforge")
    tool.run("verify", tmp_path / "dist", tmp_path / "direct")


def test_a_stale_copy_of_the_embedding_is_seen(written, tmp_path):
    case, _, directory, _ = written
    for tp in (1, 2):
        tool.convert(directory, tmp_path / f"tree{tp}", "--to", "megatron-legacy", "--for", "loongforge", "--tp", tp)
        path = next((tmp_path / f"tree{tp}").glob(f"*/mp_rank_{tp - 1:02d}/model_optim_rng.pt"))
        content = torch.load(path, weights_only=False)
        content["model"]["encoder_model.text_encoder.word_embeddings.weight"][3, 5] += 1
        torch.save(content, path)
        tool.refused(tool.convert(tmp_path / f"tree{tp}", tmp_path / "no", "--to", "hf", expect=3), "text_encoder" if tp > 1 else "embed_tokens", "differ")


def test_state_is_refused_with_a_way_out(written, tmp_path):
    import full_state
    case, _, directory, hub = written
    if case == "qwen3_vl_moe":   # its full state has one tensor an expert; what is shown here is the tower's
        return
    full_state.write(tmp_path / "state", case, json.loads((directory / "config.json").read_text()), hub)
    words = ["--to", "megatron-legacy", "--set", "lr=1e-4", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1"]
    tool.refused(tool.convert(tmp_path / "state", tmp_path / "no", *words, expect=3), "vision tower", "--no-optim")
    tool.convert(tmp_path / "state", tmp_path / "tree", *words, "--no-optim")
    back(tmp_path / "tree", tmp_path / "back", case, directory)
