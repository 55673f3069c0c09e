#!/usr/bin/python3
"""feature_map.py - attention without softmax by a feature map of yours, linear in n, judged: a plain function of NumPy,
held against the definition of the variant that it claims to be, and every property of that variant.

    o_i = phi(q_i).sum_j phi(k_j) v_j / phi(q_i).sum_j phi(k_j),   phi(x) = elu(x) + 1

    PYTHONPATH=core/python python3 experiments/examples/feature_map.py

features.c is a feature map as a plug-in, which experiments take."""
import sys

import numpy as np

import attnlab


def phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def attention(q, k, v, causal=False):
    """[batch, heads, n, d]. The state after key j is the sum of phi(k) v^T over the keys so far, and that of phi(k)."""
    f, g = phi(q), phi(k)
    ones = np.ones_like(v[..., :1])
    pairs = np.einsum("bhnf,bhnd->bhnfd", g, np.concatenate([v, ones], -1))
    if causal:
        n_q, n_kv = q.shape[2], k.shape[2]
        state = np.cumsum(pairs, 2)[:, :, n_kv - n_q:]  # the last query sees every key
        o = np.einsum("bhnf,bhnfd->bhnd", f, state)
    else:
        o = np.einsum("bhnf,bhfd->bhnd", f, pairs.sum(2))
    return o[..., :-1] / o[..., -1:]


verdict = attnlab.judge(attention, "linear:feature=elu")
print(verdict)
sys.exit(not verdict)
