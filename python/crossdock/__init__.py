# SPDX-License-Identifier: Apache-2.0
"""Crossdock carries LLM checkpoints, training state included, between formats.

The commands are functions: convert, plan, inspect, verify, roundtrip, manifest, quantize, families, resume_plan, watch, demo; each returns
a Report. `open` shows a checkpoint of any format by its Hugging Face names and reads tensors lazily. Nothing but CPython is needed, and
nothing else is imported. Errors: crossdock.Error and its subclasses.
"""

from . import _core
from ._core import Tensor
from ._commands import Report, convert, demo, families, inspect, manifest, plan, quantize, resume_plan, roundtrip, verify, watch
from ._view import Slice, View, open
from .errors import (
    CancelledError,
    CorruptError,
    Error,
    IncompleteError,
    IoError,
    NoSpaceError,
    UnsafeError,
    UnsupportedError,
    UsageError,
)

__version__ = _core.version().split()[-1]

__all__ = [
    "CancelledError", "CorruptError", "Error", "IncompleteError", "IoError", "NoSpaceError", "Report", "Slice", "Tensor",
    "UnsafeError", "UnsupportedError", "UsageError", "View", "convert", "demo", "families", "inspect", "manifest", "open", "plan",
    "quantize", "resume_plan", "roundtrip", "verify", "watch",
]  # fmt: skip
