# SPDX-License-Identifier: Apache-2.0
"""Post-training with Tunix whose checkpoints every MaxText trainer reads (docs/guides/post-training.md).

`MaxTextLayoutCheckpointManager` stands where Tunix's CheckpointManager does and writes MaxText's layout; `maxtext_layout` makes Tunix's
trainers build it by themselves, `checkpoint_metadata` tells what a step says of itself. Beside it what a trainer's script needs:
`add_gradient_clipping`, `BatchBudget`, `load_tokenizer`, `supported_kwargs`.

The import needs nothing: jax, flax, optax, Orbax, Tunix, sentencepiece, tiktoken, tokenizers and jinja2 are imported by what uses them
(`pip install crossdock[post-training,tokenizers]`).
"""

_PLACES = {
    "BatchBudget": "_batches",
    "Kwargs": "_kwargs",
    "MaxTextLayoutCheckpointManager": "_manager",
    "Tokenizer": "_tokenizer",
    "add_gradient_clipping": "_clipping",
    "checkpoint_metadata": "_metadata",
    "load_tokenizer": "_tokenizer",
    "maxtext_layout": "_manager",
    "supported_kwargs": "_kwargs",
}

__all__ = sorted(_PLACES)


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__():
    return sorted([*globals(), *__all__])
