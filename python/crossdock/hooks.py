# SPDX-License-Identifier: Apache-2.0
"""Hooks: functions of the user's that are told of each save.

A hook is named by a dotted path, `pkg.mod.fn`, and imported once, at the start: a mistyped path is an error then and not hours later.
It is called on rank 0 alone, once for each save that was put in place, as

    fn(args, hf_path, rollout_id, *, dtype, is_lora)

args: what the Exporter was given as `args`, None by default; hf_path: str, the directory; rollout_id: int, the step of the save; dtype:
"bf16", "fp16", "fp32", "keep" or "fp8"; is_lora: bool. New fields may come, as keywords only. An exception of it is logged and goes no
further. It should return soon, and must change nothing in the directory.
Where the hook's module has a callable `flush`, it is called after the final save, as `flush(timeout_sec=...)` where it takes that and as
`flush()` where not, even when the hook itself raised; its exceptions are logged.
"""

import importlib
import inspect
import logging
import sys

from .errors import UsageError

log = logging.getLogger("crossdock")


class Hook:
    """A hook that is ready: `path`, its dotted path, or the function itself."""

    def __init__(self, path):
        self.path = path if isinstance(path, str) else getattr(path, "__qualname__", repr(path))
        self._function = _load(path) if isinstance(path, str) else path
        if not callable(self._function):
            raise UsageError(f"the hook `{self.path}` is no function", message="the hook is no function", found=self.path)

    def __call__(self, args, hf_path, rollout_id, *, dtype, is_lora):
        """Calls the function; True when it returned."""
        try:
            self._function(args, hf_path, rollout_id, dtype=dtype, is_lora=is_lora)
        except Exception:
            log.exception("the hook %s failed for %s; training goes on", self.path, hf_path)
            return False
        return True

    def flush(self, timeout_sec=1800.0):
        """Calls the module's `flush`, if it has one."""
        module = sys.modules.get(getattr(self._function, "__module__", None) or "")
        flush = getattr(module, "flush", None)
        if not callable(flush):
            return
        try:
            if _takes(flush, "timeout_sec"):
                flush(timeout_sec=timeout_sec)
            else:
                flush()
        except Exception:
            log.exception("flush of the hook %s failed; training goes on", self.path)


def _takes(function, name):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def _load(path):
    module, _, name = path.rpartition(".")
    if not module:
        raise UsageError(
            f"a hook is named by a dotted path, such as `pkg.mod.fn`: `{path}`", message="a hook is named by a dotted path", expected="pkg.mod.fn", found=path
        )
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise UsageError(f"the hook `{path}` cannot be imported: {type(error).__name__}: {error}", message="the hook cannot be imported", found=path) from error
