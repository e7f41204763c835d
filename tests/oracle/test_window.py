"""Sliding windows: what the two libraries mask with the numbers that the tool writes for each of them."""
import json
import shutil

import pytest

import tool

tool.require()

import torch
from megatron.core.transformer import utils as mcore_utils
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.masking_utils import sliding_window_causal_mask_function

import models
from reference import fill
from tool import step_of

LENGTH = 12


def megatron_sees(window, monkeypatch):
    """[query, key] that Megatron-Core's own mask lets through; the library asks for a GPU only to make the tensor."""
    ones = torch.ones
    monkeypatch.setattr(mcore_utils.torch, "ones", lambda *shape, **more: ones(*shape, **(more | {"device": "cpu"})))
    hidden = mcore_utils.get_sliding_window_causal_mask(LENGTH, LENGTH, tuple(window))
    monkeypatch.undo()
    return ~hidden


def transformers_sees(window):
    rule = sliding_window_causal_mask_function(window)
    return torch.tensor([[bool(rule(0, 0, torch.tensor(q), torch.tensor(k))) for k in range(LENGTH)] for q in range(LENGTH)])


@pytest.mark.parametrize("kind,architecture", [("mistral", "MistralForCausalLM"), ("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM")])
def test_a_window_means_the_same_on_both_sides(tmp_path, monkeypatch, kind, architecture):
    window = 5
    config = models.CONFIGS[kind] | {"sliding_window": window, "architectures": [architecture], "dtype": "bfloat16", "max_position_embeddings": 128}
    if kind != "mistral":
        config |= {"use_sliding_window": True, "max_window_layers": 0}
    source = tmp_path / "hf"
    source.mkdir()
    tensors = {name: fill(name, shape, torch.bfloat16) for name, shape in models.shapes(config).items()}
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    (source / "config.json").write_text(json.dumps(config))

    tool.convert(source, tmp_path / "m", "--to", "megatron")
    step = step_of(tmp_path / "m")
    args = torch.load(step / "common.pt", weights_only=False)["args"]
    assert torch.equal(megatron_sees(args.window_size, monkeypatch), transformers_sees(window))

    shutil.rmtree(step / "hf")   # from here on the arguments alone tell it
    if kind == "mistral":   # the same keys as a Llama's, which has no window
        tool.refused(tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", expect=3), "window_size", "--family mistral")
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", *(["--family", "mistral"] if kind == "mistral" else []))
    written = AutoConfig.from_pretrained(tmp_path / "back")
    assert torch.equal(transformers_sees(written.sliding_window), megatron_sees(args.window_size, monkeypatch))
    if kind != "mistral":
        assert set(written.layer_types) == {"sliding_attention"}
