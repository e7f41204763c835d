# SPDX-License-Identifier: Apache-2.0
"""Online save: every rank writes its own part of a Hugging Face directory."""

import atexit
import collections
import json
import logging
import os
import threading
import time
import weakref

from . import _core
from ._layout import Layout, RankPlace
from ._live import TensorInfo, _size
from ._memory import address_of
from .errors import Error, UsageError
from .hooks import Hook

log = logging.getLogger("crossdock")

ExportReport = collections.namedtuple("ExportReport", "path step files bytes own_bytes copied_bytes seconds")
ExportReport.__doc__ = """One save. `path`: the directory that was put in place; `step`: int; `files`: how many; `bytes`: of tensors, by all ranks;
`own_bytes`: of them by this rank; `copied_bytes`: of this rank's snapshot, 0 without; `seconds`: from the call to the commit."""

_LEFT = weakref.WeakSet()
_AT_EXIT, _HOOK_AT_EXIT = 1800.0, 10.0   # seconds that the end of the program waits
_CONFIG_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_FP8 = {"strategy", "block", "scale_fmt", "format", "arith", "skip", "only", "check_tp"}


class Job:
    """One save of one rank, as `Exporter.save` gives it. `error` is set on a job whose error was logged."""

    def __init__(self, core, step, told=None, error=None):
        self._core, self._step, self.error = core, step, error
        self._told = told                       # the thread that waits to call the hook
        self._delivered = error is not None     # somebody has been told that it failed

    def done(self):
        """Whether the save has ended, well or not, the hook included."""
        return self._core is None or (self._core.done() and not (self._told and self._told.is_alive()))

    def wait(self, timeout_sec=None):
        """Waits for the end; returns an ExportReport, or raises the first error of any rank. IoError when it is not there in time. Ctrl-C ends
        the waiting, not the save."""
        if self.error is not None:
            raise self.error
        end = None if timeout_sec is None else time.monotonic() + timeout_sec
        report = ExportReport(*self._end_of_core(-1.0 if timeout_sec is None else timeout_sec))
        if self._told is not None:
            self._told.join(None if end is None else max(0.0, end - time.monotonic()))
        return report

    result = wait

    def _end_of_core(self, seconds):
        try:
            return self._core.wait(seconds)
        except Error:
            if not self._core.done():
                raise   # it is late, and has not failed
        self._delivered = True
        return self._core.wait(-1.0)

    def _settle(self, seconds):
        """Waits for what is written, not for the hook. An error that nobody has been told of is logged."""
        if self._core is None:
            return
        told = self._delivered
        try:
            self._end_of_core(seconds)
        except Error as error:
            if not told:
                log.error("the save of step %s failed: %s", self._step, error)


class Saver:
    """What every save of a run is: a plan that is made once, one job at a time, and its errors."""

    _hook, _told, _flushed = None, None, True

    def __init__(self, options, comm, on_error):
        self._core = _core.Exporter.make(options, getattr(comm, "_core", comm))
        self._log, self._snapshot = on_error == "log", options.snapshot
        self._job = None
        _LEFT.add(self)

    @property
    def tensors(self):
        """Name -> TensorInfo(shape, dtype) of what this rank hands over; known after validate. A save takes the dtypes that the tensors have."""
        return {name: TensorInfo(tuple(shape), dtype) for name, dtype, shape in self._core.tensors()}

    def validate(self):
        """All that can be known before training: the reference, that all ranks plan the same, room, and one directory for all. Collective."""
        self._core.validate()

    def _save(self, step, tensors, final, progress, common=b""):
        """Saves; returns a Job, whose error is logged where it is to be."""
        try:
            job = self._after(self._start(int(step), tensors, progress, common), int(step))
        except Error as error:
            if not self._log:
                raise
            log.error("the save of step %s failed; training goes on: %s", step, error)
            job = Job(None, step, error=error)
        self._job = job
        if final:
            self._finish(1800.0)
        return job

    def _after(self, core, step):
        """The Job of a save that has begun."""
        return Job(core, step)

    def _start(self, step, tensors, progress, common):
        """Hands over the tensors, or tells the other ranks that it cannot."""
        addresses, keep = [], []
        try:
            if self._job is not None:
                self._job._settle(-1.0)
            if progress is not None and not callable(progress):
                raise _usage("`progress` must be callable or None", repr(progress))
            for name, tensor in tensors.items() if hasattr(tensors, "items") else tensors:
                if name.endswith("_extra_state"):
                    continue
                address, owner = address_of(name, tensor, writable=False)
                addresses.append(address)
                keep.append(owner)
            common = memoryview(common).tobytes()
        except BaseException as error:
            try:
                self._core.refuse(step, f"{type(error).__name__}: {error}")
            except Exception:
                pass   # what this rank has to tell is its own exception
            raise
        return self._core.save(step, addresses, progress, common)

    def _finish(self, timeout_sec):
        end = time.monotonic() + timeout_sec
        job = self._job
        failed = None
        if job is not None and job.error is None:
            try:
                job.wait(timeout_sec)
            except Error as error:
                failed = error
        if self._hook is not None:
            self._hook.flush(max(0.0, end - time.monotonic()))
            self._flushed = True
        if failed is None:
            return
        if not self._log:
            raise failed
        log.error("the save failed; training goes on: %s", failed)

    def flush(self, timeout_sec=1800.0):
        """Waits for the job that still runs and calls the hook module's `flush`; both within timeout_sec seconds. Raises the job's error, or
        with on_error="log" logs it."""
        self._finish(timeout_sec)

    def _leave(self):
        """The program ends: what is written is waited for, the hook a few seconds, and what the hook has queued again for long."""
        end = time.monotonic() + _AT_EXIT
        if self._job is not None:
            self._job._settle(_AT_EXIT)
        if self._told is not None:
            self._told.join(_HOOK_AT_EXIT)
            if self._told.is_alive():
                log.error("the hook %s has not returned; the program ends without it", self._hook.path)
                return
        if not self._flushed:
            self._hook.flush(max(0.0, end - time.monotonic()))


def options_of_run(
    reference, layout, rank, *, mode, on_error, memory, threads, family, rules, local_layers, grouped_experts, vocab_divisor, padded_vocab, set,
    run_args, mtp, allow,
):  # fmt: skip
    """What every save is told of the run; the words are those of Exporter."""
    _one_of("mode", mode, ("sync", "snapshot"))
    _one_of("on_error", on_error, ("raise", "log"))
    if reference is None:
        raise _usage("a save needs a reference: the model's Hugging Face directory")
    layout = layout if layout is not None else Layout()
    options = _core.ExportOptions()
    options.reference = os.fsdecode(reference)
    options.layout = layout._options()
    options.place = tuple(rank if isinstance(rank, RankPlace) else layout.place(rank))
    options.memory, options.allow = _size(memory), list(allow)
    options.mtp, options.threads, options.snapshot = mtp, threads, mode == "snapshot"
    options.local_layers, options.grouped_experts = local_layers, grouped_experts
    options.set_args = [(str(name), str(value)) for name, value in (set or {}).items()]
    options.run_args = [(name, json.dumps(value)) for name, value in (run_args or {}).items()]
    options.family, options.vocab_divisor, options.padded_vocab = family, vocab_divisor, padded_vocab
    options.rules = None if rules is None else os.fsdecode(rules)
    return options


class Exporter(Saver):
    """Saves a Hugging Face directory from inside a training loop, each rank its own part. What comes out is, byte for byte, what `crossdock
    convert RUN OUT --to hf --hf-template REFERENCE` makes of the run's checkpoint in the legacy form. Nothing is gathered.

    dst: where to, a path with `{step}` or `{rollout_id}`, also `{step:07d}`; without a field `iter_%07d` is appended, or with overwrite the one
    directory is replaced each time. None: `save`/release_hf_weights, replaced each time.
    reference: the model's Hugging Face directory; its weights may be absent. layout: a Layout, and rank: the global rank, an int, or a RankPlace.
    dtype: "keep" (as the tensors are), "bf16", "fp16", "fp32", or "fp8" with fp8 = dict(strategy="block" | "channel" | "tensor",
    block=(128, 128), scale_fmt="ue8m0", format=, arith=, skip=[...], only=[...], check_tp=). shard_size: bytes, an int or "4GiB".
    mtp: layers of multi-token prediction: "none", the run has none; "template", it has none and they are the reference's; "keep", it holds those of
    the reference, which is UnsupportedError where the reference has any. comm: how the ranks are connected (crossdock.comm); None for one rank alone.
    mode: "sync", or "snapshot": save copies the tensors into memory and returns, and a thread writes them. memory: bytes of buffers beside that.
    post_hook: `pkg.mod.fn` (crossdock.hooks), imported where comm's rank is 0, and args, its first argument. on_error: "raise", or "log": an error of a save is logged on every
    rank, the hook is not called, and training goes on; errors of options and of `validate` are always raised.
    run_args: a dict of the run's arguments by Megatron's names, as far as they are JSON: what of them belongs into config.json (`moe_aux_loss_coeff`)
    is taken from here and not from the reference.
    family, rules, keep_dtype, local_layers, grouped_experts, vocab_divisor, padded_vocab, set, allow, threads: as of crossdock.load_plan.
    """

    def __init__(
        self, dst=None, reference=None, layout=None, rank=0, *, dtype="keep", fp8=None, shard_size="5GB", mtp="keep", comm=None, mode="sync",
        memory="512MiB", threads=0, post_hook=None, args=None, on_error="raise", overwrite=False, save=None, family=None, rules=None, keep_dtype=(),
        local_layers=False, grouped_experts=True, vocab_divisor=None, padded_vocab=None, set=None, run_args=None, allow=(),
    ):  # fmt: skip
        _one_of("dtype", dtype, ("keep", "bf16", "fp16", "fp32", "fp8"))
        options = options_of_run(
            reference, layout, rank, mode=mode, on_error=on_error, memory=memory, threads=threads, family=family, rules=rules, local_layers=local_layers,
            grouped_experts=grouped_experts, vocab_divisor=vocab_divisor, padded_vocab=padded_vocab, set=set, run_args=run_args, mtp=mtp, allow=allow,
        )  # fmt: skip
        if (dst is None) == (save is None):
            raise _usage("a save needs dst, or save for `release_hf_weights` in it, and not both")
        options.dst = os.fsdecode(dst) if dst is not None else os.path.join(os.fsdecode(save), "release_hf_weights").replace("{", "{{").replace("}", "}}")
        options.overwrite = overwrite or dst is None
        options.fp8 = _fp8(dtype, fp8)
        options.dtype = None if dtype in ("keep", "fp8") else dtype
        options.max_shard_bytes, options.keep_dtype = _size(shard_size), list(keep_dtype)
        leads = comm is None or comm.rank == 0
        self._hook = Hook(post_hook) if post_hook is not None and leads else None   # other ranks never call it, and need not have it
        super().__init__(options, comm, on_error)
        self._args, self._dtype = args, dtype
        self._told = None      # the thread of the last hook; each waits for the one before
        self._flushed = True   # no hook has been called since the last flush

    def save(self, step, tensors, *, final=False, progress=None):
        """Saves; returns a Job. Collective.

        step: int. tensors: a dict, name -> tensor, or an iterable of such pairs: all that this rank holds (torch, numpy, DLPack, the buffer
        protocol), row-major in the CPU's memory; `_extra_state` items are left out. They may change when save has returned. An exception
        while they are handed over is raised here, and as an error on all other ranks. An earlier save is waited for, not its hook; if it failed and
        nobody has waited for its job, that is logged.
        final: also waits for the end, and calls the hook's `flush`. progress: as in `crossdock.convert`, where mode is "sync".
        """
        return self._save(step, tensors, final, progress)

    def _after(self, core, step):
        if self._hook is None:
            return Job(core, step)
        self._flushed = False
        if not self._snapshot:
            self._tell(core, None)
            return Job(core, step)
        # Hooks are called in the order of the saves; a save never waits for a hook, for which the other ranks would wait too.
        self._told = threading.Thread(target=self._tell, args=(core, self._told), name="crossdock-hook", daemon=True)
        self._told.start()
        return Job(core, step, self._told)

    def _tell(self, core, before):
        if before is not None:
            before.join()
        try:
            report = ExportReport(*core.wait(-1.0))
        except Error:
            return   # the job tells it
        dtype = _written_dtype(report.path) if self._dtype == "keep" else self._dtype
        self._hook(self._args, report.path, report.step, dtype=dtype, is_lora=False)


def _written_dtype(path):
    """What config.json says that the tensors of an export are; "keep" where it says nothing that hooks know."""
    try:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return "keep"
    return _CONFIG_DTYPES.get(str(config.get("dtype") or config.get("torch_dtype")).rsplit(".", 1)[-1], "keep")


def _usage(message, found=""):
    return UsageError(message + (f": {found}" if found else ""), message=message, found=found)


def _one_of(name, value, known):
    if value not in known:
        raise _usage(f"`{name}` is one of {', '.join(map(repr, known))}", repr(value))


def _fp8(dtype, given):
    request = _core.Fp8Request()
    if given is not None and dtype != "fp8":
        raise _usage('options of FP8 mean nothing without `dtype="fp8"`')
    if dtype != "fp8":
        return request
    given = dict(given or {})
    for name in given:
        if name not in _FP8:
            raise _usage(f"FP8 has no such option, but {', '.join(sorted(_FP8))}", repr(name))
    request.strategy = given.get("strategy", "block")
    _one_of("strategy", request.strategy, ("block", "channel", "tensor"))
    if given.get("block") is not None:
        rows, cols = given["block"]
        if int(rows) < 1 or int(cols) < 1:
            raise _usage("a block of FP8 is two positive numbers", repr(given["block"]))
        request.block = (int(rows), int(cols))
    if given.get("scale_fmt") not in (None, "float", "ue8m0"):
        raise _usage("`scale_fmt` is 'float' or 'ue8m0'", repr(given["scale_fmt"]))
    request.scale_fmt = "ue8m0" if given.get("scale_fmt") == "ue8m0" else None
    request.format, request.arith, request.check_tp = given.get("format"), given.get("arith"), given.get("check_tp")
    request.skip, request.only = list(given.get("skip", ())), list(given.get("only", ()))
    return request


@atexit.register
def _at_exit():
    """Jobs that still run are waited for, and hooks flushed that have not been."""
    for exporter in list(_LEFT):
        exporter._leave()


os.register_at_fork(after_in_child=_LEFT.clear)   # the jobs are the parent's
