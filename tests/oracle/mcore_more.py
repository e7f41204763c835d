"""What Megatron-Core itself asks for: keys and global shapes of the sharded state of models beyond the dense ones, built with
Megatron's own layers on one rank. A checkpoint's names are right when they are these."""
import torch

import mcore_env as env
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig


def keys_rank(rank, settings, vocabulary, position):
    """{key: global shape}; vocabulary is padded."""
    layout = env.Layout()
    env.initialize(layout)
    experts = settings.get("num_moe_experts")
    config = TransformerConfig(
        **settings, gated_linear_unit=True, normalization="RMSNorm", hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.bfloat16, bf16=True,
        use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False, transformer_impl="local")
    env.transformer_block.LayerNormImpl = env._torch_norm
    spec = gpt_layer_specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm") if experts else \
        gpt_layer_specs.get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=vocabulary, max_sequence_length=64, share_embeddings_and_output_weights=False,
                     position_embedding_type=position)
    found = {}
    for entry in model.sharded_state_dict(metadata=env.metadata()).values():
        for leaf in env.leaves(entry):
            found[leaf.key] = tuple(leaf.global_shape)
    return found
