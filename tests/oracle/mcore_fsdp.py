"""Producers: Megatron-Core under torch's FSDP2 (`--use-torch-fsdp2 --ckpt-format torch_dcp`) and under its own FSDP
(`--use-megatron-fsdp --ckpt-format fsdp_dtensor`), saved by training's own save_checkpoint. Meshes and devices are those of the CPU."""
import pathlib

import torch

import mcore_env as env
from mcore_write import ITERATION, STEP
from reference import slot_of, to_megatron

import megatron.core.distributed.torch_fully_sharded_data_parallel as fsdp2


def wrap(model):
    mesh_of = fsdp2.DeviceMesh.from_group
    fsdp2.DeviceMesh.from_group = lambda group, kind: mesh_of(group, "cpu")
    # Not ColumnParallelLinear, which our stand-ins for TransformerEngine's layers derive from: the head goes with the root.
    kinds = {fsdp2.TransformerLayer, fsdp2.LanguageModelEmbedding, fsdp2.RotaryEmbedding}
    return fsdp2.TorchFullyShardedDataParallel(model.config, env.DistributedDataParallelConfig(), model, kinds)


def copy_whole(target, whole):
    """A tensor of the same values on every rank into a sharded one."""
    local = torch.distributed.tensor.distribute_tensor(whole.to(target.dtype), target.device_mesh, target.placements)
    target.to_local().copy_(local.to_local())


def fill(model, reference):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if hasattr(parameter, "device_mesh"):
                copy_whole(parameter.data, reference[name])
            else:
                parameter.data.copy_(reference[name])


def fill_state(optimizer, model, references):
    names = {parameter: name for name, parameter in model.named_parameters()}
    for inner in env.inner_optimizers(optimizer):
        for group, masters in zip(inner.float16_groups, inner.fp32_from_float16_groups):
            for parameter, master in zip(group, masters):
                inner.optimizer.state[master] = {}
                for key, whole in references.items():
                    target = master.data if key == "param" else torch.zeros_like(master.data)
                    copy_whole(target, whole[names[parameter]])
                    if key != "param":
                        inner.optimizer.state[master][key] = target
        for group in inner.optimizer.param_groups:
            group["step"] = STEP


def made(config, layout, with_optimizer):
    env.initialize(layout)
    chunk = wrap(env.build_model(config, layout))
    if not with_optimizer:
        return chunk, None, None
    optimizer = env.get_megatron_optimizer(env.OptimizerConfig(
        optimizer="adam", lr=1e-3, min_lr=1e-5, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16, adam_beta1=0.9, adam_beta2=0.95,
        adam_eps=1e-8, clip_grad=1.0), [chunk])
    scheduler = env.OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-3, min_lr=1e-5, lr_warmup_steps=0, lr_decay_steps=1000, lr_decay_style="linear", start_wd=0.1, end_wd=0.1,
        wd_incr_steps=1000, wd_incr_style="constant")
    return chunk, optimizer, scheduler


def arguments(config, layout, root, optimizer, **more):
    return env.training_args(config, layout, root, torch.bfloat16, ITERATION, optimizer is not None, ckpt_format="torch_dcp",
                             use_torch_fsdp2=True, use_distributed_optimizer=False, **more)


def save_rank(rank, root, config, parameters, state, layout, more):
    chunk, optimizer, scheduler = made(config, layout, state is not None)
    whole = lambda tensors, pad: to_megatron(tensors, config, layout.padded(config["vocab_size"]), True, pad)
    if optimizer is not None:
        scheduler.step(7 * 8)
        with torch.no_grad():
            fill_state(optimizer, chunk.module, {key: whole(slot_of(state, slot), 0.5) for key, slot in env.SLOTS.items()})
    fill(chunk.module, whole(parameters, 77.0))
    env.use_args(arguments(config, layout, root, optimizer, **more))
    env.training_checkpointing.save_checkpoint(ITERATION, [chunk], optimizer, scheduler, 123456789)


def save(root, config, parameters, layout, state=None, **more):
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_rank, root, config, parameters, state, layout, more)
    return root / f"iter_{ITERATION:07d}"


# --- Megatron's own FSDP ----------------------------------------------------------------------------------------------------
class _Event:
    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args):
        pass

    def wait(self, *args):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True


def _without_devices():
    """What Megatron-FSDP asks of CUDA beyond mcore_env: events, and devices and meshes by that name. In the ranks only."""
    import torch.distributed.device_mesh as device_mesh
    made, device = device_mesh.DeviceMesh.__init__, torch.device
    device_mesh.DeviceMesh.__init__ = lambda self, kind, *args, **kwargs: made(self, "cpu", *args, **kwargs)

    class Kind(type):
        def __instancecheck__(cls, value):
            return isinstance(value, device)

        def __call__(cls, *args, **kwargs):
            return device("cpu") if args and str(args[0]).startswith("cuda") else device(*args, **kwargs)

    torch.device = Kind("device", (), {})
    torch.cuda.Event = _Event


def _whole(tensor):
    """All ranks' rows of a sharded tensor; gloo gathers no shards of unequal size as tensors."""
    parts = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, tensor.to_local())
    return torch.cat([part.reshape(-1, *tensor.shape[1:]) for part in parts]).reshape(tensor.shape)


def _step(optimizer, rank):
    """Two steps with gradients of their own on every rank: main weights that are no BF16, moments that are not zero."""
    torch.manual_seed(5 + rank)
    for _ in range(2):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.to_local().numel():
                    parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.to_local().uniform_(-1, 1)
        optimizer.step()


def own_rank(rank, root, config, parameters, layout):
    import megatron.core.distributed.fsdp.mcore_fsdp_adapter as adapter
    from megatron.core.transformer.module import Float16Module
    _without_devices()
    env.initialize(layout)
    model = env.build_model(config, layout)
    fill(model, to_megatron(parameters, config, layout.padded(config["vocab_size"]), True, 77.0))
    ddp = env.DistributedDataParallelConfig(use_distributed_optimizer=True, use_megatron_fsdp=True, overlap_grad_reduce=True, overlap_param_gather=True,
                                            data_parallel_sharding_strategy="optim_grads_params")
    chunk = adapter.FullyShardedDataParallel(model.config, ddp, Float16Module(model.config, model), device=torch.device("cpu"))
    optimizer = env.get_megatron_optimizer(env.OptimizerConfig(
        optimizer="adam", lr=1e-3, min_lr=1e-5, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16, adam_beta1=0.9, adam_beta2=0.95,
        adam_eps=1e-8, clip_grad=1.0, use_distributed_optimizer=True), [chunk])
    inner, = env.inner_optimizers(optimizer)
    _step(inner.optimizer, rank)
    expected = {"param": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for group in inner.optimizer.param_groups:
        for parameter in group["params"]:
            name = inner._param_name(parameter)
            while name.startswith("module."):
                name = name.removeprefix("module.")
            state = inner.optimizer.state.get(parameter) or {}       # of the ranks that hold rows of it
            for key, values in expected.items():
                values[name] = _whole(parameter.detach() if key == "param" else state.get(key, torch.zeros_like(parameter)))
    env.use_args(env.training_args(config, layout, root, torch.bfloat16, ITERATION, True, ckpt_format="fsdp_dtensor", use_megatron_fsdp=True))
    env.training_checkpointing.save_checkpoint(ITERATION, [chunk], optimizer, None, 123456789)
    return expected if rank == 0 else None


def save_own(root, config, parameters, layout):
    """Returns what the ranks together hold: {"param" (main weights), "exp_avg", "exp_avg_sq"} of {module name: whole tensor}."""
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    return env.run_ranks(layout.world, own_rank, root, config, parameters, layout)[0]
