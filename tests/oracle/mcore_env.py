"""Megatron-Core on a machine without CUDA and without TransformerEngine: replacements, stand-ins, ranks, models.

Import this before anything of megatron. Everything a rank needs is imported once in the parent; ranks are forked.
"""
import collections
import contextlib
import dataclasses
import functools
import os
import pickle
import queue
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
warnings.filterwarnings("ignore")

import logging

logging.disable(logging.WARNING)

import torch

torch.set_num_threads(1)

import mcore_experts
import models_experts
import reference


# --- torch.cuda on a machine that has none; in each rank, before a model is built --------------------------------------
def _without_cuda():
    torch.cuda.current_device = lambda: "cpu"                    # callers pass it on as device=
    torch.cuda.synchronize = lambda *args, **kwargs: None
    torch.cuda.empty_cache = lambda *args, **kwargs: None
    torch.cuda.get_rng_state = lambda *args, **kwargs: torch.zeros(16, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda *args, **kwargs: None
    torch.cuda.reset_peak_memory_stats = lambda *args, **kwargs: None

    def on_cpu(function):
        def call(*args, **kwargs):
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            kwargs.pop("strides", None)                          # strict loads pass a field that torch has since added
            return function(*args, **kwargs)
        return call

    for name in ("tensor", "zeros", "ones", "empty", "full", "zeros_like", "empty_like"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    tensor_type = torch.Tensor.type

    def type_of(self, *args, **kwargs):
        if args or kwargs:
            return tensor_type(self, *args, **kwargs)
        return tensor_type(self).replace("torch.", "torch.cuda.", 1)

    torch.Tensor.type = type_of

    class Stream:                                                # a class: annotations elsewhere say torch.cuda.Stream | None
        def __init__(self, *args, **kwargs):
            pass

        def wait_stream(self, *args):
            pass

        def synchronize(self):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *args):
            pass

    torch.cuda.Stream = Stream
    torch.cuda.current_stream = lambda *args, **kwargs: Stream()
    torch.cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()


import megatron.core.dist_checkpointing as dist_checkpointing
import megatron.core.extensions.transformer_engine as te
import megatron.core.models.gpt.gpt_layer_specs as gpt_layer_specs
import megatron.core.optimizer as mcore_optimizer
import megatron.core.optimizer.distrib_optimizer as distrib_optimizer
import megatron.core.transformer.transformer_block as transformer_block
import megatron.training.arguments as training_arguments
import megatron.training.checkpointing as training_checkpointing
import megatron.training.global_vars as global_vars
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.backends import BackendSpecProvider
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

# One queue in the process instead of a manager process, which would import the main script again.
_results_queue = queue.Queue()
for _name in ("get_write_results_queue", "_get_write_results_queue"):
    if hasattr(filesystem_async, _name):
        setattr(filesystem_async, _name, lambda *args, **kwargs: _results_queue)


# --- TransformerEngine's modules, as far as checkpoints see them: names, order, extra state; no forward -------------------
class _ExtraState:
    def get_extra_state(self):
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state):
        pass


class TENorm(_ExtraState, torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-5, **ignored):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel
        if config.normalization == "LayerNorm":
            self.bias = torch.nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype))


class _Sharded(_ExtraState):
    axes = {}

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        return make_sharded_tensors_for_checkpoint(
            self.state_dict(prefix="", keep_vars=True), prefix, self.axes, sharded_offsets, tp_group=self.tp_group,
            dp_cp_group=metadata["dp_cp_group"])


class TEColumnParallelLinear(_Sharded, ColumnParallelLinear):
    axes = {"weight": 0, "bias": 0}


class TERowParallelLinear(_Sharded, RowParallelLinear):
    axes = {"weight": 1}


class TELayerNormColumnParallelLinear(TEColumnParallelLinear):
    def __init__(self, input_size, output_size, *, config, **kwargs):
        super().__init__(input_size, output_size, config=config, **kwargs)
        norm = {"layer_norm_weight": torch.nn.Parameter(torch.empty(input_size, dtype=config.params_dtype))}
        if config.normalization == "LayerNorm":
            norm["layer_norm_bias"] = torch.nn.Parameter(torch.empty(input_size, dtype=config.params_dtype))
        for name, parameter in norm.items():
            parameter.sequence_parallel = config.sequence_parallel
            self.register_parameter(name, parameter)
        # The norm comes before the weight: this order decides the optimizer's numbering and its buckets.
        for name in list(self._parameters):
            if name not in norm:
                self._parameters[name] = self._parameters.pop(name)


class TELinear(_Sharded, torch.nn.Module):
    """Duplicated on all tensor-parallel ranks: the down projections of multi-latent attention."""

    def __init__(self, input_size, output_size, *, config, parallel_mode, bias=False, **ignored):
        super().__init__()
        assert parallel_mode == "duplicated" and not bias
        self.weight = torch.nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel
        self.tp_group = parallel_state.get_tensor_model_parallel_group()


class TEDotProductAttention(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        return {}


class TESpecProvider(BackendSpecProvider):
    def linear(self):
        return TELinear

    def column_parallel_linear(self):
        return TEColumnParallelLinear

    def row_parallel_linear(self):
        return TERowParallelLinear

    def fuse_layernorm_and_linear(self):
        return True

    def column_parallel_layer_norm_linear(self):
        return TELayerNormColumnParallelLinear

    def layer_norm(self, rms_norm=False, for_qk=False, has_residual=False):
        return TENorm

    def core_attention(self):
        return TEDotProductAttention

    def grouped_mlp_modules(self, moe_use_grouped_gemm):
        assert not moe_use_grouped_gemm, "experts one after the other only: both kinds store the same keys"
        return functools.partial(SequentialMLP, submodules=MLPSubmodules(linear_fc1=TEColumnParallelLinear, linear_fc2=TERowParallelLinear))

    def activation_func(self):
        return None


def _with_standins():
    gpt_layer_specs.TESpecProvider = TESpecProvider
    gpt_layer_specs.TENorm = TENorm
    gpt_layer_specs.HAVE_TE = True
    transformer_block.LayerNormImpl = TENorm
    for kind in (TELinear, TEColumnParallelLinear, TERowParallelLinear, TENorm, TELayerNormColumnParallelLinear, TEDotProductAttention):
        setattr(te, kind.__name__, kind)


_with_standins()
mcore_experts.install(sys.modules[__name__])
_torch_norm = transformer_block.WrappedTorchNorm if hasattr(transformer_block, "WrappedTorchNorm") else None
if _torch_norm is None:
    from megatron.core.transformer.torch_norm import WrappedTorchNorm as _torch_norm


class FusedAdam(torch.optim.Optimizer):
    """TransformerEngine's Adam as a checkpoint sees it: `step` in the groups, two moments in the state."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True, **ignored):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction))

    def initialize_state(self, parameter, *ignored):
        self.state[parameter] = {"exp_avg": torch.zeros_like(parameter, dtype=torch.float32),
                                 "exp_avg_sq": torch.zeros_like(parameter, dtype=torch.float32)}

    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                if not self.state[parameter]:
                    self.initialize_state(parameter)
                if parameter.grad is not None:
                    self.update(group, parameter)

    @torch.no_grad()
    def update(self, group, parameter):
        """AdamW, element by element: ranks and their order do not enter."""
        state, (beta1, beta2), gradient = self.state[parameter], group["betas"], parameter.grad.float()
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        first = state["exp_avg"] / (1 - beta1 ** group["step"])
        second = (state["exp_avg_sq"] / (1 - beta2 ** group["step"])).sqrt()
        parameter.sub_(group["lr"] * (first / (second + group["eps"]) + group["weight_decay"] * parameter))


mcore_optimizer.Adam = FusedAdam
mcore_optimizer.USING_PYTORCH_OPTIMIZER = False
distrib_optimizer.Adam = FusedAdam
distrib_optimizer.HAVE_APEX_OR_TE = True
distrib_optimizer.USING_TE_OPTIMIZER = True


# --- ranks -----------------------------------------------------------------------------------------------------------------
class RankFailure(RuntimeError):
    pass


def _rank_main(rank, world, folder, function, arguments):
    path = os.path.join(folder, f"result.{rank}")
    # Everything a rank prints goes to a file that is shown only when it fails.
    log = os.open(os.path.join(folder, f"log.{rank}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        torch.set_num_threads(1)
        _without_cuda()                                          # here only: transformers in the parent must not meet it
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
        value = function(rank, *arguments)
        torch.distributed.barrier()
        outcome = ("ok", value)
    except BaseException:                                        # CheckpointException derives from BaseException
        outcome = ("failed", traceback.format_exc())
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(path + ".part", path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if outcome[0] == "ok" else 1)


def run_ranks(world, function, *arguments, timeout=240):
    """Runs function(rank, *arguments) on forked ranks and returns their values in order."""
    with tempfile.TemporaryDirectory(prefix="oracle-ranks-") as folder:
        context = torch.multiprocessing.get_context("fork")
        ranks = [context.Process(target=_rank_main, args=(rank, world, folder, function, arguments)) for rank in range(world)]
        for process in ranks:
            process.start()
        failed = False
        import time
        end = time.monotonic() + timeout
        while any(process.is_alive() for process in ranks):
            for process in ranks:
                process.join(0.02)
            failed = any(process.exitcode not in (None, 0) for process in ranks)
            if failed or time.monotonic() > end:
                for process in ranks:                            # peers of a dead rank would wait for ever
                    process.join(1)
                    if process.is_alive():
                        process.kill()
                        process.join()
                break
        outcomes = []
        for rank in range(world):
            try:
                with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
                    outcomes.append(pickle.load(file))
            except FileNotFoundError:
                outcomes.append(("absent", "no result (killed, or timed out)"))
        bad = [(rank, text) for rank, (state, text) in enumerate(outcomes) if state == "failed"]
        bad = bad or [(rank, text) for rank, (state, text) in enumerate(outcomes) if state != "ok"]
        if bad:
            # A peer of the rank that failed reports its connection only.
            rank, text = next((one for one in bad if "third_party/gloo" not in one[1]), bad[0])
            with open(os.path.join(folder, f"log.{rank}"), errors="replace") as file:
                log = file.read()[-3000:]
            raise RankFailure(f"rank {rank} of {world}: {text}\n--- its output ---\n{log}")
        return [value for _, value in outcomes]


# --- models ----------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Layout:
    tp: int = 1
    pp: int = 1
    dp: int = 1
    first: int | None = None          # layers of the first stage
    last: int | None = None           # layers of the last stage
    cells: str | None = None          # Megatron's layout string, such as Ett|t|tL
    vpp: int | None = None            # virtual stages of each stage; beside `cells` what these come to
    embedding: bool = False           # account_for_embedding_in_pipeline_split
    loss: bool = False                # account_for_loss_in_pipeline_split
    numbered: bool = False            # keys decoder.layers.<i>. instead of a layer axis
    divisor: int = 128                # make_vocab_size_divisible_by
    bucket: int | None = None         # elements after which a bucket of gradients closes (first stage); none: one bucket
    ep: int = 1                       # ep * etp divides tp * dp
    etp: int | None = None            # tensor parallelism of an expert; none: as tp

    @property
    def world(self):
        return self.tp * self.pp * self.dp

    @property
    def expert_tp(self):
        return self.etp or self.tp

    def padded(self, vocabulary):
        unit = self.divisor * self.tp
        return (vocabulary + unit - 1) // unit * unit

    def __str__(self):
        extra = "".join(f"-{name}{value}" for name, value in (("dp", self.dp if self.dp > 1 else None), ("ep", self.ep if self.ep > 1 else None), ("etp", self.etp), ("first", self.first), ("last", self.last), ("vpp", self.vpp), ("embedding", self.embedding), ("loss", self.loss)) if value)
        return f"tp{self.tp}-pp{self.pp}{extra}{'-cells' if self.cells else ''}{'-numbered' if self.numbered else ''}{f'-bucket{self.bucket}' if self.bucket else ''}"


def rope_of(config):
    """(theta, llama3 scaling or None) of an HF config.json, old or new spelling."""
    parameters = config.get("rope_parameters") or {}
    theta = config.get("rope_theta") or parameters.get("rope_theta") or 10000.0
    scaling = config.get("rope_scaling") or (parameters if parameters.get("rope_type", "default") != "default" else None)
    return float(theta), scaling


BIASED, NORMED = ("qwen2", "qwen2_moe"), ("qwen3", "qwen3_moe")   # q, k, v with biases; a norm of each query and key head


heads_of = reference.heads_of


def transformer_config(config, layout, dtype, local=False):
    heads, groups, head_dim = heads_of(config)
    kind = config["model_type"]
    mla = models_experts.is_mla(config)
    more = mcore_experts.fields(config, layout) if mcore_experts.is_ours(config) else {}
    return (MLATransformerConfig if mla else TransformerConfig)(
        **more, **(mcore_experts.mla_fields(config) if mla else {}),
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=heads, num_query_groups=groups,
        kv_channels=head_dim, ffn_hidden_size=config["intermediate_size"], gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", layernorm_epsilon=config["rms_norm_eps"],
        add_bias_linear=False, add_qkv_bias=kind in BIASED, qk_layernorm=mcore_experts.has_norms(sys.modules[__name__], config), hidden_dropout=0.0, attention_dropout=0.0,
        tensor_model_parallel_size=layout.tp, pipeline_model_parallel_size=layout.pp, pipeline_dtype=dtype, params_dtype=dtype,
        bf16=dtype == torch.bfloat16, fp16=dtype == torch.float16, use_cpu_initialization=True, perform_initialization=False,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False,
        apply_rope_fusion=False, persist_layer_norm=False, deallocate_pipeline_outputs=True,
        num_layers_in_first_pipeline_stage=layout.first, num_layers_in_last_pipeline_stage=layout.last,
        pipeline_model_parallel_layout=layout.cells, virtual_pipeline_model_parallel_size=layout.vpp,
        account_for_embedding_in_pipeline_split=layout.embedding, account_for_loss_in_pipeline_split=layout.loss, hetereogenous_dist_checkpoint=layout.numbered,
        transformer_impl="local" if local else "transformer_engine")


def initialize(layout):
    parallel_state.initialize_model_parallel(layout.tp, layout.pp, layout.vpp, expert_model_parallel_size=layout.ep,
                                             expert_tensor_parallel_size=layout.expert_tp, create_gloo_process_groups=True)
    get_cuda_rng_tracker().states_ = {name: torch.zeros(16, dtype=torch.uint8) for name in
                                      ("model-parallel-rng", "expert-parallel-rng", "data-parallel-rng")}


def build_model(config, layout, dtype=torch.bfloat16, local=False, chunk=None, own_names=False):
    """One rank's GPTModel under TransformerEngine's names, or (local) Megatron's own layers, which also compute.
    With virtual stages this is the model chunk that is named, with the ends where training's get_model puts them."""
    megatron = transformer_config(config, layout, dtype, local)
    theta, scaling = rope_of(config)
    if mcore_experts.is_ours(config):
        transformer_block.LayerNormImpl = _torch_norm if local else TENorm
        spec = mcore_experts.layer_spec(sys.modules[__name__], config, megatron, local, own_names)
    elif local:
        transformer_block.LayerNormImpl = _torch_norm
        spec = gpt_layer_specs.get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=megatron.qk_layernorm)
    else:
        transformer_block.LayerNormImpl = TENorm
        spec = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec(qk_layernorm=megatron.qk_layernorm)
    model = GPTModel(
        config=megatron, transformer_layer_spec=spec, vocab_size=layout.padded(config["vocab_size"]), max_sequence_length=64,
        pre_process=parallel_state.get_pipeline_model_parallel_rank() == 0 and chunk in (None, 0),
        post_process=parallel_state.get_pipeline_model_parallel_rank() == layout.pp - 1 and chunk in (None, (layout.vpp or 1) - 1), vp_stage=chunk,
        share_embeddings_and_output_weights=bool(config.get("tie_word_embeddings")), position_embedding_type="rope",
        rotary_percent=1.0, rotary_base=theta, rope_scaling=bool(scaling), rope_scaling_factor=float((scaling or {}).get("factor", 8.0)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model = model.to(dtype)
    mcore_experts.after_build(model)
    return model


def build_chunks(config, layout, dtype=torch.bfloat16):
    """The model chunks of this rank; one without virtual stages."""
    return [build_model(config, layout, dtype, chunk=index) for index in (range(layout.vpp) if layout.vpp else (None,))]


def _wrapped(model, ddp, distributed, first_chunk):
    # As training.py has it: buckets close by size on the first stage, in its first chunk, when gradients overlap.
    bucket = ddp.bucket_size if ddp.overlap_grad_reduce and first_chunk and parallel_state.get_pipeline_model_parallel_rank() == 0 else None
    layouts = {}
    if distributed:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        layouts["full_param_layout"] = distrib_optimizer.DistributedOptimizer.compute_full_param_layout(
            parameters, bucket, parallel_state.get_data_parallel_group(with_context_parallel=True).size(), ddp,
            expert_data_parallel_world_size=parallel_state.get_expert_data_parallel_group().size())
    return DistributedDataParallel(model.config, ddp, model, disable_bucketing=bucket is None, **layouts)


def build_optimizer(model, layout, dtype=torch.bfloat16, distributed=True, lr=1e-3, min_lr=1e-5, weight_decay=0.1):
    """DDP wrapper, optimizer with zero states, scheduler stepped 7. A list of model chunks gives a list of wrappers."""
    if not isinstance(model, list):
        wrapped, optimizer, scheduler = build_optimizer([model], layout, dtype, distributed, lr, min_lr, weight_decay)
        return wrapped[0], optimizer, scheduler
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=True, overlap_grad_reduce=layout.bucket is not None,
                                        bucket_size=layout.bucket)
    wrapped = [_wrapped(chunk, ddp, distributed, index == 0) for index, chunk in enumerate(model)]
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=lr, min_lr=min_lr, weight_decay=weight_decay, bf16=dtype == torch.bfloat16, fp16=dtype == torch.float16,
        params_dtype=dtype, use_distributed_optimizer=distributed, adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, clip_grad=1.0), wrapped)
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=lr, min_lr=min_lr, lr_warmup_steps=0, lr_decay_steps=1000, lr_decay_style="linear", start_wd=weight_decay,
        end_wd=weight_decay, wd_incr_steps=1000, wd_incr_style="constant")
    return wrapped, optimizer, scheduler


def metadata(kind="fully_reshardable"):
    value = {"singleton_local_shards": False, "chained_optim_avoid_prefix": True,
             "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    if kind:
        value |= {"distrib_optim_sharding_type": kind, "distrib_optim_fully_reshardable_mem_efficient": False}
    return value


def leaves(entry, data=None):
    """The ShardedTensors of one entry of a sharded state dict; `data` stands in for the entry's own tensor."""
    if isinstance(entry, ShardedTensorFactory):
        built = dataclasses.replace(entry, data=data if data is not None else entry.data).build()
        found, stack = [], [built]
        while stack:
            item = stack.pop()
            if isinstance(item, ShardedTensor):
                found.append(item)
            elif isinstance(item, dict):
                stack += item.values()
            elif isinstance(item, (list, tuple)):
                stack += item
        return found
    if isinstance(entry, ShardedTensor):
        return [dataclasses.replace(entry, data=data, dtype=data.dtype) if data is not None else entry]
    return []


def named_entries(model, kind="fully_reshardable"):
    """(name of the module's parameter, its entry) of this rank."""
    return {name: entry for name, entry in model.sharded_state_dict(metadata=metadata(kind)).items()
            if isinstance(entry, (ShardedTensor, ShardedTensorFactory))}


def take(reference, leaf):
    """The piece of the global reference tensor that a leaf holds. The padding of the vocabulary may differ in size."""
    whole = reference[leaf.key]
    if whole.shape != torch.Size(leaf.global_shape):
        raise AssertionError(f"{leaf.key}: global shape {tuple(leaf.global_shape)}, the reference has {tuple(whole.shape)}")
    piece = whole[leaf.global_slice()]
    return piece.reshape(leaf.data.shape)


def local_of(entry, reference, like, dtype):
    """What this rank holds of an entry, cut from the reference."""
    tensor = torch.zeros(like.shape, dtype=dtype)
    for leaf in leaves(entry, tensor):
        leaf.data.copy_(take(reference, leaf))
    return tensor


def inner_optimizers(optimizer):
    return getattr(optimizer, "chained_optimizers", [optimizer])


def optimizer_shards(optimizer, model):
    """(parameter name, parameter, start, end, {slot: flat tensor}) of every shard that this rank's optimizer holds."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for inner in inner_optimizers(optimizer):
        for buckets in inner.gbuf_ranges:
            for maps in buckets.values():
                for bucket in maps:
                    for parameter, ranges in bucket["param_map"].items():
                        yield names[parameter], parameter, ranges["param"].start, ranges["param"].end, inner._get_main_param_and_optimizer_states(parameter)


SLOTS = {"param": "master", "exp_avg": "adam_mu", "exp_avg_sq": "adam_nu"}


def training_args(config, layout, save, dtype=torch.bfloat16, iteration=20, optimizer=True, **more):
    """The arguments of a training run, as Megatron's own parser makes them, with this model's values put in."""
    argv, sys.argv = sys.argv, ["train"]
    try:
        args = training_arguments.parse_args(ignore_unknown_args=True)
    finally:
        sys.argv = argv
    heads, groups, head_dim = heads_of(config)
    theta, scaling = rope_of(config)
    kind = config["model_type"]
    values = dict(
        num_layers=config["num_hidden_layers"], encoder_num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"],
        ffn_hidden_size=config["intermediate_size"], num_attention_heads=heads, num_query_groups=groups, group_query_attention=groups != heads,
        kv_channels=head_dim, max_position_embeddings=config["max_position_embeddings"], seq_length=64, position_embedding_type="rope",
        add_position_embedding=True, use_rotary_position_embeddings=True, rotary_base=int(theta), rotary_percent=1.0,
        use_rope_scaling=bool(scaling), rope_scaling_factor=float((scaling or {}).get("factor", 8.0)), normalization="RMSNorm",
        layernorm_epsilon=config["rms_norm_eps"], norm_epsilon=config["rms_norm_eps"], swiglu=True, add_bias_linear=False,
        add_qkv_bias=kind in BIASED, qk_layernorm=mcore_experts.has_norms(sys.modules[__name__], config), untie_embeddings_and_output_weights=not config.get("tie_word_embeddings"),
        vocab_size=config["vocab_size"], padded_vocab_size=layout.padded(config["vocab_size"]), make_vocab_size_divisible_by=layout.divisor,
        attention_dropout=0.0, hidden_dropout=0.0, params_dtype=dtype, bf16=dtype == torch.bfloat16, fp16=dtype == torch.float16,
        tensor_model_parallel_size=layout.tp, pipeline_model_parallel_size=layout.pp, data_parallel_size=layout.dp, world_size=layout.world,
        context_parallel_size=1, expert_model_parallel_size=1, decoder_first_pipeline_num_layers=layout.first,
        decoder_last_pipeline_num_layers=layout.last, pipeline_model_parallel_layout=layout.cells, virtual_pipeline_model_parallel_size=layout.vpp,
        num_virtual_stages_per_pipeline_rank=None if layout.cells else layout.vpp,
        account_for_embedding_in_pipeline_split=layout.embedding, account_for_loss_in_pipeline_split=layout.loss,
        transformer_impl="transformer_engine", save=str(save), load=str(save), ckpt_format="torch_dist", use_dist_ckpt=True, auto_detect_ckpt_format=True,
        use_distributed_optimizer=optimizer, dist_ckpt_optim_fully_reshardable=True, ckpt_fully_parallel_save=True, async_save=False,
        save_tokenizer_assets=False, no_save_optim=not optimizer, no_save_rng=False, optimizer="adam", lr=1e-3, min_lr=1e-5, weight_decay=0.1,
        adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, iteration=iteration, consumed_train_samples=160, skipped_train_samples=0,
        consumed_valid_samples=16, global_batch_size=8, micro_batch_size=4, rank=torch.distributed.get_rank(),
        use_checkpoint_args=False, no_load_optim=not optimizer, no_load_rng=True, finetune=False, train_iters=100)
    if mcore_experts.is_ours(config):
        values |= mcore_experts.arguments(config, layout)
    for name, value in (values | more).items():
        setattr(args, name, value)
    return args


def use_args(args):
    global_vars._GLOBAL_ARGS = args
