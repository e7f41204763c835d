"""Full-state safetensors: the schema, written by the reference library and read back without it."""
import json
import pathlib

import torch
from safetensors.torch import save_file

from reference import read_directory, slots_of

STEP, SAMPLES, ITERATION = 7, 160, 20


def write(target, case, config, parameters, shards=1, state=None, **counts):
    """One file (or shards + index) with config.json beside it. Returns Adam's state, or `state`, which may be Muon's too."""
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    optimizer = "adam" if state is None else "muon"
    state = slots_of(parameters) if state is None else state
    tensors = {f"param/{name}": tensor for name, tensor in parameters.items()} | state
    for name, count in ({"step": ITERATION, "adam_count": STEP} | counts).items():
        tensors[f"meta/{name}"] = torch.tensor(count, dtype=torch.int64)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {"format": "crossdock-full-state-v1", "model_name": case, "optimizer": optimizer, "step": str(ITERATION), "consumed_train_samples": str(SAMPLES)}
    (target / "config.json").write_text(json.dumps(config, indent=2))
    if shards == 1:
        save_file(tensors, target / "model.safetensors", metadata)
        return state
    names = sorted(tensors)
    where = {}
    for index in range(shards):
        part = names[index::shards]
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in part}, target / file, metadata)
        where |= dict.fromkeys(part, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {**metadata, "total_size": total}, "weight_map": where}))
    return state


def read(path):
    """(param and optim tensors, counters, metadata)."""
    tensors, metadata = read_directory(path)
    counters = {}
    for name in [name for name in tensors if name.startswith("meta/")]:
        dtype, shape, data = tensors.pop(name)
        assert (dtype, shape) == ("I64", ()), f"{name}: {dtype} {shape}"
        counters[name.removeprefix("meta/")] = int.from_bytes(data, "little", signed=True)
    assert metadata.get("format") == "crossdock-full-state-v1", metadata
    return tensors, counters, metadata
