"""Megatron-Core with virtual stages: several model chunks a rank, saved by training's save_checkpoint and loaded under the
default strictness, each local piece compared with its slice of the reference."""
import pathlib

import torch

import mcore_env as env
from mcore_load import _compare, _rows
from mcore_write import ITERATION, SAMPLES, STEP
from reference import slot_of, to_megatron

assert SAMPLES == 160


def _keys(chunks):
    """Where a run keeps the state of its chunks: `model`, or `model0`, `model1`, ..."""
    return ["model"] if len(chunks) == 1 else [f"model{index}" for index in range(len(chunks))]


def _entries(chunks):
    """Entry by parameter, over all chunks."""
    found = {}
    for chunk in chunks:
        own = dict(chunk.named_parameters())
        entries = env.named_entries(chunk)
        assert set(own) == set(entries), sorted(set(own) ^ set(entries))
        found |= {own[name]: (name, entry) for name, entry in entries.items()}
    return found


def _shards(optimizer):
    """(parameter, start, end, {slot: flat tensor}) of every shard of this rank."""
    for inner in env.inner_optimizers(optimizer):
        for buckets in inner.gbuf_ranges:
            for maps in buckets.values():
                for bucket in maps:
                    for parameter, ranges in bucket["param_map"].items():
                        yield parameter, ranges["param"].start, ranges["param"].end, inner._get_main_param_and_optimizer_states(parameter)


def save_rank(rank, root, config, parameters, state, layout, dtype, more):
    env.initialize(layout)
    chunks = env.build_chunks(config, layout, dtype)
    wrapped, optimizer, scheduler = env.build_optimizer(chunks, layout, dtype)
    scheduler.step(7 * 8)
    padded = layout.padded(config["vocab_size"])
    for inner in env.inner_optimizers(optimizer):
        inner.load_state_dict(inner.state_dict())                # allocates the states
        for group in inner.optimizer.param_groups:
            group["step"] = STEP
    entries = _entries(chunks)
    slots = {key: to_megatron(slot_of(state, slot), config, padded, pad=0.5) for key, slot in env.SLOTS.items()}
    weights = to_megatron(parameters, config, padded, pad=77.0)
    with torch.no_grad():
        for parameter, start, end, tensors in _shards(optimizer):
            for key, tensor in tensors.items():
                tensor.copy_(env.local_of(entries[parameter][1], slots[key], parameter, torch.float32).reshape(-1)[start:end])
        for name, entry in entries.values():
            for leaf in env.leaves(entry):
                leaf.data.copy_(env.take(weights, leaf))
    env.use_args(env.training_args(config, layout, root, dtype, ITERATION, **more))
    env.training_checkpointing.save_checkpoint(ITERATION, wrapped, optimizer, scheduler, 123456789)
    return [sorted(name for name, _ in chunk.named_parameters()) for chunk in chunks]


def save(root, config, parameters, state, layout, dtype=torch.bfloat16, **more):
    """Writes ROOT/iter_NNNNNNN; returns the names of the parameters of each rank's chunks."""
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    return env.run_ranks(layout.world, save_rank, root, config, parameters, state, layout, dtype, more)


def load_rank(rank, step, config, parameters, state, layout, dtype):
    env.initialize(layout)
    chunks = env.build_chunks(config, layout, dtype)
    _, optimizer, _ = env.build_optimizer(chunks, layout, dtype)
    sharded = {key: chunk.sharded_state_dict(metadata=env.metadata()) for key, chunk in zip(_keys(chunks), chunks)}
    sharded["optimizer"] = optimizer.sharded_state_dict(dict(sharded), is_loading=True, metadata=env.metadata())
    with torch.no_grad():
        for *_, tensors in _shards(optimizer):
            for tensor in tensors.values():
                tensor.zero_()
    loaded = env.dist_checkpointing.load(sharded, str(step))
    for key, chunk in zip(_keys(chunks), chunks):
        chunk.load_state_dict(loaded.get(key, {}), strict=True)  # an empty stage leaves no key, as training expects
    optimizer.load_state_dict(loaded["optimizer"])
    return _compared(chunks, _shards(optimizer), config, parameters, state, layout)


def _compared(chunks, shards, config, parameters, state, layout):
    """Problems of this rank, and how many tensors were compared."""
    problems, count, padded = [], 0, layout.padded(config["vocab_size"])
    weights = to_megatron(parameters, config, padded)
    slots = {key: to_megatron(slot_of(state, slot), config, padded) for key, slot in env.SLOTS.items()}
    entries = _entries(chunks)
    for parameter, (name, entry) in entries.items():
        _compare(problems, name, parameter.data, env.local_of(entry, weights, parameter, parameter.dtype), _rows(entry, config["vocab_size"]))
        count += 1
    for parameter, start, end, tensors in shards:
        name, entry = entries[parameter]
        rows = _rows(entry, config["vocab_size"])
        limit = end - start if rows is None else max(0, min(end, rows * parameter.shape[1]) - start)
        for key, tensor in tensors.items():
            expected = env.local_of(entry, slots[key], parameter, torch.float32).reshape(-1)[start:end]
            _compare(problems, f"{key} of {name}", tensor.detach()[:limit], expected[:limit])
            count += 1
    return problems, count


def legacy_rank(rank, root, config, parameters, state, layout, distributed, dtype):
    """As `--ckpt-format torch` loads it: training's load_checkpoint over model0, model1, ..."""
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.TEDotProductAttention.get_extra_state = lambda self: torch.empty(0, dtype=torch.uint8)  # legacy files hold it
    env.TEDotProductAttention.set_extra_state = lambda self, state: None
    env.initialize(layout)
    env.use_args(env.training_args(config, layout, root, dtype, ckpt_format="torch", use_distributed_optimizer=distributed))
    init_num_microbatches_calculator(rank, None, 8, 4, layout.dp)
    chunks = env.build_chunks(config, layout, dtype)
    wrapped, optimizer, _ = env.build_optimizer(chunks, layout, dtype, distributed=distributed)
    env.training_checkpointing.load_checkpoint(wrapped, optimizer, None)
    return _compared(chunks, _shards(optimizer) if distributed else _plain(optimizer, chunks), config, parameters, state, layout)


def _plain(optimizer, chunks):
    """The same of an optimizer that is not distributed: whole parameters."""
    inner, = env.inner_optimizers(optimizer)
    for chunk in chunks:
        for parameter in chunk.parameters():
            main = parameter.main_param
            states = {"param": main, **inner.optimizer.state[main]}
            yield parameter, 0, main.numel(), {key: states[key].reshape(-1) for key in env.SLOTS}


def check_legacy(root, config, parameters, state, layout, distributed, dtype=torch.bfloat16):
    total = 0
    for rank, (problems, count) in enumerate(env.run_ranks(layout.world, legacy_rank, pathlib.Path(root), config, parameters, state, layout, distributed, dtype)):
        assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
        total += count
    return total


def check(step, config, parameters, state, layout, dtype=torch.bfloat16):
    """Loads weights and Adam's state under a layout; returns how many local tensors were compared."""
    total = 0
    for rank, (problems, count) in enumerate(env.run_ranks(layout.world, load_rank, pathlib.Path(step), config, parameters, state, layout, dtype)):
        assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
        assert count or layout.cells, f"{layout}, rank {rank}: nothing was compared"
        total += count
    return total
