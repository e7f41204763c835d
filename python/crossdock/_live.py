# SPDX-License-Identifier: Apache-2.0
"""Online load: what a trainer begins with, and a rank's own part of a checkpoint read straight into its tensors."""

import collections
import os

from . import _core
from ._layout import Layout, RankPlace
from ._memory import address_of
from .errors import UsageError

TensorInfo = collections.namedtuple("TensorInfo", "shape dtype")
TensorInfo.__doc__ = """A tensor of a rank: `shape`, a tuple of int; `dtype`, spelled as safetensors spells it, "BF16"."""

ReadReport = collections.namedtuple("ReadReport", "tensors bytes_read bytes_written peak_buffer_bytes")
ReadReport.__doc__ = """What a load did: tensors filled, bytes read of the checkpoint's files, bytes written into tensors, most bytes of buffers."""

Resume = collections.namedtuple("Resume", "kind path iteration release load_optim load_rng finetune reason notices")
Resume.__doc__ = """What a trainer begins with. `kind`: "megatron", "hf", "full-state", "maxtext", ... or "none" where no path was given;
`path`: the one checkpoint; `iteration`: int, 0 for weights alone; `release`: it is a `release` directory; `load_optim`, `load_rng`: whether
its optimizer and random state are to be loaded; `finetune`: it came from `pretrained_checkpoint`; `reason`: one sentence; `notices`: a list."""

_UNITS = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1}


def _size(value):
    """Bytes: an int, or a text such as "512MiB"."""
    if isinstance(value, str):
        text = value.strip().upper()
        for unit, factor in _UNITS.items():
            if text.endswith(unit) and text[: -len(unit)].strip().isdigit():
                return int(text[: -len(unit)]) * factor
        if text.isdigit():
            return int(text)
        message = f"this is no number of bytes: {value!r}"
        raise UsageError(f"{message}; expected an int, or a text such as \"512MiB\"", message=message)
    return int(value)


def _step(step):
    """None, a number or "release"."""
    if step is None:
        return None
    return (0, True) if step == "release" else (int(step), False)


def _path(path):
    return "" if path is None else os.fsdecode(path)


def detect_resume(load=None, *, pretrained_checkpoint=None, ckpt_step=None, no_load_optim=False, no_load_rng=False):
    """What a trainer begins with, as a Resume.

    The tracker of `load` wins (or its highest complete step where there is none, or `ckpt_step`, an int or "release"); else Hugging Face
    weights that lie in `load`, from iteration 0; else the same of `pretrained_checkpoint`, without its optimizer and random state. Where a
    path was given and nothing is found, IncompleteError is raised: nobody begins with random weights in silence. A step that is named and
    missing, or not saved to its end, is IncompleteError too. Reads directories and tables, no tensors.
    """
    action, kind, path, step, release, optim, rng, finetune, reason, notices = _core.detect_resume(
        _path(load), _path(pretrained_checkpoint), _step(ckpt_step), no_load_optim, no_load_rng
    )
    own = action == "resume"
    return Resume(kind or "none", path or None, (step or 0) if own else 0, release and own, optim, rng, finetune, reason, list(notices))


class LoadPlan:
    """What one rank takes of a checkpoint; made by `load_plan`.

    tensors: a dict, name -> TensorInfo(shape, dtype), of all that the rank holds, `_extra_state` excepted. Names are those of the modules'
    state_dict; with several model chunks (virtual stages) `model<i>.` stands before. place: its RankPlace. notices: a list of what was
    assumed or left out.
    """

    def __init__(self, core, place):
        self._core = core
        self.place = place
        self.tensors = {name: TensorInfo(tuple(shape), dtype) for name, dtype, shape in core.tensors()}
        self.notices = list(core.notices())

    def __repr__(self):
        return f"<crossdock.LoadPlan of {self.place}: {len(self.tensors)} tensors>"

    def read_into(self, tensors, *, threads=0, memory="512MiB", strict=True, cast=False, progress=None):
        """Fills tensors in place; returns a ReadReport.

        tensors: a dict, name -> tensor: torch (parameters too), numpy, or anything that offers DLPack or the buffer protocol; in the CPU's
        memory, pinned or not, row-major; or a pair (tensor, "BF16") whose elements are meant as that dtype. Only the byte ranges that this rank needs are read.
        threads: 0 for the cores, 8 at most. memory: bytes of buffers beside the tensors, an int or "512MiB". strict: the tensors must be
        those of the plan, all and no others; else some may be missing or unknown. cast: values are cast to the dtype of the tensor where
        that is another float type. progress: as in `crossdock.convert`.
        UsageError names together what is missing, what is not of this rank, and what has another shape or dtype; nothing was touched then.
        After any other error the tensors hold some old and some new values. Ctrl-C and an exception in `progress` stop the work.
        """
        addresses, keep = [], []
        for name, tensor in tensors.items():
            address, owner = address_of(name, tensor, writable=True)
            addresses.append(address)
            keep.append(owner)
        return ReadReport(*self._core.read_into(addresses, threads, _size(memory), strict, cast, progress))


def load_plan(
    path, layout=None, rank=0, *, dtype=None, keep_dtype=(), step=None, source_format=None, family=None, rules=None, hf_template=None,
    consumer=None, local_layers=False, grouped_experts=True, vocab_divisor=None, padded_vocab=None, mtp="keep", set=None, allow=(), progress=None,
):  # fmt: skip
    """The plan by which one rank reads its part of the checkpoint at `path`, of any format that `crossdock convert` reads.

    layout: a Layout, one rank where None. rank: the global rank, an int, or a RankPlace. The values are those of `crossdock convert --to
    megatron-legacy` with this layout; options of the same name mean the same: dtype ("bf16", "fp16", "fp32"), keep_dtype, step (an int or
    "release"), family, rules, hf_template, vocab_divisor (--make-vocab-size-divisible-by), padded_vocab (--padded-vocab-size), mtp ("keep",
    "drop"), set (a dict), allow. source_format: as --from.
    consumer: as --for, whose names the modules of a model with a vision tower have ("megatron-bridge", "loongforge"); None: the family's
    first. local_layers: modules are Megatron's own, not TransformerEngine's. grouped_experts: experts are called `mlp.experts.linear_fc1.weight<e>`,
    else `mlp.experts.local_experts.<e>.linear_fc1.weight`.
    Reads tables, no tensors.
    """
    layout = layout if layout is not None else Layout()
    place = rank if isinstance(rank, RankPlace) else layout.place(rank)
    options = _core.LoadOptions()
    options.path = os.fsdecode(path)
    options.layout = layout._options()
    options.place = tuple(place)
    options.keep_dtype, options.allow = list(keep_dtype), list(allow)
    options.local_layers, options.grouped_experts, options.mtp = local_layers, grouped_experts, mtp
    options.set_args = [(str(name), str(value)) for name, value in (set or {}).items()]
    options.step, options.consumer = _step(step), consumer or ""
    for name, value in (("dtype", dtype), ("source_format", source_format), ("family", family), ("vocab_divisor", vocab_divisor), ("padded_vocab", padded_vocab)):
        setattr(options, name, value)
    for name, value in (("rules", rules), ("hf_template", hf_template)):
        setattr(options, name, None if value is None else os.fsdecode(value))
    return LoadPlan(_core.LoadPlan.make(options, progress), place)
