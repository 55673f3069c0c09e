"""What the functions that are judged share: a list of them, and steps of attention in NumPy."""
from typing import Any, Callable, NamedTuple

import numpy as np


class Candidate(NamedTuple):
    """A function for the judge. kind: what is wrong, or what is unusual; witness: whether an input of n <= 8 shows it;
    options: of judge."""
    function: Callable[..., Any]
    kind: str
    witness: bool
    options: dict[str, Any]


def lister(candidates):
    """Adds functions to a dict: a decorator, or given the name and the function."""
    def listed(kind, name=None, function=None, *, witness=True, **options):
        def add(function):
            own = name or function.__name__
            assert own not in candidates, own
            candidates[own] = Candidate(function, kind, witness, options)
            return function
        return add(function) if function else add
    return listed


def scores(q, k):
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=q.dtype)


def offsets(n_q, n_kv):
    """Of each query and key the position of the key less that of the query, the last of both at the same one."""
    return np.arange(n_kv) - np.arange(n_q)[:, None] - (n_kv - n_q)


def hide(s, causal, shift=0):
    return np.where(offsets(*s.shape[-2:]) <= shift, s, -np.inf) if causal else s


def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def attend(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal)) @ v


def repeat(q, *others):
    """Keys and values for every head of queries."""
    return [x.repeat(q.shape[1] // x.shape[1], axis=1) for x in others]


def to_bfloat16(x):
    bits = x.astype("f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("f4").astype(x.dtype)
