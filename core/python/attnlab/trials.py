"""What a function takes, found by calling it: masks, shapes and types, and what its outputs are worth."""
from __future__ import annotations

from typing import Any

import numpy

SHORT = {"float16": "f16", "bfloat16": "bf16"}  # of outputs
WORDS = {"full": "attention that is not causal", "causal": "a causal mask",
         "cross": "another number of queries than of keys", "groups": "heads that share keys",
         "widths": "values of another width than keys", "f64": "float64"}


class Broken(Exception):
    """The function broke its contract, as the sentence says."""


class Refused(Exception):
    """The function raised an exception: it does not take these arrays."""


def drawn_arrays(heads: int = 4, kv_heads: int = 4, n_q: int = 64, d_v: int = 16,
                 dtype: Any = numpy.float32) -> list[numpy.ndarray]:
    rng = numpy.random.default_rng(1)
    shapes = (1, heads, n_q, 16), (1, kv_heads, 64, 16), (1, kv_heads, 64, d_v)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def find_taken(f: Any) -> list[str]:
    """The words of the protocol's LIST for a serve.Function. ValueError: it does not take the plainest arrays."""
    tries = {"cross": {"n_q": 32}, "groups": {"kv_heads": 2}, "widths": {"d_v": 8}, "f64": {"dtype": numpy.float64}}
    masks, broken = _find_masks(f)
    causal = masks[-1] == "causal"
    found = ["f32", *masks, *(what for what in ("scale", "kv_len") if what in f.keywords)]
    if not broken:
        f.broken = "it writes a later output into the array of an earlier one" if _keeps_output(f, causal) else _unread_strides(f, causal)
    if "scale" in found and not broken:
        f.above_0 = _needs_scale_above_0(f, causal)
    if f.short:
        f.note(f"judged by the rounding of {f.short}, which it returns")
        found.append(SHORT[f.short])
    for what, other in {} if broken or f.broken else tries.items():
        try:
            o = f(*drawn_arrays(**other), causal=causal)
        except (Refused, Broken) as error:
            f.note(f"not judged: {WORDS[what]}: {error}")
            continue
        except TimeoutError:  # as the problems will show
            o = None
        if what == "f64" and o is not None and o.dtype != numpy.float64:
            f.note("not judged: float64")
            continue
        found.append(what)
    if "cross" in found and "causal" in found and not _begins_first(f):
        found.append("last")
    if "kv_len" in found and "causal" in found and ("last" in found or "cross" not in found):
        f.ends_at_length = _ends_at_length(f, 48 if "cross" in found else 64)
    if "kv_len" in found and not _fills_empty(f, causal):
        found.append("empty")
    return found


def _find_masks(f: Any) -> tuple[list[str], bool]:
    """Of full and causal attention what it computes of the plainest arrays, and whether it breaks its contract there, as
    every call will show."""
    both = "causal" in f.keywords and f.causal is None
    found, refused, broken = [], [], False
    for name in ("full", "causal"):
        if not both and (name == "causal") != bool(f.causal):
            continue
        try:
            f(*drawn_arrays(), causal=name == "causal")
        except Refused as error:
            refused.append((name, error))
            continue
        except Broken:
            broken = True
        except TimeoutError as error:
            broken, f.broken = True, str(error)
        found.append(name)
    if not found:
        raise ValueError(f"{f.name} raised {refused[0][1]} for q, k, v [1, 4, 64, 16] of float32") from refused[0][1]
    for name, error in refused:
        f.note(f"not judged: {WORDS[name]}: {error}")
    return found, broken


def _keeps_output(f: Any, causal: bool) -> bool:
    """Does a call with other values change what the call before returned?"""
    q, k, v = drawn_arrays()
    try:
        first = f(q, k, v, causal=causal)
        before = first.copy()
        f(q, k, -v, causal=causal)
    except (Broken, Refused, TimeoutError):
        return False
    return not numpy.array_equal(first, before, equal_nan=True)


def _unread_strides(f: Any, causal: bool) -> str | None:
    """What is wrong where arrays are transposed views, as those of [batch, n, heads, d] are."""
    arrays = drawn_arrays()
    try:
        plain = f(*arrays, causal=causal)
        f.strided = True
        off = numpy.abs(f(*arrays, causal=causal) - plain).max()
        f.strided = False
        same = numpy.abs(f(*arrays, causal=causal) - plain).max() < 0.05  # in 16 bits, too
    except (Broken, Refused, TimeoutError) as error:
        f.note(f"not judged: arrays that are not contiguous: {error}")
        return None
    finally:
        f.strided = False
    return "it reads transposed arrays in the order of their memory" if same and not off < 0.05 else None


def _needs_scale_above_0(f: Any, causal: bool) -> bool:
    """Does -inf of what is hidden become +inf, as it does where scores are masked before they are scaled?"""
    try:
        needs = not numpy.isfinite(f(*drawn_arrays(), causal=causal, scale=-0.5)).all()
    except (Broken, Refused, TimeoutError):
        return False
    if needs:
        f.note("not judged: scales of 0 and below, for which it returns what is not finite")
    return needs


def _fills_empty(f: Any, causal: bool) -> bool:
    """Has a batch entry without a key outputs that are numbers, and other than 0?"""
    try:
        o = f(*drawn_arrays(), causal=causal, kv_len=numpy.zeros(1, numpy.int64))
        filled = bool(numpy.isfinite(o).all() and o.any())
    except Refused:
        filled = True
    except (Broken, TimeoutError):
        filled = False
    if filled:
        f.note("not judged: batch entries without a key, whose rows are zeros by the definition")
    return filled


def _begins_first(f: Any) -> bool:
    """Of fewer queries than keys: does its causal mask let the first query see the first key alone?"""
    q, k, v = drawn_arrays(n_q=32)
    try:
        o = f(q, k, v, causal=True)
    except (Refused, Broken, TimeoutError):
        return False
    first = numpy.abs(o[:, :, 0] - v[:, :, 0]).max() < 0.05  # in 16 bits, too
    if first:
        f.note("not judged: fewer queries than keys under a causal mask: its mask begins at the first key, "
               "attnlab's ends at the last")
    return bool(first)


def _ends_at_length(f: Any, n_q: int) -> bool:
    """Of 48 keys of 64 that exist: does its causal mask end at the last of them, so that the first is seen alone by the
    query 48 from the end?"""
    q, k, v = drawn_arrays(n_q=n_q)
    try:
        o = f(q, k, v, causal=True, kv_len=numpy.full(1, 48))
    except (Refused, Broken, TimeoutError):
        return False
    if not numpy.abs(o[:, :, n_q - 48] - v[:, :, 0]).max() < 0.05:  # in 16 bits, too
        return False
    f.note("its causal mask ends at kv_len, attnlab's at the last key of the array: it is given queries where it has them")
    return True
