"""Whether a function that carries a state gives a sequence in parts the output of one call, however it is cut."""
from __future__ import annotations

import numpy

from .claims import Claims
from .judged_sums import UNITS
from .serve import Function
from .trials import Broken, Refused

LENGTHS, CUTS, D = (2, 3, 5, 8, 33, 130), 4, 4


def judge(served: Function, claims: Claims) -> tuple[list[str], str | None]:
    """A sentence on a row that differs, and why none was judged, or None."""
    rng, dtype = numpy.random.default_rng(), "f8" if "f64" in served.takes() else "f4"
    for n in [] if claims.state is None else numpy.repeat(LENGTHS, CUTS):
        q, k, v = rng.standard_normal((3, 2, 2, n, D)).astype(dtype)
        cuts = sorted((rng.choice(n - 1, rng.integers(1, n), replace=False) + 1).tolist())
        try:
            whole, o = (served.in_parts(q, k, v, at) for at in ([], cuts))
        except Refused as error:
            return [], str(error)
        except (Broken, TimeoutError) as error:
            return [str(error)], None
        off = abs(o - whole) / max(1, abs(whole).max())
        at = numpy.unravel_index(numpy.nan_to_num(off, nan=numpy.inf).argmax(), off.shape)
        # Sums of n products at most, with weights of sums of D, in any order, of numbers up to some times the largest output.
        if not off[at] <= 16 * (n + D) * (UNITS[served.short] if dtype == "f4" else 2.0**-53):
            return [f"n = {n}, d = {D}: cut before row {', '.join(map(str, cuts))}, batch entry {at[0]}, head {at[1]}, "
                    f"row {at[2]} is {o[at]:.5g}, and in one call {whole[at]:.5g}"], None
    return [], "it carries no state" if claims.state is None else None
