"""Exact attention in fp64 by NumPy, from the definitions in attn.h, and how far fp32 or fp64 may be from it."""
import numpy as np


def draw(seed, *shape, dtype="f4"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def scores(q, k, scale=None, softcap=None, leaky=None):
    """[..., heads, n_q, n_kv], of tensors [..., heads, n, d]."""
    q, k = q.astype("f8"), k.astype("f8")
    k = np.repeat(k, q.shape[-3] // k.shape[-3], -3)
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if leaky:
        s = np.where(s < 0, leaky * s, s)
    return s


def triangle(n_q, n_kv):
    """Which keys causal queries see."""
    return np.arange(n_kv) <= np.arange(n_q)[:, None] + n_kv - n_q


def weights(s, seen=True, sink=None):
    """The softmax of scores over the keys that are seen, with a sink [heads] in the denominator; and its log-sum-exp."""
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True)
    rest = 0
    if sink is not None:
        sink = np.asarray(sink, "f8")[:, None, None]
        top = np.maximum(top, sink)
        rest = np.exp(sink - top)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True) + rest
    return e / total, (np.log(total) + top)[..., 0]


def attention(q, k, v, seen=True, bias=0, sink=None, **of_scores):
    p, _ = weights(scores(q, k, **of_scores) + bias, seen, sink)
    return p @ np.repeat(v.astype("f8"), q.shape[-3] // v.shape[-3], -3)


def tolerance(q, k, v, scale=None, bias=0):
    """Both sides err by at most (2 n + 4 (d + 8) S) V u to first order: sums of n weights and their exponentials of
    scores |s| <= S that are sums of d products and a bias, times values |v| <= V; u half an epsilon."""
    n, d = k.shape[-2], q.shape[-1]
    largest = scores(abs(q), abs(k), scale).max() + np.abs(np.where(np.isfinite(bias), bias, 0)).max()
    return (2 * n + 4 * (d + 8) * largest) * abs(v).max() * np.finfo(v.dtype).eps / 2
