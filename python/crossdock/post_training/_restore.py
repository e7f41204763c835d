# SPDX-License-Identifier: Apache-2.0
"""A step of either layout into the model and the optimizer of whichever trainer.

Both sides are arranged as MaxText has them (`_levels`), the step's leaves and the trainer's; where the two meet a value is read, straight into the
place, shape, dtype and sharding that the trainer has for it.
"""

import logging

from ..errors import IncompleteError, UnsupportedError
from . import _levels
from ._nnx import model_parts, nested, optimizer_parts, put, value_of
from ._record import array_of

log = logging.getLogger("crossdock")

ITEMS, PARAMS, STATE = "items", "model_params", "optimizer_state"


class _Stored:
    """A leaf of the step: its item, its path there, and what Orbax says of it."""

    def __init__(self, item, path, said):
        self.item, self.path, self.shape, self.dtype = item, path, tuple(said.shape), said.dtype


class _Wanted:
    """A leaf of the trainer: whose it is ("model" or "optimizer"), its path there, its value."""

    def __init__(self, whose, path, value):
        self.whose, self.path, self.value = whose, path, value


def restore(orbax, step, said, constants, model, optimizer, only_lora):
    """orbax: a CheckpointManager. said: its metadata of the step's items. constants: name -> what the step recorded."""
    trees = {item: said[item].tree if hasattr(said[item], "tree") else said[item] for item in (ITEMS, PARAMS, STATE) if item in said and said[item] is not None}
    places, dropped = _stored(trees, orbax, step)
    parts = model_parts(model, only_lora)
    wanted = _arranged(parts, optimizer)

    chosen, values, lacking, aside = {}, {}, [], []
    keeps_state = any(place[0] == "opt_state" for place in places)
    for place, leaf in _levels.leaves(wanted.items):
        if leaf is None or leaf in chosen or not hasattr(leaf.value, "shape") or leaf.whose == "optimizer" and not keeps_state:
            continue
        found = _find(places, place, leaf.value.shape)
        if found is not None:
            chosen[leaf] = found
            if leaf in lacking:
                lacking.remove(leaf)
        elif place[0] == "nnx_aux":
            aside.append(".".join(map(str, leaf.path)))
        elif leaf not in lacking:
            lacking.append(leaf)
    counter = _counter(places) if keeps_state else None
    for leaf in [leaf for leaf in lacking if leaf.path[-1] == "count" and not leaf.value.shape and counter is not None]:
        chosen[leaf] = counter   # of a schedule, or an optimizer's in another form
        lacking.remove(leaf)
    if lacking:
        raise _incomplete(step, lacking)
    if aside:
        log.warning("step %s keeps no %s: they stay as they are", step, ", ".join(f"`{name}`" for name in aside[:5]) + (" ..." if len(aside) > 5 else ""))
    for path, variable in parts.streams.items():
        value = value_of(variable)
        leaf, bare = _Wanted("model", path, value), _bare(path, wanted.adapter)
        found = places.get(("params", "params", *bare)) or places.get(("nnx_aux", "model", *bare))
        if found is not None and found.shape == tuple(value.shape) and found.dtype == value.dtype:
            chosen[leaf] = found
        elif (made := _recorded(constants, ".".join((PARAMS, *map(str, path))), value)) is not None:
            values[leaf] = made
    for name, leaf in wanted.dropped.items() if keeps_state else ():
        if name in dropped and dropped[name].shape == tuple(leaf.value.shape):
            chosen[leaf] = dropped[name]
        elif name.split(".")[-1] == "mini_step" or ".acc_grads." in name:
            values[leaf] = leaf.value * 0   # gathered gradients are not kept: the update begins anew, whatever was counted of it
        elif (made := _recorded(constants, name, leaf.value)) is not None:
            values[leaf] = made
        elif counter is not None and not leaf.value.shape and name.split(".")[-1] in ("count", "gradient_step", "step"):
            chosen[leaf] = counter
    for leaf, found in chosen.items():
        if found.shape != tuple(leaf.value.shape):
            name = ".".join(map(str, leaf.path))
            raise UnsupportedError(f"`{name}` of step {step} has the shape {list(found.shape)}, the {leaf.whose}'s is {list(leaf.value.shape)}",
                                   message="a tensor is of another shape", tensor=name, expected=str(list(leaf.value.shape)), found=str(list(found.shape)))  # fmt: skip
    values.update(_read(orbax, step, trees, chosen))
    put(model, {**parts.params, **parts.aside, **parts.streams}, {leaf.path: value for leaf, value in values.items() if leaf.whose == "model"})
    if optimizer is not None:
        put(optimizer, optimizer_parts(optimizer), {leaf.path: value for leaf, value in values.items() if leaf.whose == "optimizer"})
        if not keeps_state:
            log.info("step %s keeps no state of an optimizer: the trainer's stays as it is", step)


def _arranged(parts, optimizer):
    """What the trainer has, where MaxText has it; leaves are _Wanted."""
    def leaves(whose, found):
        return nested({path: _Wanted(whose, path, value_of(variable)) for path, variable in found.items()}, lambda leaf: leaf)

    return _levels.arrange(leaves("model", parts.params), None if optimizer is None else leaves("optimizer", optimizer_parts(optimizer)),
                           leaves("model", parts.aside))  # fmt: skip


def _stored(trees, orbax, step):
    """place in MaxText's tree -> _Stored, and name -> _Stored of what has none."""
    if ITEMS in trees:
        return {path: _Stored(ITEMS, path, said) for path, said in _arrays(trees[ITEMS])}, {}
    if PARAMS not in trees:
        raise IncompleteError(f"step {step} of {orbax.directory} has neither `{ITEMS}` nor `{PARAMS}`", message="the step has no item that is known",
                              path=str(orbax.directory / str(step)), expected=f"`{ITEMS}` or `{PARAMS}`")  # fmt: skip
    made = _levels.arrange(_unboxed(PARAMS, trees[PARAMS]), _unboxed(STATE, trees[STATE]) if STATE in trees else None)
    return dict(one for one in _levels.leaves(made.items) if one[1] is not None), made.dropped


def _unboxed(item, tree):
    """Tunix's tree with _Stored for leaves: nnx's box around each, `.value`, is taken off."""
    made = {}
    for path, said in _arrays(tree):
        at, bare = made, path[:-1] if path[-1] == "value" else path
        for key in bare[:-1]:
            at = at.setdefault(str(key), {})
        at[str(bare[-1])] = _Stored(item, path, said)
    return made


def _arrays(tree, path=()):
    """(path, what Orbax says) of every array of a tree of metadata; list indices are ints."""
    if hasattr(tree, "shape"):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _arrays(value, (*path, key))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from _arrays(value, (*path, index))


def _find(places, place, shape):
    if place in places:
        return places[place]
    if place[:2] == ("nnx_aux", "model"):
        # Older versions and parameter-only checkpoints keep such a variable in a collection of the parameters; Tunix knows no difference.
        for other, found in places.items():
            if other[0] == "params" and other[2:] == place[2:] and found.shape == tuple(shape):
                return found
    return None


def _counter(places):
    """What counts the optimizer's steps, in whatever form it is stored; the run's step where nothing does."""
    for place in (("opt_state", 2, "count"), ("opt_state", 0, "count"), ("opt_state", "count")):
        if place in places:
            return places[place]
    return places.get(("step",))


def _recorded(constants, name, value):
    return array_of(constants[name], value) if name in constants else None


def _bare(path, adapter):
    names = tuple(map(str, path))
    return names[1:] if adapter and names[0] == adapter else names


def _incomplete(step, lacking):
    names = [".".join(map(str, leaf.path)) for leaf in lacking]
    shown = ", ".join(f"`{name}`" for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return IncompleteError(f"step {step} lacks {shown} of the {lacking[0].whose}\nhint: is the model the one that was saved, its layers scanned alike?",
                           message="the step lacks tensors", tensor=names[0], expected=f"{len(names)} more", hint="is the model the one that was saved, its layers scanned alike?")  # fmt: skip


def _read(orbax, step, trees, chosen):
    """leaf -> array. Nothing but what is chosen is read."""
    import orbax.checkpoint as ocp

    mesh = _mesh(chosen)
    wanted = {}
    for leaf, found in chosen.items():
        wanted.setdefault((found.item, found.path), []).append(leaf)
    asked = {}
    for item in {found.item for found in chosen.values()}:
        tree, args = _targets(ocp, item, trees[item], wanted, mesh)
        asked[item] = ocp.args.PyTreeRestore(item=tree, restore_args=args)
    if not asked:
        return {}
    got = orbax.restore(step, args=ocp.args.Composite(**asked))
    values = {}
    for (item, path), leaves in wanted.items():
        at = got[item]
        for key in path:
            at = at[key]
        for leaf in leaves:
            values[leaf] = at if leaf is leaves[0] else at.astype(leaf.value.dtype)
    return values


def _mesh(chosen):
    for leaf in chosen:
        mesh = getattr(getattr(leaf.value, "sharding", None), "mesh", None)
        if leaf.whose == "optimizer" and mesh is not None:
            return mesh
    return None


def _targets(ocp, item, tree, wanted, mesh):
    """The item's own tree with what is wanted in it, and placeholders for the rest; and the same of what Orbax is told of each."""
    import jax

    def one(at, path):
        if hasattr(at, "shape"):
            leaves = wanted.get((item, path))
            if not leaves:
                return ocp.PLACEHOLDER, ocp.RestoreArgs()
            value = leaves[0].value
            sharding = getattr(value, "sharding", None)
            if mesh is not None and not value.shape and not hasattr(sharding, "mesh"):
                # An optimizer's counters begin on one device, whatever its moments are laid out over.
                sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
            args = ocp.ArrayRestoreArgs(restore_type=jax.Array, dtype=value.dtype, sharding=sharding, global_shape=value.shape)
            return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding), args
        if isinstance(at, dict):
            both = {key: one(value, (*path, key)) for key, value in at.items()}
            return {key: pair[0] for key, pair in both.items()}, {key: pair[1] for key, pair in both.items()}
        if isinstance(at, (list, tuple)):
            both = [one(value, (*path, index)) for index, value in enumerate(at)]
            return type(at)(pair[0] for pair in both), type(at)(pair[1] for pair in both)
        return at, at

    return one(tree, ())
