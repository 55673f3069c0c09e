"""What a function of Python declares of itself, for `judge` and `attnlab test python:...` to hold it to."""
from __future__ import annotations

from typing import Any, Callable, TypeVar

import numpy

F = TypeVar("F", bound=Callable[..., Any])
EXEMPTIONS = ("lookahead", "prefix", "rows", "batch", "length", "groups", "causal", "values", "heads")


class Claims:
    """What `variant` says; of a function without it everything is tested, as of exact attention."""

    def __init__(self, spec: str | None = None, causal: bool | None = None,
                 sees: Callable[[Any, Any, Any], Any] | None = None, exempt: dict[str, str] | None = None,
                 seed: str | None = None, unbiased: bool = False, state: str | None = None):
        if state is not None and (unbiased or causal is False):
            raise ValueError("state: a function that carries one is causal, and its output no draw")
        if spec is not None and sees is not None:
            raise ValueError("spec and sees: a spec says which keys are seen")
        if unbiased and (spec is not None or seed is None):
            raise ValueError("unbiased: expected seed, the name of the argument that seeds the draws, and no spec")
        for name, why in (exempt or {}).items():
            if name not in EXEMPTIONS:
                raise ValueError(f"exempt: '{name}' is no property; expected {', '.join(EXEMPTIONS)}")
            if not isinstance(why, str) or not why.strip():
                raise ValueError(f"exempt: expected why '{name}' cannot be kept, in words")
        self.spec, self.causal, self.sees = spec, causal, sees
        self.exempt = {name: " ".join(why.split())[:150] for name, why in (exempt or {}).items()}
        self.seed, self.unbiased, self.state = seed, unbiased, state

    def seen(self, head: int, n: int) -> numpy.ndarray:
        """Booleans [n, n]: does the query at position i see key j?"""
        assert self.sees is not None
        i, j = numpy.arange(n)[:, None], numpy.arange(n)
        try:
            found = numpy.asarray(self.sees(head, i, j))
        except Exception:  # pylint: disable=broad-except
            found = numpy.vectorize(lambda a, b: bool(self.sees(head, int(a), int(b))), otypes=[bool])(i, j)  # type: ignore[misc]
        return numpy.broadcast_to(found, (n, n)).astype(bool)

    def mask(self, heads: int, n_q: int, n_kv: int) -> numpy.ndarray | None:
        """The same of the last queries, or all and those before them, which see nothing, [heads, n_q, n_kv]; or None."""
        if not self.sees:
            return None
        seen = numpy.stack([self.seen(head, n_kv) for head in range(heads)])
        return seen[:, n_kv - n_q:] if n_q <= n_kv else numpy.pad(seen, ((0, 0), (n_q - n_kv, 0), (0, 0)))


def variant(*, spec: str | None = None, causal: bool | None = None, sees: Callable[[Any, Any, Any], Any] | None = None,
            exempt: dict[str, str] | None = None, seed: str | None = None, unbiased: bool = False,
            state: str | None = None) -> Callable[[F], F]:
    """Declares what a function computes:

        @attnlab.variant(sees=lambda head, i, j: abs(i - j) <= 8)
        def attention(q, k, v, causal=False): ...

    spec    the variant that it is, "longformer:window=256": the same keys, and the same output within rounding
    sees    sees(head, i, j): does the query at position i see key j? The output is a softmax over these keys, under a
            causal mask over those of them up to i. i and j may be arrays. Set sees.heads = True where heads differ
    causal  what it computes, where it has no such argument
    exempt  {property: reason}: what it cannot keep, of lookahead, prefix, rows, batch, length, groups, causal, values and
            heads (`attnlab describe PROP-PREFIX` and so on say what they are)
    seed    the name of the argument that seeds its draws, an integer: with the same one the output is the same
    unbiased  over seeds the mean of the output is exact attention, over the keys that `sees` lets through
    state   the name of the argument that takes the state that a call returned behind its output, where the sequence goes on:
            a cache, a recurrence. It is judged in parts of sequences, whose outputs must be those of one call (`split`)"""
    claims = Claims(spec, causal, sees, exempt, seed, unbiased, state)

    def declare(function: F) -> F:
        function.attnlab = claims  # type: ignore[attr-defined]
        return function

    return declare
