"""A run of Megatron's own distributed optimizer: seeded gradients, clipping, Adam, weights gathered from the masters; saved
by training's save_checkpoint, continued from any checkpoint. Gradients depend on names and step alone, so every layout trains
the same model up to the order of the norm's sum."""
import pathlib

import torch

import mcore_env as env
import mcore_write
from reference import seeded, to_megatron


def give_gradients(model, config, parameters, layout, step):
    gradients = {name: seeded(f"grad:{step}:{name}", tensor.shape, scale=0.02) for name, tensor in parameters.items()}
    reference = to_megatron(gradients, config, layout.padded(config["vocab_size"]), layout.numbered, pad=0.0)
    entries = env.named_entries(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.main_grad.copy_(env.local_of(entries[name], reference, parameter, torch.float32))


def take_steps(model, optimizer, config, parameters, layout, steps):
    for step in steps:
        give_gradients(model, config, parameters, layout, step)
        done, _, _ = optimizer.step()
        assert done, f"step {step} was skipped"


def held(model, optimizer):
    """Everything that this rank holds of weights and state, by name."""
    found = {f"param/{name}": parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, _, start, end, tensors in env.optimizer_shards(optimizer, model):
        for key, tensor in tensors.items():
            found[f"{key}/{name}[{start}:{end}]"] = tensor.detach().clone()
    return found


def build(config, layout):
    env.initialize(layout)
    model = env.build_model(config, layout)
    wrapped, optimizer, scheduler = env.build_optimizer(model, layout)
    return model, wrapped, optimizer, scheduler


def train_rank(rank, root, config, parameters, layout, steps, more):
    model, wrapped, optimizer, scheduler = build(config, layout)
    mcore_write.fill_model(model, config, parameters, layout, pad=0.0)
    optimizer.reload_model_params()
    take_steps(model, optimizer, config, parameters, layout, range(1, steps + 1))
    saved = held(model, optimizer)
    env.use_args(env.training_args(config, layout, root, iteration=steps, **more))
    env.training_checkpointing.save_checkpoint(steps, [wrapped], optimizer, scheduler, 0)
    take_steps(model, optimizer, config, parameters, layout, [steps + 1])
    return saved, held(model, optimizer)


def train(root, config, parameters, layout, steps=20, **more):
    """Saves after `steps`, then makes one more. Returns for each rank what it held at the save and after that step."""
    pathlib.Path(root).mkdir(parents=True)
    return env.run_ranks(layout.world, train_rank, root, config, parameters, layout, steps, more)


def load_rank(rank, step, config, parameters, layout, steps):
    model, _, optimizer, _ = build(config, layout)
    metadata = env.metadata()
    sharded = {"model": model.sharded_state_dict(metadata=metadata)}
    sharded["optimizer"] = optimizer.sharded_state_dict(sharded, is_loading=True, metadata=metadata)
    loaded = env.dist_checkpointing.load(sharded, str(step))
    model.load_state_dict(loaded["model"], strict=True)
    optimizer.load_state_dict(loaded["optimizer"])
    before = held(model, optimizer)
    take_steps(model, optimizer, config, parameters, layout, steps)
    return before, held(model, optimizer)


def resume(step, config, parameters, layout, steps):
    """Loads and makes `steps`. Returns for each rank what it held before and after."""
    return env.run_ranks(layout.world, load_rank, pathlib.Path(step), config, parameters, layout, steps)
