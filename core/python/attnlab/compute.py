"""Attention of given tensors by any variant: plans, and calls that make and keep them."""
from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import mmap
import operator
import threading
import warnings
from ctypes import byref, c_double, c_int64, c_size_t, c_void_p
from typing import Any, Iterator

from . import tensors
from .library import CAP_LSE, Blocks, Cost, Extra, Gradients, Mask, Options, Problem, Tensors, check, library
from .tensors import Arranged, Tensor, arrange, look_at

MASK_KINDS = {"prefix": 1, "block_causal": 2, "documents": 3}  # attn_mask_kind
TARGET = {"causal": False, "scale": None, "mask": None, "bias": None, "alibi": False, "softcap": None, "leaky": None,
          "sink": None}  # what is computed, where nothing else is said
KEPT_PLANS = 32
KEPT_WORK = 64 << 20  # bytes of work memory that a thread keeps from call to call
INT_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def attention(q: Any, k: Any, v: Any, spec: str = "tiled", *, causal: bool = False, layout: str = "bhnd",
              scale: float | None = None, mask: Any = None, bias: Any = None, alibi: bool = False,
              softcap: float | None = None, leaky: float | None = None, sink: Any = None, kv_len: Any = None,
              q_position: Any = None, out: Any = None, return_lse: bool = False, extra: dict[str, Any] | None = None,
              state: Any = None, return_state: bool = False, threads: int = 0, isa: str | None = None) -> Any:
    """softmax(scale q k^T) v, exact or as a variant approximates it.

    q, k, v     [batch, heads, n, d], with layout="bnhd" [batch, n, heads, d]; batch, or batch and heads, may be left out.
                k and v may have fewer heads than q, which divide its number; n and the width of v may be their own.
                Tensors of NumPy, PyTorch or JAX in the CPU's memory, or buffers. They are read where they are, if rows
                are contiguous and no stride is negative. float32 and float64 are computed in their precision, float16
                and bfloat16 in float32, and the result is rounded once; bfloat16 of JAX is copied to float32.
    spec        the variant with its parameters, such as "longformer:window=256,global=4"
    causal      True or False: query i sees key j iff j <= q_position + i
    scale       of the scores; 1/sqrt(d) by default
    mask        booleans [n_q, n_kv], [heads, n_q, n_kv] or [batch, heads, n_q, n_kv], any axis of length 1 for all: True
                where the query sees the key. Or "prefix:SIZE", "block_causal:SIZE", "documents:SIZE" of one length,
                "documents:0+30+100" by where they begin
    bias        added to the scores, shaped as a mask; -inf hides a key
    alibi       subtracts each head's slope times the distance
    softcap     scores s become softcap tanh(s / softcap)
    leaky       scores s below 0 become leaky s
    sink        one more logit, of value 0: a number, or one for each head
    kv_len      keys that exist, a number or one for each batch entry; the others are padding
    q_position  where the first query stands among the keys, a number or one for each batch entry; n_kv - n_q by default.
                Where the queries are the last of kv_len keys it is kv_len - n_q
    out         where the result goes, of the shape [..., n_q, d_v] in the layout of q
    return_lse  also gives the log-sum-exp of each query's scores and its sink, float64 [batch, heads, n_q] in every
                layout; where it sees no key that is the sink's logit, -inf without a sink
    extra       gates of recurrences, {"decay": logarithms, "beta": numbers}: [batch or 1, heads, heads of k or 1, keys,
                columns], of 1 column, or d of a decay that is a vector; contiguous, float32 or float64
    state       of a recurrence, what it carries before the first key, [batch, heads, d, width of v], contiguous, float64
                where q is and float32 otherwise; zeros by default
    return_state  also gives what it carries behind the last key, for the part of the sequence that follows
    threads     0: as OpenMP has it. Tiny problems are faster on one
    isa         instruction set; `attnlab info` lists them

    Returns a tensor of q's library, shape (with v's width) and type, or a tuple of it, the log-sum-exp and the state.
    RuntimeWarning: the output is not finite, although q, k and v are.
    Error: the variant refuses; ValueError and TypeError name the argument that is wrong."""
    operands = Operands(q, k, v, out, layout)
    target = {"causal": causal, "scale": scale, "mask": mask, "bias": bias, "alibi": alibi, "softcap": softcap,
              "leaky": leaky, "sink": sink}
    plan = _kept_plan(operands, spec, target, threads, isa)
    return plan._run(operands, kv_len, q_position, return_lse, extra, state, return_state)


def backward(q: Any, k: Any, v: Any, grad_o: Any, spec: str = "tiled", *, causal: bool = False, layout: str = "bhnd",
             scale: float | None = None, mask: Any = None, bias: Any = None, alibi: bool = False,
             softcap: float | None = None, leaky: float | None = None, sink: Any = None, kv_len: Any = None,
             q_position: Any = None, grad_lse: Any = None, extra: dict[str, Any] | None = None, return_extra: bool = False,
             return_sink: bool = False, return_bias: bool = False, threads: int = 0, isa: str | None = None) -> Any:
    """The gradients by q, k and v of a loss whose gradient by the output of `attention` is grad_o, shaped as the output;
    grad_lse: by the log-sum-exp, [batch, heads, n_q]. Then, of float64, with return_sink those by sinks, [heads], with
    return_bias that by `bias`, in its shape, and with return_extra a dict of those by the tensors of `extra`. The other
    arguments are those of `attention`.

    What is differentiated is the function that the variant computes, with its draws and selections held fixed, not
    exact attention. Gradients of float16 and bfloat16 are computed in float32 and rounded once.

    Error: the variant has no gradient."""
    operands = Operands(q, k, v, None, layout)
    target = {"causal": causal, "scale": scale, "mask": mask, "bias": bias, "alibi": alibi, "softcap": softcap,
              "leaky": leaky, "sink": sink}
    plan = _kept_plan(operands, spec, target, threads, isa)
    plan._backward_bytes()
    given = plan._run(operands, kv_len, q_position, plan._gives_lse, extra, None, False)
    lse = given[1] if plan._gives_lse else None
    return plan._gradients(operands, lse, grad_o, grad_lse, kv_len, q_position, extra, return_extra, return_sink, return_bias)


class Plan:
    """A variant, prepared for tensors such as q, k and v: what does not depend on their values is computed once.

    Arguments as those of `attention`; `target` is what is computed: causal, scale, mask, bias, alibi, softcap, leaky,
    sink. Called with tensors of the same shapes, strides and types, from several threads if you like: plan(q, k, v). A
    bias of float32 or float64 with contiguous rows is read by each call; any other, and every mask, is copied once.

    spec        with every parameter
    isa         instruction set of the kernels
    bytes       held by the plan
    work_bytes  used by a call
    cost        Cost: operations by the variant's formula"""

    def __init__(self, q: Any, k: Any, v: Any, spec: str = "tiled", *, layout: str = "bhnd", out: Any = None,
                 threads: int = 0, isa: str | None = None, **target: Any):
        self._handle: c_void_p | None = None
        self._create(Operands(q, k, v, out, layout), spec, target, threads, isa)

    def _create(self, operands: Operands, spec: str, target: dict[str, Any], threads: int, isa: str | None) -> None:
        lib = library()
        problem, self._held = _problem(operands, **target)
        batch, heads, n_q, n_kv = operands.q.shape[:3] + operands.k.shape[2:3]
        strides, bias = problem.score.dense, target.get("bias")
        self._bias: Any = () if bias is None else (  # the gradient's axes, and the shape to which these are summed
            batch if strides.batch else 1, heads if strides.head else 1, n_q, n_kv, look_at(bias, "bias").shape)
        options = Options(_integer(threads, "threads", INT_MAX), None if isa is None else _text(isa, "isa"), None,
                          Blocks(0, 0))
        handle = c_void_p()
        check(lib.attn_plan_create(byref(handle), byref(problem), _text(spec, "spec"), byref(options)))
        self._handle, self._destroy = handle, lib.attn_plan_destroy
        self._form, self._layout = operands.form, operands.layout
        self.spec: str = lib.attn_plan_spec(handle).decode()
        self.isa: str = lib.attn_plan_isa(handle).decode()
        self.bytes: int = lib.attn_plan_bytes(handle)
        self.work_bytes: int = lib.attn_plan_work_size(handle)
        self.cost: Cost = lib.attn_plan_cost(handle)
        self._gives_lse = bool(lib.attn_plan_variant(handle).contents.caps & CAP_LSE)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)

    def __repr__(self) -> str:
        return f"<attnlab.Plan {self.spec}>"

    def __call__(self, q: Any, k: Any, v: Any, *, kv_len: Any = None, q_position: Any = None, out: Any = None,
                 return_lse: bool = False, extra: dict[str, Any] | None = None, state: Any = None,
                 return_state: bool = False) -> Any:
        """As `attention`. ValueError: the plan was made for tensors of other shapes, strides or types."""
        operands = self._operands(q, k, v, out)
        return self._run(operands, kv_len, q_position, return_lse, extra, state, return_state)

    def backward(self, q: Any, k: Any, v: Any, o: Any, lse: Any, grad_o: Any, *, grad_lse: Any = None,
                 kv_len: Any = None, q_position: Any = None, extra: dict[str, Any] | None = None,
                 return_extra: bool = False, return_sink: bool = False, return_bias: bool = False) -> Any:
        """As attnlab.backward, after a call of the plan with these tensors that returned o and lse; lse is None where the
        variant has none."""
        operands = self._operands(q, k, v, o)
        return self._gradients(operands, lse, grad_o, grad_lse, kv_len, q_position, extra, return_extra, return_sink, return_bias)

    def _gradients(self, operands: Operands, lse: Any, grad_o: Any, grad_lse: Any, kv_len: Any, q_position: Any,
                   extra: dict[str, Any] | None, return_extra: bool, return_sink: bool, return_bias: bool) -> Any:
        more = {"sink": return_sink, "bias": return_bias, "extra": return_extra}
        wanted = ("q", "k", "v", *(name for name, flag in more.items() if _flag(flag, f"return_{name}")))
        of = self._backward(operands, lse, grad_o, grad_lse, kv_len, q_position, extra, wanted)
        return tuple(of[name] for name in wanted)

    def _backward(self, operands: Operands, lse: Any, grad_o: Any, grad_lse: Any, kv_len: Any, q_position: Any,
                  extra: dict[str, Any] | None, wanted: tuple[str, ...]) -> dict[str, Any]:
        """The gradients by what is wanted of q, k, v, sink, bias and extra, by name."""
        if "bias" in wanted and not self._bias:
            raise ValueError("return_bias=True, and there is no bias")
        size = self._backward_bytes()
        given = self._tensors(operands, kv_len, q_position, extra)
        given.lse = None if lse is None else operands.place_of_lse(lse, "lse")
        upstream = operands.upstream(grad_o)
        scores = {"sink": (operands.q.shape[1],), "bias": self._bias[:4]}
        results = {name: tensors.like(operands.given, scores[name], "f8") if name in scores else
                   tensors.like(operands.given, getattr(operands, name).shape, upstream.place.kind)
                   for name in wanted if name != "extra"}
        into = Gradients(upstream.place.address, upstream.stride,
                         None if grad_lse is None else operands.place_of_lse(grad_lse, "grad_lse"),
                         **{"ddense" if name == "bias" else f"d{name}": look_at(x, "gradient").address
                            for name, x in results.items()})
        by_extra = {name: tensors.like(operands.given, tuple(x.shape), "f8")
                    for name, x in (extra or {}).items() if "extra" in wanted}
        if by_extra:
            into.dextra = (c_void_p * len(by_extra))(*(look_at(x, "gradient").address for x in by_extra.values()))
        with _work(size) as work:
            given.work = work
            check(library().attn_plan_backward(self._handle, byref(given), byref(into)))
        found = {name: x if name in scores else operands.as_given(x, name) for name, x in results.items()}
        if "bias" in wanted:
            found["bias"] = tensors.summed(found["bias"], self._bias[4])
        return {**found, "extra": by_extra}

    def _backward_bytes(self) -> int:
        """Of the work memory of the backward pass. Error: there is no gradient, with the reason."""
        size = c_size_t()
        check(library().attn_plan_backward_size(self._handle, byref(size)))
        return size.value

    def _operands(self, q: Any, k: Any, v: Any, out: Any) -> Operands:
        operands = Operands(q, k, v, out, self._layout)
        for name, planned, given in zip(("q", "k", "v", "out"), self._form, operands.form):
            if planned != given:
                raise ValueError(f"{name}: shape, strides and type {given}, but the plan was made for {planned}; "
                                 "attnlab.attention takes any")
        return operands

    def _tensors(self, operands: Operands, kv_len: Any, q_position: Any, extra: dict[str, Any] | None) -> Tensors:
        n_kv, places = operands.k.shape[2], operands.places_of(extra or {})
        return Tensors(**{name: getattr(operands, name).place.address for name in "qkvo"},
                       kv_len=_counts(kv_len, operands, "kv_len", n_kv),
                       q_position=_counts(q_position, operands, "q_position", max(n_kv - operands.q.shape[2], 0)),
                       extra=(Extra * len(places))(*places), extras=len(places))

    def _run(self, operands: Operands, kv_len: Any, q_position: Any, return_lse: bool, extra: dict[str, Any] | None,
             state: Any, return_state: bool) -> Any:
        lib = library()
        lse = tensors.like(operands.given, operands.lse_shape, "f8") if _flag(return_lse, "return_lse") else None
        after = operands.new_state() if _flag(return_state, "return_state") else None
        given = self._tensors(operands, kv_len, q_position, extra)
        given.lse = None if lse is None else look_at(lse, "lse").address
        given.state = None if state is None else operands.place_of_state(state)
        given.state_after = None if after is None else look_at(after, "state").address
        with _work(self.work_bytes) as work:
            given.work = work
            check(lib.attn_plan_run(self._handle, byref(given)))
        _warn_nonfinite(self.spec, operands)
        results = (operands.result(), *(x for x in (lse, after) if x is not None))
        return results if len(results) > 1 else results[0]


class Operands:
    """q, k, v and the output: places, checked against each other; float32 for bfloat16 that no NumPy array holds."""

    def __init__(self, q: Any, k: Any, v: Any, out: Any, layout: str):
        if layout not in ("bhnd", "bnhd"):
            raise ValueError(f"layout={layout!r}; expected \"bhnd\" or \"bnhd\"")
        self.layout, self.given, self._out = layout, q, out
        self.q, self.k, self.v = self._input(q, "q"), self._input(k, "k"), self._input(v, "v")
        place = self.q.place
        for name, x in ("k", self.k), ("v", self.v):
            if x.place.kind != place.kind:
                raise TypeError(f"{name} is {_describe(x.place)}, but q is {_describe(place)}")
            if len(x.place.shape) != len(place.shape) or x.shape[0] != self.q.shape[0] or 0 in x.shape + self.q.shape:
                raise ValueError(f"{name} is {_describe(x.place)}, which does not fit q, {_describe(place)}")
        if self.k.shape[3] != self.q.shape[3] or self.q.shape[1] % self.k.shape[1]:
            raise ValueError(f"k is {_describe(self.k.place)}: its heads must divide those of q, {_describe(place)}, and "
                             f"its rows be as wide, in the layout {layout}")
        if self.k.shape[:3] != self.v.shape[:3]:
            raise ValueError(f"v is {_describe(self.v.place)}, which does not fit k, {_describe(self.k.place)}")
        self.o = self._output(out, place.shape[:-1] + (self.v.shape[3],), place.kind)
        self.form = tuple((x.shape, (x.stride.batch, x.stride.head, x.stride.row), x.place.kind)
                          for x in (self.q, self.k, self.v, self.o))
        self.lse_shape = self.q.shape[:3][4 - len(place.shape):]

    def _input(self, x: Any, name: str) -> Arranged:
        kept = ("f2", "bf16") if tensors.is_torch(x) else ("f2",)
        place = look_at(tensors.widen(x, name, kept), name)
        if place.kind not in tensors.STORED:
            raise TypeError(f"{name} is of {tensors.NAMES[place.kind]}; expected a floating-point type")
        return arrange(place, name, self.layout)

    def _output(self, out: Any, shape: tuple[int, ...], kind: str) -> Arranged:
        self._computed = out
        given = look_at(self.given, "q").kind
        if out is not None:
            place = look_at(out, "out")
            if place.shape != shape or place.kind != given or not place.writable:
                raise ValueError(f"out is {_describe(place)}{'' if place.writable else ', read-only'}; expected {shape} of "
                                 f"{tensors.NAMES[given]}, writable")
            for name, x in ("q", self.q), ("k", self.k), ("v", self.v):
                if tensors.overlap(place, x.place):
                    raise ValueError(f"out shares memory with {name}")
        if out is None or given != kind:
            self._computed = tensors.like(self.given, shape, kind)
        return arrange(look_at(self._computed, "out"), "out", self.layout)

    def _form_of_state(self) -> tuple[tuple[int, ...], str]:
        return self.q.shape[:2] + (self.q.shape[3], self.v.shape[3]), "f8" if self.q.place.kind == "f8" else "f4"

    def new_state(self) -> Any:
        return tensors.like(self.given, *self._form_of_state())

    def place_of_state(self, state: Any) -> int:
        place, (shape, kind) = look_at(state, "state"), self._form_of_state()
        if place.shape != shape or place.kind != kind or not _is_contiguous(place):
            raise ValueError(f"state is {_describe(place)}; expected {shape} of {tensors.NAMES[kind]}, contiguous")
        return place.address

    def place_of_lse(self, x: Any, name: str) -> int:
        place = look_at(x, name)
        if place.shape != self.lse_shape or place.kind != "f8" or not _is_contiguous(place):
            raise ValueError(f"{name} is {_describe(place)}; expected {self.lse_shape} of float64, contiguous")
        return place.address

    def upstream(self, grad_o: Any) -> Arranged:
        """The gradient by the output, in the type of the arithmetic, where it is if rows are contiguous."""
        given, expected = look_at(grad_o, "grad_o"), look_at(self._computed, "out").shape
        if given.shape != expected or given.kind != look_at(self.given, "q").kind:
            raise ValueError(f"grad_o is {_describe(given)}; expected {expected} of the type of q")
        wide = tensors.widen(grad_o, "grad_o")
        place = look_at(wide, "grad_o")
        if not tensors.readable(place, place.shape[-2:]):
            wide = tensors.packed(wide)
        return arrange(look_at(wide, "grad_o"), "grad_o", self.layout)

    def as_given(self, x: Any, name: str) -> Any:
        """A contiguous gradient [batch, heads, n, d] in the layout, rank and type of q, k or v."""
        if self.layout == "bnhd":
            x = x.transpose(1, 2) if tensors.is_torch(x) else x.swapaxes(1, 2)
        return tensors.give_back(x.reshape(getattr(self, name).place.shape), self.given)

    def places_of(self, extra: dict[str, Any]) -> list[Extra]:
        places = []
        for name, x in extra.items():
            place = look_at(x, f"extra[{name!r}]")
            if len(place.shape) != 4 or place.kind not in ("f4", "f8") or not _is_contiguous(place):
                raise ValueError(f"extra[{name!r}] is {_describe(place)}; expected [batch, heads, keys, columns] of float32 "
                                 "or float64, contiguous")
            batch, heads, n, columns = place.shape
            places.append(Extra(_text(name, "extra"), tensors.STORED.index(place.kind), place.address, batch, heads, n, columns))
        return places

    def result(self) -> Any:
        """What was computed as the caller wants it."""
        if self._out is None:
            return tensors.give_back(self._computed, self.given)
        if self._out is not self._computed:
            self._out[...] = tensors.give_back(self._computed, self.given)
        return self._out


def _is_contiguous(t: Tensor) -> bool:
    """The stride of an axis of length 1 may be anything."""
    steps = zip(t.strides, tensors.contiguous(t.shape), t.shape)
    return all(at == step for at, step, length in steps if length > 1)


def _is_finite(x: Arranged) -> bool:
    (batch, heads, rows, width), stride = x.shape, x.stride
    kind = x.place.kind
    size = tensors.SIZES[kind]
    if (stride.batch, stride.head, stride.row) == (heads * rows * width, rows * width, width):
        batch, heads, rows = 1, 1, batch * heads * rows
    return all(library().attn_all_finite(x.place.address + (b * stride.batch + h * stride.head) * size, stride.row,
                                         rows, width, tensors.STORED.index(kind)) for b in range(batch) for h in range(heads))


def _warn_nonfinite(spec: str, x: Operands) -> None:
    if not _is_finite(x.o) and all(map(_is_finite, (x.q, x.k, x.v))):
        warnings.warn(f"the output of {spec} is not finite, although q, k and v are", RuntimeWarning, stacklevel=4)


def _describe(t: Tensor) -> str:
    return f"{t.shape} of {tensors.NAMES[t.kind]}"


def _text(x: Any, name: str) -> bytes:
    """A text for the library, which would end it at a NUL."""
    if not isinstance(x, str):
        raise TypeError(f"{name} is a {type(x).__name__}; expected a string")
    if "\0" in x:
        raise ValueError(f"{name}={x!r} has a NUL character")
    return x.encode()


def _integer(x: Any, name: str, largest: int) -> int:
    """An integer that a field of the library holds; ctypes would take it modulo a power of two."""
    try:
        value = operator.index(x)
    except TypeError:
        value = None
    if value is None or isinstance(x, bool):
        raise TypeError(f"{name} is a {type(x).__name__}; expected an integer")
    if not 0 <= value <= largest:
        raise ValueError(f"{name}={x}; expected 0 to {largest}")
    return value


def _flag(x: Any, name: str) -> bool:
    """A truth value. "no" and 2 are true to Python, and are none."""
    if isinstance(x, bool) or type(x).__name__ in ("bool_", "bool") and type(x).__module__ == "numpy":
        return bool(x)
    raise TypeError(f"{name}={x!r}; expected True or False")


def _problem(x: Operands, *, causal: bool = False, scale: float | None = None, mask: Any = None, bias: Any = None,
             alibi: bool = False, softcap: float | None = None, leaky: float | None = None,
             sink: Any = None) -> tuple[Problem, list[Any]]:
    """The problem, and what its pointers point to."""
    batch, heads, n_q, d = x.q.shape
    n_kv, d_v = x.k.shape[2], x.v.shape[3]
    p = Problem(batch=batch, heads=heads, kv_heads=x.k.shape[1], n_q=n_q, n_kv=n_kv, d_qk=d, d_v=d_v, q=x.q.stride,
                k=x.k.stride, v=x.v.stride, o=x.o.stride, dtype=tensors.STORED.index(x.q.place.kind),
                causal=_flag(causal, "causal"),
                scale=1 / math.sqrt(d) if scale is None else scale)
    held: list[Any] = []
    for name, value in ("softcap", softcap), ("leaky", leaky):
        if value is not None:
            if not value > 0:
                raise ValueError(f"{name}={value}; expected a number above 0")
            setattr(p.score, name, value)
    if _flag(alibi, "alibi"):
        n = max(n_q, n_kv)
        table = (c_double * (heads * (2 * n - 1)))()
        check(library().attn_alibi(heads, n, table))
        p.score.relative, p.score.relative_heads, p.score.span, p.score.zero = table, heads, 2 * n - 1, n - 1
        held.append(table)
    if sink is not None:
        logits = _numbers(sink, "sink", heads)
        p.score.sink = (c_double * heads)(*logits)
        held.append(p.score.sink)
    if isinstance(mask, str):
        p.mask = _mask_of(mask, n_kv, held)
        mask = None
    if mask is not None or bias is not None:
        dense = _dense(mask, bias, (batch, heads, n_q, n_kv), x.q.place.kind)
        p.score.dense.at, p.score.dense.dtype = dense.place.address, tensors.COMPUTED.index(dense.place.kind)
        p.score.dense.row = dense.stride.row
        p.score.dense.batch, p.score.dense.head = (
            step if length > 1 else 0 for step, length in zip((dense.stride.batch, dense.stride.head), dense.shape))
        held.append(dense.place.owner)
    return p, held


def _mask_of(text: str, n_kv: int, held: list[Any]) -> Mask:
    """A mask that has a name."""
    kind, _, size = text.partition(":")
    numbers = size.split("+")
    if kind not in MASK_KINDS or not all(n.isdecimal() for n in numbers) or (len(numbers) > 1 and kind != "documents"):
        raise ValueError(f"mask={text!r}; expected \"prefix:SIZE\", \"block_causal:SIZE\", \"documents:SIZE\" or "
                         "\"documents:0+30+100\"")
    begins = [_integer(int(n), "mask: its size", INT64_MAX) for n in numbers]
    if kind != "documents":
        return Mask(kind=MASK_KINDS[kind], size=begins[0])
    if len(begins) == 1:
        begins = list(range(0, n_kv, begins[0])) if begins[0] else [0]
    offsets = (c_int64 * (len(begins) + 1))(*begins, n_kv)
    held.append(offsets)
    return Mask(kind=MASK_KINDS[kind], offsets=offsets, count=len(begins))


def _dense(mask: Any, bias: Any, shape: tuple[int, int, int, int], kind: str) -> Arranged:
    """Mask and bias as numbers that are added to the scores; a bias alone is read where it is, if it can be."""
    import numpy

    if mask is not None:
        tensors.refuse_lossy(mask, "mask")
        mask = tensors.to_numpy(mask)  # PyTorch's booleans have no DLPack before 2
    for name, x in ("mask", mask), ("bias", bias):
        if x is None:
            continue
        given = look_at(x, name)
        own = (1,) * (4 - len(given.shape)) + given.shape
        if len(own) != 4 or not all(length in (1, wanted) for length, wanted in zip(own, shape)):
            raise ValueError(f"{name} has the shape {given.shape}; expected [n_q, n_kv] = {list(shape[2:])}, with heads, or "
                             f"batch and heads = {list(shape[:2])} before them, or 1 for any of them")
        if (given.kind == "b1") != (name == "mask"):
            raise TypeError(f"{name} is of {tensors.NAMES[given.kind]}; a mask has booleans, True where a query sees a "
                            "key, a bias floating-point numbers")
    if mask is None:
        wide = tensors.widen(bias, "bias")
        if tensors.readable(look_at(wide, "bias"), shape[2:]):
            return arrange(look_at(wide, "bias"), "bias", "bhnd")
        numbers = tensors.to_numpy(wide)
    else:
        added = 0 if bias is None else tensors.to_numpy(tensors.widen(bias, "bias"))
        numbers = numpy.where(mask, added, -numpy.inf).astype("float64" if kind == "f8" else "float32")
    rows = numpy.broadcast_to(numbers, numbers.shape[:-2] + shape[2:])
    return arrange(look_at(numpy.array(rows, order="C"), "bias"), "bias", "bhnd")


def _numbers(x: Any, name: str, count: int) -> list[float]:
    """A list of `count` numbers from one number, repeated, or from that many."""
    tensors.refuse_lossy(x, name)
    values = [float(n) for n in x] if getattr(x, "shape", None) or isinstance(x, (list, tuple)) else [float(x)] * count
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} numbers, expected one or {count}")
    return values


def _counts(given: Any, x: Operands, name: str, largest: int) -> Any:
    """An integer from 0 to `largest` for each batch entry."""
    if given is None:
        return None
    batch = x.q.shape[0]
    counts = _numbers(given, name, batch)
    if not all(0 <= n <= largest and n.is_integer() for n in counts):
        raise ValueError(f"{name}={given}, expected 0 to {largest}")
    return (c_int64 * batch)(*map(int, counts))


_thread = threading.local()


@contextlib.contextmanager
def _work(size: int) -> Iterator[int | None]:
    """Work memory of a call, its address. A thread keeps it for its next one, unless it is large."""
    if not size:
        yield None
        return
    memory = getattr(_thread, "work", None)
    if memory is None or len(memory) < size:
        memory = mmap.mmap(-1, size)
    yield ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if len(memory) <= KEPT_WORK:
        _thread.work = memory


_plans: collections.OrderedDict[Any, Plan] = collections.OrderedDict()
_plans_lock = threading.Lock()


def _kept_plan(operands: Operands, spec: str, target: dict[str, Any], threads: int, isa: str | None) -> Plan:
    """The plan of an earlier call that differs in values alone; those with arrays of their own are not kept."""
    target = {**TARGET, **target}
    keep = target["bias"] is None and (target["mask"] is None or isinstance(target["mask"], str))
    sink = target["sink"]
    for name in "causal", "alibi":
        target[name] = _flag(target[name], name)
    if sink is not None:
        target["sink"] = tuple(_numbers(sink, "sink", operands.q.shape[1]))
    key = (operands.form, spec, tuple(target.values()), threads, type(threads), isa) if keep else None  # 1.0 is refused
    with _plans_lock:
        plan = _plans.get(key)
        if plan:
            _plans.move_to_end(key)
            return plan
    plan = Plan.__new__(Plan)
    plan._create(operands, spec, target, threads, isa)
    if keep:
        with _plans_lock:
            _plans[key] = plan
            while len(_plans) > KEPT_PLANS:
                _plans.popitem(last=False)
    return plan


def matrix(q: Any, k: Any, spec: str = "tiled", *, layout: str = "bhnd", **target: Any) -> Any:
    """The weights that a variant gives to each key, [batch, heads, n_q, n_kv] (or without what q has not), of float32 or
    float64 as q. Rows of an exact variant are its softmax rows; those of an approximation need not add up to 1.

    A variant that does not look at V is linear in it, so V = I reads them off, some columns at a time: not the weights of
    one whose keys depend on values, as latents' and some evictions' do. Arguments as those of `attention`, of
    which `out` and `return_lse` make no sense here. The result is NumPy's, heads before queries in every layout."""
    import numpy

    q, k = (tensors.to_numpy(tensors.widen(x, name)) for x, name in ((q, "q"), (k, "k")))
    if layout == "bnhd" and q.ndim > 2:
        q, k = q.swapaxes(-3, -2), k.swapaxes(-3, -2)
    n_kv = k.shape[-2]
    weights = numpy.empty(q.shape[:-1] + (n_kv,), q.dtype)
    width = min(n_kv, 256)
    for first in range(0, n_kv, width):
        first = min(first, n_kv - width)
        columns = numpy.broadcast_to(numpy.eye(n_kv, width, -first, q.dtype), k.shape[:-1] + (width,))
        attention(q, k, columns, spec, out=weights[..., first:first + width], **target)
    return weights
