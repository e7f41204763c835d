# SPDX-License-Identifier: Apache-2.0
"""From the trees that a post-training trainer holds to the one that MaxText reads.

Pure functions over nested dicts; what a leaf is does not matter here. So the way back needs no second set of rules: arrange a tree whose leaves
are their own paths, and each place of MaxText's tree says which leaf of the trainer belongs there.

MaxText's tree is `params.params.<P>`, `opt_state`, `step`; P is the path of a parameter. The trainer's has more levels, which are known by what
they are, never by where they stand:
    adapter         `base`, at the root of a tree shaped like the parameters (the model, mu, nu, acc_grads ...). Once: a module of that name keeps it.
    shell           optax.inject_hyperparams: {count, hyperparams, hyperparams_states, inner_state}; the third vanishes when nothing is scheduled.
    multi-steps     optax.MultiSteps: {mini_step, gradient_step, inner_opt_state, acc_grads}, perhaps skip_state.
    chain           optax.chain, tuples being dicts of "0", "1" ...: a level when one child alone carries state and that child is an optimizer itself.
                    What is left of adamw with a constant rate, {"0": {count, mu, nu}}, is none.
Below them MaxText knows adamw, a list [{count, mu, nu}, None, {count}] wherever in its chain the two stood; adam_pax, {count, mu, nu} alone; and
Muon beside Adam, {inner_states}. Other optimizers keep their shape. Reference: optax 0.2.8; MaxText 0.2.5, common/train_state_nnx.py.
"""

ADAPTER = "base"

_SHELL = frozenset(("count", "hyperparams", "hyperparams_states", "inner_state"))
_MULTI = frozenset(("mini_step", "gradient_step", "inner_opt_state", "acc_grads", "skip_state"))
_MOMENTS = ("mu", "nu")   # what MaxText puts into the collection `params`
_SLOTS = frozenset((*_MOMENTS, "acc_grads", "trace"))


class Arrangement:
    """MaxText's tree, and what it has no place for.

    items: {"params": {"params": P}, "opt_state": ..., "step": leaf, "nnx_aux": {"model": ...}}; a chain is a list with None where nothing is.
    adapter: "base" or ""; state_adapter: the same of the optimizer's moments. levels: the keys between `opt_state` and what became items' opt_state,
    outermost first. moved: index in items' chain -> path below the levels, where it stood elsewhere. schedule: by which counter, named as in
    `dropped`, a schedule's counter was made: "" for the optimizer's own, None where none was. dropped: name -> leaf, the name as Tunix has it:
    `opt_state.count`.
    """

    def __init__(self):
        self.items, self.adapter, self.state_adapter, self.levels, self.moved, self.schedule, self.dropped = {}, "", "", (), {}, None, {}


def arrange(model, optimizer=None, aside=None, step=None):
    """MaxText's tree of a trainer's.

    model: the parameters. optimizer: {"step": leaf, "opt_state": ...} or None. aside: the model's other variables that persist, without random
    streams; they go to `nnx_aux.model`. step: the leaf where there is no optimizer. Keys are made text. Returns an Arrangement.
    """
    made = Arrangement()
    params, others = named(model), named(aside or {})
    if _is_adapter(params):
        made.adapter = ADAPTER
        others = {**{key: value for key, value in params.items() if key != ADAPTER}, **others}
        params = params[ADAPTER]
        inner = others.pop(ADAPTER, {})
        others = {**others, **inner} if isinstance(inner, dict) else {**others, ADAPTER: inner}
    made.items["params"] = {"params": params}
    if optimizer is None:
        made.items["opt_state"], made.items["step"] = {}, step
    else:
        _Optimizer(made, {path for path, _ in leaves(params)}).arrange(named(optimizer))
    if others:
        made.items["nnx_aux"] = {"model": others}
    return made


def named(tree):
    """The tree with texts for keys, as it is stored, and without levels that hold nothing."""
    if not isinstance(tree, dict):
        return tree
    made = {str(key): named(value) for key, value in tree.items()}
    return {key: value for key, value in made.items() if not (isinstance(value, dict) and not value)}


def leaves(tree, path=()):
    """(path, leaf) of every leaf of dicts and lists; a list's keys are ints; what is None in a list is no leaf."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            if value is not None:
                yield from leaves(value, (*path, index))
    else:
        yield path, tree


def scanned(params):
    """Whether the layers of a MaxText tree are stacked, from its names: None where they do not say.

    Layers one by one are `layers_3`, `dense_layers_0` ... below `decoder`; stacked ones have no number there, but may have those of a cycle below.
    """
    decoder = params.get("decoder") if isinstance(params, dict) else None
    kinds = set()
    for key in decoder if isinstance(decoder, dict) else ():
        stem, _, number = key.rpartition("_")
        if number.isdecimal() and stem.endswith("layers"):
            kinds.add(False)
        elif key.endswith("layers") or key == "scanned_blocks":
            kinds.add(True)
    return True in kinds if kinds else None


def _is_model(tree):
    return isinstance(tree, dict) and ("decoder" in tree or "token_embedder" in tree)


def _is_adapter(params):
    inner = params.get(ADAPTER) if isinstance(params, dict) else None
    return isinstance(inner, dict) and not _is_model(params) and (_is_model(inner) or len(params) == 1)


def _is_shell(state):
    return isinstance(state, dict) and {"count", "hyperparams"} <= set(state) <= _SHELL


def _is_multi(state):
    return isinstance(state, dict) and {"mini_step", "gradient_step"} <= set(state) <= _MULTI


def _is_chain(state):
    return isinstance(state, dict) and bool(state) and all(key.isdecimal() for key in state)


def _is_adam(state):
    return isinstance(state, dict) and isinstance(state.get("mu"), dict) and isinstance(state.get("nu"), dict)


def _is_schedule(state):
    return isinstance(state, dict) and set(state) == {"count"}


def _below(state):
    """The key below a level that MaxText's tree does not have; None where the optimizer itself begins."""
    for known, key in ((_is_shell, "inner_state"), (_is_multi, "inner_opt_state")):
        if known(state):
            return key if isinstance(state.get(key), dict) else None
    if _is_chain(state) and len(state) == 1:
        (key, child), = state.items()
        wraps = _is_chain(child) or _is_shell(child) or _is_multi(child) or isinstance(child, dict) and ("inner_states" in child or "inner_state" in child)
        return key if wraps or _is_adam(child) and key != "0" else None   # adam_pax behind a clip
    return None


class _Optimizer:
    def __init__(self, made, places):
        self.made, self.places = made, places

    def arrange(self, optimizer):
        made, state = self.made, self._bare(optimizer.get("opt_state", {}))
        made.items["step"] = optimizer.get("step")
        levels, count = (), None   # count: (name, leaf) of the outermost shell's
        while (key := _below(state)) is not None:
            for name, value in state.items():
                if name != key:
                    self._drop(("opt_state", *levels, name), value)
            if key == "inner_opt_state":
                # nnx.Optimizer counts micro-batches there, MaxText's step the updates of the model.
                made.dropped["step"], made.items["step"] = made.items["step"], state["gradient_step"]
            elif key == "inner_state" and _is_shell(state) and count is None:
                count = ".".join(("opt_state", *levels, "count")), state["count"]
            levels, state = (*levels, key), state[key]
        made.levels = levels
        made.items["opt_state"] = self._state(state, count)

    def _bare(self, node, slot=False):
        """The state without the adapter's level at the root of every tree that is shaped like the parameters."""
        if not isinstance(node, dict) or self._mirrors(node):
            return node
        inner = node.get(ADAPTER)
        if isinstance(inner, dict) and (self._mirrors(inner) or slot and _is_adapter(node)):
            self.made.state_adapter = ADAPTER
            return inner
        return node if slot else {name: self._bare(value, name in _SLOTS) for name, value in node.items()}

    def _mirrors(self, node):
        return all(path in self.places for path, _ in leaves(node))

    def _drop(self, path, value):
        self.made.dropped.update({".".join((*path, *below)): leaf for below, leaf in leaves(value)})

    def _state(self, state, count):
        if not isinstance(state, dict):
            return {} if state is None else state
        if "inner_states" in state:
            return self._muon(state, count)
        if _is_chain(state):
            adam, schedules = {}, {}
            self._members(state, (), adam, schedules)
            if len(adam) == 1:
                return self._adamw(state, adam, schedules, count)
            chain = [None] * (max(map(int, state)) + 1)
            for key, value in state.items():
                chain[int(key)] = _collected(value)
            return chain
        return _collected(state)

    def _members(self, chain, path, adam, schedules):
        for key, value in chain.items():
            if _is_adam(value):
                adam[(*path, key)] = value
            elif _is_schedule(value):
                schedules[(*path, key)] = value
            elif _is_chain(value):
                self._members(value, (*path, key), adam, schedules)

    def _adamw(self, chain, adam, schedules, count):
        """[{count, mu, nu}, None, {count}], which pre-training's adamw has."""
        (first, moments), = adam.items()
        third, schedule = next(iter(schedules.items()), (None, None))
        if schedule is None:
            schedule = {"count": self._counter(count, moments)}
        for index, path in (("0", first), ("2", third)):
            if path not in (None, (index,)):
                self.made.moved[index] = ".".join(path)
        self._rest(chain, (), {first, third})
        return [_collected(moments), None, schedule]

    def _rest(self, chain, path, known):
        for key, value in chain.items():
            if (*path, key) in known:
                continue
            if _is_chain(value):
                self._rest(value, (*path, key), known)
            else:
                self._drop(("opt_state", *self.made.levels, *path, key), value)

    def _counter(self, count, state):
        """What a schedule counts by. Pre-training's rate is one, and nothing would tell it of a missing counter: there is always one."""
        self.made.schedule, leaf = ("", state.get("count")) if count is None else count
        return leaf

    def _muon(self, state, count):
        """Stays as flax's NNX has it, for which MaxText asks; only the counters of schedules are added."""
        groups = dict(state["inner_states"])
        for name, index in (("muon", "3"), ("adam", "2")):
            inner = groups[name].get("inner_state") if isinstance(groups.get(name), dict) else None
            if _is_chain(inner) and index not in inner and isinstance(inner.get("0"), dict) and "count" in inner["0"]:
                groups[name] = {**groups[name], "inner_state": {**inner, index: {"count": self._counter(count, inner["0"])}}}
        return {**state, "inner_states": groups}


def _collected(state):
    if not isinstance(state, dict):
        return state
    return {key: {"params": value} if key in _MOMENTS and isinstance(value, dict) else value for key, value in state.items()}
