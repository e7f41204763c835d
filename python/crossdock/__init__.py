# SPDX-License-Identifier: Apache-2.0
"""Crossdock carries LLM checkpoints, training state included, between formats.

The commands are functions: convert, plan, inspect, verify, roundtrip, manifest, quantize, families, resume_plan, demo; each returns
a Report. Nothing but CPython is needed, and nothing else is imported. Errors: crossdock.Error and its subclasses.
"""

from . import _core
from ._commands import Report, convert, demo, families, inspect, manifest, plan, quantize, resume_plan, roundtrip, verify
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
    "CancelledError", "CorruptError", "Error", "IncompleteError", "IoError", "NoSpaceError", "Report", "UnsafeError",
    "UnsupportedError", "UsageError", "convert", "demo", "families", "inspect", "manifest", "plan", "quantize", "resume_plan",
    "roundtrip", "verify",
]  # fmt: skip
