"""Megatron-Core's Muon: matrices by Muon, the rest by Adam, chained. Producer, consumer and trainer of its checkpoints.

The optimizer itself is emerging-optimizers', which stands in a folder of its own (conftest.py puts it on the path).
"""
import pathlib

import torch

import mcore_env as env
import mcore_write
from reference import seeded, slot_of, to_megatron

SLOTS = {"fp32_param": "master", "exp_avg": "adam_mu", "exp_avg_sq": "adam_nu", "momentum_buffer": "muon_mu"}
STEP, ITERATION = mcore_write.STEP, mcore_write.ITERATION


def is_muons(name, tensor):
    """Megatron's rule, by Hugging Face names: matrices that are neither embedding nor head."""
    return tensor.ndim == 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))


def state_of(parameters):
    """Name-seeded state of every parameter under full-state keys: masters, Muon's momentum of the matrices, Adam's of the rest."""
    made = {}
    for name, tensor in parameters.items():
        shape = tensor.shape
        made[f"optim/master/{name}"] = tensor.float() + seeded(f"master:{name}", shape, scale=1e-4)
        if is_muons(name, tensor):
            made[f"optim/muon_mu/{name}"] = seeded(f"muon:{name}", shape, scale=0.01)
        else:
            made[f"optim/adam_mu/{name}"] = seeded(f"mu:{name}", shape, scale=0.01)
            made[f"optim/adam_nu/{name}"] = seeded(f"nu:{name}", shape, scale=0.01) ** 2
    return made


def build_optimizer(model, layout, lr=1e-3, min_lr=1e-5, weight_decay=0.1, **more):
    """DDP wrapper, chained optimizer with zero states, scheduler."""
    ddp = env.DistributedDataParallelConfig(use_distributed_optimizer=False, grad_reduce_in_fp32=True)
    wrapped = env.DistributedDataParallel(model.config, ddp, model, disable_bucketing=True)
    optimizer = env.get_megatron_optimizer(env.OptimizerConfig(
        optimizer="muon", lr=lr, min_lr=min_lr, weight_decay=weight_decay, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=False,
        adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, clip_grad=1.0, muon_momentum=0.9, **more), [wrapped])
    scheduler = env.OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=lr, min_lr=min_lr, lr_warmup_steps=0, lr_decay_steps=1000, lr_decay_style="linear", start_wd=weight_decay,
        end_wd=weight_decay, wd_incr_steps=1000, wd_incr_style="constant")
    return wrapped, optimizer, scheduler


def states(optimizer, model):
    """(name of the module's parameter, parameter, {state: tensor}) of everything that this rank's optimizers hold."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for inner in env.inner_optimizers(optimizer):
        for low, high in zip(inner.float16_groups, inner.fp32_from_float16_groups):
            for parameter, main in zip(low, high):
                state = inner.optimizer.state[main]
                yield names[parameter], parameter, {"fp32_param": main, **{key: value for key, value in state.items() if torch.is_tensor(value) and value.ndim}}


def begin(optimizer):
    for inner in env.inner_optimizers(optimizer):
        inner.init_state_fn(inner.optimizer, inner.config)


def metadata():
    """What training passes when there is no distributed optimizer."""
    return env.metadata(None)


def references_of(state, config, layout, pad):
    """Megatron's global tensors of each state. Parameters that do not have it stand in as zeros, so that fused ones can be made."""
    shapes = slot_of(state, "master")
    return {key: to_megatron({name: state.get(f"optim/{slot}/{name}", torch.zeros_like(tensor)) for name, tensor in shapes.items()}, config,
                             layout.padded(config["vocab_size"]), layout.numbered, pad) for key, slot in SLOTS.items()}


def fill_optimizer(optimizer, model, config, state, layout):
    begin(optimizer)
    for inner in env.inner_optimizers(optimizer):
        for group in inner.optimizer.param_groups:
            if "betas" in group:
                group["step"] = STEP
    entries = env.named_entries(model, None)
    references = references_of(state, config, layout, 0.5)
    with torch.no_grad():
        for name, parameter, tensors in states(optimizer, model):
            for key, tensor in tensors.items():
                tensor.copy_(env.local_of(entries[name], references[key], parameter, torch.float32))


def args_of(config, layout, root, iteration, **more):
    args = env.training_args(config, layout, root, iteration=iteration)
    for name, value in {"optimizer": "muon", "use_distributed_optimizer": False, "muon_momentum": 0.9, **more}.items():
        setattr(args, name, value)
    return args


def save_rank(rank, root, config, parameters, state, layout, layer_wise, more):
    env.initialize(layout)
    model = env.build_model(config, layout)
    wrapped, optimizer, scheduler = build_optimizer(model, layout, use_layer_wise_distributed_optimizer=layer_wise)
    scheduler.step(7 * 8)
    fill_optimizer(optimizer, model, config, state, layout)
    mcore_write.fill_model(model, config, parameters, layout)
    env.use_args(args_of(config, layout, root, ITERATION, **more))
    env.training_checkpointing.save_checkpoint(ITERATION, [wrapped], optimizer, scheduler, 123456789)


def save(root, config, parameters, state, layout, layer_wise=False, **more):
    """layer_wise: whole parameters are divided among the data-parallel ranks (what was called dist_muon)."""
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_rank, root, config, parameters, state, layout, layer_wise, {"use_layer_wise_distributed_optimizer": layer_wise, **more})
    return root / f"iter_{ITERATION:07d}"


# --- split: whole matrices by rank with Muon, flat buffers of a DistributedOptimizer with Adam ------------------------------------
def build_split(model, layout, lr=1e-3, min_lr=1e-5, weight_decay=0.1):
    from megatron.core.optimizer import layer_wise_optimizer
    layer_wise_optimizer.tag_params_for_buffer_routing([model])
    ddp = env.DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True)
    ranks = env.parallel_state.get_data_parallel_group(with_context_parallel=True).size()
    layouts = layer_wise_optimizer.LayerWiseDistributedOptimizer.compute_full_param_layout(
        [parameter for parameter in model.parameters() if parameter.requires_grad], None, ranks, ddp,
        expert_data_parallel_world_size=env.parallel_state.get_expert_data_parallel_group().size())
    wrapped = env.DistributedDataParallel(model.config, ddp, model, disable_bucketing=True, full_param_layout=layouts)
    optimizer = env.get_megatron_optimizer(env.OptimizerConfig(
        optimizer="muon", lr=lr, min_lr=min_lr, weight_decay=weight_decay, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=False,
        use_layer_wise_distributed_optimizer=True, adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, clip_grad=1.0, muon_momentum=0.9), [wrapped])
    scheduler = env.OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=lr, min_lr=min_lr, lr_warmup_steps=0, lr_decay_steps=1000, lr_decay_style="linear", start_wd=weight_decay,
        end_wd=weight_decay, wd_incr_steps=1000, wd_incr_style="constant")
    return wrapped, optimizer, scheduler


def leaf_optimizers(optimizer):
    """Chained ones may be chained again."""
    for inner in env.inner_optimizers(optimizer):
        if inner is not optimizer and hasattr(inner, "chained_optimizers"):
            yield from leaf_optimizers(inner)
        else:
            yield inner


def fill_split(optimizer, model, config, state, layout):
    names = {parameter: name for name, parameter in model.named_parameters()}
    entries, references = env.named_entries(model, None), references_of(state, config, layout, 0.5)
    adams = {"param": "fp32_param", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    for inner in leaf_optimizers(optimizer):
        if not hasattr(inner, "gbuf_ranges"):
            inner.init_state_fn(inner.optimizer, inner.config)
            for low, high in zip(inner.float16_groups, inner.fp32_from_float16_groups):
                for parameter, main in zip(low, high):
                    held = {"fp32_param": main, **{key: value for key, value in inner.optimizer.state[main].items() if torch.is_tensor(value) and value.ndim}}
                    with torch.no_grad():
                        for key, tensor in held.items():
                            tensor.copy_(env.local_of(entries[names[parameter]], references[key], parameter, torch.float32))
            continue
        inner.load_state_dict(inner.state_dict())   # allocates the states
        for group in inner.optimizer.param_groups:
            group["step"] = STEP
        with torch.no_grad():
            for name, parameter, start, end, tensors in env.optimizer_shards(inner, model):
                for key, tensor in tensors.items():
                    tensor.copy_(env.local_of(entries[name], references[adams[key]], parameter, torch.float32).reshape(-1)[start:end])


def save_split_rank(rank, root, config, parameters, state, layout, fully):
    env.initialize(layout)
    model = env.build_model(config, layout)
    wrapped, optimizer, scheduler = build_split(model, layout)
    scheduler.step(7 * 8)
    fill_split(optimizer, model, config, state, layout)
    mcore_write.fill_model(model, config, parameters, layout)
    env.use_args(args_of(config, layout, root, ITERATION, use_layer_wise_distributed_optimizer=True, use_distributed_optimizer=True, dist_ckpt_optim_fully_reshardable=fully))
    env.training_checkpointing.save_checkpoint(ITERATION, [wrapped], optimizer, scheduler, 123456789)


def save_split(root, config, parameters, state, layout, fully):
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_split_rank, root, config, parameters, state, layout, fully)
    return root / f"iter_{ITERATION:07d}"


# --- other optimizers of Megatron's, with states that are zero --------------------------------------------------------------------
def save_zeros_rank(rank, root, config, parameters, layout, kind):
    env.initialize(layout)
    model = env.build_model(config, layout)
    ddp = env.DistributedDataParallelConfig(use_distributed_optimizer=False, grad_reduce_in_fp32=True)
    wrapped = env.DistributedDataParallel(model.config, ddp, model, disable_bucketing=True)
    optimizer = env.get_megatron_optimizer(env.OptimizerConfig(
        optimizer=kind, lr=1e-3, min_lr=1e-5, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=False), [wrapped])
    scheduler = env.OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-3, min_lr=1e-5, lr_warmup_steps=0, lr_decay_steps=1000, lr_decay_style="linear", start_wd=0.1, end_wd=0.1,
        wd_incr_steps=1000, wd_incr_style="constant")
    begin(optimizer)
    mcore_write.fill_model(model, config, parameters, layout)
    env.use_args(args_of(config, layout, root, ITERATION, optimizer=kind))
    env.training_checkpointing.save_checkpoint(ITERATION, [wrapped], optimizer, scheduler, 0)


def save_zeros(root, config, parameters, kind):
    root = pathlib.Path(root)
    root.mkdir(parents=True)
    env.run_ranks(1, save_zeros_rank, root, config, parameters, env.Layout(1, 1), kind)


# --- consumer ----------------------------------------------------------------------------------------------------------------
def _rows(entry, vocabulary):
    leaf = env.leaves(entry)[0]
    if not leaf.key.endswith(("word_embeddings.weight", "output_layer.weight")):
        return None
    return max(0, min(vocabulary - leaf.global_offset[0], leaf.local_shape[0]))


def load(model, optimizer, step):
    sharded = {"model": model.sharded_state_dict(metadata=metadata())}
    sharded["optimizer"] = optimizer.sharded_state_dict(sharded, is_loading=True, metadata=metadata())
    with torch.no_grad():
        for *_, tensors in states(optimizer, model):
            for tensor in tensors.values():
                tensor.zero_()
    loaded = env.dist_checkpointing.load(sharded, str(step))
    model.load_state_dict(loaded["model"], strict=True)
    optimizer.load_state_dict(loaded["optimizer"])


def load_rank(rank, step, config, parameters, state, layout, count):
    env.initialize(layout)
    model = env.build_model(config, layout)
    _, optimizer, _ = build_optimizer(model, layout)
    load(model, optimizer, step)
    return compare(model, optimizer, config, parameters, state, layout, count)


def compare(model, optimizer, config, parameters, state, layout, count=STEP):
    """Problems of what this rank holds beside the reference, and how many tensors of each state were compared. For Adam that is not distributed too."""
    problems = []
    for inner in env.inner_optimizers(optimizer):
        for group in inner.optimizer.param_groups:
            if "betas" in group and group.get("step") != count:
                problems.append(f"Adam's step is {group.get('step')!r}, expected {count}")
            if (group["max_lr"], group["min_lr"]) != (1e-3, 1e-5):
                problems.append(f"learning rates {group['max_lr']}, {group['min_lr']}")
            if "betas" not in group and group["momentum"] != 0.9:
                problems.append(f"momentum {group['momentum']}")
    entries, references, compared = env.named_entries(model, None), references_of(state, config, layout, 0.0), {}
    weights = to_megatron(parameters, config, layout.padded(config["vocab_size"]), layout.numbered)
    for name, parameter, tensors in states(optimizer, model):
        rows = _rows(entries[name], config["vocab_size"])
        found = {"param": (parameter.data, env.local_of(entries[name], weights, parameter, torch.bfloat16))}
        found |= {key: (tensor, env.local_of(entries[name], references[key], parameter, torch.float32)) for key, tensor in tensors.items()}
        for key, (mine, expected) in found.items():
            if not torch.equal(mine.detach()[:rows].contiguous().view(torch.uint8), expected[:rows].contiguous().view(torch.uint8)):
                problems.append(f"{key} of {name} differs")
            compared[key] = compared.get(key, 0) + 1
    return problems, compared


def check(step, config, parameters, state, layouts, count=STEP):
    """The real optimizer loads it under each layout; every local piece of every state is compared. Returns how many, by state."""
    for layout in layouts:
        total = {}
        for rank, (problems, compared) in enumerate(env.run_ranks(layout.world, load_rank, pathlib.Path(step), config, parameters, state, layout, count)):
            assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
            for key, number in compared.items():
                total[key] = total.get(key, 0) + number
        assert set(total) == {"param", *SLOTS}, total


# --- training ----------------------------------------------------------------------------------------------------------------
def take_steps(model, optimizer, config, parameters, layout, steps):
    import mcore_train
    for step in steps:
        mcore_train.give_gradients(model, config, parameters, layout, step)
        done, _, _ = optimizer.step()
        assert done, f"step {step} was skipped"


def held(optimizer, model):
    found = {}
    for name, parameter, tensors in states(optimizer, model):
        found[f"param/{name}"] = parameter.detach().clone()
        found |= {f"{key}/{name}": tensor.detach().clone() for key, tensor in tensors.items()}
    return found


def train_rank(rank, root, config, parameters, layout, steps):
    env.initialize(layout)
    model = env.build_model(config, layout)
    wrapped, optimizer, scheduler = build_optimizer(model, layout)
    mcore_write.fill_model(model, config, parameters, layout, pad=0.0)
    optimizer.reload_model_params()
    take_steps(model, optimizer, config, parameters, layout, range(1, steps + 1))
    saved = held(optimizer, model)
    env.use_args(args_of(config, layout, root, steps))
    env.training_checkpointing.save_checkpoint(steps, [wrapped], optimizer, scheduler, 0)
    take_steps(model, optimizer, config, parameters, layout, [steps + 1])
    return saved, held(optimizer, model)


def train(root, config, parameters, layout, steps=20):
    """Saves after `steps`, then makes one more. Returns for each rank what it held at the save and after that step."""
    pathlib.Path(root).mkdir(parents=True)
    return env.run_ranks(layout.world, train_rank, pathlib.Path(root), config, parameters, layout, steps)


def resume_rank(rank, step, config, parameters, layout, steps):
    env.initialize(layout)
    model = env.build_model(config, layout)
    _, optimizer, _ = build_optimizer(model, layout)
    load(model, optimizer, step)
    before = held(optimizer, model)
    take_steps(model, optimizer, config, parameters, layout, steps)
    return before, held(optimizer, model)


def resume(step, config, parameters, layout, steps):
    return env.run_ranks(layout.world, resume_rank, pathlib.Path(step), config, parameters, layout, steps)


def same(found, expected, what):
    assert set(found) == set(expected), f"{what}: {sorted(set(found) ^ set(expected))[:4]}"
    bad = [name for name in expected if not torch.equal(found[name].view(torch.uint8), expected[name].view(torch.uint8))]
    assert not bad, f"{what}: {len(bad)} of {len(expected)} differ, such as {bad[:4]}"


def keys_of(step):
    """{key: (dtype, shape)} of every tensor that a checkpoint stores."""
    import pickle
    items = pickle.loads((pathlib.Path(step) / ".metadata").read_bytes()).state_dict_metadata
    return {key: (str(item.properties.dtype), tuple(item.size)) for key, item in items.items() if hasattr(item, "properties")}
