"""The log-sum-exp that a function returns besides its output, if just one other array has a number for each row."""
from __future__ import annotations

import numpy

from . import compute
from .claims import Claims
from .serve import Function
from .trials import Broken, Refused, drawn_arrays

UNITS = {None: 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def judge(served: Function, claims: Claims) -> tuple[list[str], str | None]:
    """A sentence on sums that are wrong, and why none were judged, or None. Sums in the base 2 are right, too."""
    if claims.spec or claims.state:
        return [], "it claims a spec or a state"
    q, k, v = drawn_arrays()
    rows, causal = q.shape[:3], "causal" in served.takes()
    try:
        served(q, k, v, causal=causal)
    except (Broken, Refused, TimeoutError) as error:
        return [], str(error)
    arrays = [numpy.asarray(x.detach().float() if hasattr(x, "detach") else x) for x in served.rest]
    sums = [x.reshape(rows) for x in arrays if x.shape in (rows, (*rows, 1))]
    if len(sums) != 1:
        return [], "it returns no numbers of rows, or several"
    wide, mask = (x.astype("f8") for x in (q, k, v)), claims.mask(rows[1], rows[2], rows[2])
    _, right = compute.attention(*wide, causal=causal, mask=mask, return_lse=True)
    # Sums of d products, and of as many exponentials as there are keys, in any order, of scores within 16.
    most = 64 * (q.shape[3] + rows[2]) * UNITS[served.short]
    off = numpy.where(numpy.isfinite(right), numpy.minimum(*(abs(sums[0] - right / x) for x in (1, numpy.log(2)))), 0)
    at = numpy.unravel_index(numpy.nan_to_num(off, nan=numpy.inf).argmax(), rows)
    return [] if off[at] <= most else [f"of head {at[1]}, row {at[2]} it is {sums[0][at]:.6g}, by the definition {right[at]:.6g}"], None
