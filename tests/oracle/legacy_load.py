"""Consumer: Megatron's own load_checkpoint reads a legacy tree (--ckpt-format torch), and every rank's tensors are compared, bit by
bit, with their slice of a reference. Besides a merger of the files in plain torch, which knows the names alone."""
import pathlib
import re

import torch

import mcore_chunks
import mcore_env as env
import mcore_load
from reference import slot_of, to_megatron


def files(step):
    """{(tensor rank, stage): path of the model file}."""
    found = {}
    for folder in sorted(pathlib.Path(step).glob("mp_rank_*")):
        numbers = [int(number) for number in re.fullmatch(r"mp_rank_(\d+)(?:_(\d+))?", folder.name).groups(default="0")]
        found[tuple(numbers)] = folder / "model_optim_rng.pt"
    return found


def read(path, **more):
    """What torch itself makes of a file under the allow list that megatron.core registers when it is imported."""
    return torch.load(path, map_location="cpu", weights_only=True, **more)


def merge(step, first_layers, gated=True):
    """The global numbered keys of a tree: tensor ranks joined, local layers counted on. first_layers: {(stage, chunk): number}."""
    ranks = {}
    for (tensor_rank, stage), path in files(step).items():
        content = read(path)
        names = [name for name in content if re.fullmatch(r"model\d*", name)]
        for chunk, name in enumerate(sorted(names)):
            for key, tensor in content[name].items():
                if isinstance(tensor, torch.Tensor) and tensor.numel() and not key.endswith("_extra_state"):
                    ranks.setdefault((stage, chunk, key), {})[tensor_rank] = tensor
    merged = {}
    for (stage, chunk, key), parts in ranks.items():
        parts = [parts[rank] for rank in sorted(parts)]
        layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", key)
        if layer:
            key = f"decoder.layers.{first_layers[stage, chunk] + int(layer[1])}.{layer[2]}"
        if key.endswith(("linear_qkv.weight", "linear_qkv.bias", "word_embeddings.weight", "output_layer.weight")):
            whole = torch.cat(parts)
        elif key.endswith("linear_fc1.weight") and gated:
            halves = [part.chunk(2) for part in parts]
            whole = torch.cat([half[0] for half in halves] + [half[1] for half in halves])
        elif key.endswith(("linear_proj.weight", "linear_fc2.weight")):
            whole = torch.cat(parts, dim=1)
        else:
            assert all(torch.equal(part, parts[0]) for part in parts), f"{key}: the ranks differ"
            whole = parts[0]
        assert key not in merged, f"{key} lies on two stages"
        merged[key] = whole
    return merged


def states_of(optimizer, chunks, distributed):
    """(parameter, start, end, {slot: flat tensor}) of everything that this rank's optimizer holds."""
    if distributed:
        yield from mcore_chunks._shards(optimizer)
        return
    inner, = env.inner_optimizers(optimizer)
    for chunk in chunks:
        for parameter in chunk.parameters():
            state = {"param": parameter.main_param, **inner.optimizer.state[parameter.main_param]}
            yield parameter, 0, parameter.numel(), {key: tensor.reshape(-1) for key, tensor in state.items()}


def compare_states(optimizer, chunks, config, state, layout, distributed):
    """Problems of this rank's optimizer, and how many tensors were compared."""
    problems, count = [], 0
    entries = mcore_chunks._entries(chunks)
    slots = {key: to_megatron(slot_of(state, slot), config, layout.padded(config["vocab_size"])) for key, slot in env.SLOTS.items()}
    for parameter, start, end, tensors in states_of(optimizer, chunks, distributed):
        name, entry = entries[parameter]
        rows = mcore_load._rows(entry, config["vocab_size"])
        limit = end - start if rows is None else max(0, min(end, rows * parameter.shape[1]) - start)
        if set(tensors) != set(env.SLOTS):
            problems.append(f"{name}: slots {sorted(tensors)}")
            continue
        for key, tensor in tensors.items():
            expected = env.local_of(entry, slots[key], parameter, torch.float32).reshape(-1)[start:end]
            mcore_load._compare(problems, f"{key} of {name}", tensor.detach()[:limit], expected[:limit])
            count += 1
    steps = {group.get("step") for inner in env.inner_optimizers(optimizer) for group in inner.optimizer.param_groups}
    return problems + ([f"steps {steps}"] if steps != {7} else []), count


def load_rank(rank, root, config, parameters, state, layout, distributed, dtype):
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    # TransformerEngine's attention has an extra state, which torch_dist does not store and a legacy file does.
    env.TEDotProductAttention.get_extra_state = lambda self: torch.empty(0, dtype=torch.uint8)
    env.TEDotProductAttention.set_extra_state = lambda self, state: None
    env.initialize(layout)
    args = env.training_args(config, layout, root, dtype, optimizer=state is not None, ckpt_format="torch", use_distributed_optimizer=distributed)
    env.use_args(args)
    init_num_microbatches_calculator(rank, None, 8, 4, layout.dp)
    chunks = env.build_chunks(config, layout, dtype)
    step, = pathlib.Path(root).glob("iter_*")
    content = read(files(step)[env.parallel_state.get_tensor_model_parallel_rank(), env.parallel_state.get_pipeline_model_parallel_rank()])
    problems = []
    for key, chunk in zip(mcore_chunks._keys(chunks), chunks):
        wanted = list(chunk.state_dict())
        if list(content[key]) != wanted:
            problems.append(f"names of {key} or their order: {list(content[key])} instead of {wanted}")
        chunk.load_state_dict(content[key], strict=True)
        with torch.no_grad():
            for parameter in chunk.parameters():
                parameter.zero_()                                # the training loader has to do it once more
    wrapped, optimizer, scheduler = chunks, None, None
    if state is not None:
        wrapped, optimizer, scheduler = env.build_optimizer(chunks, layout, dtype, distributed=distributed)
        for inner in env.inner_optimizers(optimizer):            # the step must come from the file
            for group in inner.optimizer.param_groups:
                group["step"] = -1
    iteration, _ = env.training_checkpointing.load_checkpoint(wrapped, optimizer, scheduler)
    if iteration != 20:
        problems.append(f"iteration {iteration}")
    count = 0
    for chunk in chunks:
        more, compared = mcore_load.compare_rank(chunk, None, config, parameters, None, layout)
        problems, count = problems + more, count + compared
    if optimizer is not None:
        more, compared = compare_states(optimizer, chunks, config, state, layout, distributed)
        problems, count = problems + more, count + compared
    return problems, count


def check(root, config, parameters, state, layout, distributed=False, dtype=torch.bfloat16):
    total = 0
    for rank, (problems, count) in enumerate(env.run_ranks(layout.world, load_rank, pathlib.Path(root), config, parameters, state, layout, distributed, dtype)):
        assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
        assert count, f"{layout}, rank {rank}: nothing was compared"
        total += count
    return total
