# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in and out of Megatron-Core models that live under `parallel_state`. Imports megatron.core and torch only when called."""

import re

from ._layout import Layout, RankPlace
from ._live import _size, load_plan
from .errors import UnsupportedError, UsageError


def _unwrapped(model):
    """The GPTModel within wrappers such as DistributedDataParallel and Float16Module."""
    while hasattr(model, "module"):
        model = model.module
    return model


def chunks_of(model):
    """The model chunks of this rank: `model` is one, or the list of them that virtual stages have."""
    return [_unwrapped(chunk) for chunk in (model if isinstance(model, (list, tuple)) else [model])]


def _named(chunks):
    """(name, parameter or stored buffer) of all of this rank, under the names that `crossdock.load_plan` gives them."""
    for index, chunk in enumerate(chunks):
        prefix = f"model{index}." if len(chunks) > 1 else ""
        for name, tensor in chunk.state_dict(keep_vars=True).items():
            if hasattr(tensor, "data_ptr") and not name.endswith("_extra_state"):
                if name.startswith("mtp.layers."):   # what Megatron-Core called them until 0.16
                    name = name.replace(".transformer_layer.", ".mtp_model_layer.", 1)
                yield prefix + name, tensor


def tensors_of(chunks):
    """Name -> tensor of all parameters and stored buffers of this rank, under the names that `crossdock.load_plan` gives them."""
    return {name: tensor.detach() for name, tensor in _named(chunks)}


def layout_of(chunks):
    """The Layout and RankPlace of this rank, from `parallel_state` and the model's config."""
    from megatron.core import parallel_state

    config = chunks[0].config
    cells = getattr(config, "pipeline_model_parallel_layout", None)
    if cells is not None and not isinstance(cells, str):
        cells = _cells(getattr(cells, "input_data", cells))
    layout = Layout(
        tp=parallel_state.get_tensor_model_parallel_world_size(),
        pp=parallel_state.get_pipeline_model_parallel_world_size(),
        ep=parallel_state.get_expert_model_parallel_world_size(),
        etp=parallel_state.get_expert_tensor_parallel_world_size(),
        vpp=1 if cells else len(chunks),
        first_stage_layers=getattr(config, "num_layers_in_first_pipeline_stage", None),
        last_stage_layers=getattr(config, "num_layers_in_last_pipeline_stage", None),
        pipeline_layout=cells,
        account_for_embedding=bool(getattr(config, "account_for_embedding_in_pipeline_split", False)),
        account_for_loss=bool(getattr(config, "account_for_loss_in_pipeline_split", False)),
    )
    place = RankPlace(
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
        parallel_state.get_expert_model_parallel_rank(),
        parallel_state.get_expert_tensor_parallel_rank(),
    )
    return layout, place


_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def _cells(layout):
    """Megatron's string for a layout that was given as a string or as lists of layer types."""
    if isinstance(layout, str):
        return layout
    return "|".join("".join(_LETTERS[getattr(cell, "name", str(cell)).strip().lower()] for cell in stage) for stage in layout)


def spelling_of(names):
    """How the modules are called: keywords of `crossdock.load_plan`."""
    fused = any("layer_norm_weight" in name for name in names)
    return {
        "consumer": "loongforge" if any(name.startswith(("foundation_model.", "encoder_model.")) for name in names) else None,
        "local_layers": not fused and any(name.endswith("input_layernorm.weight") for name in names),
        "grouped_experts": not any(".local_experts." in name for name in names),
    }


def _padded_vocabulary(tensors, tp):
    for name, tensor in tensors.items():
        if re.fullmatch(r"(model\d+\.)?(language_model\.|foundation_model\.)?(embedding\.word_embeddings|output_layer)\.weight", name):
            return tensor.shape[0] * tp
    return None


def load_hf(model, path, *, layout=None, optimizer=None, cast=True, threads=0, memory="512MiB", progress=None, **options):
    """Fills a Megatron-Core model with the weights of the checkpoint at `path`; returns a crossdock.ReadReport.

    model: this rank's GPTModel, wrapped or not, or the list of its model chunks under virtual pipeline stages. Layout, rank, spelling of the
    modules and padding of the vocabulary are taken from the model, its config and `parallel_state`. path: a Hugging Face directory, or
    any other checkpoint that crossdock reads. Every rank calls it; there is no communication. Every parameter and stored buffer must be in
    the checkpoint and nothing else, or UsageError names all that differs.
    layout: a crossdock.Layout, where the model's config does not say how layers are divided among the stages (a list of a trainer's own).
    optimizer: its main parameters are made anew from the model's (`reload_model_params`). cast: values are cast to the model's dtypes; else
    another dtype is an error. threads, memory, progress: as of LoadPlan.read_into. options: further ones of `crossdock.load_plan`.
    Parameters on a GPU are filled over pinned memory of `memory` bytes at a time, or of the largest of them.
    """
    chunks = chunks_of(model)
    tensors = tensors_of(chunks)
    found, place = layout_of(chunks)
    layout = layout if layout is not None else found
    config = chunks[0].config
    options = {**spelling_of(tensors), "mtp": "keep" if getattr(config, "mtp_num_layers", None) else "drop", **options}
    if options.get("vocab_divisor") is None and options.get("padded_vocab") is None:
        options["padded_vocab"] = _padded_vocabulary(tensors, layout.tp)
    plan = load_plan(path, layout, place, progress=progress, **options)
    how = {"threads": threads, "memory": memory, "cast": cast, "progress": progress}
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        report = plan.read_into(tensors, **how)
    else:
        report = _over_pinned(plan, tensors, how, _size(memory))
    if optimizer is not None:
        optimizer.reload_model_params()
    return report


def _over_pinned(plan, tensors, how, most):
    """Reads into memory of `most` bytes at a time, or of the largest tensor, and copies that over."""
    import torch

    differing = sorted(plan.tensors.keys() ^ tensors.keys())
    differing += [name for name in tensors.keys() & plan.tensors.keys() if tuple(tensors[name].shape) != plan.tensors[name].shape]
    if differing:
        message = f"{len(differing)} tensors of the model and of the checkpoint differ in name or shape"
        raise UsageError(f"{message}: {', '.join(differing[:8])}", message=message, tensor=differing[0])
    reports = []
    waiting = list(tensors)
    while waiting:
        batch, size = {}, 0
        while waiting:
            tensor = tensors[waiting[0]]
            size += tensor.numel() * tensor.element_size()
            if batch and size > most:
                break
            batch[waiting.pop(0)] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=torch.cuda.is_available())
        reports.append(plan.read_into(batch, strict=False, **how))
        with torch.no_grad():
            for name, staged in batch.items():
                tensors[name].copy_(staged)
    totals = [sum(column) for column in zip(*reports)]
    return type(reports[0])(*totals[:3], max(report.peak_buffer_bytes for report in reports))


def _run_args():
    """Megatron's arguments as far as they are plain values; empty where the program has none."""
    try:
        from megatron.training.global_vars import get_args

        args = vars(get_args())
    except (ImportError, AssertionError):
        return {}

    def plain(value):
        return isinstance(value, (bool, int, float, str)) or isinstance(value, (list, tuple)) and all(map(plain, value))

    return {name: value for name, value in args.items() if plain(value)}


def _of_model(model, comm, options):
    """(layout, place, comm, options) of a save, completed by what the model says of itself. Collective."""
    import torch.distributed

    from .comm import TorchComm

    chunks = chunks_of(model)
    tensors = tensors_of(chunks)
    layout, place = layout_of(chunks)
    spelling = {name: value for name, value in spelling_of(tensors).items() if name in ("local_layers", "grouped_experts")}
    options = {**spelling, "mtp": "keep" if getattr(chunks[0].config, "mtp_num_layers", None) else "none", **options}
    if "run_args" not in options:
        options["run_args"] = _run_args()
    if comm is None and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        comm = TorchComm()
    if options.get("vocab_divisor") is None and options.get("padded_vocab") is None:
        rows = _padded_vocabulary(tensors, layout.tp)
        if comm is not None:   # a stage between the first and the last holds no vocabulary
            rows = next((int(one) for one in comm.allgather_bytes(b"" if rows is None else str(rows).encode()) if one), None)
        options["padded_vocab"] = rows
    return layout, place, comm, options


def exporter(model, dst=None, reference=None, *, comm=None, **options):
    """A crossdock.Exporter for a Megatron-Core model. Collective.

    model: as of load_hf; layout, rank, spelling of the modules, padding of the vocabulary and whether the model has layers of multi-token
    prediction are taken from it; a model that has such layers is refused, with UnsupportedError. comm: as of crossdock.Exporter; None: a TorchComm
    of all ranks where torch.distributed runs. options: further ones of crossdock.Exporter; run_args are Megatron's where get_args has them. Its `save` takes `host_tensors(model)`.
    """
    from ._exporter import Exporter

    layout, place, comm, options = _of_model(model, comm, options)
    return Exporter(dst, reference, layout, place, comm=comm, **options)


def checkpointer(model, optimizer, root, reference, *, comm=None, **options):
    """A crossdock.Checkpointer for a Megatron-Core model and its optimizer. Collective.

    model, comm: as of exporter. optimizer: what get_megatron_optimizer gives, or None for weights alone: Adam, distributed among the data-parallel
    ranks or not; others are UnsupportedError. options: further ones of crossdock.Checkpointer. Its `save` takes `run_state(model, optimizer)` and, on
    rank 0, `common_state(...)`; random states are not saved.
    """
    from ._checkpointer import Checkpointer

    config = chunks_of(model)[0].config
    if getattr(config, "hetereogenous_dist_checkpoint", False) or getattr(config, "heterogeneous_block_specs", False):
        raise _unsupported("a model whose layers torch_dist numbers by wish (hetereogenous_dist_checkpoint) is not saved from inside a run by this version")
    kind, state = optimizer_tensors(model, optimizer)
    layout, place, comm, options = _of_model(model, comm, options)
    if getattr(config, "num_moe_experts", None):
        options["run_args"] = {"moe_layer_freq": config.moe_layer_freq, **(options["run_args"] or {})}   # a list numbers the layers
    return Checkpointer(root, reference, layout, place, optimizer=kind, states=state, comm=comm, **options)


def _unsupported(message):
    return UnsupportedError(message, message=message)


def _inner_optimizers(optimizer):
    """The members of a chain that have parameters."""
    members = getattr(optimizer, "chained_optimizers", [optimizer])
    return [member for member in members if not getattr(member, "is_stub_optimizer", False)]


def _kind_of(inner):
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer

    if getattr(inner.config, "use_precision_aware_optimizer", False):
        raise _unsupported("a precision-aware optimizer keeps its state in other types than float32, and is not saved from inside a run by this version")
    if isinstance(inner, DistributedOptimizer) and not getattr(inner.ddp_config, "use_megatron_fsdp", False):
        return "distributed"
    if type(inner) in (Float16OptimizerWithFloat16Params, FP32Optimizer):
        return "plain"
    raise _unsupported(f"this version saves the state of Megatron's distributed, Float16 and FP32 optimizer, and not of {type(inner).__name__}")


def _held_by(inner, kind):
    """(parameter, "" or "[begin:end]", the optimizer's own copy or None, its state) of all that this rank's optimizer holds."""
    if kind == "distributed":
        for buckets in inner.gbuf_ranges:
            for maps in buckets.values():
                for bucket in maps:
                    for parameter, ranges in bucket["param_map"].items():
                        state = dict(inner._get_main_param_and_optimizer_states(parameter))
                        yield parameter, f"[{ranges['param'].start}:{ranges['param'].end}]", state.pop("param"), state
        return
    state_of = inner.optimizer.state
    if hasattr(inner, "float16_groups"):
        for group, copies in zip(inner.float16_groups, inner.fp32_from_float16_groups):
            for parameter, copy in zip(group, copies):
                yield parameter, "", copy, state_of.get(copy, {})
        own = [parameter for group in inner.fp32_from_fp32_groups for parameter in group]
    else:
        own = [parameter for group in inner.optimizer.param_groups for parameter in group["params"]]
    for parameter in own:
        yield parameter, "", None, state_of.get(parameter, {})


def optimizer_tensors(model, optimizer):
    """("plain" or "distributed", name -> tensor) of the optimizer's state on this rank, as crossdock.Checkpointer calls it; (None, {}) of None.

    The tensors are the optimizer's own, float32. Before the first step Adam has no moments: they are zeros then.
    """
    import torch

    if optimizer is None:
        return None, {}
    names = {id(tensor): name for name, tensor in _named(chunks_of(model))}
    kinds, found = set(), {}
    for inner in _inner_optimizers(optimizer):
        kind = _kind_of(inner)
        kinds.add(kind)
        for parameter, part, copy, state in _held_by(inner, kind):
            moments = {key: value for key, value in state.items() if key != "step" and torch.is_tensor(value)}
            if not moments.keys() <= {"exp_avg", "exp_avg_sq"}:
                raise _unsupported(f"the optimizer holds {', '.join(sorted(moments))}, which is not the state of Adam")
            like = parameter if copy is None else copy
            for key in ("exp_avg", "exp_avg_sq"):
                moments.setdefault(key, torch.zeros(like.shape, dtype=torch.float32, device=like.device))
            if copy is not None:
                moments["param"] = copy
            for key, tensor in moments.items():
                if tensor.dtype != torch.float32:
                    raise _unsupported(f"the optimizer holds {key} as {tensor.dtype}, and this version saves float32")
                found[f"optimizer.{key}.{names[id(parameter)]}{part}"] = tensor.detach()
    if len(kinds) > 1:
        raise _unsupported("optimizers of several kinds are chained, whose state is not saved from inside a run by this version")
    return (kinds.pop() if kinds else "plain"), found


def run_state(model, optimizer=None):
    """Name -> tensor of all that this rank holds of model and optimizer, in the CPU's memory; what `checkpointer(...).save` takes."""
    _, state = optimizer_tensors(model, optimizer)
    return host_tensors(model) | {name: tensor if tensor.device.type == "cpu" else tensor.to("cpu") for name, tensor in state.items()}


def common_state(iteration, optimizer=None, opt_param_scheduler=None, args=None, **more):
    """The bytes of common.pt for `checkpointer(...).save`: what of a run is no tensor.

    iteration: int. optimizer: its parameter groups with their step. opt_param_scheduler: its state_dict. args: Megatron's arguments, a Namespace; None: those
    of get_args, where the program has them. They are stored as of a run that saves no random states. more: further items, such as
    num_floating_point_operations_so_far.
    """
    import copy
    import io

    import torch

    if args is None:
        try:
            from megatron.training.global_vars import get_args

            args = get_args()
        except (ImportError, AssertionError):
            pass
    state = {"iteration": int(iteration), "checkpoint_version": 3.0, **more}
    if args is not None:
        state["args"] = copy.copy(args)
        state["args"].no_save_rng, state["args"].ckpt_format, state["args"].iteration = True, "torch_dist", int(iteration)
    metadata = {"singleton_local_shards": False, "chained_optim_avoid_prefix": True}
    if optimizer is not None:
        members = _inner_optimizers(optimizer)
        states = [_groups_of(inner, _kind_of(inner)) for inner in members]
        state["optimizer"] = states[0] if len(states) == 1 else dict(enumerate(states))
        if any(_kind_of(inner) == "distributed" for inner in members):
            metadata |= {"distrib_optim_sharding_type": "fully_reshardable", "distrib_optim_fully_reshardable_mem_efficient": False}
    if opt_param_scheduler is not None:
        state["opt_param_scheduler"] = opt_param_scheduler.state_dict()
    state["content_metadata"] = metadata
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _groups_of(inner, kind):
    """The state of an optimizer without its tensors, as Megatron-Core stores it."""
    whole = inner.state_dict()
    torch_state = whole.get("optimizer", whole)
    stored = {"param_groups": [{key: value for key, value in group.items() if key != "params"} for group in torch_state["param_groups"]]}
    if kind == "distributed":
        return {"optimizer": stored, "param_state_sharding_type": "fully_reshardable", **{key: whole[key] for key in ("grad_scaler",) if key in whole}}
    step = inner._extract_common_per_param_step(torch_state)
    stored["state"] = {} if step is None else {"common_step": step}
    if "optimizer" not in whole:
        return stored
    return {"optimizer": stored, **{key: whole[key] for key in ("grad_scaler",) if key in whole}}


def host_tensors(model):
    """Name -> tensor of all that this rank holds, in the CPU's memory: the model's own, or copies of those on a GPU."""
    return {name: tensor if tensor.device.type == "cpu" else tensor.to("cpu") for name, tensor in tensors_of(chunks_of(model)).items()}


def save_hf(model, dst, reference, step=0, **options):
    """Saves a Megatron-Core model as a Hugging Face directory; returns a crossdock.ExportReport. Collective: every rank calls it.

    model: as of load_hf. dst, reference, options: as of crossdock.Exporter; the directory is put in place when it returns. Who saves again and
    again keeps an `exporter`, which plans once.
    """
    return exporter(model, dst, reference, **options).save(step, host_tensors(model), final=True).result()
