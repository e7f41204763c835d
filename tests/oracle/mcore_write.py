"""Producer: checkpoints as Megatron's own training writes them, filled from a name-seeded HF reference."""
import pathlib
import shutil

import torch

import mcore_env as env
from reference import slot_of, slots_of, to_megatron
from reference_experts import with_own_names

STEP, ITERATION, SAMPLES = 7, 20, 160


def fill_model(model, config, parameters, layout, pad=77.0):
    reference = with_own_names(to_megatron(parameters, config, layout.padded(config["vocab_size"]), layout.numbered, pad))
    with torch.no_grad():
        for entry in env.named_entries(model).values():
            for leaf in env.leaves(entry):
                leaf.data.copy_(env.take(reference, leaf))


def fill_optimizer(optimizer, model, config, state, layout):
    for inner in env.inner_optimizers(optimizer):
        inner.load_state_dict(inner.state_dict())                # allocates the states
        for group in inner.optimizer.param_groups:
            group["step"] = STEP
    entries = env.named_entries(model)
    references = {key: to_megatron(slot_of(state, slot), config, layout.padded(config["vocab_size"]), layout.numbered, 0.5)
                  for key, slot in env.SLOTS.items()}
    with torch.no_grad():
        for name, parameter, start, end, tensors in env.optimizer_shards(optimizer, model):
            for key, tensor in tensors.items():
                local = env.local_of(entries[name], references[key], parameter, torch.float32)
                tensor.copy_(local.reshape(-1)[start:end])


def save_rank(rank, root, config, parameters, state, layout, dtype, iteration, release, local, more):
    env.initialize(layout)
    model = env.build_model(config, layout, dtype, local=local, own_names=local)
    optimizer = scheduler = None
    if state is not None:
        wrapped, optimizer, scheduler = env.build_optimizer(model, layout, dtype)
        scheduler.step(7 * 8)
        fill_optimizer(optimizer, model, config, state, layout)
        chunk = wrapped
    else:
        chunk = model
    fill_model(model, config, parameters, layout)
    env.use_args(env.training_args(config, layout, root, dtype, iteration, optimizer is not None, **more))
    env.training_checkpointing.save_checkpoint(iteration, [chunk], optimizer, scheduler, 123456789, release=release)


def save(root, config, parameters, layout, state=None, dtype=torch.bfloat16, iteration=ITERATION, release=False, common=False, local=False, **more):
    """Writes ROOT/iter_NNNNNNN. common=True moves the common state into common.pt, as Megatron-Core did until 0.18;
    local=True saves Megatron's own layers instead of TransformerEngine's."""
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_rank, root, config, parameters, state, layout, dtype, iteration, release, local, more)
    step = root / ("release" if release else f"iter_{iteration:07d}")
    if common:
        to_common_pt(step)
    return step


def singleton_rank(rank, step, config, parameters, layout):
    import dataclasses
    env.initialize(layout)
    model = env.build_model(config, layout)
    fill_model(model, config, parameters, dataclasses.replace(layout, numbered=False))
    sharded = model.sharded_state_dict(metadata=env.metadata(None) | {"singleton_local_shards": True})
    args = env.training_args(config, layout, step, optimizer=False)
    env.dist_checkpointing.save({"model": sharded, "args": args, "iteration": ITERATION, "checkpoint_version": 3.0}, str(step),
                                content_metadata={"singleton_local_shards": True})


def save_singleton(root, config, parameters, layout):
    """The form with singleton_local_shards: numbered layers, fc1 as weight_w and weight_v. No training run writes it by default."""
    step = pathlib.Path(root) / f"iter_{ITERATION:07d}"
    step.mkdir(parents=True)
    env.run_ranks(layout.world, singleton_rank, step, config, parameters, layout)
    (step.parent / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))
    return step


def read_common(step):
    """The common state of a checkpoint, from common.pt or from the bytes item."""
    if (step / "common.pt").exists():
        return torch.load(step / "common.pt", weights_only=False)
    import io
    import pickle
    metadata = pickle.loads((step / ".metadata").read_bytes())
    for index, where in metadata.storage_data.items():
        if index.fqn == "common_state/shard_0_1":
            with open(step / where.relative_path, "rb") as file:
                file.seek(where.offset)
                return torch.load(io.BytesIO(file.read(where.length)), weights_only=False)[0]
    raise KeyError("no common state")


def to_common_pt(step):
    """What 0.18 wrote: common.pt beside the shards, and the two backend fields."""
    import json
    import pickle
    torch.save(read_common(step), step / "common.pt")
    path = step / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    metadata.state_dict_metadata.pop("common_state/shard_0_1", None)
    for index in [index for index in metadata.storage_data if index.fqn == "common_state/shard_0_1"]:
        del metadata.storage_data[index]
    path.write_bytes(pickle.dumps(metadata, protocol=4))
    description = json.loads((step / "metadata.json").read_text())
    description |= {"common_backend": "torch", "common_backend_version": 1}
    (step / "metadata.json").write_text(json.dumps(description))


def main():
    """Development aid: one checkpoint of a tiny model and a listing of its keys."""
    import pickle
    import sys
    import models
    target = pathlib.Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    config, parameters = models.parameters("qwen3")
    step = save(target, config, parameters, env.Layout(tp=2, pp=2), slots_of(parameters))
    metadata = pickle.loads((step / ".metadata").read_bytes())
    for key, item in sorted(metadata.state_dict_metadata.items()):
        print(key, tuple(getattr(item, "size", ())), len(getattr(item, "chunks", [])))


if __name__ == "__main__":
    main()
