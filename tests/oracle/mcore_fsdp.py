"""Producer and consumer: Megatron-Core under torch's FSDP2 (`--use-torch-fsdp2 --ckpt-format torch_dcp`), by training's own
save_checkpoint and load_checkpoint. The mesh of the wrapper is that of the CPU."""
import dataclasses
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
            copy_whole(parameter.data, reference[name])


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
