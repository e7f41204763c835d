"""Cases from users' daily life that need the real libraries to make or to judge. Each test names its case."""
import argparse
import json
import os
import pathlib
import shutil

import pytest

import tool

tool.require()

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

import full_state
import mcore_env as env
import mcore_load
import mcore_write
import models
from reference import as_torch, assert_same, fill, raw_of, read_directory

D = dict(model_type="llama", hidden_size=16, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=24, vocab_size=50,
         rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, max_position_embeddings=64, hidden_act="silu")


def rule_r(names_and_shapes):
    """Fill rule R: k = rank of the name in the sorted list, i = row-major number, ((37k + (7 + 2(k mod 61)) i) mod 251) - 125."""
    tensors = {}
    for k, name in enumerate(sorted(names_and_shapes)):
        shape = names_and_shapes[name]
        i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
        tensors[name] = ((37 * k + (7 + 2 * (k % 61)) * i) % 251 - 125).to(torch.bfloat16).reshape(shape)
    return tensors


def directory(target, config, tensors, file="model.safetensors"):
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    architecture = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[config["model_type"]]
    (target / "config.json").write_text(json.dumps({"architectures": [architecture], "dtype": "bfloat16", **config}, indent=2))
    if file.endswith(".safetensors"):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, target / file, {"format": "pt"})
    return target


def stored(step):
    """Global tensors of a torch_dist checkpoint, read by torch's DCP."""
    reader = dcp.FileSystemReader(step)
    tensors = {key: torch.zeros(tuple(item.size), dtype=item.properties.dtype) for key, item in reader.read_metadata().state_dict_metadata.items() if hasattr(item, "size")}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


# --- B01 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_b01_fused_rows_go_group_by_group(tmp_path, kind):
    config = D | {"model_type": kind}
    tensors = rule_r(models.shapes(config))
    source = directory(tmp_path / "hf", config, tensors)
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2)
    found = stored(tool.step_of(tmp_path / "m"))
    for layer in range(4):
        head = lambda part, index, ending="weight": tensors[f"model.layers.{layer}.self_attn.{part}_proj.{ending}"][index * 4:(index + 1) * 4]
        for ending in ["weight"] + (["bias"] if kind == "qwen2" else []):
            order = [("q", 0), ("q", 1), ("k", 0), ("v", 0), ("q", 2), ("q", 3), ("k", 1), ("v", 1)]
            expected = torch.cat([head(part, index, ending) for part, index in order])
            assert torch.equal(found[f"decoder.layers.self_attention.linear_qkv.{ending}"][layer], expected), f"layer {layer} {ending}"
        if kind == "qwen3":
            for part in "qk":
                assert torch.equal(found[f"decoder.layers.self_attention.{part}_layernorm.weight"][layer], tensors[f"model.layers.{layer}.self_attn.{part}_norm.weight"])
    # A TP rank holds whole groups: what Megatron's rank 1 of 2 loads is the second group.
    mcore_load.check(tool.step_of(tmp_path / "m"), config, tensors, layouts=[env.Layout(2, 1), env.Layout(1, 2)])
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "back")[0], raw_of(tensors))


# --- B31 ------------------------------------------------------------------------------------------------------------------
def test_b31_tied_with_an_equal_lm_head(workshop, tmp_path):
    _, config, tensors = workshop.hf("llama32_tied")
    both = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    source = directory(tmp_path / "hf", config, both)
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2)
    assert "output_layer.weight" not in stored(tool.step_of(tmp_path / "m"))
    mcore_load.check(tool.step_of(tmp_path / "m"), config, tensors, layouts=[env.Layout(1, 2)])
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "back")[0], raw_of(both))
    tool.convert(tmp_path / "m", tmp_path / "plain", "--to", "hf", "--hf-template", workshop.hf("llama32_tied")[0])
    assert_same(read_directory(tmp_path / "plain")[0], raw_of(tensors))


def test_b31_tied_with_an_unequal_lm_head_is_refused(workshop, tmp_path):
    _, config, tensors = workshop.hf("llama32_tied")
    other = tensors["model.embed_tokens.weight"].clone()
    other.view(torch.int16)[-1, -1] ^= 1
    source = directory(tmp_path / "hf", config, tensors | {"lm_head.weight": other})
    tool.refused(tool.convert(source, tmp_path / "m", "--to", "megatron", expect=3), "lm_head.weight", "tie")


# --- B34 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words,padded", [([], 512), (["--make-vocab-size-divisible-by", 64], 384), (["--padded-vocab-size", 400], 400), (["--make-vocab-size-divisible-by", 1], 308)])
def test_b34_vocabulary_is_padded_and_trimmed(workshop, tmp_path, words, padded):
    source, config, tensors = workshop.hf("qwen3")               # 307 rows
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2, *words)
    step = tool.step_of(tmp_path / "m")
    found = stored(step)
    for key, name in (("embedding.word_embeddings.weight", "model.embed_tokens.weight"), ("output_layer.weight", "lm_head.weight")):
        assert found[key].shape == (padded, 40) and torch.equal(found[key][:307], tensors[name]), key
        assert not found[key][307:].any() or len({row.numpy().tobytes() for row in found[key][307:].view(torch.int16)}) == 1, "the padding should be one documented value"
    assert mcore_write.read_common(step)["args"].padded_vocab_size == padded
    mcore_load.check(step, config, tensors, layouts=[env.Layout(1, 1)])
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", source)
    assert_same(read_directory(tmp_path / "back")[0], raw_of(tensors))


def test_b34_too_small_a_padding_is_refused(workshop, tmp_path):
    text = tool.convert(workshop.hf("qwen3")[0], tmp_path / "m", "--to", "megatron", "--padded-vocab-size", 304, expect=(2, 3))
    tool.refused(text, "304", "307")


# --- B43 ------------------------------------------------------------------------------------------------------------------
def test_b43_helper_tensors_are_dropped_and_listed(workshop, tmp_path):
    _, config, tensors = workshop.hf("llama2_mha")
    helpers = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.arange(5, dtype=torch.float32) for layer in range(4)}
    source = directory(tmp_path / "hf", config, tensors | helpers)
    text = tool.convert(source, tmp_path / "m", "--to", "megatron")
    assert "inv_freq" in text, "what was dropped is not told"
    assert not [key for key in stored(tool.step_of(tmp_path / "m")) if "inv_freq" in key]
    tool.convert(tmp_path / "m", tmp_path / "back", "--to", "hf", "--hf-template", workshop.hf("llama2_mha")[0])
    assert_same(read_directory(tmp_path / "back")[0], raw_of(tensors))


def test_b43_extra_state_is_dropped_and_told(workshop, tmp_path):
    root, step, config, parameters, _ = workshop.megatron("qwen3", env.Layout(2, 2))
    text = tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(parameters))
    assert "_extra_state" in text and "rng_state" in text, f"what was left behind is not told:\n{text[-1500:]}"


# --- B67 ------------------------------------------------------------------------------------------------------------------
def with_common(workshop, target, change):
    """A real checkpoint with its common.pt changed and saved by torch.save."""
    root, step, *_ = workshop.megatron("qwen3", env.Layout(1, 2), common=True)
    shutil.copytree(root, target)
    path = target / step.name / "common.pt"
    common = torch.load(path, weights_only=False)
    change(common)
    torch.save(common, path)
    return target


def test_b67_unknown_classes_are_opaque(workshop, tmp_path):
    import enum
    import sys
    import types
    import numpy
    module = types.ModuleType("trainer_of_somebody")
    sys.modules["trainer_of_somebody"] = module
    module.Mode = enum.Enum("Mode", {"FAST": 1}, module="trainer_of_somebody")
    module.Config = type("Config", (), {"__module__": "trainer_of_somebody"})
    try:
        def change(common):
            common["args"].mode, common["args"].own = module.Mode.FAST, module.Config()
            common["args"].own.tensor = torch.ones(3)
            common["np_rng_state"] = numpy.random.get_state()
            common["array"] = numpy.arange(6).reshape(2, 3)
        root = with_common(workshop, tmp_path / "m", change)
    finally:
        del sys.modules["trainer_of_somebody"]
    tool.run("inspect", root)
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(workshop.hf("qwen3")[2]))


@pytest.mark.parametrize("function,arguments,name", [(os.system, ("touch {canary}",), "system"), (eval, ("open({canary!r}, 'w')",), "eval"), (os.mkdir, ("{canary}",), "mkdir")])
def test_b67_a_pickle_that_calls_is_refused(workshop, tmp_path, function, arguments, name):
    canary = tmp_path / "canary"
    words = tuple(word.format(canary=str(canary)) for word in arguments)

    class Call:
        def __reduce__(self):
            return function, words
    root = with_common(workshop, tmp_path / "m", lambda common: setattr(common["args"], "hook", Call()))
    for text in (tool.run("inspect", root, expect=3), tool.convert(root, tmp_path / "hf", "--to", "hf", expect=3)):
        tool.refused(text, name)
    assert not canary.exists(), "the tool ran the pickle"


# --- B69 ------------------------------------------------------------------------------------------------------------------
def test_b69_common_file_of_a_converted_model(workshop, tmp_path):
    source, config, tensors = workshop.hf("qwen3")
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2)
    step = tool.step_of(tmp_path / "m")
    common = mcore_write.read_common(step)
    args = common["args"]
    assert isinstance(args, argparse.Namespace) and common["checkpoint_version"] == 3.0 and isinstance(common["iteration"], int)
    expected = dict(num_layers=4, hidden_size=40, num_attention_heads=8, num_query_groups=2, kv_channels=6, ffn_hidden_size=60, swiglu=True, normalization="RMSNorm",
                    position_embedding_type="rope", rotary_base=1000000, untie_embeddings_and_output_weights=True, add_bias_linear=False, add_qkv_bias=False, qk_layernorm=True,
                    group_query_attention=True, padded_vocab_size=512, tensor_model_parallel_size=2, pipeline_model_parallel_size=2, max_position_embeddings=128)
    assert {key: getattr(args, key, "absent") for key in expected} == expected
    assert (step / "common.pt").exists(), "Megatron-Core until 0.18 needs common.pt"
    torch.load(step / "common.pt", weights_only=False)


@pytest.mark.parametrize("words,name", [(["--iteration", 30], "iter_0000030"), (["--release"], "release"), (["--iteration", 0], "iter_0000000")])
def test_b69_the_name_of_the_step_is_the_users(workshop, tmp_path, words, name):
    source, config, tensors = workshop.hf("qwen3")
    tool.convert(source, tmp_path / "m", "--to", "megatron", *words)
    assert tool.step_of(tmp_path / "m").name == name
    flags = mcore_load.flags_of(config) + ([] if name == "release" else ["--no-load-optim"])
    result = mcore_load.train_load(tmp_path / "m", flags, config, tensors)
    assert result["iteration"] == (30 if name == "iter_0000030" else 0)


# --- B71 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("field,value,shown", [("hidden_size", 48, "40"), ("num_layers", 6, "4"), ("num_query_groups", 4, "72"), ("ffn_hidden_size", 64, "120")])
def test_b71_arguments_against_shapes_are_refused(workshop, tmp_path, field, value, shown):
    root = with_common(workshop, tmp_path / "m", lambda common: setattr(common["args"], field, value))
    text = tool.convert(root, tmp_path / "hf", "--to", "hf", expect=3)
    tool.refused(text, value, shown)


def test_b71_run_config_against_arguments_is_refused(workshop, tmp_path):
    root = with_common(workshop, tmp_path / "m", lambda common: None)
    step = tool.step_of(root)
    (step / "run_config.yaml").write_text("model:\n  _target_: megatron.bridge.models.qwen.qwen3_provider.Qwen3ModelProvider\n  num_layers: 6\n  hidden_size: 40\n"
                                          "  num_attention_heads: 8\n  num_query_groups: 2\n  kv_channels: 6\n  ffn_hidden_size: 60\n  vocab_size: 307\n")
    text = tool.convert(root, tmp_path / "hf", "--to", "hf", expect=3)
    tool.refused(text, "num_layers", "6", "4")


@pytest.mark.parametrize("case,argument,ending", [("qwen3", "qk_layernorm", "_layernorm.weight"), ("qwen2", "add_qkv_bias", "linear_qkv.bias")])
def test_b71_arguments_against_lost_tensors_are_refused(workshop, tmp_path, case, argument, ending):
    import pickle
    root, step, *_ = workshop.megatron(case, env.Layout(2, 2), optimizer=False)
    shutil.copytree(root, tmp_path / "m")
    path = tmp_path / "m" / step.name / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    lost = [key for key in metadata.state_dict_metadata if key.endswith(ending) and (case == "qwen2" or "self_attention.q_" in key or "self_attention.k_" in key)]
    assert lost
    for key in lost:
        del metadata.state_dict_metadata[key]
    metadata.storage_data = {index: where for index, where in metadata.storage_data.items() if index.fqn not in lost}
    path.write_bytes(pickle.dumps(metadata, protocol=4))
    text = tool.convert(tmp_path / "m", tmp_path / "out", "--to", "hf", expect=3)
    tool.refused(text, f"{argument} = True", lost[0].split("self_attention.")[1].replace("k_", "q_"))


def as_bridge_saves(root, step):
    """The settings in run_config.yaml and the counters in train_state.pt, and no arguments."""
    import yaml
    path = root / step.name / "common.pt"
    common = torch.load(path, weights_only=False)
    args = vars(common.pop("args"))
    torch.save(common, path)
    model = {key: value for key, value in args.items() if type(value) in (int, float, str, bool) and key not in
             ("swiglu", "untie_embeddings_and_output_weights", "max_position_embeddings", "consumed_train_samples", "skipped_train_samples", "consumed_valid_samples")}
    model |= {"_target_": "megatron.bridge.models.qwen.qwen3_provider.Qwen3ModelProvider", "gated_linear_unit": True,
              "share_embeddings_and_output_weights": not args["untie_embeddings_and_output_weights"]}
    (root / step.name / "run_config.yaml").write_text(yaml.safe_dump({"model": model}))
    counted = {"step": common["iteration"], "consumed_train_samples": 161, "skipped_train_samples": 3, "consumed_valid_samples": 16, "floating_point_operations_so_far": 9000}
    torch.save({key: torch.tensor(value) for key, value in counted.items()}, root / step.name / "train_state.pt")
    return args


def test_b71_a_bridge_tree_becomes_one_of_megatron_lm(workshop, tmp_path):
    root, step, config, parameters, state = workshop.megatron("qwen3", env.Layout(2, 2), common=True)
    shutil.copytree(root, tmp_path / "bridge")
    args = as_bridge_saves(tmp_path / "bridge", step)
    text = tool.convert(tmp_path / "bridge", tmp_path / "m", "--to", "megatron", "--tp", 1, "--require-optim")
    assert "--use-checkpoint-args" in text and "--tensor-model-parallel-size 2" not in text and "run_config.yaml" in text
    written = vars(torch.load(tool.step_of(tmp_path / "m") / "common.pt", weights_only=False)["args"])
    for name in ("num_layers", "hidden_size", "ffn_hidden_size", "num_query_groups", "kv_channels", "qk_layernorm", "add_qkv_bias", "untie_embeddings_and_output_weights", "swiglu", "rotary_base"):
        assert written[name] == args[name], name
    for name, value in dict(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, consumed_train_samples=161, skipped_train_samples=3, consumed_valid_samples=16).items():
        assert written[name] == value, name
    flags = mcore_load.flags_of(config)
    assert mcore_load.train_load(tmp_path / "m", flags, config, parameters, state)["iteration"] == mcore_write.ITERATION
    for target, kind in (("m", "full-state"), ("bridge", "megatron-legacy")):
        tool.convert(tmp_path / target, tmp_path / kind, "--to", kind, "--require-optim")
    tool.convert(tmp_path / "megatron-legacy", tmp_path / "again", "--to", "full-state", "--require-optim")
    wanted = raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state)
    for folder in ("full-state", "again"):
        assert_same(full_state.read(tmp_path / folder)[0], wanted)


# --- B75 ------------------------------------------------------------------------------------------------------------------
def test_b75_inspect_explains_the_layer_axis(workshop):
    root, step, *_ = workshop.megatron("qwen3", env.Layout(2, 2))
    text = tool.run("inspect", step, "--tensors")
    tool.refused(text, "layer", "decoder.layers.mlp.linear_fc1.weight", "model.layers.", "gate_proj", ".distcp")
    numbered, step, *_ = workshop.megatron("qwen3", env.Layout(2, 2, numbered=True), optimizer=False)
    text = tool.run("inspect", step, "--tensors")
    tool.refused(text, "decoder.layers.0.mlp.linear_fc1.weight", "model.layers.0.mlp.gate_proj.weight")


# --- B78 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_b78_views_of_shared_storages(workshop, tmp_path, legacy):
    _, config, tensors = workshop.hf("qwen3")
    large = torch.cat([tensor.reshape(-1) for tensor in tensors.values()] + [torch.zeros(200_000, dtype=torch.bfloat16)])
    views, start = {}, 0
    for name, tensor in tensors.items():
        views[name] = large[start:start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()
    transposed = "model.layers.1.mlp.down_proj.weight"
    views[transposed] = tensors[transposed].t().contiguous().t()   # same values, other strides
    source = directory(tmp_path / "hf", config, {}, file="none")
    torch.save(views, source / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    assert (source / "pytorch_model.bin").stat().st_size > 400_000
    tool.convert(source, tmp_path / "out", "--to", "hf")
    assert_same(read_directory(tmp_path / "out")[0], raw_of(tensors))
    size = sum(tensor.numel() * 2 for tensor in tensors.values())
    assert sum(path.stat().st_size for path in (tmp_path / "out").glob("*.safetensors")) < size + 20_000
    tool.convert(source, tmp_path / "m", "--to", "megatron", "--tp", 2)
    mcore_load.check(tool.step_of(tmp_path / "m"), config, tensors, layouts=[env.Layout(1, 1)])


def with_blob(workshop, target, key, view_of):
    """A real checkpoint in which one tensor of `key` lies in a file of its own, as the view that `view_of` makes of it."""
    import io
    import pickle
    root, step, *_ = workshop.megatron("qwen3", env.Layout(1, 1), optimizer=False)
    shutil.copytree(root, target)
    copy = target / step.name
    metadata = pickle.loads((copy / ".metadata").read_bytes())
    where = next(where for index, where in metadata.storage_data.items() if index.fqn == key)
    with open(copy / where.relative_path, "rb") as file:
        file.seek(where.offset)
        tensor = torch.load(io.BytesIO(file.read(where.length)))
    view, stream = view_of(tensor), io.BytesIO()
    assert torch.equal(view, tensor)
    torch.save(view, stream)
    (copy / "__9_0.distcp").write_bytes(stream.getvalue())
    where.relative_path, where.offset, where.length = "__9_0.distcp", 0, len(stream.getvalue())
    (copy / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))
    return target


def offset_view(tensor):
    """A contiguous view in the middle of a storage that is 3 times as large (and 400 KB more)."""
    large = torch.full((3 * tensor.numel() + 200_000,), 9.0, dtype=tensor.dtype)
    large[tensor.numel():2 * tensor.numel()] = tensor.reshape(-1)
    return large[tensor.numel():2 * tensor.numel()].view(tensor.shape)


@pytest.mark.parametrize("key", ["decoder.final_layernorm.weight", "decoder.layers.mlp.linear_fc1.weight", "embedding.word_embeddings.weight"])
def test_b78_views_in_a_blob(workshop, tmp_path, key):
    """A careless writer stored a view with its whole storage in a .distcp; only the view counts."""
    root = with_blob(workshop, tmp_path / "m", key, offset_view)
    assert (tool.step_of(root) / "__9_0.distcp").stat().st_size > 400_000
    tool.convert(root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0])
    assert_same(read_directory(tmp_path / "hf")[0], raw_of(workshop.hf("qwen3")[2]))
    size = sum(tensor.numel() * 2 for tensor in workshop.hf("qwen3")[2].values())
    assert sum(path.stat().st_size for path in (tmp_path / "hf").glob("*.safetensors")) < size + 20_000
    tool.convert(root, tmp_path / "again", "--to", "megatron", "--tp", 2)
    assert sum(path.stat().st_size for path in tool.step_of(tmp_path / "again").glob("*.distcp")) < size + 100_000
    config, tensors = workshop.hf("qwen3")[1:]
    mcore_load.check(tool.step_of(tmp_path / "again"), config, tensors, layouts=[env.Layout(1, 1)])


def test_b78_a_view_with_other_strides_is_read_or_refused_by_name(workshop, tmp_path):
    key = "decoder.layers.mlp.linear_fc2.weight"
    root = with_blob(workshop, tmp_path / "m", key, lambda tensor: tensor.transpose(-1, -2).contiguous().transpose(-1, -2))
    text = tool.run("convert", root, tmp_path / "hf", "--to", "hf", "--hf-template", workshop.hf("qwen3")[0], expect=(0, 3))
    if (tmp_path / "hf").exists():
        assert_same(read_directory(tmp_path / "hf")[0], raw_of(workshop.hf("qwen3")[2]))
    else:
        tool.refused(text, key, "stride")
