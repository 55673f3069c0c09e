"""Caches of keys and values: they arrive once, some may go, and each step attends to what is held."""
from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, byref, c_int64, c_void_p
from typing import Any, Sequence

from . import tensors
from .compute import INT_MAX, INT64_MAX, _flag, _integer, _numbers, _text
from .library import Blocks, Options, Problem, check, library
from .tensors import Tensor, contiguous, look_at

KINDS = {name: kind for kind, name in tensors.NAMES.items() if kind in tensors.STORED}


class _View(ctypes.Structure):
    _fields_ = [("length", c_int64), ("held", c_int64), ("position", POINTER(c_int64))]


class Cache:
    """Keys and values of a batch of sequences, as a server holds them while it decodes.

    spec       "evict:score=snapkv,budget=512,recent=32": of each kv head at most `budget` keys are held, with shared= on
               average; or a variant that reads all of them, "tiled", "pages:budget=256"
    positions  the most that a sequence may have
    dtype      of every tensor: "float32", "float64", "float16", "bfloat16"

    bytes      that the cache has in memory"""

    def __init__(self, spec: str = "tiled", *, heads: int, d: int, batch: int = 1, kv_heads: int | None = None,
                 d_v: int | None = None, positions: int = 1 << 20, dtype: str = "float32", scale: float | None = None,
                 softcap: float | None = None, sink: Any = None, threads: int = 0, isa: str | None = None):
        self._handle: c_void_p | None = None
        if dtype not in KINDS:
            raise ValueError(f"dtype={dtype!r}; expected one of {', '.join(KINDS)}")
        sizes = {"batch": batch, "heads": heads, "kv_heads": heads if kv_heads is None else kv_heads, "n_kv": positions,
                 "d_qk": d, "d_v": d if d_v is None else d_v}
        for name, size in sizes.items():
            _integer(size, name, INT64_MAX)
            if size < 1:
                raise ValueError(f"{name}={size}; expected at least 1")
        self._kind = KINDS[dtype]
        self._held: list[Any] = []
        problem = Problem(n_q=1, dtype=tensors.STORED.index(self._kind), causal=True,
                          scale=1 / math.sqrt(d) if scale is None else scale, **sizes)
        if softcap is not None:
            if not softcap > 0:
                raise ValueError(f"softcap={softcap}; expected a positive number")
            problem.score.softcap = softcap
        if sink is not None:
            problem.score.sink = (ctypes.c_double * heads)(*_numbers(sink, "sink", heads))
            self._held.append(problem.score.sink)
        options = Options(_integer(threads, "threads", INT_MAX), None if isa is None else _text(isa, "isa"), None, Blocks(0, 0))
        self._sizes = sizes
        handle = c_void_p()
        check(library().attn_kv_cache_create(byref(handle), byref(problem), _text(spec, "spec"), byref(options)))
        self._own(handle)

    def _own(self, handle: c_void_p) -> None:
        self._handle, self._destroy = handle, library().attn_kv_cache_destroy

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)

    def _tensor(self, x: Any, name: str, heads: str, width: str, n: int | None = None) -> tuple[Tensor, Any]:
        """The place of a contiguous [batch, heads, n, width], and what keeps it."""
        tensors.refuse_lossy(x, name)
        if tensors.is_torch(x):
            x = x.detach().contiguous()
        place = look_at(x, name)
        if place.strides != contiguous(place.shape):
            import numpy

            x = numpy.ascontiguousarray(tensors.to_numpy(x))
            place = look_at(x, name)
        shape = place.shape
        wanted = (self._sizes["batch"], self._sizes[heads], n if n is not None else shape[2] if len(shape) == 4 else 0,
                  self._sizes[width])
        if place.kind != self._kind or shape != wanted or shape[2] < 1:
            raise ValueError(f"{name} is {shape} of {tensors.NAMES[place.kind]}; expected [batch, {heads}, n, {width}] = "
                             f"[{wanted[0]}, {wanted[1]}, {n or 'n'}, {wanted[3]}] of {tensors.NAMES[self._kind]}")
        return place, x

    def _lengths(self, x: Sequence[int] | None, name: str, most: int) -> Any:
        if x is None:
            return None
        values = [_integer(n, name, most) for n in x]
        if len(values) != self._sizes["batch"]:
            raise ValueError(f"{name} has {len(values)} numbers; expected one for each of {self._sizes['batch']} entries")
        return (c_int64 * len(values))(*values)

    def append(self, k: Any, v: Any, q: Any = None, *, lengths: Sequence[int] | None = None) -> None:
        """n positions of each sequence, k and v [batch, kv_heads, n, d]; q [batch, heads, n, d] for scores that look at
        queries. lengths: how many of the n an entry has."""
        keys, kept_k = self._tensor(k, "k", "kv_heads", "d_qk")
        n = keys.shape[2]
        values, kept_v = self._tensor(v, "v", "kv_heads", "d_v", n)
        queries, kept_q = (None, None) if q is None else self._tensor(q, "q", "heads", "d_qk", n)
        check(library().attn_kv_cache_append(self._handle, n, self._lengths(lengths, "lengths", n),
                                             queries and queries.address, keys.address, values.address))
        del kept_k, kept_v, kept_q

    def attend(self, q: Any, *, return_lse: bool = False) -> Any:
        """The outputs of the last n positions, q and result [batch, heads, n, d]; with return_lse also the log-sum-exps."""
        queries, kept = self._tensor(q, "q", "heads", "d_qk")
        shape = queries.shape[:3] + (self._sizes["d_v"],)
        out = tensors.like(kept, shape, self._kind)
        lse = tensors.like(kept, shape[:3], "f8") if _flag(return_lse, "return_lse") else None
        check(library().attn_kv_cache_attend(self._handle, shape[2], queries.address, look_at(out, "out").address,
                                             look_at(lse, "lse").address if return_lse else None))
        result = tensors.give_back(out, kept)
        return (result, lse) if return_lse else result

    def _view(self, batch: int, kv_head: int) -> _View:
        view = _View()
        check(library().attn_kv_cache_look(self._handle, _integer(batch, "batch", INT64_MAX),
                                           _integer(kv_head, "kv_head", INT64_MAX), byref(view)))
        return view

    def length(self, batch: int = 0) -> int:
        """Positions of a sequence so far."""
        return self._view(batch, 0).length

    def positions(self, batch: int = 0, kv_head: int = 0) -> list[int]:
        """Where the keys stand that a kv head holds, ascending."""
        view = self._view(batch, kv_head)
        return view.position[:view.held] if view.position else list(range(view.held))

    @property
    def bytes(self) -> int:
        return library().attn_kv_cache_bytes(self._handle)

    def truncate(self, lengths: Sequence[int]) -> None:
        """As if only the first lengths[b] positions of each sequence had come. Error: a key is gone that was held then."""
        check(library().attn_kv_cache_truncate(self._handle, self._lengths(lengths, "lengths", INT64_MAX)))

    def copy(self) -> Cache:
        """Another cache in the same state, as for several answers to one prompt."""
        other = Cache.__new__(Cache)
        handle = c_void_p()
        other._handle, other._kind, other._sizes, other._held = None, self._kind, self._sizes, self._held
        check(library().attn_kv_cache_copy(self._handle, byref(handle)))
        other._own(handle)
        return other
