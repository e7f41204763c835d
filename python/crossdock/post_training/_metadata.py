# SPDX-License-Identifier: Apache-2.0
"""What a step of Orbax says of itself, whichever of its directories is named."""

import json
import os

from ..errors import CorruptError, IncompleteError

_FILE = "_CHECKPOINT_METADATA"


def checkpoint_metadata(path):
    """The custom metadata of the step that `path` is or lies in, a dict: {} where it says nothing.

    path: the directory of a step, or of one of its items (`STEP/items`, `STEP/model_params`), which has none of its own. Older Tunix keeps it in an item
    `custom_metadata`, which is read as well. Nothing but JSON is read. IncompleteError where there is no directory, CorruptError where the file
    is none of JSON.
    """
    step = os.path.abspath(os.fspath(path))
    if not os.path.isdir(step):
        raise IncompleteError(f"there is no directory {step}", message="there is no such directory", path=step)
    if not os.path.exists(os.path.join(step, _FILE)) and _is_step(os.path.dirname(step)):
        step = os.path.dirname(step)
    found = {}
    older = os.path.join(step, "custom_metadata", "metadata")
    if os.path.isfile(older):
        found.update(_read(older))
    if os.path.isfile(os.path.join(step, _FILE)):
        found.update(_read(os.path.join(step, _FILE)).get("custom_metadata") or {})
    return found


def _is_step(folder):
    return os.path.isfile(os.path.join(folder, _FILE)) or os.path.isfile(os.path.join(folder, "custom_metadata", "metadata"))


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except ValueError as error:
        raise CorruptError(f"{path} is not JSON: {error}", message="the metadata are not JSON", path=path) from error
    if not isinstance(value, dict):
        raise CorruptError(f"{path} holds no object", message="the metadata are no object", path=path, expected="a JSON object", found=type(value).__name__)
    return value
