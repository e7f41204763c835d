# SPDX-License-Identifier: Apache-2.0
"""What of a flax nnx model and optimizer is state to be kept, by the classes of its variables. Needs flax."""

from ..errors import UnsupportedError


class Parts:
    """The variables of a model: dicts of path -> nnx.Variable.

    params: nnx.Param, LoRA's too: the weights. streams: random streams. aside: what else lasts: batch statistics, variables of the model's own.
    Caches and intermediates, which are computed anew, are in none.
    """

    def __init__(self):
        self.params, self.streams, self.aside = {}, {}, {}


def trained(model):
    """The model that is saved: of a distillation's bundle the student."""
    return getattr(model, "student_model", model)


def model_parts(model, only_lora=False):
    from flax import nnx

    parts = Parts()
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        kind = variable.type
        if issubclass(kind, nnx.LoRAParam) or issubclass(kind, nnx.Param) and not only_lora:
            _array(path, variable)
            parts.params[path] = variable
        elif only_lora or issubclass(kind, (nnx.Cache, nnx.Intermediate)):
            continue
        elif issubclass(kind, nnx.RngState):
            parts.streams[path] = variable
        else:
            _array(path, variable)
            parts.aside[path] = variable
    return parts


def optimizer_parts(optimizer):
    """path -> nnx.Variable of an optimizer's state: `step` and `opt_state`. Masked leaves are there, and hold no array."""
    from flax import nnx

    return dict(nnx.to_flat_state(nnx.state(optimizer, nnx.optimizer.OptState)))


def value_of(variable):
    """What the variable holds, as it is stored: no hook of reading is run."""
    return variable.get_raw_value() if hasattr(variable, "get_raw_value") else variable.value


def nested(parts, leaf=value_of):
    """path -> variable as a nested dict of `leaf(variable)`."""
    made = {}
    for path, variable in parts.items():
        at = made
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = leaf(variable)
    return made


def put(module, parts, values):
    """Writes path -> array into the module's variables, which `parts` are."""
    from flax import nnx

    if values:
        nnx.update(module, nnx.from_flat_state({path: parts[path].replace(value) for path, value in values.items()}))


def _array(path, variable):
    if not hasattr(value_of(variable), "shape"):
        name = ".".join(map(str, path))
        raise UnsupportedError(
            f"`{name}` holds a {type(value_of(variable)).__name__} and no array, for which MaxText's layout has no place\n"
            "hint: of a quantized model save the LoRA parameters alone: save_only_lora_params=True",
            message="a variable holds no array", tensor=name, expected="an array", found=type(value_of(variable)).__name__,
            hint="of a quantized model save the LoRA parameters alone: save_only_lora_params=True",
        )  # fmt: skip
