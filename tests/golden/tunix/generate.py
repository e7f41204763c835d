"""Golden Tunix checkpoints by the real Tunix 0.1.7, flax nnx and optax, of real MaxText models of a few hundred bytes a tensor.

    python tests/golden/tunix/generate.py [CASE ...]     in the environment of `scripts/setup_test_env.sh maxtext`

CASES says for each case which levels its trainer leaves around MaxText's own names; tests write the same cases through `write` and
look at what Tunix restores through `restored`, so there is one producer. Below this folder:
`checkpoints/CASE/...`: whole checkpoints of the cases that are `kept`.
`trees/CASE.json`: of every case {"why", "scan_layers", "wrapped", "lora", "roots", "custom_metadata", "rows": [[item, path, value type, dtype, shape, sha256, name in
MaxText's tree or null]]}, one row a leaf as `_METADATA` has it; dtypes as safetensors spells them. Null: what MaxText has no place for, or random streams.
The value of a leaf depends on what it is alone: ("params", P), ("mu", P), ("nu", P) with P the parameter's path; counters are those of COUNTS.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parents[1] / "oracle")]

import maxtext_judge  # first: it sets the environment that jax reads

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from orbax.checkpoint import v1

from numpy_golden import forget_place, info, seeded, write_manifest

SIZES = dict(base_emb_dim=8, base_num_query_heads=2, base_num_kv_heads=1, base_mlp_dim=12, base_num_decoder_layers=2, vocab_size=18, head_dim=4)
# Counters that are one number in a run have each its own here, so that a test sees which went where.
COUNTS = {"step": 20, "adam": 17, "muon": 18, "schedule": 19, "shell": 16, "hyperparams_states": 15, "gradient_step": 14}
SCHEDULE = optax.schedules.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100, 1e-4)


@dataclasses.dataclass(frozen=True)
class Case:
    why: str
    optimizer: str = "adamw"                           # of OPTIMIZERS; "" saves none
    levels: tuple = ()                                 # between opt_state and what MaxText has there
    schedule: tuple | None = ("opt_state", "2", "count")   # the counter that pre-training's schedule goes by
    family: tuple = ("qwen3-0.6b", ())                 # MaxText's model and settings beyond SIZES
    scan: bool = True
    wrapped: bool = False                              # in the adapter, attribute `base`
    owns_base: bool = False                            # a module of the layers is called `base`
    lora: bool = False
    form: str = "v0"                                   # "v1", "item": custom metadata as an item; "directories": through the Pathways proxy
    roots: tuple = ("",)
    steps: tuple = (20,)                               # of the first root; the others have the last of them
    kept: bool = False
    metadata: tuple = ()


def _clip(optimizer, norm=1.0):
    return optax.chain(optax.clip_by_global_norm(norm), optimizer)


def _plain(config, model, rate=SCHEDULE):
    from maxtext.optimizers import optimizers
    return optimizers.get_optimizer(config, rate, model)


def _rl(config, model, clip=True):
    """As get_optimizer of MaxText's RL trainer."""
    def make(learning_rate):
        adamw = optax.adamw(learning_rate=learning_rate, b1=0.9, b2=0.99, weight_decay=0.1)
        return _clip(adamw) if clip else optax.chain(adamw)
    return optax.inject_hyperparams(make)(learning_rate=SCHEDULE)


def _distillation(config, model):
    """As get_distillation_optimizer of MaxText's distillation trainer."""
    return optax.inject_hyperparams(lambda learning_rate: _clip(_plain(config, None, learning_rate)))(learning_rate=SCHEDULE)


def _two(config, model):
    def make(learning_rate, weight_decay):
        return optax.chain(optax.adamw(learning_rate, weight_decay=weight_decay))
    return optax.inject_hyperparams(make)(learning_rate=SCHEDULE, weight_decay=0.1)


OPTIMIZERS = {
    "adamw": _plain, "adam_pax": _plain, "muon": _plain,
    "clip": lambda config, model: _clip(_plain(config, model)),
    "clip muon": lambda config, model: _clip(_plain(config, model)),
    "chains": lambda config, model: _clip(optax.chain(optax.zero_nans(), _clip(optax.chain(_plain(config, model)), 2.0))),
    "rl": _rl, "rl unclipped": lambda config, model: _rl(config, model, clip=False),
    "distillation": _distillation, "two hyperparameters": _two,
    "accumulated": lambda config, model: optax.MultiSteps(_plain(config, model), 4),
}
SHELL = ("opt_state", "count")
INNER = ("inner_state",)
CASES = {
    "sft": Case("supervised fine-tuning: the bare model, no clipping", kept=True),
    "sft_clip": Case("gradient clipping: a chain whose first member has no state", "clip", ("1",), ("opt_state", "1", "2", "count"), scan=False),
    "dpo": Case("the model in an adapter: `base` above the parameters, and below mu and nu", wrapped=True),
    "dpo_clip": Case("both", "clip", ("1",), ("opt_state", "1", "2", "count"), wrapped=True, scan=False),
    "rl": Case("actor and critic, the learning rate injected around a chain", "rl", INNER + ("1",), SHELL, wrapped=True, roots=("actor", "critic"), steps=(10, 20), kept=True,
               metadata=(("global_step", 5),)),
    "rl_unclipped": Case("a chain of one", "rl unclipped", INNER + ("0",), SHELL, wrapped=True, scan=False, roots=("actor",)),
    "distillation": Case("the student alone, the learning rate injected, v1 of Orbax", "distillation", INNER + ("1",), SHELL, form="v1", kept=True),
    "two_hyperparameters": Case("another hyperparameter beside the learning rate", "two hyperparameters", INNER + ("0",), SHELL),
    "chains": Case("chains in chains, and one of one", "chains", ("1", "1", "1", "0"), ("opt_state", "1", "1", "1", "0", "2", "count"), scan=False),
    "accumulated": Case("optax.MultiSteps: accumulated gradients", "accumulated", ("inner_opt_state",), ("opt_state", "inner_opt_state", "2", "count"), wrapped=True),
    "muon": Case("Muon and Adam, each with placeholders for the other's leaves", "muon", (), None),
    "muon_clip": Case("the same below a chain, in an adapter", "clip muon", ("1",), None, wrapped=True),
    "adam_pax": Case("no chain at all", "adam_pax", (), None),
    "lora": Case("LoRA alone: no weight of the model in it", lora=True, kept=True, metadata=(("lora_rank", 2), ("lora_alpha", 4.0))),
    "module_base": Case("a model that really has modules called `base`", owns_base=True),
    "module_base_wrapped": Case("the same in the adapter: only the outermost goes", wrapped=True, owns_base=True, scan=False),
    "weights_only": Case("no optimizer", ""),
    "old_item": Case("custom metadata as an item, as Tunix before it was the step's; and no optimizer", "", form="item", kept=True, metadata=(("global_step", 7),)),
    "directories": Case("through the Pathways proxy: neither OCDBT nor zarr v3", form="directories", scan=False),
}


def optimizer_type(case):
    """What MaxText calls the innermost optimizer."""
    return {"muon": "muon", "clip muon": "muon", "adam_pax": "adam_pax"}.get(case.optimizer, "adamw")


def job_of(case):
    """The words that the judge takes a model by."""
    model_name, more = case.family
    settings = SIZES | dict(more) | {"scan_layers": case.scan}
    if case.lora:
        settings["lora"] = json.dumps({"enable_lora": True, "lora_rank": 2, "lora_alpha": 4.0})
    return {"model_name": model_name, "settings": settings}


def configure(case):
    job = job_of(case)
    return maxtext_judge.configure(job | {"settings": job["settings"] | {"opt_type": optimizer_type(case)}})


def rename_mlp(model):
    for _, module in list(nnx.iter_graph(model)):
        if isinstance(module, nnx.Module) and hasattr(module, "mlp"):
            module.base = module.mlp
            del module.mlp


def module_of(case, config):
    """The model as the trainer holds it; its values mean nothing yet."""
    mesh, make = maxtext_judge.builder(config)
    with mesh:
        if case.lora:
            from maxtext.utils import lora_utils
            model = lora_utils.apply_lora_to_model(make(), mesh, config)
        else:
            model = nnx.eval_shape(make)
    if case.owns_base:
        rename_mlp(model)
    if not case.wrapped:
        return model, mesh
    from maxtext.integration.tunix.tunix_adapter import TunixMaxTextAdapter
    return TunixMaxTextAdapter(base_model=model), mesh


def keys_of(path):
    return tuple(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)


def parameter(case, keys):
    """P, of a path of the model or of what lies below mu."""
    if case.wrapped:
        assert keys[0] == "base", keys
        return keys[1:]
    return keys


def told(case, item, keys):
    """What a leaf is: (the name its values come from, the number it holds, its name in MaxText's tree or None)."""
    if item == "model_params":
        P = parameter(case, keys)
        return ".".join(("params",) + P), None, None if {"rngs", "dropout"} & set(P) else ".".join(("params", "params") + P)
    gathers = case.levels[:1] == ("inner_opt_state",)   # MaxText's step counts updates, nnx's their parts
    if keys == ("step",):
        return None, COUNTS["step"], None if gathers else "step"
    if keys == ("opt_state", "gradient_step"):
        return None, COUNTS["gradient_step"], "step"
    head = ("opt_state",) + case.levels
    below = keys[len(head):] if keys[:len(head)] == head else ()
    muon = below[:1] == ("inner_states",)
    collection = () if muon else ("params",)   # MaxText has one there, but not below Muon
    for slot in ("mu", "nu", "acc_grads"):
        if slot in keys:
            at = keys.index(slot)
            P = parameter(case, keys[at + 1:])
            new = ".".join(("opt_state",) + keys[len(head):at + 1] + collection + P) if below else None
            return ".".join((slot,) + P), None, new
    if keys == case.schedule:
        return None, COUNTS["shell" if keys == SHELL else "schedule"], "opt_state.2.count"
    new = ".".join(("opt_state",) + below) if below else None
    if keys[-1] == "ns_coeffs":
        return None, None, new
    if "hyperparams_states" in keys:
        return None, COUNTS["hyperparams_states"], None
    if below and keys[-1] == "count":
        word = "schedule" if below[-2:-1] in (("2",), ("3",)) else "muon" if "muon" in below[:2] else "adam"
        return None, COUNTS[word], new
    if keys[-1] in COUNTS:
        return None, COUNTS[keys[-1]], None
    return None, None, None   # as optax made it: hyperparameters, mini_step


def value_of(case, item, keys, leaf):
    name, number, _ = told(case, item, keys)
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = seeded("rng." + name, leaf.shape + (4,), np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(data), impl="unsafe_rbg")
    if "acc_grads" in keys:
        return jnp.zeros_like(leaf)   # as after an update
    if number is not None:
        return jnp.full(leaf.shape, number, leaf.dtype)
    if name is None:
        return leaf
    values = seeded(name, leaf.shape, leaf.dtype)
    return jnp.asarray(np.abs(values) if name.startswith("nu.") else values)


def fill(case, item, state):
    """The state with every value as it has to be."""
    def put(path, leaf):
        keys = keys_of(path)
        keys = keys[:-1] if keys[-1] == "value" else keys
        return value_of(case, item, keys, leaf)
    return jax.tree_util.tree_map_with_path(put, state)


def trainer(case, *, filled=True):
    """(config, mesh, model, optimizer or None) of a trainer that has come this far; not filled: of one that has just begun, whose random streams are the same."""
    config = configure(case)
    model, mesh = module_of(case, config)
    graph, state = nnx.split(model)
    blank = fill(case, "model_params", state)
    if not filled:
        blank = jax.tree_util.tree_map_with_path(lambda path, x: x if "rngs" in keys_of(path) else jnp.zeros_like(x), blank)
    model = nnx.merge(graph, blank)
    if not case.optimizer:
        return config, mesh, model, None
    with mesh:
        optimizer = nnx.Optimizer(model, OPTIMIZERS[case.optimizer](config, model), wrt=nnx.LoRAParam if case.lora else nnx.Param)
    if filled:
        nnx.update(optimizer, fill(case, "optimizer_state", nnx.state(optimizer, nnx.optimizer.OptState)))
    return config, mesh, model, optimizer


@contextlib.contextmanager
def manager_of(case, root):
    from tunix.sft.checkpoint_manager import CheckpointManager
    before = os.environ["JAX_PLATFORMS"]
    if case.form == "directories":
        os.environ["JAX_PLATFORMS"] = "proxy,cpu"   # what Tunix looks at; jax has long begun
    try:
        manager = CheckpointManager(root_directory=str(root))
    finally:
        os.environ["JAX_PLATFORMS"] = before
    try:
        yield manager
    finally:
        manager.close()


def states_of(case, model, optimizer):
    """The two items as Tunix has them saved."""
    out = {"model_params": nnx.state(model, nnx.LoRAParam) if case.lora else nnx.state(model)}
    if optimizer is not None:
        out["optimizer_state"] = nnx.state(optimizer, nnx.optimizer.OptState)
    return out


def write(case, folder, *, blank=False):
    """The checkpoint of a case, or of its trainer when it has just begun. Returns its rows, as trees/ has them."""
    folder = pathlib.Path(folder)
    _, _, model, optimizer = trainer(case, filled=not blank)
    states = states_of(case, model, optimizer)
    metadata = dict(case.metadata)
    for root in case.roots:
        for step in case.steps if root == case.roots[0] else case.steps[-1:]:
            if case.form == "v1":   # Tunix after 0.1.7
                with v1.training.Checkpointer(folder / root) as keeper:
                    keeper.save_checkpointables(step, states, custom_metadata=metadata)
                continue
            with manager_of(case, folder / root) as manager:
                if case.form == "item":
                    items = {name: ocp.args.PyTreeSave(item=state) for name, state in states.items()} | {"custom_metadata": ocp.args.JsonSave(metadata)}
                    manager._checkpoint_manager.save(step, args=ocp.args.Composite(**items), force=True)
                else:
                    assert manager.save(step, model, optimizer, save_only_lora_params=case.lora, force=True, custom_metadata=metadata)
    return rows_of(case, folder / case.roots[0] / str(case.steps[-1]), states)


def write_pretraining(case, folder):
    """The same values as MaxText's own training saves them. REQUIRES: a bare model and MaxText's optimizer without levels."""
    from maxtext.common import train_state_nnx
    assert not case.wrapped and not case.levels and case.schedule == Case("").schedule, case
    _, _, model, optimizer = trainer(case)
    tree = train_state_nnx.to_checkpoint_dict(train_state_nnx.TrainStateNNX(model, optimizer))
    context = v1.Context(array_options=v1.options.ArrayOptions(saving=v1.options.ArrayOptions.Saving(use_zarr3=True, use_ocdbt=True)))
    with context, v1.training.Checkpointer(pathlib.Path(folder)) as keeper:
        keeper.save_checkpointables(case.steps[-1], {"items": tree}, custom_metadata={"scan_layers": case.scan})


def rows_of(case, step, states):
    """One row a leaf: as `_METADATA` names it, with what it holds and what MaxText calls it."""
    rows = []
    for item, state in states.items():
        held = {keys_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
        for row in json.loads((step / item / "_METADATA").read_text())["tree_metadata"].values():
            keys = tuple(key["key"] for key in row["key_metadata"])
            path = [int(key["key"]) if key["key_type"] == 1 else key["key"] for key in row["key_metadata"]]
            kind = row["value_metadata"]["value_type"]
            new = told(case, item, keys[:-1] if keys[-1] == "value" else keys)[2]
            leaf = held.get(keys, held.get(keys[:-1]))
            if leaf is None:
                rows.append([item, path, kind, None, None, None, new])
                continue
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = jax.random.key_data(leaf)
            rows.append([item, path, kind, *info(np.asarray(leaf)).values(), new])
    return rows


def restored(case, folder, step=None):
    """What a trainer that has just begun holds after Tunix restored: {"step", "metadata", "wrong": leaves that are not as they were saved}."""
    _, mesh, model, optimizer = trainer(case, filled=False)
    with mesh, manager_of(case, folder) as manager:
        at, metadata = manager.maybe_restore(model, optimizer, step=step, restore_only_lora_params=case.lora)
    wrong = []
    for item, state in states_of(case, model, optimizer).items():
        wanted = dict(jax.tree_util.tree_flatten_with_path(fill(case, item, state))[0])
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
            plain = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (leaf, wanted[path])]
            found, expected = (np.asarray(x) for x in plain)
            if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
                wrong.append(".".join((item,) + keys_of(path)))
    return {"step": at, "metadata": dict(metadata or {}), "wrong": wrong}


def main(names):
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    (HERE / "trees").mkdir(exist_ok=True)
    for name in names or CASES:
        case, folder = CASES[name], HERE / "checkpoints" / name
        shutil.rmtree(folder, ignore_errors=True)
        rows = write(case, folder)
        if not case.kept:
            shutil.rmtree(folder)
        head = {"why": case.why, "scan_layers": case.scan, "wrapped": case.wrapped, "lora": case.lora, "roots": case.roots, "custom_metadata": dict(case.metadata)}
        text = "{" + json.dumps(head)[1:-1] + ',\n"rows": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n"
        (HERE / "trees" / f"{name}.json").write_text(text)
        print(name, len(rows), flush=True)
    forget_place(HERE)
    write_manifest(HERE, ("maxtext", "google-tunix", "jax", "flax", "optax", "orbax-checkpoint"))


if __name__ == "__main__":
    main(sys.argv[1:])
