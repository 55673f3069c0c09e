"""The gradients that PyTorch derives of a function, or that it gives itself, against those of its definition."""
from __future__ import annotations

import sys
from typing import Any

import numpy

from . import compute, library
from .claims import Claims
from .serve import Function

SHAPES = ((1, 1, 1, 3, 2), (2, 2, 2, 5, 4), (1, 4, 2, 7, 3), (1, 2, 2, 33, 8))  # batch, heads, heads of k, n, d
ALLOWED = {"float64": 1e-9, "float32": 1e-4}  # of the largest gradient


def judge(served: Function, claims: Claims) -> tuple[list[str], str | None]:
    """Sentences on gradients that are wrong, and why none were asked for, or None."""
    if served.arrays != "torch":
        return [], "gradients are those of PyTorch"
    takes, wrong, asked = served.takes(), [], 0
    if served.short:
        return [], f"outputs are of {served.short}"
    dtype = "float64" if "f64" in takes else "float32"
    for batch, heads, kv_heads, n, d in SHAPES:
        for causal in (mask for mask, name in ((False, "full"), (True, "causal")) if name in takes):
            if heads != kv_heads and "groups" not in takes:
                continue
            rng = numpy.random.default_rng(n)
            q, k, v, g = (rng.standard_normal((batch, h, n, d)).astype(dtype) for h in (heads, kv_heads, kv_heads, heads))
            try:
                right = compute.backward(q, k, v, g, claims.spec or "tiled", causal=causal, mask=claims.mask(heads, n, n))
            except library.Error as error:
                return [], f"the definition has no gradient: {error}"
            try:
                given = _derived(served, (q, k, v), g, causal)
            except Exception as error:  # pylint: disable=broad-except
                return [], f"it raised {type(error).__name__} where gradients are required"
            if given is None:
                return [], "the output requires no gradient"
            asked += 1
            for name, own, other in zip("qkv", given, right):
                size = max(float(numpy.abs(other).max()), 1e-30)
                off = numpy.abs(own - other)
                if not off.max() <= ALLOWED[dtype] * size:
                    at = numpy.unravel_index(numpy.nanargmax(numpy.where(numpy.isnan(off), numpy.inf, off)), off.shape)
                    wrong.append(f"n = {n}, d = {d}{', causal' if causal else ''}: the gradient by {name} of batch entry {at[0]}, "
                                 f"head {at[1]}, row {at[2]} is {own[at]:.4g}, and of the definition {other[at]:.4g}")
        if wrong:
            break
    return wrong, None if asked else "no problem of the kind"


def _derived(served: Function, operands: tuple[Any, ...], g: Any, causal: bool) -> list[Any] | None:
    torch = sys.modules["torch"]
    given = [served.given(x).requires_grad_() for x in operands]
    keywords = {served.keywords["causal"]: causal} if "causal" in served.keywords else {}
    if "enable_gqa" in served.keywords:
        keywords[served.keywords["enable_gqa"]] = operands[0].shape[1] != operands[1].shape[1]
    o = served.function(*given, **keywords)
    o = o[0] if isinstance(o, (tuple, list)) else o
    if not o.requires_grad:
        return None
    gradients = torch.autograd.grad(o, given, served.given(g).to(o.dtype), allow_unused=True)
    back = (numpy.zeros_like(x.detach()) if y is None else y.numpy() for x, y in zip(given, gradients))
    return [y.transpose(0, 2, 1, 3) if served.layout == "bnhd" else y for y in back]
