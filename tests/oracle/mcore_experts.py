"""Megatron-Core's models with experts and with multi-latent attention, from a config.json: configuration, layers, arguments."""
import copy

import torch

import models_experts as experts


def is_ours(config):
    return experts.experts_of(config) is not None


def numbered(config):
    """Layers of two kinds: moe_layer_freq is a list, and keys carry the number of their layer."""
    return not all(experts.kinds(config))


def fields(config, layout):
    """Fields of TransformerConfig, which are also arguments of training, beside those of a dense model."""
    kind = config["model_type"]
    softmax_first = kind in ("qwen2_moe", "deepseek_v2") or not config.get("norm_topk_prob", True)
    result = dict(
        num_moe_experts=experts.experts_of(config), moe_ffn_hidden_size=experts.expert_size(config), moe_router_topk=config["num_experts_per_tok"],
        moe_shared_expert_intermediate_size=experts.shared_size(config), moe_shared_expert_gate=kind == "qwen2_moe",
        moe_layer_freq=[int(one) for one in experts.kinds(config)] if numbered(config) or layout.numbered else 1, moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="allgather", moe_router_pre_softmax=softmax_first, moe_grouped_gemm=False, moe_router_dtype="fp32",
        expert_model_parallel_size=layout.ep, expert_tensor_parallel_size=layout.expert_tp, sequence_parallel=layout.tp > 1)
    if kind.startswith("deepseek"):
        result["moe_router_topk_scaling_factor"] = config["routed_scaling_factor"]
    if kind == "deepseek_v3":
        result |= dict(moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True, moe_router_pre_softmax=False,
                       moe_router_num_groups=config["n_group"], moe_router_group_topk=config["topk_group"])
    return result


def has_norms(env, config):
    """--qk-layernorm: norms of heads, or of the latents."""
    return config["model_type"] in env.NORMED or experts.is_mla(config)


def mla_fields(config):
    return dict(q_lora_rank=config["q_lora_rank"], kv_lora_rank=config["kv_lora_rank"], qk_head_dim=config["qk_nope_head_dim"],
                qk_pos_emb_head_dim=config["qk_rope_head_dim"], v_head_dim=config["v_head_dim"], rope_type="rope",
                rotary_base=float((config.get("rope_parameters") or config)["rope_theta"]))


def arguments(config, layout):
    """The same as a training run's arguments."""
    result = fields(config, layout)
    result["num_experts"] = result.pop("num_moe_experts")
    if experts.is_mla(config):
        result |= mla_fields(config) | {"multi_latent_attention": True, "group_query_attention": False, "kv_channels": config["hidden_size"] // config["num_attention_heads"]}
        result["rotary_base"] = int(result["rotary_base"])
    return result


# Megatron's own layers, which compute, under the names that TransformerEngine's have.
_LOCAL_NAMES = {
    False: {"input_layernorm.": "self_attention.linear_qkv.layer_norm_"},
    True: {"self_attention.q_layernorm.": "self_attention.linear_q_up_proj.layer_norm_", "self_attention.kv_layernorm.": "self_attention.linear_kv_up_proj.layer_norm_"}}


def _named_as_te(spec, mla, sparse):
    spec = copy.copy(spec)
    spec.submodules = copy.copy(spec.submodules)
    spec.submodules.sharded_state_dict_keys_map = dict(_LOCAL_NAMES[mla]) | ({} if sparse else {"pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"})
    return spec


def layer_spec(env, config, megatron, local, own_names=False):
    """The layers of this rank. own_names: Megatron's own layers under the names that they give themselves."""
    block = env.gpt_layer_specs.get_gpt_decoder_block_spec(megatron, use_transformer_engine=not local, normalization="RMSNorm")
    if local:
        first = env.get_transformer_layer_offset(megatron)
        kinds = experts.kinds(config)
        if not own_names:
            block.layer_specs = [_named_as_te(spec, experts.is_mla(config), kinds[first + index]) for index, spec in enumerate(block.layer_specs)]
    return block


def after_build(model):
    """Training keeps the router's correction in F32 whatever the model's dtype."""
    for name, buffer in model.named_buffers():
        if name.endswith("expert_bias"):
            buffer.data = buffer.data.float()


def install(env):
    """What of Megatron-Core must be told of stand-ins, and what its own layers lack for multi-latent attention."""
    import megatron.core.transformer.mla_qk_norm_config as norms
    import megatron.core.transformer.multi_latent_attention as mla
    from megatron.core.models import backends
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.identity_op import IdentityOp
    mla.TELinear, mla.TEColumnParallelLinear = env.TELinear, env.TEColumnParallelLinear
    get_backend = norms.get_backend
    norms.get_backend = lambda kind: env.TESpecProvider() if kind == "transformer_engine" else get_backend(kind)

    class Attention(DotProductAttention):
        """Heads whose keys and values have sizes of their own."""

        def __init__(self, *args, k_channels=None, v_channels=None, **kwargs):
            super().__init__(*args, **kwargs)
            if v_channels is not None:
                self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    backends.DotProductAttention = Attention
    resolve = mla.MLASelfAttention._resolve_qk_norm_config

    def without_query_latents(self, submodules):
        """Megatron's own layers cannot be built without q_lora: it asks them for a norm of the query that DeepSeek-V2-Lite does not have."""
        if self.config.q_lora_rank is not None:
            return resolve(self, submodules)
        te = self.config.transformer_impl == "transformer_engine"
        return {"linear_q_proj": env.TEColumnParallelLinear if te else ColumnParallelLinear, "linear_q_up_proj": IdentityOp, "q_layernorm": IdentityOp,
                "linear_kv_up_proj": submodules.linear_kv_up_proj, "kv_layernorm": submodules.kv_layernorm}

    mla.MLASelfAttention._resolve_qk_norm_config = without_query_latents
