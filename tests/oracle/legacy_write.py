"""Producer: legacy trees (--ckpt-format torch) by training's own save_checkpoint, with the plain optimizer inside each rank's file."""
import pathlib

import torch

import mcore_env as env
from mcore_write import ITERATION, STEP, fill_model
from reference import slot_of, to_megatron


def fill_plain_optimizer(optimizer, model, config, state, layout):
    """Masters and moments of Float16OptimizerWithFloat16Params, which only the order of the groups names."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    entries = env.named_entries(model)
    references = {key: to_megatron(slot_of(state, slot), config, layout.padded(config["vocab_size"]), False, 0.5) for key, slot in env.SLOTS.items()}
    for inner in env.inner_optimizers(optimizer):
        for group, masters in zip(inner.float16_groups, inner.fp32_from_float16_groups):
            for parameter, master in zip(group, masters):
                local = {key: env.local_of(entries[names[parameter]], reference, parameter, torch.float32) for key, reference in references.items()}
                master.data.copy_(local.pop("param"))
                inner.optimizer.state[master] = local
        for group in inner.optimizer.param_groups:
            group["step"] = STEP


def save_rank(rank, root, config, parameters, state, layout, more):
    env.initialize(layout)
    model = env.build_model(config, layout)
    chunk, optimizer, scheduler = model, None, None
    if state is not None:
        chunk, optimizer, scheduler = env.build_optimizer(model, layout, distributed=False)
        scheduler.step(7 * 8)
        with torch.no_grad():
            fill_plain_optimizer(optimizer, model, config, state, layout)
    fill_model(model, config, parameters, layout)
    args = env.training_args(config, layout, root, torch.bfloat16, ITERATION, optimizer is not None, ckpt_format="torch", use_dist_ckpt=False,
                             use_distributed_optimizer=False, **more)
    env.use_args(args)
    env.training_checkpointing.save_checkpoint(ITERATION, [chunk], optimizer, scheduler, 123456789)


def save(root, config, parameters, layout, state=None, **more):
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_rank, root, config, parameters, state, layout, more)
    return root / f"iter_{ITERATION:07d}"
