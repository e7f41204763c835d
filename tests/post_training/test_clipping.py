"""add_gradient_clipping beside optax.chain: the same updates, another state."""
import pytest

import tool

crossdock = tool.package()

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

from crossdock import post_training

PARAMS = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}


def gradients(number):
    return jax.tree.map(lambda x: jax.random.normal(jax.random.key(number), x.shape) * 10.0, PARAMS)


def run(optimizer, steps=3, state=None):
    state, made = optimizer.init(PARAMS) if state is None else state, []
    for number in range(steps):
        updates, state = optimizer.update(gradients(number), state, PARAMS)
        made.append(updates)
    return made, state


@pytest.mark.parametrize("inner", [lambda: optax.adamw(0.1), lambda: optax.inject_hyperparams(optax.adamw)(0.1)])
def test_updates_are_those_of_the_chain_and_the_state_is_the_optimizers(inner):
    ours, state = run(post_training.add_gradient_clipping(inner(), 0.5))
    theirs, _ = run(optax.chain(optax.clip_by_global_norm(0.5), inner()))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    assert jax.tree.structure(state) == jax.tree.structure(inner().init(PARAMS))
    plain, _ = run(inner())
    assert not all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True))


def test_a_checkpoint_without_clipping_restores_into_one_with(tmp_path):
    plain, clipping = optax.adamw(optax.constant_schedule(0.1)), post_training.add_gradient_clipping(optax.adamw(optax.constant_schedule(0.1)), 0.5)
    _, state = run(plain)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state", clipping.init(PARAMS))
        with pytest.raises(ValueError):   # which the chain does not
            checkpointer.restore(tmp_path / "state", optax.chain(optax.clip_by_global_norm(0.5), plain).init(PARAMS))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True))
    updates, _ = run(clipping, 1, restored)
    again, _ = run(clipping, 1, state)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(updates), jax.tree.leaves(again), strict=True))


def test_what_an_optimizer_wants_beside_the_gradients_reaches_it():
    def update(updates, state, params=None, *, value, **others):
        return jax.tree.map(lambda x: x * value, updates), state

    inner = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    updates, _ = post_training.add_gradient_clipping(inner, 1.0).update({"w": jnp.array([3.0, 4.0])}, optax.EmptyState(), None, value=10.0)
    assert np.allclose(updates["w"], [6.0, 8.0])


@pytest.mark.parametrize("norm", [0, -1.0, float("nan"), float("inf"), None, "much"])
def test_a_norm_is_a_number_above_zero(norm):
    with pytest.raises(crossdock.UsageError, match="finite number above 0"):
        post_training.add_gradient_clipping(optax.adamw(0.1), norm)
