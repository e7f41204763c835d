"""HF -> Megatron -> HF for the families beyond the common ones, each under several cuts: what comes back is the source bit for
bit (tensors, dtypes, configuration) and transformers computes the same logits from it. A dialect that lacks a family says so."""
import json
import shlex

import pytest

import tool

tool.require()

import torch

import mcore_env as env
import mcore_load
import mcore_more
import models
from reference import assert_same, fill, read_directory

# Sizes: no two alike, none that a wrong axis or a wrong half could pass with.
_BASE = dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=28, vocab_size=307,
             max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
_EXPERTS = _BASE | dict(num_experts_per_tok=2)
_GLM = _EXPERTS | dict(moe_intermediate_size=12, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1)
_YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
_MLA = dict(moe_intermediate_size=12, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1, kv_lora_rank=10,
            q_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8)
# case -> (family, class of transformers, its settings, what config.json is changed to afterwards)
CASES = {
    "phi3": ("phi3", "Phi3", {key: value for key, value in _BASE.items() if key != "head_dim"}, {}),
    "glm4_moe": ("glm4_moe", "Glm4Moe", _GLM | dict(attention_bias=True, use_qk_norm=True), {}),
    "glm4_moe_plain": ("glm4_moe", "Glm4Moe", _GLM | dict(attention_bias=False, use_qk_norm=False), {}),
    "gpt_oss": ("gpt_oss", "GptOss", _EXPERTS | dict(num_local_experts=6, sliding_window=8, rope_parameters=_YARN,
                                                   layer_types=["sliding_attention", "full_attention", "sliding_attention"]), {}),
    "minimax_m2": ("minimax_m2", "MiniMaxM2", _EXPERTS | dict(num_local_experts=6), {}),
    "llama4": ("llama4", "Llama4Text", _BASE | dict(num_local_experts=6, num_experts_per_tok=1, intermediate_size_mlp=36, interleave_moe_layer_step=2,
                                                   attention_chunk_size=16, no_rope_layers=[1, 0, 1]), {}),
    "kimi_k2": ("deepseek_v3", "DeepseekV3", {key: value for key, value in (_EXPERTS | _MLA | dict(num_key_value_heads=4)).items() if key != "head_dim"},
                {"model_type": "kimi_k2"}),
    "moonlight": ("deepseek_v3", "DeepseekV3", {key: value for key, value in (_EXPERTS | _MLA | dict(num_key_value_heads=4, q_lora_rank=None, n_shared_experts=2)).items() if key != "head_dim"}, {}),
}
# Hugging Face names only; settings as above.
HF_ONLY = {
    "olmo3": ("olmo3", "Olmo3", {key: value for key, value in _BASE.items() if key != "head_dim"}, {}),
    "gemma2": ("gemma2", "Gemma2", _BASE | dict(tie_word_embeddings=True), {}),
    "gemma3": ("gemma3", "Gemma3Text", _BASE | dict(tie_word_embeddings=True), {}),
    "ling3": ("ling3", "BailingHybrid", _EXPERTS | dict(num_key_value_heads=4, head_dim=8, num_hidden_layers=4, layer_group_size=2, moe_intermediate_size=12, num_local_experts=6,
                                                       n_shared_experts=2, n_group=2, topk_group=1, kv_lora_rank=10, q_lora_rank=None, qk_rope_head_dim=4, qk_nope_head_dim=6,
                                                       v_head_dim=8, first_k_dense_replace=1, num_mtp_layers=0), {}),
}
DENSE = {"tp2": ["--tp", 2], "tp2_pp2_uneven": ["--tp", 2, "--pp", 2, "--first-stage-layers", 2]}
WITH_EXPERTS = DENSE | {"ep2": ["--ep", 2], "ep3_pp2_uneven": ["--ep", 3, "--pp", 2, "--first-stage-layers", 1], "ep2_etp2": ["--tp", 2, "--ep", 2, "--etp", 2]}
ROUNDS = [(case, layout) for case in CASES for layout in (WITH_EXPERTS if "num_experts_per_tok" in CASES[case][2] else DENSE)]


def _write(case, directory):
    """A model of transformers whose every tensor has values of its own; buffers stay F32."""
    import transformers
    _, name, settings, changes = (CASES | HF_ONLY)[case]
    model_name = {"Llama4Text": "Llama4", "Gemma3Text": "Gemma3"}.get(name, name)
    model = getattr(transformers, f"{model_name}ForCausalLM")(getattr(transformers, f"{name}Config")(**settings))
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            island = key.endswith(("A_log", "dt_bias", "conv1d.weight"))
            tensor.data = fill(f"{case}:{key}", tuple(tensor.shape), torch.float32 if island else torch.bfloat16)
        for key, tensor in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                tensor.copy_(fill(f"{case}:{key}", tuple(tensor.shape), torch.float32))
    model.tie_weights()
    model.config.dtype = "bfloat16"
    model.save_pretrained(directory, max_shard_size="90KB")
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    made = {}

    def make(case):
        if case not in made:
            directory = tmp_path_factory.mktemp(case)
            _write(case, directory)
            made[case] = directory, read_directory(directory)[0], json.loads((directory / "config.json").read_text())
        return made[case]
    return make


@pytest.mark.parametrize("target", ["megatron", "megatron-legacy"])
@pytest.mark.parametrize("case,layout", ROUNDS)
def test_there_and_back_bit_for_bit(source, tmp_path, case, layout, target):
    directory, tensors, config = source(case)
    words = WITH_EXPERTS[layout]
    tool.convert(directory, tmp_path / "megatron", "--to", target, *words)
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf", "--max-shard-size", "90KB")
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    # transformers announces prediction layers that it does not write: config.json then says that there are none.
    expected = config | ({"num_nextn_predict_layers": 0} if config["model_type"] in ("kimi_k2", "deepseek_v3", "glm4_moe") else {})
    assert json.loads((tmp_path / "hf" / "config.json").read_text()).items() >= expected.items()
    if layout == "tp2_pp2_uneven" and config["model_type"] != "kimi_k2":
        ours, theirs = models.logits(tmp_path / "hf"), models.logits(directory)
        assert torch.equal(ours, theirs) and ours.std() > 0


def _megatron_tensors(step):
    """Keys and whole tensors of a torch_dist checkpoint, by PyTorch's own reader."""
    import torch.distributed.checkpoint as dcp
    reader = dcp.FileSystemReader(step)
    tensors = {key: torch.empty(data.size, dtype=data.properties.dtype) for key, data in reader.read_metadata().state_dict_metadata.items() if hasattr(data, "size")}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


# What Megatron-Core's own models are told for the same sizes.
_MEGATRON = dict(num_layers=3, hidden_size=40, num_attention_heads=4, num_query_groups=2, kv_channels=6, ffn_hidden_size=28, add_bias_linear=False)
_MEGATRON_MOE = _MEGATRON | dict(num_moe_experts=6, moe_router_topk=2, moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True)
MEGATRON = {
    "phi3": _MEGATRON | dict(kv_channels=10),
    "glm4_moe": _MEGATRON_MOE | dict(moe_ffn_hidden_size=12, moe_layer_freq=[0, 1, 1], moe_shared_expert_intermediate_size=24, add_qkv_bias=True, qk_layernorm=True),
    "gpt_oss": _MEGATRON | dict(num_moe_experts=6, moe_router_topk=2, moe_ffn_hidden_size=28, add_bias_linear=True, add_qkv_bias=True, softmax_type="learnable"),
    "llama4": _MEGATRON | dict(moe_router_score_function="sigmoid", ffn_hidden_size=36, num_moe_experts=6, moe_router_topk=1, moe_ffn_hidden_size=28, moe_layer_freq=[0, 1, 0], moe_shared_expert_intermediate_size=28),
}


@pytest.mark.parametrize("case", MEGATRON)
def test_megatron_has_these_names_and_shapes(source, tmp_path, case):
    tool.convert(source(case)[0], tmp_path / "megatron", "--to", "megatron", "--tp", 2)
    found = {key: tuple(tensor.shape) for key, tensor in _megatron_tensors(tool.step_of(tmp_path / "megatron")).items()}
    settings = MEGATRON[case]
    wanted = env.run_ranks(1, mcore_more.keys_rank, settings, 512, "rope")[0]
    # Megatron's own layers write the fused norm's name before experts too; TransformerEngine's have a norm apart there.
    if "num_moe_experts" in settings:
        frequency = settings.get("moe_layer_freq")
        for layer in [f".{index}" for index, moe in enumerate(frequency) if moe] if frequency else [""]:
            wanted[f"decoder.layers{layer}.pre_mlp_layernorm.weight"] = wanted.pop(f"decoder.layers{layer}.mlp.linear_fc1.layer_norm_weight")
    assert found == wanted


# What load_args_from_checkpoint leaves to the command line and without which Megatron computes something else.
FLAGS = {"gpt_oss": dict(quick_geglu=True, swiglu=False, glu_linear_offset=1, activation_func_clamp_value=7.0, softmax_type="learnable", add_bias_linear=True),
         "llama4": dict(no_rope_freq=[0, 1, 0], qk_l2_norm=True, moe_apply_probs_on_input=True)}


@pytest.mark.parametrize("case", FLAGS)
def test_a_run_builds_this_model_from_the_flags_printed(source, tmp_path, case):
    text = tool.convert(source(case)[0], tmp_path / "megatron", "--to", "megatron")
    line = next(line for line in text.splitlines() if line.strip().startswith("--load "))
    found = mcore_load.stored_arguments(shlex.split(line))
    assert {name: found.get(name) for name in FLAGS[case]} == FLAGS[case], line


def test_gate_and_up_lie_as_megatron_multiplies_them(source, tmp_path):
    """The same values written down a second time in torch: the gate's half first, whatever the hub's order is."""
    def of(case):
        tool.convert(source(case)[0], tmp_path / case, "--to", "megatron", "--tp", 2)
        theirs = {}
        for file in source(case)[0].glob("*.safetensors"):
            import safetensors.torch
            theirs |= safetensors.torch.load_file(file)
        return _megatron_tensors(tool.step_of(tmp_path / case)), theirs

    ours, theirs = of("gpt_oss")
    for layer in range(3):
        weight, bias, down = (theirs[f"model.layers.{layer}.mlp.experts.{name}"] for name in ("gate_up_proj", "gate_up_proj_bias", "down_proj"))
        fused = torch.cat([weight[..., 0::2], weight[..., 1::2]], -1).transpose(1, 2)
        assert torch.equal(ours["decoder.layers.mlp.experts.experts.linear_fc1.weight"][layer], fused)
        assert torch.equal(ours["decoder.layers.mlp.experts.experts.linear_fc1.bias"][layer], torch.cat([bias[:, 0::2], bias[:, 1::2]], -1))
        assert torch.equal(ours["decoder.layers.mlp.experts.experts.linear_fc2.weight"][layer], down.transpose(1, 2))
        assert torch.equal(ours["decoder.layers.self_attention.core_attention.softmax_offset"][layer], theirs[f"model.layers.{layer}.self_attn.sinks"])
    ours, theirs = of("llama4")
    assert torch.equal(ours["decoder.layers.1.mlp.experts.experts.linear_fc1.weight"], theirs["model.layers.1.feed_forward.experts.gate_up_proj"].transpose(1, 2))
    ours, theirs = of("phi3")
    for layer in range(3):
        query, key, value = theirs[f"model.layers.{layer}.self_attn.qkv_proj.weight"].split([40, 20, 20])
        grouped = torch.cat([torch.cat([query[i * 20:(i + 1) * 20], key[i * 10:(i + 1) * 10], value[i * 10:(i + 1) * 10]]) for i in range(2)])
        assert torch.equal(ours["decoder.layers.self_attention.linear_qkv.weight"][layer], grouped)
        assert torch.equal(ours["decoder.layers.mlp.linear_fc1.weight"][layer], theirs[f"model.layers.{layer}.mlp.gate_up_proj.weight"])


@pytest.mark.parametrize("case", HF_ONLY)
def test_without_megatron(source, tmp_path, case):
    """Full state and back is equal; Megatron is refused by the family's name, and nothing is written."""
    directory, tensors, config = source(case)
    tool.convert(directory, tmp_path / "full", "--to", "full-state")
    tool.convert(tmp_path / "full", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    assert json.loads((tmp_path / "hf" / "config.json").read_text()).items() >= config.items()
    assert torch.equal(models.logits(tmp_path / "hf"), models.logits(directory))
    tool.refused(tool.convert(directory, tmp_path / "megatron", "--to", "megatron", expect=3), HF_ONLY[case][0], "mcore", "--rules")


def test_another_bias_than_the_family_has_is_refused(source, tmp_path):
    import shutil
    directory, *_ = source("phi3")
    shutil.copytree(directory, tmp_path / "biased")
    path = tmp_path / "biased" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_bias": True}))
    tool.refused(tool.convert(tmp_path / "biased", tmp_path / "megatron", "--to", "megatron", expect=3), "attention_bias")


def _ling2(directory):
    """transformers has no class for Ling 2: names and shapes as its authors' files have them."""
    import safetensors.torch
    config = _EXPERTS | dict(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe_v2", moe_intermediate_size=12, num_experts=6, num_shared_experts=2, first_k_dense_replace=1,
                             n_group=2, topk_group=1, use_qk_norm=True, use_qkv_bias=True, partial_rotary_factor=0.5, rope_theta=600000.0, rms_norm_eps=1e-6, routed_scaling_factor=2.5,
                             norm_topk_prob=True, hidden_act="silu", dtype="bfloat16")
    shapes = {"model.word_embeddings.weight": (307, 40), "model.norm.weight": (40,), "lm_head.weight": (307, 40)}

    def mlp(prefix, size):
        shapes.update({prefix + "gate_proj.weight": (size, 40), prefix + "up_proj.weight": (size, 40), prefix + "down_proj.weight": (40, size)})

    for layer in range(3):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": (40,), at + "post_attention_layernorm.weight": (40,), at + "attention.query_key_value.weight": (48, 40),
                   at + "attention.query_key_value.bias": (48,), at + "attention.query_layernorm.weight": (6,), at + "attention.key_layernorm.weight": (6,),
                   at + "attention.dense.weight": (40, 24)}
        if layer == 0:
            mlp(at + "mlp.", 28)
            continue
        shapes |= {at + "mlp.gate.weight": (6, 40), at + "mlp.gate.expert_bias": (6,)}
        mlp(at + "mlp.shared_experts.", 24)
        for expert in range(6):
            mlp(f"{at}mlp.experts.{expert}.", 12)
    directory.mkdir()
    tensors = {name: fill("ling2:" + name, shape, torch.float32 if name.endswith("expert_bias") else torch.bfloat16) for name, shape in shapes.items()}
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config))
    return config


@pytest.mark.parametrize("layout", WITH_EXPERTS)
def test_ling2_there_and_back(tmp_path, layout):
    config = _ling2(tmp_path / "source")
    tool.convert(tmp_path / "source", tmp_path / "megatron", "--to", "megatron", *WITH_EXPERTS[layout])
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf")
    assert_same(read_directory(tmp_path / "hf")[0], read_directory(tmp_path / "source")[0])
    assert json.loads((tmp_path / "hf" / "config.json").read_text()).items() >= config.items()
    key = _megatron_tensors(tool.step_of(tmp_path / "megatron"))
    assert key["decoder.layers.1.mlp.router.expert_bias"].dtype == torch.float32 and key["decoder.layers.1.mlp.experts.experts.linear_fc1.weight"].shape == (6, 24, 40)


@pytest.mark.parametrize("case", ["phi3", "glm4_moe", "gpt_oss", "minimax_m2", "llama4", "moonlight"])
def test_from_the_arguments_and_a_template(source, tmp_path, case):
    """As from a trainer that keeps no config.json: the arguments say the sizes, a template the rest."""
    import shutil
    directory, tensors, config = source(case)
    tool.convert(directory, tmp_path / "megatron", "--to", "megatron", "--tp", 2)
    shutil.rmtree(tool.step_of(tmp_path / "megatron") / "hf")
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf", "--hf-template", directory)
    assert_same(read_directory(tmp_path / "hf")[0], tensors)
    assert torch.equal(models.logits(tmp_path / "hf"), models.logits(directory))


def test_glm_carries_its_layer_of_multi_token_prediction(source, tmp_path):
    """Layer 46 of GLM-4.5, here 3: beside a decoder layer's tensors three norms and a projection; embedding and head repeat the model's."""
    import shutil
    import safetensors.torch
    directory, tensors, config = source("glm4_moe")
    assert config["num_nextn_predict_layers"] == 1, "transformers announces the layer that it does not write"
    whole = {}
    for file in directory.glob("*.safetensors"):
        whole |= safetensors.torch.load_file(file)
    at = "model.layers.3."
    more = {at + name.removeprefix("model.layers.2."): fill("mtp:" + name, tuple(tensor.shape), tensor.dtype) for name, tensor in whole.items() if name.startswith("model.layers.2.")}
    more |= {at + "enorm.weight": fill("enorm", (40,), torch.bfloat16), at + "hnorm.weight": fill("hnorm", (40,), torch.bfloat16), at + "eh_proj.weight": fill("eh", (40, 80), torch.bfloat16),
             at + "shared_head.norm.weight": fill("norm", (40,), torch.bfloat16), at + "embed_tokens.weight": whole["model.embed_tokens.weight"].clone(),
             at + "shared_head.head.weight": whole["lm_head.weight"].clone()}
    (tmp_path / "source").mkdir()
    shutil.copy(directory / "config.json", tmp_path / "source")
    safetensors.torch.save_file(whole | more, tmp_path / "source" / "model.safetensors", {"format": "pt"})
    tool.convert(tmp_path / "source", tmp_path / "megatron", "--to", "megatron", "--tp", 2, "--ep", 2)
    keys = _megatron_tensors(tool.step_of(tmp_path / "megatron"))
    assert keys["mtp.layers.0.transformer_layer.self_attention.linear_qkv.weight"].shape == (48, 40) and keys["mtp.layers.0.transformer_layer.mlp.router.expert_bias"].dtype == torch.float32
    tool.convert(tmp_path / "megatron", tmp_path / "hf", "--to", "hf", "--hf-template", tmp_path / "source")
    assert_same(read_directory(tmp_path / "hf")[0], read_directory(tmp_path / "source")[0])
    tool.convert(directory, tmp_path / "template", "--to", "hf", "--hf-template", tmp_path / "source", "--mtp", "template")
    assert_same(read_directory(tmp_path / "template")[0], read_directory(tmp_path / "source")[0])


def test_rotary_scalings_that_megatron_lacks_are_refused_by_name(source, tmp_path):
    """Llama 4 Scout's llama3 scaling has other constants than Megatron's; Phi-3's longrope has no argument. Other targets carry both."""
    import shutil
    scout = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 8192}
    long = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 5, "long_factor": [2.0] * 5, "original_max_position_embeddings": 32}
    for case, rope, words in (("llama4", scout, ["high_freq_factor"]), ("phi3", long, ["longrope"])):
        directory, tensors, config = source(case)
        shutil.copytree(directory, tmp_path / case)
        (tmp_path / case / "config.json").write_text(json.dumps(config | {"rope_parameters": rope, "rope_scaling": {key: value for key, value in rope.items() if key != "rope_theta"}}))
        tool.refused(tool.convert(tmp_path / case, tmp_path / "megatron", "--to", "megatron", expect=3), *words)
        tool.convert(tmp_path / case, tmp_path / f"{case}-full", "--to", "full-state")
        tool.convert(tmp_path / f"{case}-full", tmp_path / f"{case}-hf", "--to", "hf")
        assert_same(read_directory(tmp_path / f"{case}-hf")[0], tensors)
        assert json.loads((tmp_path / f"{case}-hf" / "config.json").read_text())["rope_parameters"] == rope


def test_internlm2_keeps_megatrons_order_of_q_k_v(tmp_path):
    """Names of its authors' files; wqkv has Megatron's rows already."""
    import safetensors.torch
    config = dict(architectures=["InternLM2ForCausalLM"], model_type="internlm2", tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=1000000.0, max_position_embeddings=128, hidden_act="silu",
                  hidden_size=40, intermediate_size=52, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=307, bias=False, dtype="bfloat16")
    shapes = {"model.tok_embeddings.weight": (307, 40), "model.norm.weight": (40,), "output.weight": (307, 40)}
    for layer in range(3):
        at = f"model.layers.{layer}."
        shapes |= {at + "attention_norm.weight": (40,), at + "ffn_norm.weight": (40,), at + "attention.wqkv.weight": (80, 40), at + "attention.wo.weight": (40, 40), at + "feed_forward.w1.weight": (52, 40),
                   at + "feed_forward.w3.weight": (52, 40), at + "feed_forward.w2.weight": (40, 52)}
    (tmp_path / "source").mkdir()
    tensors = {name: fill("internlm2:" + name, shape, torch.bfloat16) for name, shape in shapes.items()}
    safetensors.torch.save_file(tensors, tmp_path / "source" / "model.safetensors", {"format": "pt"})
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    for to in ("megatron", "megatron-legacy"):
        tool.convert(tmp_path / "source", tmp_path / to, "--to", to, "--tp", 2, "--pp", 2, "--first-stage-layers", 2)
        tool.convert(tmp_path / to, tmp_path / f"hf-{to}", "--to", "hf")
        assert_same(read_directory(tmp_path / f"hf-{to}")[0], read_directory(tmp_path / "source")[0])
    keys = _megatron_tensors(tool.step_of(tmp_path / "megatron"))
    assert torch.equal(keys["decoder.layers.self_attention.linear_qkv.weight"], torch.stack([tensors[f"model.layers.{layer}.attention.wqkv.weight"] for layer in range(3)]))
