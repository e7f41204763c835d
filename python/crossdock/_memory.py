# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a tensor of any library lie: its address, size, dtype and shape, without importing the library.

torch tensors are told by their own methods, which also say where DLPack would not (BF16, FP8, parameters that require gradients); numpy
arrays by `__array_interface__`, ml_dtypes' types included; everything else by DLPack or the buffer protocol. Only memory of the CPU, row-
major and without gaps, is taken.
"""

from . import _core
from .errors import UnsupportedError, UsageError

# Spelled as safetensors spells them; by the names that torch, numpy and ml_dtypes use.
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32",
    "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


_CPU = 1   # DLPack's kDLCPU


def _dtype(name, text):
    short = str(text).rsplit(".", 1)[-1]
    if short not in _DTYPES:
        raise _refusal(UnsupportedError, name, f"elements of type {text} are not known")
    return _DTYPES[short]


def _refusal(kind, name, message, hint=""):
    return kind(f"{message}, tensor `{name}`" + (f"\nhint: {hint}" if hint else ""), message=message, tensor=name, hint=hint)


def _row_major(shape, strides, item):
    """Whether strides (bytes) are those of an array without gaps; axes of one element may have any."""
    step = item
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _gaps(name):
    return _refusal(UsageError, name, "only row-major tensors without gaps are taken", "hand over `tensor.contiguous()`, or a new one to be copied from")


def _on_device(name, device):
    return _refusal(
        UsageError, name, f"the tensor lies on {device}, and only memory of the CPU is reached",
        "take `torch.empty_like(t, device=\"cpu\", pin_memory=True)` and copy it over; crossdock.megatron does that by itself",
    )  # fmt: skip


_BITS = {"BF16": 16, "F16": 16, "F32": 32, "F64": 64, "U16": 16, "I16": 16, "U8": 8, "I8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
         "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "C64": 64}  # fmt: skip


def address_of(name, tensor, writable):
    """(name, address, bytes, dtype, shape), and an object that keeps the memory alive.

    A pair (tensor, dtype) is a tensor whose elements are meant as another dtype of the same size: where a library has no BF16.
    """
    if isinstance(tensor, tuple) and len(tensor) == 2 and isinstance(tensor[1], str):
        (_, address, size, held, shape), owner = address_of(name, tensor[0], writable)
        if _BITS.get(tensor[1]) != _BITS[held]:
            raise _refusal(UsageError, name, f"elements of {held} cannot stand for {tensor[1]}, which has another size or is not known")
        return (name, address, size, tensor[1], shape), owner
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "is_contiguous"):
        return _of_torch(name, tensor)
    if type(tensor).__module__.split(".")[0] in ("jax", "jaxlib") and writable:
        raise _refusal(
            UsageError, name, "JAX arrays cannot be written into",
            "read into a numpy array and hand it to jax.device_put: `numpy.empty(shape, ml_dtypes.bfloat16)` holds BF16",
        )  # fmt: skip
    if hasattr(tensor, "__array_interface__"):
        return _of_numpy(name, tensor, writable)
    return _of_any(name, tensor, writable)


def _of_torch(name, tensor):
    device = getattr(tensor, "device", None)
    if device is not None and device.type != "cpu":
        raise _on_device(name, device)
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        raise _gaps(name)
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        raise _gaps(name)
    shape = tuple(tensor.shape)
    return (name, tensor.data_ptr(), tensor.numel() * tensor.element_size(), _dtype(name, tensor.dtype), shape), tensor


def _of_numpy(name, array, writable):
    interface = array.__array_interface__
    address, read_only = interface["data"]
    if read_only and writable:
        raise _refusal(UsageError, name, "the array is read-only")
    dtype = array.dtype
    if dtype.byteorder == ">":
        raise _refusal(UnsupportedError, name, "arrays of the other byte order are not taken")
    shape, item = tuple(array.shape), dtype.itemsize
    if array.size and not _row_major(shape, array.strides, item):
        raise _gaps(name)
    return (name, address, array.size * item, _dtype(name, dtype.name), shape), array


def _of_any(name, tensor, writable):
    found = _core.array_of(tensor, writable)
    if found is None:
        raise _refusal(
            UsageError, name, f"this is no tensor: {type(tensor).__name__}", "torch, numpy, DLPack and the buffer protocol are understood"
        )  # fmt: skip
    (address, size, dtype, device, shape, strides), read_only, owner = found
    if device != _CPU:
        raise _on_device(name, "another device")
    if read_only and writable:
        raise _refusal(UsageError, name, "the memory is read-only")
    if size and not _row_major(shape, strides, 1):
        raise _gaps(name)
    return (name, address, size, _dtype(name, dtype), shape), owner   # the export itself: the tensor alone may not keep what it exported
