"""pytorch_model.bin as people have it: both torch file forms, one file or an index, tied and shared storages, views."""
import collections
import json
import shutil

import pytest

import tool

tool.require()

import torch

import full_state
import models
from reference import assert_same, raw_of, read_directory


def shards(tensors, count):
    names = list(tensors)
    return [names[index::count] for index in range(count)]


def write(target, source, tensors, legacy, count=1):
    """`count` 1: pytorch_model.bin; else shards with an index, as transformers 4 wrote them."""
    target.mkdir()
    shutil.copy(source / "config.json", target)
    if count == 1:
        torch.save(tensors, target / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
        return
    where = {}
    for index, names in enumerate(shards(tensors, count)):
        file = f"pytorch_model-{index + 1:05d}-of-{count:05d}.bin"
        torch.save(collections.OrderedDict((name, tensors[name]) for name in names), target / file, _use_new_zipfile_serialization=not legacy)
        where |= dict.fromkeys(names, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    (target / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}))


def awkward(tensors):
    """The same values as views: one storage for q, k and v of a layer, a transposed matrix, every second row of a larger one, a
    slice far inside, Parameters, a zero-stride (expanded) vector."""
    out = collections.OrderedDict()
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            parts = [tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            fused = torch.cat(parts)
            for part, rows in zip(("q_proj", "k_proj", "v_proj"), fused.split([part.shape[0] for part in parts]), strict=True):
                out[name.replace("q_proj", part)] = rows
        elif name.endswith("down_proj.weight"):
            out[name] = tensor.t().contiguous().t()
        elif name.endswith("up_proj.weight"):
            wide = torch.zeros(2 * tensor.shape[0], tensor.shape[1], dtype=tensor.dtype)
            wide[::2] = tensor
            out[name] = wide[::2]
        elif name.endswith("gate_proj.weight"):
            wide = torch.zeros(tensor.shape[0] + 5, tensor.shape[1] + 3, dtype=tensor.dtype)
            wide[4:-1, 2:-1] = tensor
            out[name] = torch.nn.Parameter(wide[4:-1, 2:-1], requires_grad=False)
        elif name not in out:
            out[name] = tensor
    return out


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("count", [1, 3])
def test_views_and_shared_storages(workshop, tmp_path, legacy, count):
    source, _, tensors = workshop.hf("qwen2")
    views = awkward(tensors)
    assert not views["model.layers.0.mlp.down_proj.weight"].is_contiguous()
    assert views["model.layers.1.self_attn.q_proj.weight"].untyped_storage().data_ptr() == views["model.layers.1.self_attn.v_proj.weight"].untyped_storage().data_ptr()
    write(tmp_path / "bin", source, views, legacy, count)
    tool.convert(tmp_path / "bin", tmp_path / "hf", "--to", "hf", "--verify")
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(tensors))
    tool.convert(tmp_path / "bin", tmp_path / "full", "--to", "full-state")
    found, _, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in tensors.items()}))


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_tied_head_shares_the_embeddings_storage(workshop, tmp_path, legacy):
    source, _, tensors = workshop.hf("llama32_tied")
    tied = dict(tensors) | {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    write(tmp_path / "bin", source, tied, legacy)
    tool.convert(tmp_path / "bin", tmp_path / "full", "--to", "full-state")
    found, _, _ = full_state.read(tmp_path / "full")
    assert_same(found, raw_of({f"param/{name}": tensor for name, tensor in tensors.items()}))
    transposed = dict(tensors) | {name: tensors["model.embed_tokens.weight"].t().contiguous().t() for name in ("model.embed_tokens.weight", "lm_head.weight")}
    write(tmp_path / "pieces", source, transposed, legacy)
    tool.convert(tmp_path / "pieces", tmp_path / "again", "--to", "full-state")
    other = dict(tied) | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    write(tmp_path / "other", source, other, legacy)
    tool.refused(tool.convert(tmp_path / "other", tmp_path / "no", "--to", "full-state", expect=3), "ties the head", "lm_head.weight")


def test_a_missing_shard_and_a_view_beyond_its_storage(workshop, tmp_path):
    source, _, tensors = workshop.hf("qwen2")
    write(tmp_path / "bin", source, dict(tensors), False, 3)
    (tmp_path / "bin" / "pytorch_model-00002-of-00003.bin").unlink()
    tool.refused(tool.convert(tmp_path / "bin", tmp_path / "no", "--to", "hf", expect=3), "pytorch_model-00002-of-00003.bin")
    write(tmp_path / "list", source, {"optimizer": {"lr": 1}, **tensors}, False)
    tool.refused(tool.convert(tmp_path / "list", tmp_path / "no", "--to", "hf", expect=3), "optimizer")


def test_transformers_reads_the_result(workshop, tmp_path):
    source, _, tensors = workshop.hf("qwen3")
    write(tmp_path / "bin", source, awkward(tensors), True, 2)
    tool.convert(tmp_path / "bin", tmp_path / "hf", "--to", "hf")
    assert torch.equal(models.logits(tmp_path / "hf"), workshop.hf_logits("qwen3"))
