"""What of crossdock.post_training needs nothing else: the levels of Tunix's trees, batches, arguments, metadata; and that the import stays cheap."""
import dataclasses
import inspect
import json
import logging
import pydoc

import pytest

import crossdock
from conftest import alone
from crossdock import post_training
from crossdock.post_training import _levels, _record


def test_the_import_needs_nothing():
    code = """
import sys
before = set(sys.modules)
from crossdock import post_training
assert dir(post_training)
post_training.BatchBudget([1], 1), post_training.supported_kwargs(dict, {}), post_training.MaxTextLayoutCheckpointManager(), post_training.load_tokenizer
post_training.add_gradient_clipping, post_training.maxtext_layout, post_training.checkpoint_metadata
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""
    child = alone(code)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert output.split() == ["crossdock"]


def test_everything_public_is_explained():
    for name in post_training.__all__:
        assert pydoc.getdoc(getattr(post_training, name)), name
    manager = post_training.MaxTextLayoutCheckpointManager
    for name, method in inspect.getmembers(manager, inspect.isfunction):
        assert name.startswith("_") or pydoc.getdoc(method), name


# ---- levels ----

P = {"decoder": {"layers": {"mlp": {"kernel": "K"}}, "norm": {"scale": "S"}}}
BASE_INSIDE = {"decoder": {"layers": {"base": {"base": {"kernel": "K"}}}, "norm": {"scale": "S"}}}


def like(params, word):
    return {key: like(value, word) for key, value in params.items()} if isinstance(params, dict) else f"{word}{params}"


def adam(params=P, wrap=lambda tree: tree):
    return {"count": "n", "mu": wrap(like(params, "m")), "nu": wrap(like(params, "v"))}


def wrapped(tree):
    return {"base": tree}


def moments(params=P):
    return {"count": "n", "mu": {"params": like(params, "m")}, "nu": {"params": like(params, "v")}}


def shell(inner, **more):
    return {"count": "N", "hyperparams": {"learning_rate": "r"}, "hyperparams_states": {"learning_rate": {"count": "R"}}, "inner_state": inner, **more}


def muon(wrap=lambda tree: tree, schedules=True):
    masked = {"decoder": {"layers": {"mlp": {"kernel": "K"}}, "norm": {"scale": "-"}}}
    groups = {"muon": {"inner_state": {0: {"count": "n", "mu": wrap(like(masked, "m")), "ns_coeffs": "c"}}},
              "adam": {"inner_state": {0: {"count": "a", "mu": wrap(like(masked, "x")), "nu": wrap(like(masked, "y"))}}}}
    if schedules:
        groups["muon"]["inner_state"][3] = {"count": "s"}
        groups["adam"]["inner_state"][2] = {"count": "t"}
    return {"inner_states": groups}


def seen_muon(mu, adams):
    found = muon()["inner_states"]
    return {"inner_states": {"muon": {"inner_state": {"0": found["muon"]["inner_state"][0], "3": {"count": mu}}},
                             "adam": {"inner_state": {"0": found["adam"]["inner_state"][0], "2": {"count": adams}}}}}


RL = {"opt_state.count": "N", "opt_state.hyperparams.learning_rate": "r", "opt_state.hyperparams_states.learning_rate.count": "R"}
SFT = [moments(), None, {"count": "s"}]
# name: (parameters, opt_state as nnx has it, items' opt_state, the levels taken off, what is dropped)
CASES = {
    "sft": (P, {0: adam(), 2: {"count": "s"}}, SFT, "", {}),
    "sft, wrapped": (wrapped(P), {0: adam(wrap=wrapped), 2: {"count": "s"}}, SFT, "", {}),
    "sft, clipped": (P, {1: {0: adam(), 2: {"count": "s"}}}, SFT, "1", {}),
    "constant rate": (P, {0: adam()}, [moments(), None, {"count": "n"}], "", {}),
    "constant rate, clipped": (P, {1: {0: adam()}}, [moments(), None, {"count": "n"}], "1", {}),
    "rl": (wrapped(P), shell({0: {0: adam(wrap=wrapped)}}), [moments(), None, {"count": "N"}], "inner_state.0", RL),
    "rl, clipped": (wrapped(P), shell({1: {0: adam(wrap=wrapped)}}), [moments(), None, {"count": "N"}], "inner_state.1", RL),
    "distillation": (P, shell({0: adam()}), [moments(), None, {"count": "N"}], "inner_state", RL),
    "two hyperparameters, one scheduled": (
        P, shell({0: adam()}, hyperparams={"learning_rate": "r", "b1": "b"}), [moments(), None, {"count": "N"}], "inner_state", {**RL, "opt_state.hyperparams.b1": "b"}),
    "no hyperparameter scheduled": (
        P, {"count": "N", "hyperparams": {"b1": "b"}, "inner_state": {0: adam()}}, [moments(), None, {"count": "N"}], "inner_state",
        {"opt_state.count": "N", "opt_state.hyperparams.b1": "b"}),
    "chain of chains": (P, {1: {1: {1: {0: adam(), 2: {"count": "s"}}}}}, SFT, "1.1.1", {}),
    "a chain that clips and adapts by itself": (P, {1: adam(), 3: {"count": "s"}}, SFT, "", {}),
    "adam_pax": (P, adam(), moments(), "", {}),
    "adam_pax, clipped": (P, {1: adam()}, moments(), "1", {}),
    "gradients gathered": (
        P, {"mini_step": "i", "gradient_step": "g", "inner_opt_state": {0: adam(), 2: {"count": "s"}}, "acc_grads": like(P, "g")}, SFT, "inner_opt_state",
        {"step": "step", "opt_state.mini_step": "i", "opt_state.gradient_step": "g", "opt_state.acc_grads.decoder.layers.mlp.kernel": "gK",
         "opt_state.acc_grads.decoder.norm.scale": "gS"}),
    "a module named base": (BASE_INSIDE, {0: adam(BASE_INSIDE), 2: {"count": "s"}}, [moments(BASE_INSIDE), None, {"count": "s"}], "", {}),
    "a module named base, wrapped": (
        wrapped(BASE_INSIDE), {0: adam(BASE_INSIDE, wrapped), 2: {"count": "s"}}, [moments(BASE_INSIDE), None, {"count": "s"}], "", {}),
    "a module named base at the root": (
        {"base": {"k": "B"}, "decoder": {"k": "D"}}, {0: {"count": "n", "mu": {"base": {"k": "mB"}}, "nu": {"base": {"k": "vB"}}}},
        [{"count": "n", "mu": {"params": {"base": {"k": "mB"}}}, "nu": {"params": {"base": {"k": "vB"}}}}, None, {"count": "n"}], "", {}),
    "muon": (P, muon(), seen_muon("s", "t"), "", {}),
    "muon, wrapped and clipped": (wrapped(P), {1: muon(wrapped)}, seen_muon("s", "t"), "1", {}),
    "muon, injected": (P, shell(muon(schedules=False)), seen_muon("N", "N"), "inner_state", RL),
    "sgd": (P, {1: {"count": "s"}}, [None, {"count": "s"}], "", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_levels_are_taken_off_by_what_they_are(name):
    params, state, expected, levels, dropped = CASES[name]
    made = _levels.arrange(params, {"step": "step", "opt_state": state})
    bare = params["base"] if set(params) == {"base"} else params
    assert made.items["params"] == {"params": bare}
    assert made.items["opt_state"] == expected
    assert made.items["step"] == ("g" if "gathered" in name else "step")
    assert ".".join(made.levels) == levels and made.adapter == ("base" if bare is not params else "")
    assert made.dropped == dropped
    # Nothing is lost and nothing invented: every leaf of the trainer's is somewhere.
    there = {leaf for _, leaf in _levels.leaves(made.items)} | set(made.dropped.values())
    assert there == {leaf for _, leaf in _levels.leaves(_levels.named({"p": params, "o": state, "s": "step"}))}


def test_a_tree_of_paths_shows_the_way_back():
    state = shell({1: {0: adam(wrap=wrapped)}})

    def mark(tree, at=()):
        return {key: mark(value, (*at, key)) for key, value in tree.items()} if isinstance(tree, dict) else at

    made = _levels.arrange(mark(wrapped(P)), {"step": ("step",), "opt_state": mark(state)})
    places = dict(_levels.leaves(made.items))
    assert places["opt_state", 0, "mu", "params", "decoder", "norm", "scale"] == ("inner_state", 1, 0, "mu", "base", "decoder", "norm", "scale")
    assert places["opt_state", 2, "count"] == ("count",)
    assert places["params", "params", "decoder", "norm", "scale"] == ("base", "decoder", "norm", "scale")


def test_variables_that_are_no_parameters_stand_aside():
    made = _levels.arrange(wrapped(P), None, {"base": {"decoder": {"bias": "b"}}}, "7")
    assert made.items["nnx_aux"] == {"model": {"decoder": {"bias": "b"}}}
    assert made.items["opt_state"] == {} and made.items["step"] == "7"


def test_the_names_of_layers_tell_whether_they_are_scanned():
    assert _levels.scanned(P) is True
    assert _levels.scanned({"decoder": {"layers_0": {}, "layers_11": {}}}) is False
    assert _levels.scanned({"decoder": {"layers": {"layers_0": {}}, "layers_remainder": {}}}) is True
    assert _levels.scanned({"decoder": {"dense_layers_0": {}, "moe_layers": {"layers_0": {}}}}) is True
    assert _levels.scanned({"decoder": {"norm": {}}}) is None and _levels.scanned({"net": {}}) is None


def test_a_record_that_is_none_says_nothing():
    said = {"crossdock": {"tunix_levels": {"dropped": {"opt_state.count": {"dtype": "int32", "value": 7}, "x": 3}}}}
    assert _record.recorded(said) == {"opt_state.count": {"dtype": "int32", "value": 7}}
    for other in ({}, {"crossdock": 1}, {"crossdock": {"tunix_levels": []}}, {"crossdock": {"tunix_levels": {}}}):
        assert _record.recorded(other) == {}


# ---- batches ----

class Stream:
    """Says how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        return self.asked


def test_a_budget_stops_and_asks_no_more():
    stream = Stream()
    budget = post_training.BatchBudget(stream, steps=3, grad_accumulation=2)
    assert (budget.total, budget.remaining) == (6, 6)
    assert list(budget) == [1, 2, 3, 4, 5, 6] and stream.asked == 6
    with pytest.raises(StopIteration):
        next(budget)
    assert stream.asked == 6 and budget.remaining == 0 and budget.consumed == 6


def test_a_budget_goes_on_after_what_was_consumed():
    assert list(post_training.BatchBudget(Stream(), 3, 2, consumed=4)) == [1, 2]
    assert list(post_training.BatchBudget(Stream(), 3, 2, consumed=9)) == []
    assert list(post_training.BatchBudget([1, 2], 9, None)) == [1, 2]
    assert list(post_training.BatchBudget(iter([1]), 0)) == []


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"steps": 1.5}, {"grad_accumulation": 0}, {"consumed": -1}, {"steps": True}, {"steps": "3"}], ids=str)
def test_a_budget_takes_whole_numbers(wrong):
    with pytest.raises(crossdock.UsageError, match=f"`{next(iter(wrong))}` is a whole number"):
        post_training.BatchBudget([], **{"steps": 1, **wrong})


# ---- arguments ----

@dataclasses.dataclass
class Engine:
    model: str
    tp: int = 1
    made: int = dataclasses.field(init=False, default=0)


def test_arguments_that_a_version_does_not_take_are_left_out_and_told(caplog):
    given = {"model": "m", "tp": 2, "made": 1, "ep": 4}
    with caplog.at_level(logging.WARNING, "crossdock"):
        kept = post_training.supported_kwargs(Engine, given)
    assert kept == {"model": "m", "tp": 2} and Engine(**kept).tp == 2
    assert kept.dropped == ("ep", "made")
    assert [record.getMessage() for record in caplog.records] == ["Engine of the installed version takes no `ep`, `made`: left out"]
    assert given == {"model": "m", "tp": 2, "made": 1, "ep": 4}


def test_what_takes_any_argument_gets_all(caplog):
    for cls in (lambda **all: all, type("Any", (), {"__init__": lambda self, **all: None}), dict):
        kept = post_training.supported_kwargs(cls, {"a": 1})
        assert kept == {"a": 1} and kept.dropped == ()
    assert not caplog.records
    assert post_training.supported_kwargs(lambda a, /, b, *, c: 0, {"a": 1, "b": 2, "c": 3}) == {"b": 2, "c": 3}


# ---- metadata ----

def step(folder, custom=None, older=None):
    (folder / "items").mkdir(parents=True)
    if custom is not None:
        (folder / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": {}, "custom_metadata": custom}))
    if older is not None:
        (folder / "custom_metadata").mkdir()
        (folder / "custom_metadata" / "metadata").write_text(json.dumps(older))
    return folder


def test_an_item_is_answered_from_its_step(tmp_path, recwarn, caplog):
    found = step(tmp_path / "7", {"scan_layers": True})
    for path in (found, found / "items", f"{found}/items/"):
        assert post_training.checkpoint_metadata(path) == {"scan_layers": True}
    assert not recwarn.list and not caplog.records


def test_the_older_item_is_read_too(tmp_path):
    found = step(tmp_path / "7", older={"global_step": 3})
    assert post_training.checkpoint_metadata(found / "items") == post_training.checkpoint_metadata(found) == {"global_step": 3}
    found = step(tmp_path / "8", {"role": "actor"}, {"global_step": 3})
    assert post_training.checkpoint_metadata(found) == {"global_step": 3, "role": "actor"}


def test_metadata_that_are_not_there_or_broken(tmp_path):
    assert post_training.checkpoint_metadata(step(tmp_path / "7")) == {}
    with pytest.raises(crossdock.IncompleteError, match="there is no directory"):
        post_training.checkpoint_metadata(tmp_path / "8")
    found = step(tmp_path / "9", {})
    for text in ("{", "[]"):
        (found / "_CHECKPOINT_METADATA").write_text(text)
        with pytest.raises(crossdock.CorruptError) as caught:
            post_training.checkpoint_metadata(found / "items")
        assert caught.value.path == str(found / "_CHECKPOINT_METADATA")


# ---- off ----

@pytest.mark.parametrize("options", [{}, {"skip_checkpointing": True}], ids=str)
def test_a_manager_that_is_off_loads_and_writes_nothing(options, tmp_path):
    root = tmp_path / "root" if options else None
    with post_training.MaxTextLayoutCheckpointManager(root, **options) as manager:
        assert manager.latest_step() is None and manager.all_steps() == [] and not manager.should_save(1)
        assert manager.save(1, object(), object(), force=True) is False
        assert manager.maybe_restore(object(), object()) == (0, {})
        manager.wait()
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_that_is_not_there(tmp_path):
    with pytest.raises(crossdock.IncompleteError, match="holds no tokenizer"):
        post_training.load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"aGVsbG8= 0\nd29ybGQ=\n")
    with pytest.raises(crossdock.CorruptError, match="line 2, is no `BASE64 RANK`"):
        post_training.load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"aGVsbG8= 0\nd29ybGQ= 1\n")
    with pytest.raises(crossdock.UsageError, match="does not hold the pattern"):
        post_training.load_tokenizer(tmp_path)
