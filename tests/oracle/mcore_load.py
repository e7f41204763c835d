"""Consumer: Megatron-Core loads a checkpoint under its default strictness and every local piece is compared, bit by bit,
with its slice of a reference. The model and Adam's state start as zeros, so a loader that did nothing is seen."""
import pathlib
import sys

import torch

import mcore_env as env
from reference import slot_of, to_megatron



def layouts_for(config, numbered=False):
    """Four TP x PP; an odd number of layers is divided unevenly."""
    first = config["num_hidden_layers"] // 2 if config["num_hidden_layers"] % 2 else None
    return [env.Layout(tp, pp, first=first if pp == 2 else None, numbered=numbered) for tp, pp in ((1, 1), (2, 1), (1, 2), (2, 2))]


def _bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _compare(problems, name, found, expected, rows=None):
    """rows: how many leading rows count (the padding of the vocabulary is the run's own)."""
    if rows is not None:
        found, expected = found[:rows], expected[:rows]
    if found.dtype != expected.dtype or found.shape != expected.shape:
        problems.append(f"{name}: {found.dtype} {tuple(found.shape)}, expected {expected.dtype} {tuple(expected.shape)}")
    elif not torch.equal(_bytes(found), _bytes(expected)):
        bad = int((_bytes(found) != _bytes(expected)).sum())
        problems.append(f"{name}: {bad} of {found.numel() * found.element_size()} bytes differ")


def _rows(entry, vocabulary):
    """Rows of this rank's embedding or head that are no padding; None where there is none."""
    leaf = env.leaves(entry)[0]
    if not leaf.key.endswith(("word_embeddings.weight", "output_layer.weight")):
        return None
    start = leaf.global_offset[0]
    return max(0, min(vocabulary - start, leaf.local_shape[0]))


def compare_rank(model, optimizer, config, parameters, state, layout):
    """Problems of this rank, and how many tensors were compared."""
    problems, count = [], 0
    padded, vocabulary = layout.padded(config["vocab_size"]), config["vocab_size"]
    entries = env.named_entries(model)
    own = {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)}
    missing = {name for name in own if not name.endswith("_extra_state")} - set(entries)
    if missing:
        problems.append(f"not in the sharded state: {sorted(missing)}")
    reference = to_megatron(parameters, config, padded, layout.numbered)
    for name, entry in entries.items():
        _compare(problems, name, own[name].data, env.local_of(entry, reference, own[name], own[name].dtype), _rows(entry, vocabulary))
        count += 1
    if optimizer is None:
        return problems, count
    slots = {key: to_megatron(slot_of(state, slot), config, padded, layout.numbered) for key, slot in env.SLOTS.items()}
    for name, parameter, start, end, tensors in env.optimizer_shards(optimizer, model):
        rows = _rows(entries[name], vocabulary)
        limit = end - start if rows is None else max(0, min(end, rows * parameter.shape[1]) - start)
        if set(tensors) != set(env.SLOTS):
            problems.append(f"{name}: slots {sorted(tensors)}")
            continue
        for key, tensor in tensors.items():
            expected = env.local_of(entries[name], slots[key], parameter, torch.float32).reshape(-1)[start:end]
            _compare(problems, f"{key} of {name}", tensor.detach()[:limit], expected[:limit])
            count += 1
    return problems, count


def load_rank(rank, step, config, parameters, state, layout, dtype, groups):
    """groups: what param_groups must hold (step, lr, ...). Returns (problems, count)."""
    env.initialize(layout)
    model = env.build_model(config, layout, dtype)
    optimizer = None
    metadata = env.metadata()
    sharded = {"model": model.sharded_state_dict(metadata=metadata)}
    if state is not None:
        wrapped, optimizer, scheduler = env.build_optimizer(model, layout, dtype)
        sharded["model"] = model.sharded_state_dict(metadata=metadata)   # DDP moved the parameters
        sharded["optimizer"] = optimizer.sharded_state_dict(sharded, is_loading=True, metadata=metadata)
        with torch.no_grad():
            for *_, tensors in env.optimizer_shards(optimizer, model):
                for tensor in tensors.values():
                    tensor.zero_()
    loaded = env.dist_checkpointing.load(sharded, str(step))
    model.load_state_dict(loaded["model"], strict=True)
    problems = []
    if optimizer is not None:
        optimizer.load_state_dict(loaded["optimizer"])
        for inner in env.inner_optimizers(optimizer):
            for group in inner.optimizer.param_groups:
                for key, value in (groups or {}).items():
                    if group.get(key) != value:
                        problems.append(f"param group (wd_mult {group.get('wd_mult')}): {key} is {group.get(key)!r}, expected {value!r}")
    more, count = compare_rank(model, optimizer, config, parameters, state, layout)
    return problems + more, count


def check(step, config, parameters, state=None, layouts=None, dtype=torch.bfloat16, groups=None):
    """Loads under each layout; raises AssertionError naming rank and tensor. Returns how many local tensors were compared."""
    step, total = pathlib.Path(step), 0
    for layout in layouts or layouts_for(config):
        for rank, (problems, count) in enumerate(env.run_ranks(layout.world, load_rank, step, config, parameters, state, layout, dtype, groups)):
            assert not problems, f"{layout}, rank {rank}: " + "; ".join(problems[:6])
            assert count, f"{layout}, rank {rank}: nothing was compared"
            total += count
    return total


def strict_rank(rank, step, config, layout, dtype):
    env.initialize(layout)
    model = env.build_model(config, layout, dtype)
    _, unexpected, missing = env.dist_checkpointing.load({"model": model.sharded_state_dict(metadata=env.metadata())}, str(step), strict="return_all")
    return sorted(unexpected), sorted(missing)


def keys(step, config, layout=env.Layout(), dtype=torch.bfloat16):
    """(keys of the checkpoint that a model does not ask for, keys that it asks for in vain)."""
    return env.run_ranks(layout.world, strict_rank, pathlib.Path(step), config, layout, dtype)[0]


# --- as training does it ----------------------------------------------------------------------------------------------------
def command_line(flags):
    """Megatron's own parser over the flags that a summary prints."""
    argv, sys.argv = sys.argv, ["train", *flags]
    try:
        return env.training_arguments.parse_args(ignore_unknown_args=False)
    finally:
        sys.argv = argv


def arguments_rank(rank, flags, layout):
    env.initialize(layout)
    args = command_line(flags)
    args.rank, args.world_size, args.data_parallel_size = rank, layout.world, layout.dp
    args.auto_detect_ckpt_format = args.use_dist_ckpt = True
    args, _ = env.training_checkpointing.load_args_from_checkpoint(args)
    return {name: value for name, value in vars(args).items() if isinstance(value, (bool, int, float, str, list, type(None)))}


def stored_arguments(flags):
    """Plain arguments of a run with these flags, after it has read those of the checkpoint."""
    return env.run_ranks(1, arguments_rank, [str(flag) for flag in flags], env.Layout())[0]


def model_of(args, kind):
    """The model that these arguments describe, as a config.json; what is absent falls to Megatron's own defaults."""
    heads = args.num_attention_heads
    head_dim = args.kv_channels or args.hidden_size // heads
    groups = args.num_query_groups if args.group_query_attention else heads
    rope = {"rope_type": "default"}
    if args.use_rope_scaling:
        rope = {"rope_type": "llama3", "factor": args.rope_scaling_factor}
    return {"model_type": "qwen2" if args.add_qkv_bias else "qwen3" if args.qk_layernorm else kind, "num_hidden_layers": args.num_layers,
            "hidden_size": args.hidden_size, "intermediate_size": args.ffn_hidden_size, "num_attention_heads": heads, "num_key_value_heads": groups,
            "head_dim": head_dim, "rms_norm_eps": getattr(args, "norm_epsilon", None) or args.layernorm_epsilon, "rope_theta": float(args.rotary_base),
            "rope_parameters": {"rope_theta": float(args.rotary_base), **rope}, "max_position_embeddings": args.max_position_embeddings,
            "tie_word_embeddings": not args.untie_embeddings_and_output_weights, "padded": args.padded_vocab_size,
            "swiglu": args.swiglu, "bias": args.add_bias_linear, "normalization": args.normalization, "bf16": args.bf16, "position": args.position_embedding_type,
            "dropout": [args.attention_dropout, args.hidden_dropout]}


def flags_of(config):
    """What Megatron does not read from a checkpoint and a user must therefore say: what a summary should print."""
    _, scaling = env.rope_of(config)
    flags = ["--norm-epsilon", repr(config["rms_norm_eps"]), "--bf16"]
    if config["model_type"] == "qwen3":
        flags.append("--qk-layernorm")
    if scaling:
        flags += ["--use-rope-scaling", "--rope-scaling-factor", repr(float(scaling["factor"]))]
    return flags


def training_rank(rank, root, flags, config, parameters, state, layout, dtype):
    """load_args_from_checkpoint, then load_checkpoint, as `--load ROOT --use-checkpoint-args` and the flags do."""
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.initialize(layout)
    args = command_line(["--load", str(root), "--use-checkpoint-args", *flags])
    args.rank, args.world_size, args.data_parallel_size = rank, layout.world, layout.dp
    args.tensor_model_parallel_size, args.pipeline_model_parallel_size = layout.tp, layout.pp
    args.auto_detect_ckpt_format = args.use_dist_ckpt = True
    args, _ = env.training_checkpointing.load_args_from_checkpoint(args)
    # What arguments.validate_args derives, for those fields that a checkpoint did not give.
    args.global_batch_size, args.micro_batch_size, args.consumed_train_samples, args.consumed_valid_samples = 8, 4, 0, 0
    args.use_distributed_optimizer = state is not None
    args.dist_ckpt_optim_fully_reshardable = True
    args.skipped_train_samples = 0
    described = model_of(args, config["model_type"])
    described["vocab_size"] = config["vocab_size"]
    env.use_args(args)
    init_num_microbatches_calculator(rank, None, 8, 4, layout.dp)
    model = env.build_model(described, layout, dtype)
    optimizer = scheduler = None
    chunk = model
    if state is not None:
        chunk, optimizer, scheduler = env.build_optimizer(model, layout, dtype)
    iteration, flops = env.training_checkpointing.load_checkpoint([chunk], optimizer, scheduler)
    problems, count = compare_rank(model, optimizer, config, parameters, state, layout)
    return {"problems": problems, "count": count, "iteration": iteration, "model": described, "flops": flops,
            "consumed_train_samples": args.consumed_train_samples,
            "steps": sorted({group.get("step") for inner in env.inner_optimizers(optimizer) for group in inner.optimizer.param_groups}, key=str) if optimizer else [],
            "num_steps": scheduler.num_steps if scheduler else None}


def train_load(root, flags, config, parameters, state=None, layout=env.Layout(), dtype=torch.bfloat16):
    results = env.run_ranks(layout.world, training_rank, pathlib.Path(root), list(flags), config, parameters, state, layout, dtype)
    for rank, result in enumerate(results):
        assert not result["problems"], f"rank {rank}: " + "; ".join(result["problems"][:6])
        assert result["count"], f"rank {rank}: nothing was compared"
    return results[0]


# --- logits through Megatron's own layers -------------------------------------------------------------------------------------
def logits_rank(rank, step, config, tokens, layout):
    import contextlib
    env.initialize(layout)
    env.get_cuda_rng_tracker().fork = lambda *args, **kwargs: contextlib.nullcontext()
    model = env.build_model(config, layout, torch.float32, local=True)
    loaded = env.dist_checkpointing.load({"model": model.sharded_state_dict(metadata=env.metadata())}, str(step))
    model.load_state_dict(loaded["model"], strict=True)
    model.eval()
    length = tokens.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length), diagonal=1).bool()
    positions = torch.arange(length).unsqueeze(0).expand(tokens.shape[0], -1)
    with torch.no_grad():
        return model(tokens, positions, mask)[..., :config["vocab_size"]].float().numpy()


def logits(step, config, tokens):
    """Logits of a checkpoint by Megatron-Core, computed in fp32 (the stored bf16 is widened on load)."""
    return torch.from_numpy(env.run_ranks(1, logits_rank, pathlib.Path(step), config, tokens, env.Layout())[0])
