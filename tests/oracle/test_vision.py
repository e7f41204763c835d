"""Qwen's vision-language models that transformers writes, to Megatron under Megatron-Bridge's and LoongForge's names and back, bit for bit.
What lies between is compared with the arrangement written down here once more; the values are read by torch's own DCP."""
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
    if case == "qwen3_vl_moe":
        text |= dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=28)
    kind = transformers.Qwen3VLMoeConfig if case == "qwen3_vl_moe" else transformers.Qwen3VLConfig
    return kind(text_config=text, vision_config=vision | dict(depth=3, num_position_embeddings=16, deepstack_visual_indexes=[0, 1]), tie_word_embeddings=tied)


def save_filled(model, directory):
    """Saves a model whose values tell their names, in several shards; returns its tensors as they were written."""
    model.tie_weights()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(fill(name, tensor.shape, torch.bfloat16) if tensor.dim() else tensor)
    model.tie_weights()
    model.save_pretrained(directory, max_shard_size="60KB")
    return as_torch(read_directory(directory)[0])


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen2_5_vl-tied", "qwen3_vl", "qwen3_vl-tied", "qwen3_vl_moe"])
def written(request, tmp_path_factory):
    """(case, tied, directory, its tensors)"""
    import transformers
    case, _, tied = request.param.partition("-")
    config = settings(case, bool(tied))
    kinds = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe"}
    model = getattr(transformers, kinds[case] + "ForConditionalGeneration")(config).to(torch.bfloat16)
    directory = tmp_path_factory.mktemp("vision") / request.param
    return case, bool(tied), directory, save_filled(model, directory)


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


def form_of(case):
    """transformers 5 saves the experts of a layer in one tensor, their matrices the other way round than they were released."""
    return ["--experts", "fused"] if case == "qwen3_vl_moe" else []


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
    if case == "qwen3_vl_moe":   # experts along an axis, matrices as Megatron's linear layers have them
        for name in ("mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"):
            del layers[name]
        layers |= {"pre_mlp_layernorm.weight": lambda l: hub[f"{l}post_attention_layernorm.weight"], "mlp.router.weight": lambda l: hub[f"{l}mlp.gate.weight"],
                   "mlp.experts.experts.linear_fc1.weight": lambda l: hub[f"{l}mlp.experts.gate_up_proj"], "mlp.experts.experts.linear_fc2.weight": lambda l: hub[f"{l}mlp.experts.down_proj"]}
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


def loongforge(case, hub, made):
    """The same for LoongForge: its own parts, Qwen2.5-VL's tower of Megatron's layers, the embedding once more beside the tower."""
    encoder = "encoder_model.image_encoder."
    out = {name.replace("language_model.", "foundation_model."): tensor for name, tensor in made.items() if name.startswith("language_model.")}
    out["encoder_model.text_encoder.word_embeddings.weight"] = out["foundation_model.embedding.word_embeddings.weight"]
    if case != "qwen2_5_vl":
        for name, tensor in made.items():
            part = name.removeprefix("vision_model.")
            if name == part:
                continue
            if part.startswith("merger."):
                out[part.replace("merger.", "encoder_model.image_projector.").replace("patch_norm", "layernorm")] = tensor
            elif part.startswith("decoder.deepstack_merger_list."):
                rest = part.removeprefix("decoder.deepstack_merger_list.").replace("patch_norm", "layernorm")
                out |= {f"{encoder}deepstack_merger_list.{index}.{rest}": one for index, one in enumerate(tensor)}
            else:
                out[encoder + part] = tensor
        return out
    stack = lambda make: torch.stack([make(f"visual.blocks.{index}.") for index in range(2)])
    layers = encoder + "decoder.layers."
    out[encoder + "patch_embed.proj.weight"] = hub["visual.patch_embed.proj.weight"]
    out["encoder_model.image_projector.layernorm.weight"] = hub["visual.merger.ln_q.weight"]
    out[layers + "self_attention.linear_qkv.layer_norm_weight"] = stack(lambda l: hub[l + "norm1.weight"])
    out[layers + "mlp.linear_fc1.layer_norm_weight"] = stack(lambda l: hub[l + "norm2.weight"])
    for kind in ("weight", "bias"):
        out[f"encoder_model.image_projector.linear_fc1.{kind}"], out[f"encoder_model.image_projector.linear_fc2.{kind}"] = (hub[f"visual.merger.mlp.{at}.{kind}"] for at in (0, 2))
        out[f"{layers}self_attention.linear_qkv.{kind}"] = stack(lambda l: join_qkv(hub[f"{l}attn.qkv.{kind}"].chunk(3), 4))
        out[f"{layers}self_attention.linear_proj.{kind}"] = stack(lambda l: hub[f"{l}attn.proj.{kind}"])
        out[f"{layers}mlp.linear_fc1.{kind}"] = stack(lambda l: torch.cat([hub[f"{l}mlp.gate_proj.{kind}"], hub[f"{l}mlp.up_proj.{kind}"]]))
        out[f"{layers}mlp.linear_fc2.{kind}"] = stack(lambda l: hub[f"{l}mlp.down_proj.{kind}"])
    return out


def assert_holds(step, wanted):
    """The checkpoint has these tensors and no others; a vocabulary is padded with zeros."""
    found = read_megatron(step)
    assert set(found) == set(wanted)
    for key, tensor in wanted.items():
        stored = found[key]
        if key.endswith(("word_embeddings.weight", "output_layer.weight")):
            assert not stored[len(tensor):].any() and len(stored) % 128 == 0
            stored = stored[:len(tensor)]
        assert torch.equal(stored.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), key


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
    assert_holds(tool.step_of(tmp_path / "m"), expected(case, tied, hub))
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", *form_of(case))
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])
    before, after = (json.loads((path / "config.json").read_text()) for path in (directory, tmp_path / "back"))
    assert after.pop("torch_dtype") == before["dtype"] and before == after


def test_logits_and_features_are_the_originals(written, tmp_path):
    directory = written[2]   # experts come back as they were released, which transformers must take as well
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


def test_ranks_read_their_own_part_into_memory(written):
    tool.package()
    import mcore_vision
    from mcore_env import Layout
    case, tied, directory, hub = written
    if (case, tied) in (("qwen2_5_vl", True), ("qwen3_vl", False)):   # each family once
        return
    config = json.loads((directory / "config.json").read_text())
    mcore_vision.check(directory, config, expected(case, tied, hub), [Layout(tp=2, pp=2, first=2)], how="live")


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
    if case == "qwen3_vl_moe":   # full state has one tensor an expert
        hub = {name: tensor for name, tensor in hub.items() if ".experts." not in name} | {
            f"model.language_model.layers.{l}.mlp.experts.{e}.{part}_proj.weight": tensor for l in range(3) for e in range(6)
            for part, tensor in zip(("gate", "up", "down"), (*hub[f"model.language_model.layers.{l}.mlp.experts.gate_up_proj"][e].chunk(2), hub[f"model.language_model.layers.{l}.mlp.experts.down_proj"][e]))}
        hub = {name: tensor.contiguous() for name, tensor in hub.items()}
    state = full_state.write(tmp_path / "state", case, json.loads((directory / "config.json").read_text()), hub)
    tool.convert(tmp_path / "state", tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--first-stage-layers", 1,
                 "--set", "lr=1e-4", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1")
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "full-state")
    tensors, counters, _ = full_state.read(tmp_path / "back")
    assert_same(tensors, raw_of({f"param/{name}": tensor for name, tensor in hub.items()} | state))
    assert counters["adam_count"] == full_state.STEP
    tool.convert(tmp_path / "back", tmp_path / "hf", "--to", "hf", *form_of(case))
    assert_same(read_directory(tmp_path / "hf")[0], read_directory(directory)[0])


def test_a_megatron_step_without_config_takes_the_templates(written, tmp_path):
    case, _, directory, _ = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--tp", 2)
    (tool.step_of(tmp_path / "m") / "hf" / "config.json").unlink()
    tool.refused(tool.convert(tmp_path / "m", tmp_path / "no", "--to", "hf", expect=(1, 2, 3, 4, 5)), "--hf-template")
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", directory)
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])


@pytest.mark.parametrize("layout", [[], ["--tp", 2, "--pp", 2, "--first-stage-layers", 1], ["--tp", 2, "--encoder-tp", 1]])
def test_loongforge(written, tmp_path, layout):
    case, tied, directory, hub = written
    said = tool.convert(directory, tmp_path / "m", "--to", "megatron", "--for", "loongforge", *layout)
    assert "loongforge" in said, said
    step = tool.step_of(tmp_path / "m")
    assert_holds(step, loongforge(case, hub, expected(case, tied, hub)))
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", *form_of(case))
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])
    parts = {}
    for index, info in dcp.FileSystemReader(step).read_metadata().storage_data.items():
        parts.setdefault(index.fqn, set()).add(int(info.relative_path.removeprefix("__").split("_")[0]))
    tower = parts["encoder_model.image_encoder.decoder.layers.self_attention.linear_proj.weight"]
    assert tower == ({0} if "--encoder-tp" in layout or not layout else {0, 1})
    assert parts["foundation_model.decoder.layers.self_attention.linear_proj.weight"] == ({0, 1, 2, 3} if "--pp" in layout else {0, 1} if layout else {0})


def test_from_one_consumer_to_the_other(written, tmp_path):
    case, tied, directory, hub = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--tp", 2)
    tool.convert(tmp_path / "m", tmp_path / "n", "--to", "megatron", "--for", "loongforge", "--tp", 2, "--encoder-tp", 1)
    assert_holds(tool.step_of(tmp_path / "n"), loongforge(case, hub, expected(case, tied, hub)))
    tool.convert(tmp_path / "n", tmp_path / "same", "--to", "megatron", "--dtype", "bf16")   # keeps the names that it has
    assert_holds(tool.step_of(tmp_path / "same"), loongforge(case, hub, expected(case, tied, hub)))
    tool.convert(tmp_path / "n", tmp_path / "o", "--to", "megatron", "--for", "megatron-bridge")
    assert_holds(tool.step_of(tmp_path / "o"), expected(case, tied, hub))


def test_a_stale_copy_of_the_embedding_is_seen(written, tmp_path):
    from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
    case, _, directory, _ = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--for", "loongforge")
    step = tool.step_of(tmp_path / "m")
    key = "encoder_model.text_encoder.word_embeddings.weight"
    info = next(info for index, info in FileSystemReader(step).read_metadata().storage_data.items() if index.fqn == key)
    with open(step / info.relative_path, "r+b") as file:   # a byte of the stored values; the tensor's archive begins with headers
        data = file.read()
        wanted = as_torch(read_directory(directory)[0])["model.embed_tokens.weight" if case == "qwen2_5_vl" else "model.language_model.embed_tokens.weight"].view(torch.uint8).numpy().tobytes()
        at = data.index(wanted, info.offset)
        file.seek(at + 7)
        file.write(bytes([data[at + 7] ^ 1]))
    tool.refused(tool.convert(tmp_path / "m", tmp_path / "no", "--to", "hf", expect=(1, 2, 3, 4, 5)), "embed_tokens")


@pytest.mark.parametrize("words", [["--for", "megatron-lm"], ["--tp", 2, "--encoder-tp", 1]])
def test_what_is_not_written_is_refused_by_name(written, tmp_path, words):
    _, _, directory, _ = written
    tool.refused(tool.convert(directory, tmp_path / "no", "--to", "megatron", *words, expect=(1, 2, 3, 4, 5)), words[-2].strip("-"))


@pytest.mark.parametrize("via", ["hf", "megatron"])
def test_the_language_model_alone(written, tmp_path, via):
    import transformers
    case, tied, directory, hub = written
    source = directory
    if via == "megatron":
        source = tmp_path / "m"
        tool.convert(directory, source, "--to", "megatron", "--tp", 2)
    family = {"qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe"}[case]
    said = tool.convert(source, tmp_path / "text", "--to", "hf", "--family", family)
    assert "vision tower" in said, said
    text = "model." if case == "qwen2_5_vl" else "model.language_model."
    wanted = {name.replace(text, "model.", 1): tensor for name, tensor in hub.items() if name.startswith((text, "lm_head.")) and "visual." not in name}
    found = as_torch(read_directory(tmp_path / "text")[0])
    if case != "qwen3_vl_moe":
        assert_same(raw_of(found), raw_of(wanted))
    config = json.loads((tmp_path / "text" / "config.json").read_text())
    assert "vision_config" not in config and config["num_hidden_layers"] == 3
    model, missing = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "text", dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(missing[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")), missing
    with torch.no_grad():
        logits = model(input_ids=torch.arange(24).reshape(1, -1) * 11 % 300, use_cache=False).logits
    assert torch.equal(logits, outputs(directory)[0])
    tool.convert(source, tmp_path / "plain", "--to", "megatron", "--family", family, "--tp", 2)   # Megatron-LM's own names then
    assert "embedding.word_embeddings.weight" in read_megatron(tool.step_of(tmp_path / "plain"))


def test_another_spelling_on_disk(written, tmp_path):
    from safetensors.torch import save_file
    case, _, directory, hub = written
    text, respelled = ("model.", "model.language_model.") if case == "qwen2_5_vl" else ("model.language_model.", "model.")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text((directory / "config.json").read_text())
    save_file({respelled + name.removeprefix(text) if name.startswith(text) else name: tensor for name, tensor in hub.items()}, other / "model.safetensors")
    if case == "qwen2_5_vl":   # as its modules are called; written again as it was released
        respell = lambda name: name.replace("visual.", "model.visual.", 1) if name.startswith("visual.") else name
        save_file({respell(respelled + name.removeprefix(text) if name.startswith(text) else name): tensor for name, tensor in hub.items()}, other / "model.safetensors")
        tool.convert(other, tmp_path / "m", "--to", "megatron")
        assert_holds(tool.step_of(tmp_path / "m"), expected(case, written[1], hub))
        return
    tool.refused(tool.convert(other, tmp_path / "no", "--to", "megatron", expect=(1, 2, 3, 4, 5)), "spelling")
