#!/usr/bin/python3
"""compare.py [--causal] [QKV.npz] SPEC... - variants on your own tensors: how far each is from exact attention, and how long
it takes. QKV.npz has q, k and v, [batch, heads, n, d]; without it they are drawn.

    PYTHONPATH=core/python python3 experiments/examples/compare.py --causal streaming:window=128 topk:k=64 performer

The times are of a few calls, for a first look; `attnlab run` measures with intervals and checks what it times."""
import sys
import time

import numpy as np

import attnlab


def drawn(n=1024, d=64):
    """Queries that each look for one of eight kinds of keys."""
    draw = np.random.default_rng(0)
    kinds = draw.normal(size=(8, d))
    q, k = (2 * kinds[draw.integers(8, size=(1, 4, n))] + draw.normal(size=(1, 4, n, d)) for _ in range(2))
    return [x.astype("f4") for x in (q, k, draw.normal(size=(1, 4, n, d)))]


def seconds(plan, q, k, v):
    """The median of five calls after one."""
    took = []
    for _ in range(6):
        begin = time.perf_counter()
        plan(q, k, v)
        took.append(time.perf_counter() - begin)
    return np.median(took[1:])


specs = [word for word in sys.argv[1:] if word != "--causal" and not word.endswith(".npz")] or ["streaming", "topk"]
files = [word for word in sys.argv[1:] if word.endswith(".npz")]
causal = "--causal" in sys.argv
q, k, v = [np.load(files[0])[name] for name in "qkv"] if files else drawn()

exact = attnlab.attention(*(x.astype("f8") for x in (q, k, v)), causal=causal)
print(f"{'':40}  error       time")
for spec in ["tiled", *specs]:
    try:
        plan = attnlab.Plan(q, k, v, spec, causal=causal)
        error = np.linalg.norm(plan(q, k, v) - exact) / np.linalg.norm(exact)
        print(f"{spec:40}  {error:.2e}  {1e3 * seconds(plan, q, k, v):6.2f} ms")
    except attnlab.Error as refusal:  # another's may still do
        print(f"{spec:40}  {refusal.status}: {refusal}")
