"""Consumer of vision-language models: real modules of Megatron-Core under the names of Megatron-Bridge's models, filled by
`dist_checkpointing.load`. The arrangement is Bridge's: the tower stands on the first stage beside `language_model`; Qwen2.5-VL's is
transformers' own module, Qwen3-VL's is a TransformerBlock whose mergers behind single blocks lie along a first axis."""
import copy

import torch

import mcore_env as env
from mcore_load import _compare, _rows
from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlock


class Merger(MegatronModule):
    def __init__(self, config, vision, wide):
        super().__init__(config=config)
        merged = vision["hidden_size"] * vision["spatial_merge_size"] ** 2
        self.patch_norm = env.TENorm(config, merged if wide else vision["hidden_size"])
        common = dict(config=config, init_method=config.init_method, bias=True, skip_bias_add=False)
        self.linear_fc1 = env.TEColumnParallelLinear(merged, merged, gather_output=False, **common)
        self.linear_fc2 = env.TERowParallelLinear(merged, vision["out_hidden_size"], input_is_parallel=True, **common)


class Blocks(TransformerBlock):
    def __init__(self, config, vision):
        spec = copy.deepcopy(env.gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec())
        super().__init__(config=config, spec=spec, post_layer_norm=False, pre_process=True, post_process=True)
        self.deepstack_merger_list = torch.nn.ModuleList(Merger(config, vision, True) for _ in vision["deepstack_visual_indexes"])

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        mergers = f"{prefix}deepstack_merger_list."
        state = {name: entry for name, entry in super().sharded_state_dict(prefix, sharded_offsets, metadata).items() if not name.startswith(mergers)}
        for index, merger in enumerate(self.deepstack_merger_list):
            part = merger.sharded_state_dict(f"{mergers}{index}.", [(0, index, len(self.deepstack_merger_list))], metadata)
            replace_prefix_for_sharding(part, f"{mergers}{index}.", mergers)
            state |= part
        return state


class Tower(MegatronModule):
    def __init__(self, config, vision):
        super().__init__(config=config)
        patch = (vision["temporal_patch_size"], vision["patch_size"], vision["patch_size"])
        self.patch_embed = torch.nn.Module()
        self.patch_embed.proj = torch.nn.Conv3d(vision["in_channels"], vision["hidden_size"], patch, patch)
        self.pos_embed = torch.nn.Embedding(vision["num_position_embeddings"], vision["hidden_size"])
        self.decoder = Blocks(config, vision)
        self.merger = Merger(config, vision, False)


class Whole(MegatronModule):
    def __init__(self, config, layout, dtype):
        text = dict(config["text_config"], model_type=KINDS[config["model_type"]], tie_word_embeddings=config["tie_word_embeddings"])
        language = env.build_model(text, layout, dtype)
        super().__init__(config=language.config)
        self.language_model = language
        if env.parallel_state.get_pipeline_model_parallel_rank() == 0:
            vision = config["vision_config"]
            if config["model_type"] == "qwen2_5_vl":
                import transformers
                from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
                self.visual = Qwen2_5_VisionTransformerPretrainedModel(transformers.Qwen2_5_VLConfig(**config).vision_config).to(dtype)
            else:
                own = env.TransformerConfig(
                    num_layers=vision["depth"], hidden_size=vision["hidden_size"], num_attention_heads=vision["num_heads"], ffn_hidden_size=vision["intermediate_size"],
                    normalization="LayerNorm", add_bias_linear=True, add_qkv_bias=True, tensor_model_parallel_size=layout.tp, params_dtype=dtype, bf16=dtype == torch.bfloat16,
                    use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False, hidden_dropout=0.0, attention_dropout=0.0)
                self.vision_model = Tower(own, vision).to(dtype)


KINDS = {"qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe"}


def rank_file(step, layout):
    """The file of this rank in a legacy tree."""
    stage = f"_{env.parallel_state.get_pipeline_model_parallel_rank():03d}" if layout.pp > 1 else ""
    return step / f"mp_rank_{env.parallel_state.get_tensor_model_parallel_rank():02d}{stage}" / "model_optim_rng.pt"


def attention_has_an_extra_state():
    """TransformerEngine's has one that torch_dist does not store and a legacy file does."""
    env.TEDotProductAttention.get_extra_state = lambda self: torch.empty(0, dtype=torch.uint8)
    env.TEDotProductAttention.set_extra_state = lambda self, state: None


def padded_reference(config, reference, layout):
    reference = dict(reference)
    vocabulary, padded = config["text_config"]["vocab_size"], layout.padded(config["text_config"]["vocab_size"])
    for name in ("language_model.embedding.word_embeddings.weight", "language_model.output_layer.weight"):
        if name in reference:
            whole = reference[name]
            reference[name] = torch.cat([whole, torch.zeros(padded - len(whole), *whole.shape[1:], dtype=whole.dtype)])
    return reference


def save_rank(rank, step, config, reference, layout, dtype):
    """A rank's file as Megatron's save_checkpoint lays it out, of modules that hold their pieces of the reference."""
    attention_has_an_extra_state()
    env.initialize(layout)
    model = Whole(config, layout, dtype)
    reference, entries = padded_reference(config, reference, layout), env.named_entries(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(env.local_of(entries[name], reference, parameter, parameter.dtype))
    text = dict(config["text_config"], model_type=KINDS[config["model_type"]], tie_word_embeddings=config["tie_word_embeddings"])
    args = env.training_args(text, layout, step.parent, dtype, optimizer=False, ckpt_format="torch", use_dist_ckpt=False, no_save_rng=True)
    path = rank_file(step, layout)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 20, "model": model.state_dict_for_save_checkpoint()}, path)


def save(root, config, reference, layout, dtype=torch.bfloat16):
    step = root / "iter_0000020"
    env.run_ranks(layout.world, save_rank, step, config, reference, layout, dtype)
    (root / "latest_checkpointed_iteration.txt").write_text("20")


def load_rank(rank, step, config, reference, layout, dtype, how):
    if how == "legacy":
        attention_has_an_extra_state()
    env.initialize(layout)
    model = Whole(config, layout, dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    if how == "live":
        import crossdock.megatron
        crossdock.megatron.load_hf(model, step, threads=1)
    elif how == "legacy":
        model.load_state_dict(torch.load(rank_file(step, layout), weights_only=False)["model"], strict=True)
    else:
        loaded = env.dist_checkpointing.load({"model": model.sharded_state_dict(metadata=env.metadata())}, str(step))
        model.load_state_dict(loaded["model"], strict=True)
    vocabulary, reference = config["text_config"]["vocab_size"], padded_reference(config, reference, layout)
    problems, keys, own = [], set(), dict(model.named_parameters())
    entries = env.named_entries(model)
    if set(own) - set(entries):
        problems.append(f"not in the sharded state: {sorted(set(own) - set(entries))}")
    for name in own:
        keys |= {leaf.key for leaf in env.leaves(entries[name], own[name].data)}
        _compare(problems, name, own[name].data, env.local_of(entries[name], reference, own[name], own[name].dtype), _rows(entries[name], vocabulary))
    return problems, keys


def check(step, config, reference, layouts, dtype=torch.bfloat16, how="torch_dist"):
    """Loads under each layout, by Megatron-Core, from each rank's own file (legacy) or through crossdock.megatron.load_hf (live), and compares every local piece; all of the
    reference must have been asked for."""
    for layout in layouts:
        asked = set()
        for rank, (problems, keys) in enumerate(env.run_ranks(layout.world, load_rank, step, config, reference, layout, dtype, how)):
            assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
            asked |= keys
        assert asked == set(reference), f"{layout}: {sorted(asked ^ set(reference))[:6]}"
