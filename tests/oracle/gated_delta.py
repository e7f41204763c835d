"""Qwen3-Next and Qwen3.5: tiny models by transformers, and Megatron-Core's own model of them: its gated delta net, its gated attention,
with stand-ins under TransformerEngine's names that compute."""
import contextlib
import json
import pathlib

import torch

import mcore_env as env
from reference import fill

# Two value heads a key head, no two sizes alike; attention in the third and the fifth layer only.
_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"]
_COMMON = dict(vocab_size=307, hidden_size=40, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=2, head_dim=8, layer_types=_TYPES,
               linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=6, linear_value_head_dim=10, linear_conv_kernel_dim=4,
               max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
_EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20)
# case -> (prefix of transformers' classes, settings of the language model)
CASES = {
    "qwen3_next": ("Qwen3Next", _COMMON | _EXPERTS | dict(intermediate_size=28, norm_topk_prob=True)),
    "qwen3_next_mixed": ("Qwen3Next", _COMMON | _EXPERTS | dict(intermediate_size=28, mlp_only_layers=[1, 2])),
    "qwen3_5": ("Qwen3_5", _COMMON | dict(intermediate_size=56)),
    "qwen3_5_moe": ("Qwen3_5Moe", _COMMON | _EXPERTS),
}
EXACT = ("A_log", "dt_bias")                     # stay F32 in the files


def value(name, shape, dtype=torch.bfloat16):
    """Values by name. Norms lie around zero, but for the one behind the delta net."""
    tensor = fill(name, tuple(shape), torch.float32)
    return (tensor - 1 if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight") else tensor).to(dtype)


def mtp(case, settings):
    """The tensors of one layer of multi-token prediction, which transformers neither builds nor saves."""
    h, q, k, d = (settings[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    at = "mtp.layers.0."
    shapes = {"mtp.fc.weight": (h, 2 * h), "mtp.pre_fc_norm_embedding.weight": (h,), "mtp.pre_fc_norm_hidden.weight": (h,), "mtp.norm.weight": (h,),
              at + "input_layernorm.weight": (h,), at + "post_attention_layernorm.weight": (h,), at + "self_attn.q_proj.weight": (2 * q * d, h),
              at + "self_attn.k_proj.weight": (k * d, h), at + "self_attn.v_proj.weight": (k * d, h), at + "self_attn.o_proj.weight": (h, q * d),
              at + "self_attn.q_norm.weight": (d,), at + "self_attn.k_norm.weight": (d,)}

    def mlp(prefix, size):
        shapes.update({prefix + "gate_proj.weight": (size, h), prefix + "up_proj.weight": (size, h), prefix + "down_proj.weight": (h, size)})

    if case == "qwen3_5":
        mlp(at + "mlp.", settings["intermediate_size"])
    else:
        shapes |= {at + "mlp.gate.weight": (6, h), at + "mlp.shared_expert_gate.weight": (1, h)}
        mlp(at + "mlp.shared_expert.", 20)
        for expert in range(6):
            mlp(f"{at}mlp.experts.{expert}.", 12)
    return {name: value(f"{case}:{name}", shape) for name, shape in shapes.items()}


def write(case, directory, with_mtp=False):
    import safetensors.torch
    import transformers
    prefix, settings = CASES[case]
    kind = "TextConfig" if prefix.startswith("Qwen3_5") else "Config"
    model = getattr(transformers, f"{prefix}ForCausalLM")(getattr(transformers, prefix + kind)(**settings))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.data = value(f"{case}:{name}", tensor.shape, torch.float32 if name.endswith(EXACT) else torch.bfloat16)
    model.config.dtype = "bfloat16"
    model.save_pretrained(directory)
    if with_mtp:
        more = mtp(case, settings)
        safetensors.torch.save_file(more, directory / "mtp.safetensors", {"format": "pt"})
        tensors = safetensors.torch.load_file(directory / "model.safetensors")
        (directory / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"total_size": sum(tensor.numel() * tensor.element_size() for tensor in [*tensors.values(), *more.values()])}, "weight_map": {name: "model.safetensors" for name in tensors} | {name: "mtp.safetensors" for name in more}}))


# --- Megatron-Core ----------------------------------------------------------------------------------------------------------
def _normed(x, weight, eps):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps) * (1 + weight.float())).to(x.dtype)


class Norm(env.TENorm):
    def __init__(self, config, hidden_size, eps=1e-5, **ignored):
        super().__init__(config, hidden_size, eps)
        self.eps = eps

    def forward(self, x):
        return _normed(x, self.weight, self.eps)


class NormedLinear(env.TELayerNormColumnParallelLinear):
    def forward(self, x, *args, **kwargs):
        return super().forward(_normed(x, self.layer_norm_weight, self.config.layernorm_epsilon), *args, **kwargs)


class Provider(env.TESpecProvider):
    def column_parallel_layer_norm_linear(self):
        return NormedLinear

    def layer_norm(self, rms_norm=False, for_qk=False, has_residual=False):
        return Norm

    def core_attention(self):
        from megatron.core.transformer.dot_product_attention import DotProductAttention
        return DotProductAttention


def _prepare():
    """What the package flash-linear-attention would bring, in torch; in the ranks only."""
    import megatron.core.models.gpt.experimental_attention_variant_module_specs as specs
    from megatron.core.ssm.gated_delta_net import common
    torch._dynamo.config.disable = True
    common.HAVE_FLA = True
    common.l2norm = lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
    specs.TESpecProvider = Provider
    for module in (env.gpt_layer_specs, specs):
        module.TESpecProvider, module.HAVE_TE = Provider, True
    env.gpt_layer_specs.TENorm = Norm
    env.transformer_block.LayerNormImpl = Norm
    return specs


def build(config, layout, dtype):
    specs = _prepare()
    env.initialize(layout)
    env.get_cuda_rng_tracker().fork = lambda *args, **kwargs: contextlib.nullcontext()
    experts = config.get("num_experts")
    more = {}
    if experts:
        dense = config.get("mlp_only_layers") or []
        more = dict(num_moe_experts=experts, moe_ffn_hidden_size=config["moe_intermediate_size"], moe_router_topk=config["num_experts_per_tok"],
                    moe_shared_expert_intermediate_size=config["shared_expert_intermediate_size"], moe_shared_expert_gate=True,
                    moe_layer_freq=[int(index not in dense) for index in range(config["num_hidden_layers"])], moe_router_load_balancing_type="none",
                    moe_token_dispatcher_type="allgather", moe_router_pre_softmax=False, moe_grouped_gemm=False, moe_router_dtype="fp32",
                    expert_model_parallel_size=layout.ep, expert_tensor_parallel_size=layout.expert_tp, sequence_parallel=layout.tp > 1)
    settings = env.TransformerConfig(
        **more, num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=config["num_attention_heads"],
        num_query_groups=config["num_key_value_heads"], kv_channels=config["head_dim"], ffn_hidden_size=config.get("intermediate_size") or 28,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm", layernorm_epsilon=config["rms_norm_eps"],
        layernorm_zero_centered_gamma=True, add_bias_linear=False, qk_layernorm=True, attention_output_gate=True, hidden_dropout=0.0,
        attention_dropout=0.0, experimental_attention_variant="gated_delta_net",
        linear_attention_freq=[int(kind == "linear_attention") for kind in config["layer_types"]], linear_conv_kernel_dim=config["linear_conv_kernel_dim"],
        linear_key_head_dim=config["linear_key_head_dim"], linear_value_head_dim=config["linear_value_head_dim"],
        linear_num_key_heads=config["linear_num_key_heads"], linear_num_value_heads=config["linear_num_value_heads"], deterministic_mode=True,
        tensor_model_parallel_size=layout.tp, pipeline_model_parallel_size=layout.pp, pipeline_dtype=dtype, params_dtype=dtype, bf16=dtype == torch.bfloat16,
        use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False, bias_activation_fusion=False,
        bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False, deallocate_pipeline_outputs=True,
        num_layers_in_first_pipeline_stage=layout.first, transformer_impl="transformer_engine")
    spec = specs.get_transformer_block_with_experimental_attention_variant_spec(settings)
    model = env.GPTModel(
        config=settings, transformer_layer_spec=spec, vocab_size=layout.padded(config["vocab_size"]), max_sequence_length=64,
        pre_process=env.parallel_state.get_pipeline_model_parallel_rank() == 0,
        post_process=env.parallel_state.get_pipeline_model_parallel_rank() == layout.pp - 1,
        position_embedding_type="rope", rotary_percent=config["rope_parameters"]["partial_rotary_factor"], rotary_base=config["rope_parameters"]["rope_theta"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model.to(dtype)


def load_rank(rank, step, config, tokens, layout, dtype):
    """Every tensor of this rank's model after a load under the default strictness, and (one rank) the logits."""
    model = build(config, layout, dtype)
    loaded = env.dist_checkpointing.load({"model": model.sharded_state_dict(metadata=env.metadata())}, str(step))
    model.load_state_dict(loaded["model"], strict=True)
    asked = {}
    for entry in model.sharded_state_dict(metadata=env.metadata()).values():
        for leaf in env.leaves(entry):
            asked[leaf.key] = tuple(leaf.global_shape)
    tensors = {name: tensor.detach().float().numpy() for name, tensor in model.named_parameters()}
    if layout.world > 1:
        return asked, tensors, None
    model.eval()
    length = tokens.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length), diagonal=1).bool()
    positions = torch.arange(length).unsqueeze(0).expand(tokens.shape[0], -1)
    with torch.no_grad():
        return asked, tensors, model(tokens, positions, mask)[..., :config["vocab_size"]].float().numpy()


def load(step, config, tokens=None, layout=env.Layout(), dtype=torch.float32):
    return env.run_ranks(layout.world, load_rank, pathlib.Path(step), config, tokens, layout, dtype)
