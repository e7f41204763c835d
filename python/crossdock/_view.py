# SPDX-License-Identifier: Apache-2.0
"""Any checkpoint by its Hugging Face names, as `safetensors.safe_open` shows a file."""

import os

from . import _core
from ._commands import _texts
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

    from ._commands import Notice, Path

_FRAMEWORKS = {
    None: None, "crossdock": None, "np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch", "pytorch": "torch",
    "jax": "jax", "flax": "jax",
}  # fmt: skip
# safetensors' names -> those of numpy and ml_dtypes, and of torch
_NUMPY = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
_ML_DTYPES = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_TORCH = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64", **_ML_DTYPES,
}  # fmt: skip


def _numpy(tensor):
    import numpy

    array = numpy.asarray(memoryview(tensor))
    if tensor.dtype in _NUMPY:
        return array
    try:
        import ml_dtypes
    except ImportError:
        return array  # the bits, as uint16 or uint8
    return array.view(getattr(ml_dtypes, _ML_DTYPES[tensor.dtype]))


def _torch(tensor, device):
    import torch

    if tensor.nbytes == 0:
        out = torch.empty(tensor.shape, dtype=getattr(torch, _TORCH[tensor.dtype]))
    else:
        # Through bytes: no version of torch that knows the type refuses it then.
        out = torch.frombuffer(tensor, dtype=torch.uint8).view(getattr(torch, _TORCH[tensor.dtype])).reshape(tensor.shape)
    return out if device == "cpu" else out.to(device)


def _jax(tensor):
    import jax.numpy

    return jax.numpy.asarray(_numpy(tensor)) if tensor.nbytes == 0 else jax.dlpack.from_dlpack(tensor)


class Slice:
    """A tensor of which parts can be read: `view.get_slice(name)[rows, 4:8]`."""

    __slots__ = ("_view", "_name", "_dtype", "_shape")

    def __init__(self, view, name):
        self._view = view
        self._name = name
        self._dtype, self._shape = view._core.facts(name)

    def get_shape(self) -> "list[int]":
        """The sizes of the whole tensor, a list of int, the slowest axis first."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """The type as safetensors spells it: "BF16", "F8_E4M3"."""
        return self._dtype

    def __getitem__(self, index: "Any") -> "Any":
        """The part that `index` names: ints, slices of step 1 and one `...`, as numpy reads them. Only its byte ranges are read."""
        return self._view._read(self._name, *_box(self._name, self._shape, index))

    def __repr__(self) -> str:
        return f"<crossdock.Slice {self._name!r} {self._dtype} {self._shape}>"


def _box(name: str, shape: "tuple[int, ...]", index: "Any") -> "tuple[list[int], list[int], list[int]]":
    """(offsets, sizes, shape of the result) of an index."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [at for at, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or len(parts) - len(dots) > len(shape):
        raise UsageError(f"`{name}` has {len(shape)} axes", tensor=name, expected=f"an index for {list(shape)}", found=str(index))
    whole = [slice(None)] * (len(shape) - len(parts) + len(dots))
    if dots:
        parts[dots[0] : dots[0] + 1] = whole
    else:
        parts += whole
    offsets, sizes, result = [], [], []
    for axis, (part, size) in enumerate(zip(parts, shape)):
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            if step != 1:
                raise UsageError(f"slices of `{name}` have the step 1", tensor=name, found=f"the step {step} on axis {axis}",
                                 hint="read the range, and take the steps of the result")
            offsets.append(start)
            sizes.append(max(stop - start, 0))
            result.append(sizes[-1])
            continue
        try:
            at = part.__index__()
        except AttributeError:
            raise UsageError(f"`{name}` is indexed by ints, slices and `...`", tensor=name, found=type(part).__name__) from None
        if not -size <= at < size:
            raise IndexError(f"index {at} on axis {axis} of `{name}`, which has {size}")
        offsets.append(at % size)
        sizes.append(1)
    return offsets, sizes, result


class View:
    """What `crossdock.open` gives: a context manager; every method may be called from several threads at once."""

    def __init__(self, core: _core.View, framework: "Optional[str]", device: "Any") -> None:
        self._core: "Any" = core
        self._framework = framework
        self._device = device

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        self._core = _Closed()

    def keys(self) -> "list[str]":
        """The names, sorted: a list of str."""
        return self._core.keys()

    def offset_keys(self) -> "list[str]":
        """The names in the order in which they lie in the checkpoint's files: read in it, files are read from front to back."""
        return self._core.offset_keys()

    def metadata(self) -> "dict[str, str]":
        """What stands in the header of a safetensors file: a dict of str."""
        return self._core.metadata()

    def get_tensor(self, name: str) -> "Any":
        """The whole tensor, in the framework that `open` was told, or a `Tensor`. UsageError names the nearest name when there is none."""
        _, shape = self._core.facts(name)
        return self._read(name, [0] * len(shape), list(shape), list(shape))

    def get_slice(self, name: str) -> Slice:
        """A `Slice`: shape and dtype at once, values by indexing."""
        return Slice(self, name)

    @property
    def notices(self) -> "list[str]":
        """What was assumed when the checkpoint was opened: a list of str."""
        return self._core.notices

    @property
    def bytes_read(self) -> int:
        """Bytes read of the checkpoint's files so far for values."""
        return self._core.bytes_read

    def __iter__(self) -> "Iterator[str]":
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._core.keys())

    def _read(self, name, offsets, sizes, shape):
        tensor = self._core.read(name, offsets, sizes, shape)
        if self._framework == "numpy":
            return _numpy(tensor)
        if self._framework == "torch":
            return _torch(tensor, self._device)
        return _jax(tensor) if self._framework == "jax" else tensor


class _Closed:
    def __getattr__(self, name):
        raise UsageError("the view is closed", hint="use it within its `with` block")


def open(path: "Path", framework: "Optional[str]" = None, device: "Any" = "cpu", *, notice: "Notice" = None, **options: "Any") -> View:
    """Opens the checkpoint at `path` (str or os.PathLike), of any format that is read, and shows its weights by Hugging Face names.

    framework: None gives `Tensor` objects (DLPack and the buffer protocol); "np" numpy arrays, where BF16 and FP8 have ml_dtypes' types if
        that package is there and are their bits as unsigned integers if not; "pt" torch tensors; "jax" arrays.
    device: of torch tensors; they are read into memory and then copied.
    options: those of `convert` that say what the source is or how weights are written: step, from_, family, rules, hf_template, dtype, keep_dtype,
        experts, mtp, params_from, scan_axis, set, allow, memory (of one read), threads.

    What is seen is what `convert(path, ..., to="hf")` with these options would write; a Hugging Face directory (or one file) without such
    options is shown as it is stored. Nothing but tables is read here, and then only the byte ranges that are asked for.

    >>> with crossdock.open("megatron-run", framework="pt") as view:
    ...     rows = view.get_slice("model.embed_tokens.weight")[:16]
    """
    if framework not in _FRAMEWORKS:
        known = ", ".join(repr(name) for name in _FRAMEWORKS)
        raise UsageError(f"there is no framework {framework!r}", expected=f"one of {known}", found=repr(framework))
    framework = _FRAMEWORKS[framework]
    if device != "cpu" and framework != "torch":
        raise UsageError("`device` is of torch", found=f"device={device!r} with framework={framework!r}")
    given = [(name.rstrip("_"), _texts(value)) for name, value in options.items() if value is not None]
    return View(_core.View(os.fsdecode(path), given, notice), framework, device)
