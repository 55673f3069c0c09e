"""What the tests of other projects would say of an output: beside our bounds, what an author's own tests let through.

    flash_attention  max |o - r| <= 2 max |p - r| + 2 max |(r + 0.3) - 0.3 - r|, p the textbook form in the type of q
                     (tests/test_flash_attn.py)
    fla              RMS(o - r) < 0.005 RMS(r) (flash-linear-attention, fla/utils); fla_ci: or, as its continuous integration
                     has it, RMS(o - r) < 0.01 RMS(r), or max |o - r| <= 0.3
    attention_gym    max |o - r| <= 2 (max |p - r| + eps max |r|), eps that of bfloat16 (attn_gym/testing)

r is exact attention in float64."""
from __future__ import annotations

from typing import Any

import numpy

RULES = ("flash_attention", "fla", "fla_ci", "attention_gym")
EPS_BF16 = 2.0**-7


def textbook(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """softmax(q k^T / sqrt(d)) v in the type of q, with its matrix of weights."""
    s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    n_q, n_kv = s.shape[-2:]
    if causal:
        s = numpy.where(numpy.arange(n_kv) <= numpy.arange(n_q)[:, None] + n_kv - n_q, s, s.dtype.type(-numpy.inf))
    p = numpy.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def passes(o: Any, right: Any, plain: Any) -> dict[str, bool]:
    """Of each rule, whether an output passes; plain: the textbook form's."""
    o, plain = o.astype("f8"), plain.astype("f8")
    off, usual, largest = numpy.abs(o - right).max(), numpy.abs(plain - right).max(), numpy.abs(right).max()
    narrow = right.astype("f4")
    slack = float(numpy.abs((narrow + numpy.float32(0.3)) - numpy.float32(0.3) - narrow).max())
    ratio = numpy.linalg.norm(o - right) / numpy.linalg.norm(right)
    return {"flash_attention": bool(off <= 2 * usual + 2 * slack), "fla": bool(ratio < 0.005),
            "fla_ci": bool(ratio < 0.01 or off <= 0.3), "attention_gym": bool(off <= 2 * (usual + EPS_BF16 * largest))}
