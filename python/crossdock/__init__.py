# SPDX-License-Identifier: Apache-2.0
"""Crossdock carries LLM checkpoints, training state included, between formats.

The commands are functions: convert, plan, inspect, verify, roundtrip, manifest, quantize, families, resume_plan, watch, demo; each returns
a Report. `open` shows a checkpoint of any format by its Hugging Face names and reads tensors lazily. Inside a training loop `load_plan` reads
a rank's own part of a checkpoint into its tensors, `detect_resume` says which one, `Exporter` saves a Hugging Face directory, each rank
its own part, `Checkpointer` an iteration of the run itself, and crossdock.megatron does all of that for Megatron-Core models. Nothing but CPython is needed, and nothing else is imported. Errors: crossdock.Error and its subclasses.
"""

from . import _core
from ._core import Tensor
from ._commands import Report, convert, demo, families, inspect, manifest, plan, quantize, resume_plan, roundtrip, verify, watch
from ._layout import Layout, RankPlace
from ._live import LoadPlan, ReadReport, Resume, TensorInfo, detect_resume, load_plan
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
    "CancelledError", "Checkpointer", "CorruptError", "Error", "ExportReport", "Exporter", "IncompleteError", "IoError", "Layout", "LoadPlan", "NoSpaceError",
    "RankPlace", "ReadReport", "Report", "Resume", "Slice", "Tensor", "TensorInfo", "UnsafeError", "UnsupportedError", "UsageError", "View", "convert",
    "demo", "detect_resume", "families", "inspect", "load_plan", "manifest", "open", "plan", "quantize", "resume_plan", "roundtrip",
    "verify", "watch",
]  # fmt: skip


def __getattr__(name):
    if name in ("ExportReport", "Exporter"):   # logging and threads are imported by those who save
        from . import _exporter

        return getattr(_exporter, name)
    if name == "Checkpointer":
        from ._checkpointer import Checkpointer

        return Checkpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
