"""Plain PyTorch DCP by the real thing: transformers models under FSDP2 (`fully_shard`), AdamW, `torch.distributed.checkpoint`.

Every function here runs in forked gloo ranks (mcore_env.run_ranks). A mesh is a tuple of sizes: (n,) shards over n ranks,
(r, n) replicates over r and shards over n (HSDP). `tp` puts a tensor-parallel axis under the sharded one.
"""
import pathlib

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import models

ADAMW = dict(lr=3e-3, betas=(0.8, 0.95), eps=1e-7, weight_decay=0.07)
MUON = dict(lr=5e-3, momentum=0.9, weight_decay=0.03, nesterov=False, ns_steps=4)


def _tensor_parallel(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plan = {f"mlp.{part}_proj": ColwiseParallel() for part in ("gate", "up")} | {"mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)


def build(case, mesh, tp=1, groups=1):
    """(model, AdamW) sharded over the mesh; two groups split weights from norms as most trainers do."""
    model, _ = models.build(case, torch.float32)
    names = ("replicate", "shard")[-len(mesh):] + (("tp",) if tp > 1 else ())
    device_mesh = init_device_mesh("cpu", tuple(mesh) + ((tp,) if tp > 1 else ()), mesh_dim_names=names)
    if tp > 1:
        _tensor_parallel(model, device_mesh["tp"])
    data = device_mesh[names[:len(mesh)]] if tp > 1 else device_mesh
    for layer in model.model.layers:
        fully_shard(layer, mesh=data)
    fully_shard(model, mesh=data)
    if groups == 1:
        return model, torch.optim.AdamW(model.parameters(), **ADAMW)
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    rest = [weight for weight in model.parameters() if weight.ndim == 1]
    return model, torch.optim.AdamW([{"params": matrices}, {"params": rest, "weight_decay": 0.0}], **ADAMW)


def train(model, optimizer, steps, first=0):
    """The same batches on every rank, so that the number of ranks changes nothing but rounding."""
    for step in range(first, first + steps):
        batch = torch.randint(0, model.config.vocab_size, (2, 12), generator=torch.Generator().manual_seed(100 + step))
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def whole(value):
    """A local copy of the global tensor."""
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.detach().clone()


def snapshot(model, optimizer):
    """{`param/<name>`, `optim/adam_mu/<name>`, ...: tensor} of the whole model, and the step."""
    weights, state = get_state_dict(model, optimizer)
    out = {f"param/{name}": whole(tensor) for name, tensor in weights.items()}
    for name, item in state["state"].items():
        out[f"optim/adam_mu/{name}"] = whole(item["exp_avg"])
        out[f"optim/adam_nu/{name}"] = whole(item["exp_avg_sq"])
    return out, {int(item["step"]) for item in state["state"].values()}


def save(rank, target, case, mesh, tp=1, groups=1, steps=3):
    """Trains, saves, and trains once more: (state at the save, state one step later), as rank 0 saw them."""
    model, optimizer = build(case, mesh, tp, groups)
    train(model, optimizer, steps)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state}, checkpoint_id=target)
    before, counts = snapshot(model, optimizer)
    assert counts == {steps}, counts
    train(model, optimizer, 1, first=steps)
    after, _ = snapshot(model, optimizer)
    if rank == 0:
        pathlib.Path(target, "config.json").write_text(model.config.to_json_string(use_diff=False))
    return (before, after) if rank == 0 else None


def save_safetensors(rank, target, case, mesh, consolidate=False, files=1):
    """DCP's own safetensors form of the weights alone."""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    model, _ = build(case, mesh)
    weights = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]                            # safetensors refuses two names on one storage
    mapping = {name: 1 + index % files for index, name in enumerate(weights)}
    writer = HuggingFaceStorageWriter(path=str(target), fqn_to_index_mapping=mapping, save_distributed=True, enable_consolidation=consolidate)
    dcp.save(weights, storage_writer=writer)
    if rank == 0:
        pathlib.Path(target, "config.json").write_text(model.config.to_json_string(use_diff=False))
    return {f"param/{name}": whole(tensor) for name, tensor in weights.items()}   # every rank: gathering takes all of them


def load(rank, target, case, mesh, tp=1, groups=1, steps=3):
    """Loads into a freshly built model and optimizer whose state is other: (state, state one step later, settings)."""
    model, optimizer = build(case, mesh, tp, groups)
    train(model, optimizer, 1, first=77)
    for group in optimizer.param_groups:
        group["lr"] = 0.5                                        # what the checkpoint says must come back
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optim": state}, checkpoint_id=target)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    before, counts = snapshot(model, optimizer)
    settings = [{key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "amsgrad")} for group in optimizer.param_groups]
    train(model, optimizer, 1, first=steps)
    after, _ = snapshot(model, optimizer)
    return (before, counts, after, settings) if rank == 0 else None


def load_weights(rank, target, case, mesh):
    """Loads the weights alone and gives the logits."""
    model, _ = build(case, mesh)
    weights = {"model": model.state_dict()}
    with torch.no_grad():
        for tensor in weights["model"].values():
            tensor.zero_()
    dcp.load(weights, checkpoint_id=target)
    model.load_state_dict(weights["model"])
    model.eval()
    with torch.no_grad():
        return model(models.tokens(model.config.vocab_size), use_cache=False).logits


# --- Muon beside AdamW: two optimizers of one state dict -----------------------------------------------------------------------
def with_muon(case, mesh):
    """(model, (Muon of the matrices, AdamW of the rest)) sharded over the mesh."""
    model, _ = models.build(case, torch.float32)
    device_mesh = init_device_mesh("cpu", tuple(mesh), mesh_dim_names=("shard",))
    for layer in model.model.layers:
        fully_shard(layer, mesh=device_mesh)
    fully_shard(model, mesh=device_mesh)
    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name and "lm_head" not in name]
    taken = set(map(id, matrices))
    return model, (torch.optim.Muon(matrices, **MUON), torch.optim.AdamW([weight for weight in model.parameters() if id(weight) not in taken], **ADAMW))


def muon_snapshot(model, optimizers):
    weights, state = get_state_dict(model, optimizers)
    out = {f"param/{name}": whole(tensor) for name, tensor in weights.items()}
    slots = {"exp_avg": "adam_mu", "exp_avg_sq": "adam_nu", "momentum_buffer": "muon_mu"}
    for name, item in state["state"].items():
        out |= {f"optim/{slot}/{name}": whole(item[field]) for field, slot in slots.items() if field in item}
    return out


class _Both:
    def __init__(self, optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def save_muon(rank, target, case, mesh, steps=3):
    model, optimizers = with_muon(case, mesh)
    train(model, _Both(optimizers), steps)
    weights, state = get_state_dict(model, optimizers)
    dcp.save({"model": weights, "optim": state}, checkpoint_id=target)
    before = muon_snapshot(model, optimizers)
    train(model, _Both(optimizers), 1, first=steps)
    after = muon_snapshot(model, optimizers)
    if rank == 0:
        pathlib.Path(target, "config.json").write_text(model.config.to_json_string(use_diff=False))
    return (before, after) if rank == 0 else None


def load_muon(rank, target, case, mesh, steps=3):
    """Loads into optimizers whose state and settings are other: (state, state one step later, settings)."""
    model, optimizers = with_muon(case, mesh)
    train(model, _Both(optimizers), 1, first=77)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.5
    optimizers[0].param_groups[0]["momentum"] = 0.1
    weights, state = get_state_dict(model, optimizers)
    dcp.load({"model": weights, "optim": state}, checkpoint_id=target)
    set_state_dict(model, optimizers, model_state_dict=weights, optim_state_dict=state)
    before = muon_snapshot(model, optimizers)
    settings = [{key: value for key, value in group.items() if key != "params"} for optimizer in optimizers for group in optimizer.param_groups]
    train(model, _Both(optimizers), 1, first=steps)
    after = muon_snapshot(model, optimizers)
    return (before, after, settings) if rank == 0 else None
