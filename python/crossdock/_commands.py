# SPDX-License-Identifier: Apache-2.0
"""The commands of `crossdock` as functions.

Options are those of the command line, with underscores and in any of its spellings: `tp=2`, `pipeline_layers=[10, 11, 11]`,
`fp8_block_size=(128, 128)`, `set={"swiglu": True}`, `force=True`. `from_` and `for_` stand for Python's
own words. None leaves an option out. A list gives an option that may be
repeated several times. The engine reads them with the command line's own table, so there is no second list here;
`crossdock COMMAND --help` and docs/reference/cli.md describe each. CROSSDOCK_... variables of the environment set nothing.

Every function takes
    progress: called as `progress(phase, done, total, current)` some twenty times a second at most, in the thread that called:
        `phase` (str), `done` and `total` (int, bytes; 0 where not known), `current` (str, the tensor in work);
    notice: called as `notice(text)` with what was assumed or is odd.
An exception in either stops the work and is raised; so does Ctrl-C, as KeyboardInterrupt. What was stopped leaves the target as it was,
and can be gone on with by `resume=True`. The GIL is released while the work goes on. Errors are those of `crossdock.errors`.
"""

import os

from . import _core

TYPE_CHECKING = False   # typing costs more to import than all of this package
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Union

    Path = Union[str, bytes, os.PathLike]
    Progress = Optional[Callable[[str, int, int, str], object]]
    Notice = Optional[Callable[[str], object]]


class Report:
    """What a command has to say.

    Fields: `text` (str, what the command line prints), `equal` (bool, of verify, roundtrip and convert with `verify`: no difference was
    found), `consistent` (bool, of inspect: all that was looked at agrees), `remarks` (list of str, the largest differences).
    """

    __slots__ = ("text", "equal", "consistent", "remarks", "_json")

    def __init__(self, text: str, json: str, equal: bool, consistent: bool, remarks: "list[str]"):
        self.text = text
        self.equal = equal
        self.consistent = consistent
        self.remarks = remarks
        self._json = json

    @property
    def json(self) -> "dict[str, Any]":
        """The report as a dict, the object that `--json` prints (docs/reference/json.md); a new one each time."""
        import json

        return json.loads(self._json)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        first = self.text.strip().split("\n", 1)[0]
        return f"<crossdock.Report {first!r}>"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    return str(value)


def _texts(value: object) -> "list[str]":
    if isinstance(value, dict):
        return [f"{key}={_text(one)}" for key, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_text(one) for one in value]
    return [_text(value)]


def _run(command: str, paths: "tuple[Optional[Path], ...]", progress: "Progress", notice: "Notice", options: "dict[str, Any]") -> Report:
    given = [(name.rstrip("_"), _texts(value)) for name, value in options.items() if value is not None]
    words = [os.fsdecode(path) for path in paths if path is not None]
    return Report(*_core.run_command(command, words, given, progress, notice))


def convert(source: "Path", target: "Optional[Path]" = None, *, to: "Optional[str]" = None, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """Converts the checkpoint at `source` into `target`, in the format `to` ("hf", "full-state", "megatron", "megatron-legacy", "dcp",
    "maxtext"). `source` and `target` are paths (str or os.PathLike); a source `ORG/NAME` is looked up in the local Hugging Face cache.
    Nothing is at `target` until all of it is durable.

    >>> report = crossdock.convert("qwen3-0.6b", "megatron", to="megatron", tp=2, pp=2)
    """
    return _run("convert", (source, target), progress, notice, {"to": to, **options})


def plan(source: "Path", target: "Optional[Path]" = None, *, to: "Optional[str]" = None, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """What `convert` with the same options would do: bytes read and written, files, peak memory. Nothing is written."""
    return _run("plan", (source, target), progress, notice, {"to": to, **options})


def manifest(source: "Path", *, to: "Optional[str]" = None, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """The mapping of every tensor, with the rule that put it there; `emit_manifest=FILE` writes it."""
    return _run("manifest", (source,), progress, notice, {"to": to, **options})


def quantize(source: "Path", target: "Optional[Path]" = None, *, strategy: "Optional[str]" = None, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """Writes the Hugging Face directory `source` as FP8 into `target`: a scale a block ("block", the default), a row ("channel") or a
    tensor ("tensor")."""
    return _run("quantize", (source, target), progress, notice, {"strategy": strategy, **options})


def roundtrip(source: "Path", *, via: "Optional[str]" = None, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """Converts the Hugging Face directory `source` to the format `via` and back, and compares: `.equal`. `out` is where it works."""
    return _run("roundtrip", (source,), progress, notice, {"via": via, **options})


def inspect(path: "Path", *, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """What the checkpoint at `path` holds; `tensors=True` lists every tensor. No tensor data is read."""
    return _run("inspect", (path,), progress, notice, options)


def verify(a: "Path", b: "Path", *, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """Compares two checkpoints of any formats by their tensors under Hugging Face names: `.equal`. A difference is a result and no error.
    `exact` is "bit" (the default) or "close"; `report=FILE` writes the comparison as JSON."""
    return _run("verify", (a, b), progress, notice, options)


def families(name: "Optional[str]" = None, *, rules: "Optional[Path]" = None) -> Report:
    """The supported model families, or the rules of the family `name`; `rules` is a family file of one's own."""
    return _run("families", (name,), None, None, {"rules": rules})


def resume_plan(run_dir: "Path", **options: "Any") -> Report:
    """What a launcher has to load for the run at `run_dir`: `.json["action"]` is "resume", "load_full_state", "load_weights" or "start"
    (docs/reference/resume-plan.md). Options: full_state_path, hf_path, step, no_optim, no_rng, consumed_train_samples_override."""
    return _run("resume-plan", (run_dir,), None, None, options)


def watch(run: "Path", out: "Path", *, progress: "Progress" = None, notice: "Notice" = None, **options: "Any") -> Report:
    """Exports each complete step of the training run at `run` into `out` (a directory, or a template with `{step}`), in order and once
    (docs/reference/watch.md). With `once=True` it ends when what is there has been exported; else it goes on until it is stopped: by Ctrl-C,
    or by an exception of `notice`, which is told of each export. `hook` is called in a process of this interpreter where `python` names no other."""
    if options.get("hook") is not None and options.get("python") is None:
        import sys

        options["python"] = sys.executable
    return _run("watch", (run, out), progress, notice, options)


def demo(directory: "Path", *, progress: "Progress" = None, notice: "Notice" = None) -> Report:
    """Writes a small Qwen3 with seeded random weights as DIRECTORY/hf and, with optimizer state, DIRECTORY/full-state."""
    return _run("demo", (directory,), progress, notice, {})
