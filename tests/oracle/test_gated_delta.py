"""Qwen3-Next and Qwen3.5 before transformers and before Megatron-Core's own gated delta net and gated attention: logits of what is
written, names and shapes that Megatron asks for, every cut, and the way back bit for bit."""
import json
import shlex

import pytest

import tool

tool.require()

import numpy
import torch

import gated_delta
import mcore_env as env
import mcore_load
import models
from reference import assert_same, read_directory

LAYOUTS = {"tp2": ["--tp", 2], "tp4": ["--tp", 4], "tp2_pp2_uneven": ["--tp", 2, "--pp", 2, "--first-stage-layers", 2], "ep3_pp2": ["--ep", 3, "--pp", 2, "--first-stage-layers", 1],
           "ep2_etp2": ["--tp", 2, "--ep", 2, "--etp", 2]}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    made = {}

    def make(case, with_mtp=False):
        if (case, with_mtp) not in made:
            directory = tmp_path_factory.mktemp(case) / "hf"
            gated_delta.write(case, directory, with_mtp)
            made[case, with_mtp] = directory, json.loads((directory / "config.json").read_text())
        return made[case, with_mtp]
    return make


@pytest.mark.parametrize("case", gated_delta.CASES)
def test_megatron_computes_transformers_logits(source, tmp_path, case):
    directory, config = source(case)
    text = tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--tp", 2)
    assert "minus one" in text and "Megatron-Core" in text
    tokens = models.tokens(config["vocab_size"])
    step = tool.step_of(tmp_path / "megatron")
    asked, tensors, ours = gated_delta.load(step, config, tokens, env.Layout(divisor=256))[0]
    # The norm behind the delta net divides by what may be nearly nothing: a few later tokens differ by more than two implementations do else.
    ours, theirs = ours[:, :8], models.logits(directory).float().numpy()[:, :8]
    assert theirs.std() > 0.5 and numpy.abs(ours - theirs).max() < 2e-5
    import torch.distributed.checkpoint as dcp
    stored = {key: tuple(data.size) for key, data in dcp.FileSystemReader(step).read_metadata().state_dict_metadata.items() if hasattr(data, "size")}
    assert stored == asked
    # Two ranks hold the halves of each section, not of the whole.
    name = "decoder.layers.0.self_attention.in_proj.weight"
    whole = tensors[name]
    sections = numpy.split(whole, numpy.cumsum([24, 24, 80, 80, 8])[:5])
    for rank, (_, cut, _) in enumerate(gated_delta.load(step, config, layout=env.Layout(tp=2))):
        assert numpy.array_equal(cut[name], numpy.concatenate([numpy.split(section, 2)[rank] for section in sections]))


@pytest.mark.parametrize("case", ["qwen3_next_mixed", "qwen3_5"])
def test_a_run_builds_this_model_from_the_flags_printed(source, tmp_path, case):
    """Megatron reads none of these from a checkpoint's arguments, and asks for other tensors without them."""
    directory, config = source(case)
    text = tool.convert(directory, tmp_path / "megatron", "--to", "megatron")
    line = next(line for line in text.splitlines() if line.strip().startswith("--load "))
    found = mcore_load.stored_arguments(shlex.split(line))
    expected = {"linear_" + name: config["linear_" + name] for name in ("key_head_dim", "value_head_dim", "conv_kernel_dim")}
    expected |= {f"linear_num_{name}_heads": config[f"linear_num_{name}_heads"] for name in ("key", "value")}
    expected |= {"attention_output_gate": True, "experimental_attention_variant": "gated_delta_net", "apply_layernorm_1p": True}
    expected["linear_attention_freq"] = [int(kind == "linear_attention") for kind in config["layer_types"]]
    assert {name: found.get(name) for name in expected} == expected, line


ROUNDS = [("qwen3_next", layout) for layout in LAYOUTS] + [("qwen3_next_mixed", "tp2_pp2_uneven"), ("qwen3_5", "tp2_pp2_uneven"), ("qwen3_5", "tp4"), ("qwen3_5_moe", "ep3_pp2")]


@pytest.mark.parametrize("case,layout", ROUNDS)
def test_there_and_back_bit_for_bit(source, tmp_path, case, layout):
    """Dtypes too: A_log and dt_bias stay F32, the norm that is stored minus one comes back in bfloat16."""
    directory, config = source(case, with_mtp=layout == "tp2_pp2_uneven")
    tensors = read_directory(directory)[0]
    tool.convert(directory, tmp_path / "megatron", "--to", "megatron", *LAYOUTS[layout])
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf", "--hf-template", directory)
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    written = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert written.items() >= config.items()
    if layout == "tp2_pp2_uneven":
        # The released files of Qwen3-Next have such a layer and no word of it in config.json.
        assert written.get("num_nextn_predict_layers", written.get("mtp_num_hidden_layers")) == 1
        assert torch.equal(models.logits(tmp_path / "hf"), models.logits(directory))


def test_legacy_ranks_hold_what_megatron_loads(source, tmp_path):
    """Each rank's module has one in_proj with its part of every section; names stand in the order of Megatron's own state."""
    directory, config = source("qwen3_5")
    tensors = read_directory(directory)[0]
    tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--tp", 2)
    tool.convert(directory, tmp_path / "legacy", "--to", "megatron-legacy", "--tp", 2)
    loaded = gated_delta.load(tool.step_of(tmp_path / "megatron"), config, layout=env.Layout(tp=2), dtype=torch.bfloat16)
    for rank in range(2):
        model = torch.load(next((tmp_path / "legacy").glob(f"*/mp_rank_{rank:02}/model_optim_rng.pt")), weights_only=False)["model"]
        ours = {name: tensor.float().numpy() for name, tensor in model.items() if isinstance(tensor, torch.Tensor) and "_extra_state" not in name}
        assert list(ours) == [name for name in loaded[rank][1]]
        for name, tensor in loaded[rank][1].items():
            assert numpy.array_equal(torch.from_numpy(ours[name]).to(torch.bfloat16).float().numpy(), tensor), name
    tool.convert(tmp_path / "legacy", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], tensors)


def test_adams_state_moves_with_its_weights(source, tmp_path):
    """Full state and back: moments of a norm that is stored minus one are its own; its master weight is rounded, which must be asked for."""
    import full_state
    import safetensors.torch
    directory, config = source("qwen3_5")
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    state = full_state.write(tmp_path / "full", "qwen3_5", config, tensors)
    words = ["--set", "lr=0.001", "--set", "min_lr=1e-05", "--set", "weight_decay=0.1"]
    tool.refused(tool.convert(tmp_path / "full", tmp_path / "refused", "--to", "megatron", *words, expect=3), "out_norm", "--allow inexact")
    for to in ("megatron", "megatron-legacy"):
        tool.convert(tmp_path / "full", tmp_path / to, "--to", to, "--tp", 2, "--allow", "inexact", *words)
        tool.convert(tmp_path / to, tmp_path / f"back-{to}", "--to", "full-state", "--allow", "inexact", "--require-optim")
        found = {name: torch.frombuffer(bytearray(data), dtype=torch.float32 if dtype == "F32" else torch.bfloat16).reshape(shape)
                 for name, (dtype, shape, data) in full_state.read(tmp_path / f"back-{to}")[0].items()}
        expected = {f"param/{name}": tensor for name, tensor in tensors.items()} | state
        assert set(found) == set(expected)
        for name, tensor in expected.items():
            inexact = name.startswith("optim/master/") and name.endswith("linear_attn.norm.weight")
            assert torch.equal(found[name], tensor.reshape(found[name].shape)) or (inexact and (found[name] - tensor).abs().max() <= 2 ** -23), name


def test_loongforge_orders_gates_otherwise(source, tmp_path):
    """One name and one shape, two meanings: --for chooses, the summary says whose, and a LoongForge source is known by its delta net."""
    import torch.distributed.checkpoint as dcp
    directory, config = source("qwen3_next")
    tensors = read_directory(directory)[0]

    def read(root):
        reader = dcp.FileSystemReader(tool.step_of(root))
        wanted = {key: torch.empty(data.size, dtype=data.properties.dtype) for key, data in reader.read_metadata().state_dict_metadata.items() if hasattr(data, "size")}
        dcp.load(wanted, storage_reader=reader, no_dist=True)
        return wanted

    tool.convert(directory, tmp_path / "core", "--to", "megatron", "--tp", 2)
    text = tool.convert(directory, tmp_path / "loong", "--to", "megatron", "--tp", 2, "--for", "loongforge")
    assert "are those of LoongForge" in text
    core, loong = read(tmp_path / "core"), read(tmp_path / "loong")
    name = "decoder.layers.2.self_attention.linear_qkv.weight"
    groups, size = 2, 8
    ours, theirs = (one[name].reshape(groups, 10, size, 40) for one in (core, loong))
    assert not torch.equal(ours, theirs)
    order = [0, 4, 1, 5, 2, 6, 3, 7, 8, 9]                        # query and gate in turn, of what Megatron has apart
    assert torch.equal(ours[:, order], theirs)
    assert loong["decoder.layers.0.self_attention.in_proj_qkvz.weight"].shape == (208, 40) and "decoder.layers.0.self_attention.in_proj.weight.query" not in loong
    assert torch.equal(loong["decoder.layers.0.self_attention.out_norm.weight"].float(), core["decoder.layers.0.self_attention.out_norm.weight"] + 1)
    for root in ("core", "loong"):
        text = tool.convert(tmp_path / root, tmp_path / f"hf-{root}", "--to", "hf")
        assert ("LoongForge: Megatron-Core" if root == "loong" else "Megatron-Core: LoongForge") in text
        assert_same(read_directory(tmp_path / f"hf-{root}")[0], tensors)
    dense, _ = source("qwen3_5")
    tool.refused(tool.convert(dense, tmp_path / "none", "--to", "megatron", "--for", "loongforge", expect=3), "loongforge")


@pytest.mark.parametrize("case", ["qwen3_5", "qwen3_5_moe"])
def test_the_release_with_its_tower(tmp_path, case):
    """Qwen3.5 as it is released: language model, tower and layer of multi-token prediction in one, and the language model alone."""
    import safetensors.torch
    import transformers
    prefix, settings = gated_delta.CASES[case]
    vision = dict(hidden_size=48, depth=2, num_heads=4, intermediate_size=44, out_hidden_size=40, patch_size=4, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=16)
    config = getattr(transformers, prefix + "Config")(text_config=settings, vision_config=vision)
    model = getattr(transformers, prefix + "ForConditionalGeneration")(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.data = gated_delta.value(f"vl:{name}", tensor.shape)
    model.config.dtype = "bfloat16"
    model.save_pretrained(tmp_path / "source")
    tensors = read_directory(tmp_path / "source")[0]
    text = tool.convert(tmp_path / "source", tmp_path / "megatron", "--to", "megatron", "--tp", 2, *(["--ep", 2] if case == "qwen3_5_moe" else []))
    assert "megatron-bridge" in text
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf", "--hf-template", tmp_path / "source")
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    tool.convert(tmp_path / "source", tmp_path / "text", "--to", "hf", "--family", case)
    alone = {name.replace("model.language_model.", "model."): tensor for name, tensor in tensors.items() if "visual" not in name}
    assert len(read_directory(tmp_path / "text")[0]) > 40 and not any("visual" in name for name in read_directory(tmp_path / "text")[0])
    assert {name for name in alone if "experts" not in name} == {name for name in read_directory(tmp_path / "text")[0] if "experts" not in name}
    tool.refused(tool.convert(tmp_path / "source", tmp_path / "loong", "--to", "megatron", "--for", "loongforge", expect=3), "loongforge")


def test_mtp_of_the_template(source, tmp_path):
    """A trained model without the layer gets the released one's; names, bytes and config.json agree, for Hugging Face and Megatron alike."""
    trained, _ = source("qwen3_next")
    released, _ = source("qwen3_next", with_mtp=True)
    tensors = read_directory(released)[0]
    text = tool.convert(trained, tmp_path / "hf", "--to", "hf", "--hf-template", released, "--mtp", "template")
    assert "1 layer of multi-token prediction" in text and "the template's" in text
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["num_nextn_predict_layers"] == 1
    tool.convert(trained, tmp_path / "megatron", "--to", "megatron", "--tp", 2, "--hf-template", released, "--mtp", "template")
    tool.convert(tmp_path / "megatron", tmp_path / "back", "--to", "hf", "--hf-template", released)
    assert_same(read_directory(tmp_path / "back")[0], tensors)
    tool.convert(tmp_path / "megatron", tmp_path / "dropped", "--to", "hf", "--mtp", "drop")
    assert_same(read_directory(tmp_path / "dropped")[0], read_directory(trained)[0])
    assert json.loads((tmp_path / "dropped" / "config.json").read_text()).get("num_nextn_predict_layers", 0) == 0
    tool.refused(tool.convert(trained, tmp_path / "none", "--to", "hf", "--mtp", "template", expect=2), "template")
    tool.refused(tool.convert(trained, tmp_path / "none", "--to", "hf", "--hf-template", trained, "--mtp", "template", expect=3), "no layers of multi-token prediction")


def test_a_stage_of_its_own_for_mtp(source, tmp_path):
    """A layout string with m is kept in the arguments; as many m as there are layers."""
    directory, _ = source("qwen3_5", with_mtp=True)
    tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--pp", 4, "--pipeline-layout", "Ett|tt|t|mL")
    tool.convert(directory, tmp_path / "alone", "--to", "megatron", "--pp", 4, "--pipeline-layout", "Ett|ttt|m|L")
    for root in ("megatron", "alone"):
        tool.convert(tmp_path / root, tmp_path / f"hf-{root}", "--to", "hf")
        assert_same(read_directory(tmp_path / f"hf-{root}")[0], read_directory(directory)[0])
    for layout, words in (("Ett|tt|t|L", ["1 times m"]), ("Ett|m|ttt|L", ["before them"]), ("Ett|tt|t|mmL", ["1 times m"])):
        tool.refused(tool.convert(directory, tmp_path / "refused", "--to", "megatron", "--pp", 4, "--pipeline-layout", layout, expect=2), *words)


def test_what_cannot_be_cut_is_refused(source, tmp_path):
    directory, _ = source("qwen3_5")
    tool.refused(tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--tp", 8, expect=2), "key heads of the gated delta net", "8")
    tool.refused(tool.convert(directory, tmp_path / "maxtext", "--to", "maxtext", expect=3), "qwen3_5", "maxtext")
