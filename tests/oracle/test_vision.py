"""Vision-language models that transformers writes, to Megatron under Megatron-Bridge's names and back, bit for bit. What lies
between is compared with the arrangement written down here once more; the values are read by torch's own DCP."""
import json

import pytest

import tool

tool.require()

import torch
import torch.distributed.checkpoint as dcp

import full_state
from reference import as_torch, assert_same, fill, raw_of, read_directory

LAYOUTS = {"tp1": [], "tp2": ["--tp", 2], "tp2_pp2_uneven": ["--tp", 2, "--pp", 2, "--first-stage-layers", 1]}
_TEXT = dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=307)
_ROPE = dict(rope_type="default", rope_theta=10000.0)


def settings(case, tied):
    import transformers
    vision = dict(hidden_size=48, depth=2, num_heads=4, intermediate_size=44, out_hidden_size=40, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
    if case == "qwen2_5_vl":
        text = _TEXT | dict(rope_parameters=_ROPE | dict(mrope_section=[1, 2, 2]), tie_word_embeddings=tied)
        return transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision | dict(fullatt_block_indexes=[1], window_size=16), tie_word_embeddings=tied)
    text = _TEXT | dict(head_dim=12, rope_parameters=_ROPE | dict(mrope_section=[2, 2, 2]), tie_word_embeddings=tied)
    return transformers.Qwen3VLConfig(text_config=text, vision_config=vision | dict(depth=3, num_position_embeddings=16, deepstack_visual_indexes=[0, 1]), tie_word_embeddings=tied)


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen2_5_vl-tied", "qwen3_vl", "qwen3_vl-tied"])
def written(request, tmp_path_factory):
    """(case, tied, directory, its tensors)"""
    import transformers
    case, _, tied = request.param.partition("-")
    config = settings(case, bool(tied))
    kind = transformers.Qwen2_5_VLForConditionalGeneration if case == "qwen2_5_vl" else transformers.Qwen3VLForConditionalGeneration
    model = kind(config).to(torch.bfloat16)
    model.tie_weights()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(fill(name, tensor.shape, torch.bfloat16) if tensor.dim() else tensor)
    model.tie_weights()
    directory = tmp_path_factory.mktemp("vision") / request.param
    model.save_pretrained(directory, max_shard_size="60KB")
    return case, bool(tied), directory, as_torch(read_directory(directory)[0])


def outputs(directory):
    """Logits of text and features of a picture, by transformers in fp32. What a load finds missing would be random."""
    import transformers
    model, found = transformers.AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")), found
    vision = model.config.vision_config
    patches = torch.randn(16, 3 * vision.temporal_patch_size * vision.patch_size ** 2, generator=torch.Generator().manual_seed(7))
    words = torch.arange(24).reshape(1, -1) * 11 % 300
    with torch.no_grad():
        features = model.model.get_image_features(patches, torch.tensor([[1, 4, 4]]))
        return model(input_ids=words, use_cache=False).logits, flat(features)


def flat(features):
    """Every tensor in what get_image_features returns, in order."""
    if isinstance(features, torch.Tensor):
        return [features]
    parts = features.values() if hasattr(features, "values") else features
    return [tensor for part in parts if part is not None for tensor in flat(part)]


def join_qkv(parts, groups):
    """Group by group: query heads, key head, value head."""
    return torch.cat([part.reshape(groups, -1, *part.shape[1:]) for part in parts], dim=1).reshape(-1, *parts[0].shape[1:])


def expected(case, tied, hub):
    """torch_dist keys and global tensors, from Hugging Face's; the vocabulary without its padding."""
    text = "model." if case == "qwen2_5_vl" else "model.language_model."
    made = {"language_model.embedding.word_embeddings.weight": hub[f"{text}embed_tokens.weight"],
            "language_model.decoder.final_layernorm.weight": hub[f"{text}norm.weight"]}
    if not tied:
        made["language_model.output_layer.weight"] = hub["lm_head.weight"]
    stack = lambda prefix, count, make: torch.stack([make(f"{prefix}{index}.") for index in range(count)])
    layers = {"self_attention.linear_qkv.layer_norm_weight": lambda l: hub[f"{l}input_layernorm.weight"],
              "self_attention.linear_qkv.weight": lambda l: join_qkv([hub[f"{l}self_attn.{part}_proj.weight"] for part in "qkv"], 2),
              "self_attention.linear_proj.weight": lambda l: hub[f"{l}self_attn.o_proj.weight"],
              "mlp.linear_fc1.layer_norm_weight": lambda l: hub[f"{l}post_attention_layernorm.weight"],
              "mlp.linear_fc1.weight": lambda l: torch.cat([hub[f"{l}mlp.gate_proj.weight"], hub[f"{l}mlp.up_proj.weight"]]),
              "mlp.linear_fc2.weight": lambda l: hub[f"{l}mlp.down_proj.weight"]}
    if case == "qwen2_5_vl":
        layers["self_attention.linear_qkv.bias"] = lambda l: join_qkv([hub[f"{l}self_attn.{part}_proj.bias"] for part in "qkv"], 2)
    else:
        layers |= {f"self_attention.{part}_layernorm.weight": lambda l, part=part: hub[f"{l}self_attn.{part}_norm.weight"] for part in "qk"}
    for name, make in layers.items():
        made[f"language_model.decoder.layers.{name}"] = stack(f"{text}layers.", 3, make)
    if case == "qwen2_5_vl":   # transformers' module as it is
        return made | {name: tensor for name, tensor in hub.items() if name.startswith("visual.")}
    visual, tower = "model.visual.", "vision_model."
    for name in ("patch_embed.proj.weight", "patch_embed.proj.bias", "pos_embed.weight"):
        made[tower + name] = hub[visual + name]
    for kind in ("weight", "bias"):
        for ours, theirs in (("patch_norm", "norm"), ("linear_fc1", "linear_fc1"), ("linear_fc2", "linear_fc2")):
            made[f"{tower}merger.{ours}.{kind}"] = hub[f"{visual}merger.{theirs}.{kind}"]
            made[f"{tower}decoder.deepstack_merger_list.{ours}.{kind}"] = stack(f"{visual}deepstack_merger_list.", 2, lambda l, theirs=theirs: hub[f"{l}{theirs}.{kind}"])
        blocks = {f"self_attention.linear_qkv.layer_norm_{kind}": f"norm1.{kind}", f"mlp.linear_fc1.layer_norm_{kind}": f"norm2.{kind}",
                  f"self_attention.linear_proj.{kind}": f"attn.proj.{kind}", f"mlp.linear_fc1.{kind}": f"mlp.linear_fc1.{kind}", f"mlp.linear_fc2.{kind}": f"mlp.linear_fc2.{kind}"}
        for name, theirs in blocks.items():
            made[f"{tower}decoder.layers.{name}"] = stack(f"{visual}blocks.", 3, lambda l, theirs=theirs: hub[l + theirs])
        made[f"{tower}decoder.layers.self_attention.linear_qkv.{kind}"] = stack(f"{visual}blocks.", 3, lambda l: join_qkv(hub[f"{l}attn.qkv.{kind}"].chunk(3), 4))
    return made


def read_megatron(step):
    """All tensors of a torch_dist directory, by torch alone."""
    reader = dcp.FileSystemReader(step)
    state = {key: torch.zeros(tuple(item.size), dtype=item.properties.dtype) for key, item in reader.read_metadata().state_dict_metadata.items() if hasattr(item, "size")}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hugging_face_to_megatron_and_back(written, tmp_path, layout):
    case, tied, directory, hub = written
    said = tool.convert(directory, tmp_path / "m", "--to", "megatron", *LAYOUTS[layout])
    assert "megatron-bridge" in said, said
    found, wanted = read_megatron(tool.step_of(tmp_path / "m")), expected(case, tied, hub)
    assert set(found) == set(wanted)
    for key, tensor in wanted.items():
        stored = found[key]
        if key.endswith(("word_embeddings.weight", "output_layer.weight")):
            assert not stored[len(tensor):].any() and len(stored) % 128 == 0
            stored = stored[:len(tensor)]
        assert torch.equal(stored.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), key
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])
    before, after = (json.loads((path / "config.json").read_text()) for path in (directory, tmp_path / "back"))
    assert after.pop("torch_dtype") == before["dtype"] and before == after


def test_logits_and_features_are_the_originals(written, tmp_path):
    directory = written[2]
    tool.convert(directory, tmp_path / "m", "--to", "megatron", *LAYOUTS["tp2_pp2_uneven"])
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf")
    (logits, features), (logits_back, features_back) = outputs(directory), outputs(tmp_path / "back")
    assert torch.equal(logits, logits_back) and logits.std() > 0.01
    assert len(features) == len(features_back) > 0 and all(torch.equal(a, b) for a, b in zip(features, features_back)) and features[0].std() > 0.01


@pytest.mark.parametrize("layout", ["tp1", "tp2_pp2_uneven"])
def test_megatron_core_loads_it(written, tmp_path, layout):
    import mcore_vision
    from mcore_env import Layout
    case, tied, directory, hub = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", *LAYOUTS[layout])
    config = json.loads((directory / "config.json").read_text())
    mcore_vision.check(tool.step_of(tmp_path / "m"), config, expected(case, tied, hub), [Layout(), Layout(tp=2, pp=2, first=2)])


def test_parts_of_the_tower_lie_on_the_first_stage(written, tmp_path):
    case, _, directory, _ = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--first-stage-layers", 1)
    step = tool.step_of(tmp_path / "m")
    metadata = dcp.FileSystemReader(step).read_metadata()
    ranks = {}
    for index, info in metadata.storage_data.items():
        rank = int(info.relative_path.removeprefix("__").split("_")[0])
        ranks.setdefault(index.fqn, set()).add(rank)
    tower = "visual." if case == "qwen2_5_vl" else "vision_model."
    held = {name: on for name, on in ranks.items() if name.startswith(tower)}
    assert held and all(on <= {0, 1} for on in held.values()), held
    assert ranks["language_model.embedding.word_embeddings.weight"] == {0, 1}
    assert ranks["language_model.decoder.final_layernorm.weight"] == {2}
    assert ranks["language_model.decoder.layers.self_attention.linear_proj.weight"] == {0, 1, 2, 3}
    if case == "qwen3_vl":
        assert ranks["vision_model.decoder.layers.self_attention.linear_qkv.weight"] == {0, 1}


def test_adam_goes_the_same_way_by_full_state(written, tmp_path):
    case, _, directory, hub = written
    state = full_state.write(tmp_path / "state", case, json.loads((directory / "config.json").read_text()), hub)
    tool.convert(tmp_path / "state", tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--first-stage-layers", 1,
                 "--set", "lr=1e-4", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1")
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "full-state")
    tensors, counters, _ = full_state.read(tmp_path / "back")
    assert_same(tensors, raw_of({f"param/{name}": tensor for name, tensor in hub.items()} | state))
    assert counters["adam_count"] == full_state.STEP
    tool.convert(tmp_path / "back", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], read_directory(directory)[0])


def test_a_megatron_step_without_config_takes_the_templates(written, tmp_path):
    _, _, directory, _ = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--tp", 2)
    (tool.step_of(tmp_path / "m") / "hf" / "config.json").unlink()
    tool.refused(tool.convert(tmp_path / "m", tmp_path / "no", "--to", "hf", expect=(1, 2, 3, 4, 5)), "--hf-template")
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", directory)
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])


@pytest.mark.parametrize("words", [["--for", "loongforge"], ["--for", "megatron-lm"], ["--encoder-tp", 2]])
def test_what_is_not_written_is_refused_by_name(written, tmp_path, words):
    _, _, directory, _ = written
    tool.refused(tool.convert(directory, tmp_path / "no", "--to", "megatron", *words, expect=(1, 2, 3, 4, 5)), words[0].strip("-"))


def test_another_spelling_on_disk_is_refused(written, tmp_path):
    from safetensors.torch import save_file
    case, _, directory, hub = written
    text, respelled = ("model.", "model.language_model.") if case == "qwen2_5_vl" else ("model.language_model.", "model.")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text((directory / "config.json").read_text())
    save_file({respelled + name.removeprefix(text) if name.startswith(text) else name: tensor for name, tensor in hub.items()}, other / "model.safetensors")
    tool.refused(tool.convert(other, tmp_path / "no", "--to", "megatron", expect=(1, 2, 3, 4, 5)), "spelling")
