"""In words what is wrong with a function on a small input: on which keys a row depends, and which known mistake gives its
output."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy

from .serve import Broken, Function, Refused

Attention = Callable[[Any, Any, Any], Any]
ROWS_MOST, DISTANCE = 64, 1e-3


def explain(served: Function, exact: Attention, witness: dict[str, Any]) -> str | None:
    """A sentence, or None where nothing fits."""
    q, k, v, o, right = (witness.get(name) for name in ("q", "k", "v", "o", "expected"))
    if o is None or right is None or k.shape[1] * k.shape[2] * k.shape[0] > ROWS_MOST:
        return None
    usual = q.shape[-1] ** -0.5
    scale = None if abs(witness["scale"] - usual) <= 1e-12 * usual else witness["scale"]
    lengths = None if witness["kv_len"] is None else numpy.array(witness["kv_len"])

    def given(q: Any, k: Any, v: Any) -> Any:
        filled = (numpy.nan_to_num(x, nan=100.0) for x in (q, k, v))
        return served(*filled, causal=witness["causal"], scale=scale, kv_len=lengths)

    try:
        found = _not_a_number(o, right) or _another(given, q, k, v)
        # What one output of draws depends on, another may not.
        return found if "seed" in served.keywords else found or _dependence(given, exact, q, k, v) or _mistake(q, k, v, o, right, witness)
    except (Broken, Refused, TimeoutError):
        return None


def _place(at: Any, shape: tuple[int, ...]) -> str:
    """"row 1", and its batch entry and head where there are several."""
    words = [f"{name} {int(i)}" for name, i, n in zip(("batch entry", "head"), at, shape) if n > 1]
    return ", ".join([*words, f"row {int(at[2])}"])


def _not_a_number(o: Any, right: Any) -> str | None:
    wrong = numpy.argwhere(~numpy.isfinite(o) & numpy.isfinite(right))
    if not len(wrong):
        return None
    return f"{_place(wrong[0], o.shape)} is {o[tuple(wrong[0])]:g}, where it should be {right[tuple(wrong[0])]:.4g}"


def _another(given: Attention, q: Any, k: Any, v: Any) -> str | None:
    """Two calls with the same arrays that differ."""
    first = given(q, k, v)
    for _ in range(20):
        again = given(q, k, v)
        if not numpy.allclose(first, again, rtol=1e-4, equal_nan=True):
            at = numpy.argwhere(~numpy.isclose(first, again, rtol=1e-4, equal_nan=True))[0]
            return f"{_place(at, first.shape)} differs from call to call: {first[tuple(at)]:.4g}, then {again[tuple(at)]:.4g}"
    return None


def _changed(f: Attention, before: Any, q: Any, k: Any, v: Any) -> Any:
    """Rows [batch, heads, n_q] whose output is another than before."""
    after = f(q, k, v)
    same = numpy.isclose(after, before, rtol=1e-4, atol=1e-4 * (1 + numpy.abs(before).max(initial=0)), equal_nan=True)
    return ~same.all(axis=-1)


def _dependence(given: Attention, exact: Attention, q: Any, k: Any, v: Any) -> str | None:
    """A row that depends on a key or a query on which it must not, or does not on one on which it must."""
    ours, theirs = exact(q, k, v), given(q, k, v)
    if not numpy.isfinite(theirs).all():
        return None
    missing = None
    for b, h, j in numpy.ndindex(k.shape[:3]):
        other_k, other_v = k.copy(), v.copy()
        other_k[b, h, j] = numpy.nan_to_num(-k[b, h, j] + 0.5, nan=0.25)  # padding, too, is another
        other_v[b, h, j] = numpy.nan_to_num(-v[b, h, j] + 3, nan=0.25)
        must, does = _changed(exact, ours, q, other_k, other_v), _changed(given, theirs, q, other_k, other_v)
        key = ", ".join([*(f"{name} {i}" for name, i, n in zip(("batch entry", "head"), (b, h), k.shape) if n > 1), f"key {j}"])
        for at in numpy.argwhere(does & ~must)[:1]:
            return f"{_place(at, q.shape)} depends on {key}, which it must not see"
        for at in numpy.argwhere(must & ~does)[:1]:
            missing = missing or f"{_place(at, q.shape)} does not depend on {key}, which it sees"
    for b, h, i in numpy.ndindex(q.shape[:3]):
        other_q = q.copy()
        other_q[b, h, i] = -q[b, h, i] + 0.5
        does = _changed(given, theirs, other_q, k, v)
        does[b, h, i] = False
        for at in numpy.argwhere(does)[:1]:
            return f"{_place(at, q.shape)} depends on the query of {_place((b, h, i), q.shape)}"
    return missing


def _weights(q: Any, k: Any, witness: dict[str, Any], scale: float) -> Any:
    """exp of the scores that are seen, over those of the row; K has as many heads as Q."""
    s = scale * q @ k.swapaxes(-1, -2)
    if witness["causal"]:
        n_q, n_kv = s.shape[-2:]
        s = numpy.where(numpy.arange(n_kv) <= numpy.arange(n_q)[:, None] + n_kv - n_q, s, -numpy.inf)
    if witness["kv_len"] is not None:
        seen = numpy.arange(s.shape[-1]) < numpy.array(witness["kv_len"])[:, None, None, None]
        s = numpy.where(seen, s, -numpy.inf)
    return s


def _softmax(s: Any, axis: int = -1) -> Any:
    with numpy.errstate(all="ignore"):
        return numpy.nan_to_num(numpy.exp(s - s.max(axis=axis, keepdims=True)) / numpy.exp(
            s - s.max(axis=axis, keepdims=True)).sum(axis=axis, keepdims=True))


def _mistakes(q: Any, k: Any, v: Any, witness: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Sentences, and the outputs of exact attention with that mistake."""
    q, k, v = (numpy.nan_to_num(x.astype("f8")) for x in (q, k, v))
    group, c, d = q.shape[1] // k.shape[1], witness["scale"], q.shape[-1]
    wide_k, wide_v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    for other, sentence in ((1.0, "without the scale: the scores are q.k"), (c * c, "with the scale twice"),
                            (1 / d, "with the scale 1/d"), (d ** 0.5, "with the scale sqrt(d) in place of 1/sqrt(d)"),
                            (-c, "with the scale of the other sign")):
        yield sentence, _softmax(_weights(q, wide_k, witness, other)) @ wide_v
    s = _weights(q, wide_k, witness, c)
    yield "with a softmax over the queries in place of the keys", _softmax(s, -2) @ wide_v
    with numpy.errstate(all="ignore"):
        yield "with weights that are not divided by their sum", numpy.exp(s) @ wide_v
        yield "with weights that are divided by 1 and their sum", numpy.exp(s) / (1 + numpy.exp(s).sum(-1, keepdims=True)) @ wide_v
    yield "with the mask multiplied instead of hidden", _softmax(numpy.where(numpy.isfinite(s), s, 0)) @ wide_v
    if group > 1:
        tiled = (numpy.tile(x, (1, group, 1, 1)) for x in (k, v))
        k_tiled, v_tiled = tiled
        yield ("with keys for heads 0, 1, ..., 0, 1, ...: query head h reads key head h mod kv_heads, not h / group",
               _softmax(_weights(q, k_tiled, witness, c)) @ v_tiled)
    for kind in ("float16", "bfloat16"):
        short_q, short_k, short_v = (_rounded(x, kind) for x in (q, wide_k, wide_v))
        yield f"with q, k and v rounded to {kind}", _softmax(_weights(short_q, short_k, witness, c)) @ short_v
        yield f"rounded to {kind}", _rounded(_softmax(s) @ wide_v, kind)
        yield f"with weights rounded to {kind}", _rounded(_softmax(s), kind) @ wide_v
    for shift in (1, -1):
        yield f"with the values of {'later' if shift < 0 else 'earlier'} keys", _softmax(s) @ numpy.roll(wide_v, shift, axis=2)


def _rounded(x: Any, kind: str) -> Any:
    if kind == "float16":
        return x.astype("f2").astype("f8")
    bits = x.astype("f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("u4").view("f4").astype("f8")


def _mistake(q: Any, k: Any, v: Any, o: Any, right: Any, witness: dict[str, Any]) -> str | None:
    size = numpy.abs(right).max(initial=0) + 1e-30
    apart = numpy.abs(o - right).max(initial=0)
    for sentence, other in _mistakes(q, k, v, witness):
        if numpy.abs(other - right).max() > apart / 2 and numpy.abs(o - other).max() <= max(DISTANCE * apart, min(1e-6 * size, apart / 4)):
            return f"its output is that of attention {sentence}"
    return None
