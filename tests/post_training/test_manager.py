"""MaxTextLayoutCheckpointManager in Tunix's own trainers: what is resumed, converted, kept and left behind. The models are small and not MaxText's own."""
import json
import logging
import os
import threading

import pytest

import tool

crossdock = tool.package()

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from tunix.rl import trainer as rl_trainer
from tunix.sft import checkpoint_manager as tunix_manager
from tunix.sft import checkpoint_options

import small
from crossdock import post_training

Manager = post_training.MaxTextLayoutCheckpointManager


def options(**more):
    return ocp.CheckpointManagerOptions(**{"save_interval_steps": 1, **more})


def items_of(root):
    return {int(step.name): sorted(item.name for item in step.iterdir() if item.is_dir()) for step in root.iterdir() if step.name.isdecimal()}


def resumed(kind, root, **more):
    """A trainer that has just begun, with the manager in it."""
    one = small.trainer(kind)
    Manager(root, small.EVERY, **more).install(one)
    return one


@pytest.mark.parametrize("kind", [kind for kind in small.KINDS if kind not in ("sft", "dpo")])
def test_a_run_goes_on_as_if_it_had_not_been_interrupted(kind, tmp_path):
    steps = 1 if small.KINDS[kind][2] else 2     # optax.MultiSteps compiles its condition each time
    whole = small.train(small.trainer(kind), steps + 1)
    first = small.train(resumed(kind, tmp_path), steps)
    first.checkpoint_manager.close()
    assert items_of(tmp_path) == {step: ["items"] for step in range(1, steps + 1)}
    second = resumed(kind, tmp_path)
    assert (second.train_steps, second.iter_steps) == (first.train_steps, first.iter_steps) == (steps, steps * (small.KINDS[kind][2] or 1))
    small.same(small.values(second.model), small.values(first.model))
    small.same(small.values(second.optimizer), small.values(first.optimizer))
    small.train(second, steps + 1)
    second.checkpoint_manager.close()
    small.same(small.values(second.model), small.values(whole.model))
    small.same(small.values(second.optimizer), small.values(whole.optimizer))


@pytest.mark.parametrize("kind", ["sft, clipped", "rl"])
def test_a_run_that_began_with_tunixs_manager_converts_itself(kind, tmp_path):
    whole = small.train(small.trainer(kind), 3)
    first = small.train(small.trainer(kind, tmp_path), 2)
    first.checkpoint_manager.close()
    second = resumed(kind, tmp_path)
    assert second.train_steps == 2
    small.same(small.values(second.optimizer), small.values(first.optimizer))
    small.train(second, 3)
    second.checkpoint_manager.close()
    assert items_of(tmp_path) == {1: ["model_params", "optimizer_state"], 2: ["model_params", "optimizer_state"], 3: ["items"]}
    third = resumed(kind, tmp_path)
    assert third.train_steps == 3
    small.same(small.values(third.model), small.values(whole.model))
    small.same(small.values(third.optimizer), small.values(whole.optimizer))


def test_clipping_may_leave_the_chain(tmp_path):
    """A run with optax.chain's level goes on with add_gradient_clipping, which has none, and learns the same."""
    whole = small.train(small.trainer("sft, clipped"), 3)
    first = small.train(small.trainer("sft, clipped", tmp_path), 2)
    first.checkpoint_manager.close()
    second = small.trainer((small.Model, lambda: post_training.add_gradient_clipping(small.adamw(), 0.5), None))
    with Manager(tmp_path, small.EVERY) as keeper:
        keeper.install(second)
        small.train(second, 3)
    small.same(small.values(second.model), small.values(whole.model))


def test_install_closes_the_manager_it_replaces(tmp_path):
    one = small.trainer("sft", tmp_path / "own")
    closed = []
    own = one.checkpoint_manager.close
    one.checkpoint_manager.close = lambda: (closed.append(True), own())
    with Manager(tmp_path / "ours", small.EVERY) as keeper:
        assert keeper.install(one) is keeper and one.checkpoint_manager is keeper and closed == [True]
        assert keeper.install(one) is keeper and closed == [True]        # again: nothing to close
        small.train(one, 1)
        assert keeper.install(one).latest_step() == 1 and one.train_steps == 1


def test_a_trainer_that_has_gone_further_is_not_set_back(tmp_path):
    small.train(resumed("sft", tmp_path), 1).checkpoint_manager.close()
    ahead = small.train(small.trainer("sft"), 2)
    before = small.values(ahead.model)
    with Manager(tmp_path, small.EVERY) as keeper:
        keeper.install(ahead)
        assert ahead.train_steps == 2
        small.same(small.values(ahead.model), before)


def test_trainers_of_rl_know_their_global_step(tmp_path):
    def make(root):
        one = small.trainer("rl", cls=rl_trainer.Trainer, custom_checkpoint_metadata_fn=lambda: {"global_step": 5, "role": "actor"})
        one._post_process_train_step = lambda aux: None
        return Manager(root, small.EVERY).install(one), one

    keeper, first = make(tmp_path / "actor")
    small.train(first, 2)
    keeper.close()
    keeper, second = make(tmp_path / "actor")
    assert second.restored_global_step() == 5 and second.train_steps == 2
    keeper.close()


def test_tunixs_trainers_build_it_themselves(tmp_path):
    own = tunix_manager.CheckpointManager
    with post_training.maxtext_layout(scan_layers=False):
        first = small.trainer("sft", tmp_path)
        assert isinstance(first.checkpoint_manager, Manager) and first.checkpoint_manager.root_directory == str(tmp_path)
    assert tunix_manager.CheckpointManager is own
    small.train(first, 2).checkpoint_manager.close()
    with post_training.maxtext_layout():
        second = small.trainer("sft", tmp_path)
    assert second.train_steps == 2 and items_of(tmp_path) == {1: ["items"], 2: ["items"]}
    assert post_training.checkpoint_metadata(tmp_path / "2")["scan_layers"] is False
    second.checkpoint_manager.close()


def test_a_trainers_own_end_saves_what_is_not_saved(tmp_path):
    one = small.trainer("sft")
    Manager(tmp_path, options(save_interval_steps=100)).install(one)
    one.train([small.batch(number) for number in range(3)], skip_jit=True)     # closes the trainer, and with it the manager
    assert sorted(items_of(tmp_path)) == [1, 3]


def test_skipping_loads_and_writes_nothing(tmp_path):
    small.train(resumed("sft", tmp_path), 1).checkpoint_manager.close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    one = resumed("sft", tmp_path, skip_checkpointing=True)
    small.train(one, 2).checkpoint_manager.close()
    assert one.checkpoint_manager.latest_step() is None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.fixture(scope="module")
def trained():
    return small.train(small.trainer("rl"), 1)


def save(keeper, trained, *steps, **more):
    return [keeper.save(step, trained.model, trained.optimizer, **more) for step in steps]


def test_intervals_and_retention_are_orbaxs(tmp_path, trained):
    with Manager(tmp_path / "a", options(save_interval_steps=2, max_to_keep=2)) as keeper:
        assert save(keeper, trained, 1, 2, 3, 4, 5, 6) == [True, True, False, True, False, True]   # the first is always saved
        keeper.wait()
        assert keeper.all_steps() == [4, 6] and keeper.latest_step() == 6 and not keeper.should_save(7) and keeper.should_save(8)
        assert save(keeper, trained, 7, force=True) == [True]
    assert sorted(items_of(tmp_path / "a")) == [6, 7]
    with Manager(tmp_path / "b") as keeper:                     # as Tunix: at most one in 180 s, three are kept
        assert save(keeper, trained, 1, 2) == [True, False]
        assert save(keeper, trained, 3, 4, 5, force=True) == [True] * 3
        keeper.wait()
        assert keeper.all_steps() == [3, 4, 5]
    tunixs = checkpoint_options.create_checkpointing_options(
        save_decision_policy=ocp.checkpoint_managers.FixedIntervalPolicy(3), preservation_policy=ocp.checkpoint_managers.LatestN(1), enable_async_checkpointing=False)
    with Manager(tmp_path / "c", tunixs) as keeper:
        assert save(keeper, trained, 1, 3, 4, 6) == [False, True, False, True] and keeper.all_steps() == [6]
    with pytest.raises(crossdock.UsageError, match="CheckpointManagerOptions"):
        Manager(tmp_path / "d", {"max_to_keep": 1})


@pytest.mark.parametrize("how, files", [({}, {"manifest.ocdbt"}), ({"use_ocdbt": False}, {"step"}), ({"use_zarr3": False}, {"manifest.ocdbt"})], ids=str)
def test_arrays_are_stored_as_asked(tmp_path, trained, how, files):
    with Manager(tmp_path, options(enable_async_checkpointing=False), **how) as keeper:
        save(keeper, trained, 1)
        at = tmp_path / "1" / "items"
        said = json.loads((at / "_METADATA").read_text())
        assert said["use_zarr3"] is how.get("use_zarr3", True) and files <= {path.name for path in at.iterdir()}
        keeper.maybe_restore(trained.model, trained.optimizer)


def test_saving_goes_on_in_the_background(tmp_path, trained):
    with Manager(tmp_path, options()) as keeper:
        save(keeper, trained, 1)
        values = small.values(trained.model)
        nnx.update(trained.model, jax.tree.map(lambda x: x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x * 0, nnx.state(trained.model)))   # what was saved is what was there
        keeper.wait()
        keeper.maybe_restore(trained.model)
        small.same(small.values(trained.model), values)


def test_a_hundred_saves_leave_nothing_behind(tmp_path, trained):
    def open_now():
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        return len(names), len(os.listdir("/proc/self/task")), sorted(thread.name for thread in threading.enumerate())

    def saves(root, steps):
        for first in range(0, steps, 20):                      # five managers, each with twenty saves
            with Manager(root, options(max_to_keep=2)) as keeper:
                assert all(save(keeper, trained, *range(first + 1, first + min(steps, 20) + 1)))
                keeper.maybe_restore(trained.model, trained.optimizer)

    saves(tmp_path / "warm", 20)                               # pools of the libraries, which stay
    before = open_now()
    saves(tmp_path / "run", 100)
    after = open_now()
    assert after[0] <= before[0]
    # Threads of the libraries' pools come as they are needed; one a save would be a hundred, one a manager five.
    assert len(after[2]) < len(before[2]) + 5 and after[1] < before[1] + 5
    assert sorted(items_of(tmp_path / "run")) == [99, 100]


def test_an_update_that_was_half_gathered_begins_anew(tmp_path):
    def run():
        model = small.Model()
        return model, nnx.Optimizer(model, optax.MultiSteps(small.adamw(), every_k_schedule=2), wrt=nnx.Param)

    def step_of_update(optimizer):
        return int(nnx.state(optimizer)["opt_state"]["mini_step"].get_value())

    model, optimizer = run()
    optimizer.update(model, jax.tree.map(jnp.ones_like, nnx.state(model, nnx.Param)))
    assert step_of_update(optimizer) == 1
    with Manager(tmp_path, options()) as keeper:
        keeper.save(1, model, optimizer, force=True)
        again, other = run()
        assert keeper.maybe_restore(again, other)[0] == 1
    assert step_of_update(other) == 0


def test_values_go_to_the_places_and_types_that_the_trainer_has(tmp_path, trained):
    with Manager(tmp_path, options()) as keeper:
        save(keeper, trained, 1)
        keeper.wait()
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
        model = small.Adapter(small.Model(seed=7))
        kernel = model.base.decoder.layers.kernel
        kernel.set_value(jax.device_put(kernel.get_value().astype(jnp.bfloat16), spread))
        optimizer = nnx.Optimizer(model, small.KINDS["rl"][1](), wrt=nnx.Param)
        keeper.maybe_restore(model, optimizer)
    found = model.base.decoder.layers.kernel.get_value()
    assert found.dtype == jnp.bfloat16 and found.sharding == spread
    assert np.array_equal(found, trained.model.base.decoder.layers.kernel.get_value().astype(jnp.bfloat16))
    count = optimizer.opt_state.count.get_value()
    assert int(count) == 1


def test_weights_alone(tmp_path, trained, caplog):
    with Manager(tmp_path, options()) as keeper:
        keeper.save(5, trained.model, custom_metadata={"mine": [1]})
        keeper.wait()
        arrays, kinds = small.stored(tmp_path / "5" / "items")
        assert kinds["opt_state",] == "Dict" and arrays["step"].tolist() == 5 and arrays["step"].dtype == np.int32
        model = small.Adapter(small.Model(seed=3))
        optimizer = nnx.Optimizer(model, small.KINDS["rl"][1](), wrt=nnx.Param)
        before = small.values(optimizer)
        with caplog.at_level(logging.INFO, "crossdock"):
            step, metadata = keeper.maybe_restore(model, optimizer)
        assert (step, metadata["mine"]) == (5, [1]) and "keeps no state of an optimizer" in caplog.text
        small.same(small.values(model), small.values(trained.model))
        small.same(small.values(optimizer), before)


def test_what_does_not_fit_is_named(tmp_path, trained):
    with Manager(tmp_path, options()) as keeper:
        save(keeper, trained, 1)
        keeper.wait()
        model = small.Adapter(small.Model())
        model.base.decoder.scale = nnx.Param(jnp.zeros(5))
        with pytest.raises(crossdock.UnsupportedError, match=r"`base.decoder.scale` of step 1 has the shape \[3\], the model's is \[5\]"):
            keeper.maybe_restore(model)
        model.base.decoder.more = nnx.Param(jnp.zeros(5))
        with pytest.raises(crossdock.IncompleteError, match=r"step 1 lacks `base.decoder.more` of the model"):
            keeper.maybe_restore(model)
        with pytest.raises(crossdock.IncompleteError, match="of the optimizer"):
            keeper.maybe_restore(trained.model, nnx.Optimizer(trained.model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param))
        with pytest.raises(FileNotFoundError):                 # a step that is not there: as Orbax and Tunix say it
            keeper.maybe_restore(trained.model, step=9)
