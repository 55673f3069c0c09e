"""Tensors of NumPy, PyTorch, JAX and buffers as places in memory, without a copy.

NumPy arrays by __array_interface__ (which read-only arrays have, too), others by DLPack, array.array, ctypes arrays and
the like by Python's buffers. Strides stay as they are; only the last axis must be contiguous."""
from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, NamedTuple

from .library import Stride

SIZES = {"f4": 4, "f8": 8, "f2": 2, "bf16": 2, "b1": 1}
COMPUTED = ("f4", "f8")
STORED = COMPUTED + ("f2", "bf16")  # in the order of attn_dtype
NAMES = {"f4": "float32", "f8": "float64", "f2": "float16", "bf16": "bfloat16", "b1": "bool"}


class Tensor(NamedTuple):
    """A tensor's place: address, shape, strides in elements, kind of SIZES; owner keeps the memory."""
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str
    writable: bool
    owner: Any


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which a capsule begins."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_DL_CPU = 1
_DL_KINDS = {(2, 16): "f2", (2, 32): "f4", (2, 64): "f8", (4, 16): "bf16"}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def look_at(x: Any, name: str) -> Tensor:
    """Where x is. TypeError, with the argument's name: it is nowhere that the library could read it."""
    refuse_lossy(x, name)
    if hasattr(x, "__array_interface__"):
        return _of_interface(x, name)
    if is_torch(x):  # a sign that PyTorch has put off is applied
        return _of_dlpack(x.detach().resolve_neg(), name)._replace(writable=not x.is_neg())
    if hasattr(x, "__dlpack__"):
        return _of_dlpack(x, name)
    return _of_buffer(x, name)


def refuse_lossy(x: Any, name: str) -> None:
    """TypeError: x has a gradient, a tangent or a mask, which would be lost where its numbers alone are read."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be ignored: fill it, x.filled(value), and hide keys "
                        "by the argument mask")
    if not is_torch(x):
        return
    torch = sys.modules["torch"]
    if x.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name} requires a gradient, which this function does not record: attnlab.torch.attention records "
                        "those by q, k, v, sink and bias; or call detach(), or compute under torch.no_grad()")
    if torch.autograd.forward_ad.unpack_dual(x).tangent is not None:
        raise TypeError(f"{name} has a tangent of forward differentiation, and attnlab has none to give")


def _wrong_kind(name: str, found: str) -> TypeError:
    return TypeError(f"{name} is of {found}; expected float32, float64, float16 or bfloat16")


def _place(name: str, address: int, shape: Any, strides: Any, kind: str, writable: bool, owner: Any) -> Tensor:
    shape = tuple(shape)
    if address % SIZES[kind]:
        raise ValueError(f"{name}: its elements are not aligned in memory; a copy of it is")
    strides = contiguous(shape) if strides is None else tuple(strides)
    return Tensor(address, shape, strides, kind, writable, owner)


def _of_interface(x: Any, name: str) -> Tensor:
    about = x.__array_interface__
    code = about["typestr"]
    kind = {"<f4": "f4", "<f8": "f8", "<f2": "f2", "|b1": "b1"}.get(code)
    if code == "<V2" and str(x.dtype) == "bfloat16":  # which ml_dtypes adds to NumPy
        kind = "bf16"
    if kind is None:
        raise _wrong_kind(name, str(getattr(x, "dtype", code)))
    address, read_only = about["data"]
    strides = about.get("strides")
    size = SIZES[kind]
    if strides is not None:
        if any(step % size for step, length in zip(strides, about["shape"]) if length > 1):
            raise ValueError(f"{name}: its strides are no multiples of an element; a copy of it has such")
        strides = [step // size for step in strides]
    return _place(name, address, about["shape"], strides, kind, not read_only, x)


def _of_dlpack(x: Any, name: str) -> Tensor:
    if str(getattr(x, "device", "cpu")) == "meta" or x.__dlpack_device__()[0] != _DL_CPU:
        raise TypeError(f"{name} is not in the memory of the CPU: copy it there, x.cpu()")
    try:
        capsule = x.__dlpack__()  # not consumed: its destructor gives the tensor back
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"{name}: {error}") from error
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    kind = _DL_KINDS.get((t.code, t.bits)) if t.lanes == 1 else None
    if kind is None:
        raise _wrong_kind(name, str(getattr(x, "dtype", "another type")))
    strides = t.strides[:t.ndim] if t.strides else None
    writable = not is_jax(x)  # whose arrays never change
    return _place(name, (t.data or 0) + t.byte_offset, t.shape[:t.ndim], strides, kind, writable, (x, capsule))


def _of_buffer(x: Any, name: str) -> Tensor:
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError(f"{name} is a {type(x).__name__}; a tensor of NumPy, PyTorch or JAX, or a buffer was "
                        "expected") from None
    kind = {"f": "f4", "d": "f8", "<f": "f4", "<d": "f8"}.get(view.format)
    if kind is None:
        raise _wrong_kind(name, f"buffer format '{view.format}'")
    if view.readonly:
        raise TypeError(f"{name} is a read-only buffer: wrap it, numpy.asarray(x)")
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    strides = [step // view.itemsize for step in view.strides or ()]
    return _place(name, ctypes.addressof(held), view.shape, strides, kind, True, (x, held))


class Arranged(NamedTuple):
    """A tensor as [batch, heads, n, d], whatever its layout and rank."""
    place: Tensor
    shape: tuple[int, int, int, int]
    stride: Stride


def readable(t: Tensor, rows: tuple[int, int]) -> bool:
    """Can the library read these rows [n, length] where they are: whole, one after the other, each contiguous?"""
    forward = all(step >= 0 for step, length in zip(t.strides, t.shape) if length > 1)
    apart = t.shape[-2] == 1 or t.strides[-2] >= rows[1]
    return t.shape[-2:] == rows and forward and apart and (rows[1] == 1 or t.strides[-1] == 1)


def arrange(t: Tensor, name: str, layout: str) -> Arranged:
    """ValueError: it has another rank than 2 to 4, elements of a row that are not neighbours, or a negative stride."""
    shape, strides = list(t.shape), list(t.strides)
    if not 2 <= len(shape) <= 4:
        raise ValueError(f"{name} has the shape {t.shape}, expected 2, 3 or 4 axes")
    if any(step < 0 for step, length in zip(strides, shape) if length > 1):
        raise ValueError(f"{name} has a negative stride; a copy has none")
    if shape[-1] > 1 and strides[-1] != 1:
        raise ValueError(f"{name}: its last axis is not contiguous; a copy's is")
    if layout == "bnhd" and len(shape) > 2:
        for axes in shape, strides:
            axes[-3], axes[-2] = axes[-2], axes[-3]
    missing = 4 - len(shape)
    shape, strides = [1] * missing + shape, [0] * missing + strides
    # The stride of an axis of length 1 may be anything; zeros everywhere mean contiguous to the library.
    step = [s if length > 1 else own for s, length, own in zip(strides, shape, contiguous(tuple(shape)))]
    if not any(step[:3]):
        raise ValueError(f"{name} repeats one row everywhere; a copy of it can be read")
    return Arranged(t, (shape[0], shape[1], shape[2], shape[3]), Stride(*step[:3]))


def overlap(a: Tensor, b: Tensor) -> bool:
    """Do they share a range of addresses? Negative strides are refused elsewhere."""
    def end(t: Tensor) -> int:
        return t.address + SIZES[t.kind] * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.strides)))

    return 0 not in (*a.shape, *b.shape) and a.address < end(b) and b.address < end(a)


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")  # else nobody has a tensor of it
    return torch is not None and isinstance(x, torch.Tensor)


def is_jax(x: Any) -> bool:
    return type(x).__module__.split(".")[0] in ("jax", "jaxlib")


def widen(x: Any, name: str, kept: tuple[str, ...] = ()) -> Any:
    """x, or a copy in float32 of what is narrower and not of a kind that is kept."""
    kind = look_at(x, name).kind
    if kind in kept or kind not in ("f2", "bf16"):
        return x
    return x.float() if is_torch(x) else x.astype("float32")


def packed(x: Any) -> Any:
    """A contiguous copy."""
    if is_torch(x):
        return x.contiguous()
    import numpy
    return numpy.array(x, order="C")


def like(x: Any, shape: tuple[int, ...], kind: str) -> Any:
    """A new tensor to be filled: PyTorch's for PyTorch's, else NumPy's."""
    if is_torch(x):
        return x.new_empty(shape, dtype=getattr(sys.modules["torch"], NAMES[kind]))
    import numpy
    return numpy.empty(shape, NAMES[kind])


def summed(x: Any, shape: tuple[int, ...]) -> Any:
    """Of this shape, over the axes that are stretched from length 1."""
    own = (1,) * (len(x.shape) - len(shape)) + tuple(shape)
    axes = tuple(i for i, (length, to) in enumerate(zip(x.shape, own)) if length != to)
    return (x.sum(axes) if axes else x).reshape(shape)


def give_back(result: Any, x: Any) -> Any:
    """A result of `like` as a tensor of x's own library and type."""
    if is_torch(x):
        return result.to(x.dtype)
    if is_jax(x):
        import jax.numpy
        return jax.numpy.asarray(result, dtype=x.dtype)
    return result.astype(getattr(x, "dtype", result.dtype), copy=False)


def to_numpy(x: Any) -> Any:
    """As a NumPy array, without a copy where there can be one."""
    import numpy
    return x.detach().resolve_neg().numpy() if is_torch(x) else numpy.asarray(x)
