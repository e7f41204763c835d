# SPDX-License-Identifier: Apache-2.0
"""Hooks: functions of the user's that are told of each save.

A hook is named by a dotted path, `pkg.mod.fn`, and imported once, at the start: a mistyped path is an error then and not hours later.
It is called on rank 0 alone, once for each save that was put in place, as

    fn(args, hf_path, rollout_id, *, dtype, is_lora)

with `mode="snapshot"` on a thread of its own, beside the training, and never two at a time.
args: what the Exporter was given as `args`, None by default; hf_path: str, the directory; rollout_id: int, the step of the save; dtype:
"bf16", "fp16", "fp32" or "fp8", of an export that keeps its dtypes what its config.json says, or "keep" where that is another;
is_lora: bool. New fields may come, as keywords only. An exception of it, SystemExit too, is logged and goes no further. It should return
soon, and must change nothing in the directory.
Where the hook's module has a callable `flush`, it is called after the final save, as `flush(timeout_sec=...)` where it takes that and as
`flush()` where not, even when the hook itself raised, and at the end of the program where no flush came after the last save; on a
thread of its own, which is waited for as long as was said and no longer; its exceptions are logged.
"""

import importlib
import inspect
import logging
import sys
import threading

from .errors import UsageError

log = logging.getLogger("crossdock")

_GRACE = 1.0   # seconds for a flush that keeps to its own time to come back


class Hook:
    """A hook that is ready: `path`, its dotted path, or the function itself."""

    def __init__(self, path):
        self.path = path if isinstance(path, str) else getattr(path, "__qualname__", repr(path))
        if isinstance(path, str):
            self._module, self._function = _load(path)
        else:
            self._module, self._function = sys.modules.get(getattr(path, "__module__", None) or ""), path
        if not callable(self._function):
            raise UsageError(f"the hook `{self.path}` is no function", message="the hook is no function", found=self.path)

    def __call__(self, args, hf_path, rollout_id, *, dtype, is_lora):
        """Calls the function; True when it returned."""
        try:
            self._function(args, hf_path, rollout_id, dtype=dtype, is_lora=is_lora)
        except (Exception, SystemExit):
            log.exception("the hook %s failed for %s; training goes on", self.path, hf_path)
            return False
        return True

    def flush(self, timeout_sec=1800.0):
        """Calls the `flush` of the module that the path names, if it has one; back after timeout_sec seconds whether that has returned or not."""
        flush = getattr(self._module, "flush", None)
        if not callable(flush):
            return

        def call():
            try:
                if _takes(flush, "timeout_sec"):
                    flush(timeout_sec=timeout_sec)
                else:
                    flush()
            except (Exception, SystemExit):
                log.exception("flush of the hook %s failed; training goes on", self.path)

        thread = threading.Thread(target=call, name="crossdock-flush", daemon=True)
        try:
            thread.start()
        except RuntimeError:   # too late in the program's end for a thread
            call()
            return
        thread.join(timeout_sec + _GRACE)
        if thread.is_alive():
            log.error("flush of the hook %s has not returned after %.0f seconds; training goes on without it", self.path, timeout_sec)


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
        found = importlib.import_module(module)
        return found, getattr(found, name)
    except Exception as error:
        raise UsageError(f"the hook `{path}` cannot be imported: {type(error).__name__}: {error}", message="the hook cannot be imported", found=path) from error
