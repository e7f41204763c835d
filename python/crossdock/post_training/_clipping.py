# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping that leaves the optimizer's state as it is."""

import math

from ..errors import UsageError


def add_gradient_clipping(optimizer, max_norm):
    """`optimizer` behind a clip of the gradients to the global norm `max_norm`, with the state of `optimizer` alone.

    `optax.chain(optax.clip_by_global_norm(max_norm), optimizer)` does the same arithmetic and puts a level around the state, so that a checkpoint
    without clipping no longer fits. Here it does, both ways: clipping can be switched on and off between two runs.

    optimizer: an optax.GradientTransformation or what has its `init` and `update`. max_norm: a finite number above 0.
    Returns an optax.GradientTransformationExtraArgs. Needs optax. UsageError for another `max_norm`.
    """
    try:
        norm = float(max_norm)
    except (TypeError, ValueError):
        norm = math.nan
    if not (math.isfinite(norm) and norm > 0):
        raise UsageError(f"`max_norm` is a finite number above 0: {max_norm!r}\nhint: without clipping use the optimizer as it is",
                         message="`max_norm` is out of range", expected="a finite number above 0", found=repr(max_norm), hint="without clipping use the optimizer as it is")  # fmt: skip
    import optax

    clip = optax.clip_by_global_norm(norm)
    inner = optax.with_extra_args_support(optax.GradientTransformation(optimizer.init, optimizer.update)
                                          if not isinstance(optimizer, optax.GradientTransformation) else optimizer)  # fmt: skip

    def update(updates, state, params=None, **extra):
        clipped, _ = clip.update(updates, optax.EmptyState())   # which has no state of its own
        return inner.update(clipped, state, params, **extra)

    return optax.GradientTransformationExtraArgs(optimizer.init, update)
