# SPDX-License-Identifier: Apache-2.0
"""The record of what Tunix's trees have over MaxText's, in the custom metadata of a step, `crossdock.tunix_levels`:

    {"adapter": "base", "opt_state": "inner_state.1", "dropped": {"opt_state.count": {"dtype": "int32", "value": 7}}}

adapter: the level at the root of the parameters; `state_adapter`, where it is another, the same of the optimizer's moments. opt_state: the levels
around the optimizer, outermost first. dropped: small arrays by value, by their names in Tunix's step, without `.value`: those of the optimizer from
its item on, those of the model from `model_params` on; one with axes has `shape` and its elements row by row, a typed PRNG key is its words,
beside `random_key` that names its kind. moved: the index of a member of adamw's chain -> where it stood; schedule: the counter by which one was made.
"""

LARGEST = 256   # elements of an array that is kept so


def constants(leaves):
    """name -> {"dtype", "value"} of the small ones of name -> array. Needs jax."""
    import jax
    import numpy as np

    made = {}
    for name, leaf in sorted(leaves.items()):
        if not hasattr(leaf, "shape") or leaf.size > LARGEST or not (getattr(leaf, "is_fully_replicated", True) or leaf.is_fully_addressable):
            continue   # the last: no process has all of it
        one = {}
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            one["random_key"] = {"random_key_impl": str(jax.random.key_impl(leaf))}
            leaf = jax.random.key_data(leaf)
        data = np.asarray(leaf)
        made[name] = {"dtype": data.dtype.name, "value": data.reshape(-1).tolist() if data.shape else data.item(), **({"shape": list(data.shape)} if data.shape else {}), **one}
    return made


def array_of(constant, like):
    """The array that was recorded, of the dtype and shape of `like`; None where it is of another shape or kind. Needs jax."""
    import jax
    import numpy as np

    try:
        data = np.asarray(constant["value"]).reshape(constant.get("shape", ()))
        if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
            if constant["random_key"]["random_key_impl"] != str(jax.random.key_impl(like)):
                return None
            made = jax.random.wrap_key_data(data.astype(np.uint32), impl=jax.random.key_impl(like))
        else:
            made = data.astype(like.dtype)
    except (KeyError, TypeError, ValueError):
        return None
    return made if "random_key" in constant or np.shape(made) == np.shape(like) else None


def levels_record(made, dropped):
    """The record of an Arrangement, as custom metadata."""
    record = {"adapter": made.adapter, "opt_state": ".".join(made.levels), "dropped": dropped}
    if made.items["opt_state"] and made.state_adapter != made.adapter:
        record["state_adapter"] = made.state_adapter
    if made.moved:
        record["moved"] = made.moved
    if made.schedule is not None:
        record["schedule"] = made.schedule
    return {"crossdock": {"tunix_levels": record}}


def recorded(metadata):
    """name -> constant that a step's custom metadata record; {} where they record none."""
    at = metadata
    for key in ("crossdock", "tunix_levels", "dropped"):
        at = at.get(key) if isinstance(at, dict) else None
    return {name: one for name, one in at.items() if isinstance(one, dict)} if isinstance(at, dict) else {}
