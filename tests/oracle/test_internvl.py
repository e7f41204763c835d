"""InternVL in both Hugging Face spellings and LLaVA-OneVision 1.5, to Megatron under LoongForge's names and back, bit for bit. The spelling
of transformers is written by transformers and judged by it; the authors' own is made of it by a table written here, and both must come to
the same Megatron tensors."""
import json

import pytest

import tool

tool.require()

import torch
from safetensors.torch import save_file

from reference import as_torch, assert_same, fill, read_directory
from test_vision import flat, join_qkv, read_megatron, save_filled

TEXT = dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=307)
VISION = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=44, image_size=[16, 16], patch_size=[4, 4])
CASES = {"qwen2": (TEXT, dict(attention_bias=True), True), "qwen3": (TEXT | dict(head_dim=12), dict(use_qk_norm=True, norm_type="rms_norm"), False),
         "qwen3_moe": (TEXT | dict(head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=28), {}, False)}
LAYOUT = ["--tp", 2, "--pp", 2, "--first-stage-layers", 1]


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory):
    """(text family, directory, tensors) in transformers' spelling."""
    import transformers
    text, vision, tied = CASES[request.param]
    config = transformers.InternVLConfig(text_config=dict(text, model_type=request.param, tie_word_embeddings=tied), vision_config=dict(VISION, **vision), image_token_id=5, tie_word_embeddings=tied)
    model = transformers.InternVLForConditionalGeneration(config).to(torch.bfloat16)
    directory = tmp_path_factory.mktemp("internvl") / request.param
    return request.param, directory, save_filled(model, directory)


AUTHORS = [("multi_modal_projector.layer_norm.", "mlp1.0."), ("multi_modal_projector.linear_1.", "mlp1.1."), ("multi_modal_projector.linear_2.", "mlp1.3."),
           ("vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"), ("vision_tower.embeddings.patch_embeddings.projection.", "vision_model.embeddings.patch_embedding."),
           ("vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"), ("vision_tower.encoder.layer.", "vision_model.encoder.layers."),
           ("layernorm_before.", "norm1."), ("layernorm_after.", "norm2."), ("attention.projection_layer.", "attn.proj."), ("attention.q_norm.", "attn.q_norm."),
           ("attention.k_norm.", "attn.k_norm."), ("lambda_", "ls")]


def authors_directory(target, text, hub, config):
    """The same model as its authors' repositories have it."""
    tensors = {}
    for name, tensor in hub.items():
        if ".attention.q_proj." in name:
            name, tensor = name.replace("attention.q_proj", "attn.qkv"), torch.cat([hub[name.replace("q_proj", f"{part}_proj")] for part in "qkv"])
        elif ".attention.k_proj." in name or ".attention.v_proj." in name:
            continue
        if not name.startswith("language_model."):
            for ours, theirs in AUTHORS:
                name = name.replace(ours, theirs)
        tensors[name] = tensor.contiguous()
    vision = config["vision_config"]
    own = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "torch_dtype": "bfloat16", "downsample_ratio": 0.5, "tie_word_embeddings": config["tie_word_embeddings"],
           "llm_config": config["text_config"], "vision_config": {key: vision[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "norm_type")}
           | {"image_size": 16, "patch_size": 4, "qkv_bias": vision["attention_bias"], "qk_normalization": vision["use_qk_norm"]}}
    target.mkdir()
    (target / "config.json").write_text(json.dumps(own))
    save_file(tensors, target / "model.safetensors")
    return tensors


def outputs(directory):
    import transformers
    model, found = transformers.AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")), found
    pixels = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        return model(input_ids=torch.arange(24).reshape(1, -1) * 11 % 300 + 6, use_cache=False).logits, flat(model.model.get_image_features(pixels))


@pytest.mark.parametrize("layout", [[], LAYOUT, ["--tp", 2, "--encoder-tp", 1]])
def test_transformers_spelling(written, tmp_path, layout):
    _, directory, _ = written
    said = tool.convert(directory, tmp_path / "m", "--to", "megatron", *layout)
    assert "loongforge" in said, said
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])
    if layout == LAYOUT:
        (logits, features), (logits_back, features_back) = outputs(directory), outputs(tmp_path / "back")
        assert torch.equal(logits, logits_back) and logits.std() > 0.01
        assert len(features) == len(features_back) > 0 and all(torch.equal(a, b) for a, b in zip(features, features_back)) and features[0].std() > 0.01


@pytest.mark.parametrize("layout", [["--tp", 2, "--encoder-tp", 1], LAYOUT])
def test_legacy_trees(written, tmp_path, layout):
    """Norms of query and key over all heads are cut with them; the tree as torch_dist is what a direct conversion writes."""
    text, directory, hub = written
    tool.convert(directory, tmp_path / "tree", "--to", "megatron-legacy", *layout)
    first = torch.load(next((tmp_path / "tree").glob("*/mp_rank_01*/model_optim_rng.pt")), weights_only=False)["model"]
    tower = "encoder_model.image_encoder.encoder.layers.1."
    whole = join_qkv([hub[f"vision_tower.encoder.layer.1.attention.{part}_proj.weight"] for part in "qkv"], 4)
    assert torch.equal(first[tower + "self_attention.linear_qkv.weight"], whole if "--encoder-tp" in layout else whole.chunk(2)[1])
    if text == "qwen3":
        norm = hub["vision_tower.encoder.layer.1.attention.k_norm.weight"]
        assert torch.equal(first[tower + "self_attention.k_layernorm.weight"], norm if "--encoder-tp" in layout else norm.chunk(2)[1])
    tool.convert(tmp_path / "tree", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(directory)[0])
    for name, source in (("dist", tmp_path / "tree"), ("direct", directory)):
        tool.convert(source, tmp_path / name, "--to", "megatron", "--tp", 2)
    tool.run("verify", tmp_path / "dist", tmp_path / "direct")


def test_the_tower_as_megatron_has_it(written, tmp_path):
    _, directory, hub = written
    tool.convert(directory, tmp_path / "m", "--to", "megatron", "--tp", 2)
    found = read_megatron(tool.step_of(tmp_path / "m"))
    layer = "vision_tower.encoder.layer."
    stack = lambda name: torch.stack([hub[f"{layer}{index}.{name}"] for index in range(2)])
    tower = "encoder_model.image_encoder.encoder.layers."
    wanted = {"self_attention.linear_qkv.layer_norm_weight": stack("layernorm_before.weight"), "mlp.linear_fc1.layer_norm_weight": stack("layernorm_after.weight"),
              "self_attention.linear_qkv.weight": torch.stack([join_qkv([hub[f"{layer}{index}.attention.{part}_proj.weight"] for part in "qkv"], 4) for index in range(2)]),
              "self_attention.linear_proj.weight": stack("attention.projection_layer.weight"), "self_attention.linear_proj.bias": stack("attention.projection_layer.bias"),
              "post_attention_layerscale": stack("lambda_1"), "post_mlp_layerscale": stack("lambda_2"), "mlp.linear_fc1.weight": stack("mlp.fc1.weight"),
              "mlp.linear_fc1.bias": stack("mlp.fc1.bias"), "mlp.linear_fc2.weight": stack("mlp.fc2.weight"), "mlp.linear_fc2.bias": stack("mlp.fc2.bias")}
    for name, tensor in wanted.items():
        assert torch.equal(found[tower + name], tensor), name
    for name, theirs in (("class_embedding", "cls_token"), ("position_embedding", "position_embeddings"), ("patch_embedding.weight", "patch_embeddings.projection.weight")):
        assert torch.equal(found[f"encoder_model.image_encoder.embeddings.{name}"], hub[f"vision_tower.embeddings.{theirs}"])
    for name, theirs in (("layernorm", "layer_norm"), ("linear_fc1", "linear_1"), ("linear_fc2", "linear_2")):
        for kind in ("weight", "bias"):
            assert torch.equal(found[f"encoder_model.image_projector.{name}.{kind}"], hub[f"multi_modal_projector.{theirs}.{kind}"])
    assert torch.equal(found["foundation_model.decoder.layers.self_attention.linear_proj.weight"], torch.stack([hub[f"language_model.model.layers.{l}.self_attn.o_proj.weight"] for l in range(3)]))
    assert torch.equal(found["encoder_model.text_encoder.word_embeddings.weight"], found["foundation_model.embedding.word_embeddings.weight"])


def test_the_authors_spelling_comes_to_the_same(written, tmp_path):
    text, directory, hub = written
    tensors = authors_directory(tmp_path / "authors", text, hub, json.loads((directory / "config.json").read_text()))
    tool.convert(directory, tmp_path / "m", "--to", "megatron", *LAYOUT)
    tool.convert(tmp_path / "authors", tmp_path / "n", "--to", "megatron", *LAYOUT)
    ours, theirs = (read_megatron(tool.step_of(tmp_path / root)) for root in "mn")
    assert set(ours) == set(theirs) and all(torch.equal(ours[name].view(torch.uint8), theirs[name].view(torch.uint8)) for name in ours if ours[name].dim())
    tool.convert(tmp_path / "n", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(tmp_path / "authors")[0])
    assert set(read_directory(tmp_path / "back")[0]) == set(tensors)


@pytest.mark.parametrize("spelling", ["transformers", "authors"])
def test_by_full_state_and_the_language_model_alone(written, tmp_path, spelling):
    import transformers
    text, directory, hub = written
    source = directory
    if spelling == "authors":
        source = tmp_path / "authors"
        authors_directory(source, text, hub, json.loads((directory / "config.json").read_text()))
    tool.convert(source, tmp_path / "state", "--to", "full-state")
    tool.convert(tmp_path / "state", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(source)[0])
    tool.convert(tmp_path / "state", tmp_path / "text", "--to", "hf", "--family", text)
    model, found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "text", dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")), found
    with torch.no_grad():
        logits = model(input_ids=torch.arange(24).reshape(1, -1) * 11 % 300 + 6, use_cache=False).logits
    assert torch.equal(logits, outputs(directory)[0])


def test_other_consumers_are_refused(written, tmp_path):
    tool.refused(tool.convert(written[1], tmp_path / "no", "--to", "megatron", "--for", "megatron-bridge", expect=(1, 2, 3, 4, 5)), "megatron-bridge", "loongforge")


# --- files whose code is its authors': tensors by name alone -----------------------------------------------------------------------
def make(directory, config, shapes):
    hub = {name: fill(name, shape, torch.bfloat16) for name, shape in shapes.items()}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(hub, directory / "model.safetensors")
    return hub


def tower_shapes(prefix, blocks, names):
    return {f"{prefix}{index}.{name}": shape for index in range(blocks) for name, shape in names.items()}


def test_internlm2_under_internvl(tmp_path):
    """q, k and v of a layer stand together already, in Megatron's order."""
    h, f, rows = 40, 52, (4 + 2 * 2) * 10
    layer = {"attention_norm.weight": (h,), "ffn_norm.weight": (h,), "attention.wqkv.weight": (rows, h), "attention.wo.weight": (h, h), "feed_forward.w1.weight": (f, h),
             "feed_forward.w3.weight": (f, h), "feed_forward.w2.weight": (h, f)}
    block = {"norm1.weight": (24,), "norm1.bias": (24,), "norm2.weight": (24,), "norm2.bias": (24,), "attn.qkv.weight": (72, 24), "attn.qkv.bias": (72,), "attn.proj.weight": (24, 24),
             "attn.proj.bias": (24,), "ls1": (24,), "ls2": (24,), "mlp.fc1.weight": (44, 24), "mlp.fc1.bias": (44,), "mlp.fc2.weight": (24, 44), "mlp.fc2.bias": (24,)}
    shapes = {"language_model.model.tok_embeddings.weight": (307, h), "language_model.model.norm.weight": (h,), "language_model.output.weight": (307, h),
              "vision_model.embeddings.class_embedding": (1, 1, 24), "vision_model.embeddings.position_embedding": (1, 17, 24), "vision_model.embeddings.patch_embedding.weight": (24, 3, 4, 4),
              "vision_model.embeddings.patch_embedding.bias": (24,), "mlp1.0.weight": (96,), "mlp1.0.bias": (96,), "mlp1.1.weight": (h, 96), "mlp1.1.bias": (h,), "mlp1.3.weight": (h, h), "mlp1.3.bias": (h,)}
    shapes |= tower_shapes("language_model.model.layers.", 3, layer) | tower_shapes("vision_model.encoder.layers.", 2, block)
    llm = {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128, "hidden_act": "silu",
           "hidden_size": h, "intermediate_size": f, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 307, "bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    config = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "llm_config": llm,
              "vision_config": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44, "image_size": 16, "patch_size": 4, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm"}}
    hub = make(tmp_path / "hf", config, shapes)
    said = tool.convert(tmp_path / "hf", tmp_path / "m", "--to", "megatron", *LAYOUT)
    assert "max_position_embeddings" in said, said
    found = read_megatron(tool.step_of(tmp_path / "m"))
    assert torch.equal(found["foundation_model.decoder.layers.self_attention.linear_qkv.weight"], torch.stack([hub[f"language_model.model.layers.{l}.attention.wqkv.weight"] for l in range(3)]))
    assert torch.equal(found["foundation_model.decoder.layers.mlp.linear_fc1.weight"],
                       torch.stack([torch.cat([hub[f"language_model.model.layers.{l}.feed_forward.{part}.weight"] for part in ("w1", "w3")]) for l in range(3)]))
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(tmp_path / "hf")[0])
    tool.convert(tmp_path / "m", tmp_path / "text", "--to", "hf", "--family", "internlm2")
    assert set(read_directory(tmp_path / "text")[0]) == {name.removeprefix("language_model.") for name in hub if name.startswith("language_model.")}


@pytest.mark.parametrize("nested", [False, True])
def test_llava_onevision(tmp_path, nested):
    h, f = 40, 52
    layer = {"input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,), "self_attn.q_proj.weight": (48, h), "self_attn.k_proj.weight": (24, h), "self_attn.v_proj.weight": (24, h),
             "self_attn.q_norm.weight": (12,), "self_attn.k_norm.weight": (12,), "self_attn.o_proj.weight": (h, 48), "mlp.gate_proj.weight": (f, h), "mlp.up_proj.weight": (f, h), "mlp.down_proj.weight": (h, f)}
    block = {"norm1.weight": (24,), "norm1.bias": (24,), "norm2.weight": (24,), "norm2.bias": (24,), "attn.qkv.weight": (72, 24), "attn.qkv.bias": (72,), "attn.proj.weight": (24, 24),
             "attn.proj.bias": (24,), "mlp.fc1.weight": (44, 24), "mlp.fc1.bias": (44,), "mlp.fc2.weight": (24, 44), "mlp.fc2.bias": (24,)}
    shapes = {"model.embed_tokens.weight": (307, h), "model.norm.weight": (h,), "lm_head.weight": (307, h), "visual.patch_embed.proj.weight": (24, 3, 4, 4), "visual.class_embedding": (24,),
              "visual.class_pos_emb": (1, 3), "visual.pre_layernorm.weight": (24,), "visual.pre_layernorm.bias": (24,), "visual.merger.ln_q.weight": (24,), "visual.merger.ln_q.bias": (24,),
              "visual.merger.mlp.0.weight": (96, 96), "visual.merger.mlp.0.bias": (96,), "visual.merger.mlp.2.weight": (h, 96), "visual.merger.mlp.2.bias": (h,)}
    shapes |= tower_shapes("model.layers.", 3, layer) | tower_shapes("visual.blocks.", 2, block)
    if nested:
        shapes = {("model." + name if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)): shape for name, shape in shapes.items()}
    text = dict(TEXT, head_dim=12, model_type="LLaVAOneVision1_5_text", tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=128, hidden_act="silu")
    config = {"architectures": ["LLaVAOneVision1_5_ForConditionalGeneration"], "model_type": "llavaonevision1_5", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "text_config": text,
              "vision_config": {"model_type": "rice_vit", "depth": 2, "embed_dim": 24, "hidden_size": 24, "num_heads": 4, "intermediate_size": 44, "patch_size": 4, "in_channels": 3, "spatial_merge_size": 2, "text_hidden_size": h}}
    hub = make(tmp_path / "hf", config, shapes)
    tool.convert(tmp_path / "hf", tmp_path / "m", "--to", "megatron", *LAYOUT)
    found = read_megatron(tool.step_of(tmp_path / "m"))
    visual = "model.visual." if nested else "visual."
    assert torch.equal(found["encoder_model.image_encoder.decoder.layers.self_attention.linear_qkv.bias"],
                       torch.stack([join_qkv(hub[f"{visual}blocks.{index}.attn.qkv.bias"].chunk(3), 4) for index in range(2)]))
    for name in ("class_embedding", "class_pos_emb", "pre_layernorm.bias", "patch_embed.proj.weight"):
        assert torch.equal(found[f"encoder_model.image_encoder.{name}"], hub[visual + name])
    assert torch.equal(found["encoder_model.image_projector.linear_fc2.weight"], hub[f"{visual}merger.mlp.2.weight"])
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", tmp_path / "hf")
    assert_same(read_directory(tmp_path / "back")[0], read_directory(tmp_path / "hf")[0])
