"""Whether a function of draws has the mean that it claims, exact attention, and repeats its output for the same seed.

V has orthonormal rows, so that O V^T is the matrix of weights that gave the output. Sums of its rows, over all and for each
head and query, its product with the exact weights, and the weights of a key and of a pair are averaged over S seeds. An
average of S numbers of variance s^2 within a range R is off by at most s sqrt(2 L / S) + 7 R L / (3 (S - 1)), with
L = ln(4 m / LEVEL) for m averages (Maurer and Pontil 2009, arXiv:0907.3740, theorem 4, on both sides); R is the range of the
numbers drawn, in place of that of all. S is as many as the clock allows, whatever they are."""
from __future__ import annotations

import math
import time
from typing import Any

import numpy

from . import compute
from .claims import Claims
from .judged_sums import UNITS
from .serve import Function
from .trials import Broken, Refused

LEVEL, SECONDS, MOST, CHUNK, HEADS, N = 1e-6, 8.0, 8000, 50, 8, 32


def judge(served: Function, claims: Claims) -> tuple[list[str], str | None]:
    """Sentences on what is wrong, and why nothing was judged, or None."""
    masks = [mask for mask, name in ((False, "full"), (True, "causal")) if name in served.takes()]
    for causal in masks:
        try:
            wrong = _judge(served, claims, causal, len(masks))
        except Refused as error:
            return [], str(error)
        except (Broken, TimeoutError) as error:
            wrong = str(error)
        if wrong:
            return [f"{'causal: ' if causal else ''}{wrong}"], None
    return [], None


def _judge(served: Function, claims: Claims, causal: bool, masks: int) -> str | None:
    rng, dtype = numpy.random.default_rng(), "f8" if "f64" in served.takes() else "f4"
    q, k, v = rng.standard_normal((3, 1, HEADS, N, N)).astype(dtype)
    v = numpy.linalg.qr(v)[0]
    back = v.astype("f8").swapaxes(-1, -2)
    exact = compute.attention(*(x.astype("f8") for x in (q, k, v)), causal=causal, mask=claims.mask(HEADS, N, N)) @ back

    def weights(seed: Any) -> Any:
        return served(q, k, v, causal=causal, seed=int(seed)).astype("f8") @ back

    first = numpy.stack([weights(seed) for seed in (7, 8, 7, 9, 7)])
    # Sums of N products for a score, and of N weights, in any order, of numbers up to the largest weight.
    scores = float((abs(q) @ abs(k).swapaxes(-1, -2)).max()) * N**-0.5
    rounding = 16 * N * (UNITS[served.short] if dtype == "f4" else 2.0**-53) * (1 + scores) * max(1, float(abs(first).max()))
    if not (abs(first[::2] - first[0]) <= rounding).all():
        return "with the same seed its output is another in another call"
    seeds, drawn, end = rng.choice(2**31, (MOST // CHUNK, CHUNK), replace=False), [], time.monotonic() + SECONDS / masks
    while len(drawn) < 2 or (time.monotonic() < end + (len(drawn) < 20) * 3 * SECONDS and len(drawn) < len(seeds)):  # if busy
        drawn.append(_averages(numpy.stack([weights(seed) for seed in seeds[len(drawn)]]), exact))
    count = len(drawn) * CHUNK
    level = math.log(4 * masks * sum(x.shape[1] for x in drawn[0].values()) / LEVEL)
    worst, said = 1.0, None
    for name, right in _averages(exact[None], exact).items():
        x = numpy.concatenate([one[name] for one in drawn])
        most = x.std(0, ddof=1) * math.sqrt(2 * level / count) + 7 * numpy.ptp(x, 0) * level / (3 * (count - 1)) + rounding
        ratio = numpy.nan_to_num(abs(x.mean(0) - right[0]) / most, nan=numpy.inf)
        at = int(ratio.argmax())
        if name.endswith("row's weights"):
            served.note(f"of the mean of its draws{', causal,' if causal else ''} a factor {1 + 2 * most[0]:.4g} would show")
        if ratio[at] > worst:
            worst, said = ratio[at], (f"over {count} seeds the mean of {name.format(at, at // N, at % N)} is {x.mean(0)[at]:.5g}, "
                                      f"of exact attention {right[0, at]:.5g} (at most {most[at]:.2g} off)")
    return said


def _averages(weights: Any, exact: Any) -> dict[str, Any]:
    sums, pairs = weights.sum(-1), weights.mean((1, 2))
    return {"the sum of a row's weights": sums.mean((1, 2, 3))[:, None],
            "the product with the exact weights, over their square,": (weights * exact).sum((2, 3, 4)) / (exact**2).sum(),
            "the sum of a row's weights in head {0}": sums.mean((1, 3)),
            "the sum of the weights of query {0}": sums.mean((1, 2)),
            "the weight of key {0}": pairs.mean(1),
            "the weight of key {2} for query {1}": pairs.reshape(len(pairs), -1)}
