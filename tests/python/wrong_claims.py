"""Functions that claim to be a spec and are not, one mistake each: CLAIMS[name] of a Candidate."""
import numpy as np

import attnlab
from plain_attention import lister, offsets, scores, softmax

CLAIMS = {}
claim = lister(CLAIMS)


def over(q, k, v, seen):
    """Softmax over the keys that are seen, at least one in each row."""
    return softmax(np.where(seen, scores(q, k), -np.inf)) @ v


def window(q, k, causal, before, behind, first=0):
    at = offsets(q.shape[2], k.shape[2])
    seen = (at >= -before) & (at <= (0 if causal else behind))
    return seen | ((np.arange(k.shape[2]) < first) & ((at <= 0) | (not causal)))


STREAM = {"spec": "streaming:sink=2,window=3", "causal": True}
RETENTION = {"spec": "recurrent:rule=retention,decay=constant,gamma=0.9", "causal": True}
PERFORMER = "performer:features=32,seed=3"

claim("window one short", "window_one_short", lambda q, k, v, causal=False:
      over(q, k, v, window(q, k, causal, 3, 3)), spec="longformer:window=8")
claim("window one short on one side", "window_lopsided", lambda q, k, v, causal=False:
      over(q, k, v, window(q, k, causal, 3, 4)), spec="longformer:window=8")
claim("the causal window counts both sides", "window_twice", lambda q, k, v, causal=False:
      over(q, k, v, window(q, k, causal, 4 if causal else 2, 2)), spec="longformer:window=4")
claim("a window without its sinks", "sinks_missing", lambda q, k, v: over(q, k, v, window(q, k, True, 2, 0)), **STREAM)
claim("sinks one short", "sinks_one_short", lambda q, k, v: over(q, k, v, window(q, k, True, 2, 0, 1)), **STREAM)
claim("global tokens see no more than others", "global_queries_missing", lambda q, k, v, causal=False:
      over(q, k, v, window(q, k, causal, 2, 2, 1)), spec="longformer:window=4,global=1")
claim("one key fewer", "one_key_fewer", lambda q, k, v, causal=False: largest(q, k, v, causal, 3), spec="topk:k=4")


@claim("the smallest scores", spec="topk:k=4")
def smallest_scores(q, k, v, causal=False):
    s = scores(q, k)
    allowed = (offsets(*s.shape[-2:]) <= 0) | (not causal)
    least = np.sort(np.where(allowed, s, np.inf), axis=-1)[..., :4][..., -1:]
    return softmax(np.where(allowed & (s <= least), s, -np.inf)) @ v


def largest(q, k, v, causal, count):
    s = scores(q, k)
    s = np.where((offsets(*s.shape[-2:]) <= 0) | (not causal), s, -np.inf)
    bar = np.sort(s, axis=-1)[..., -count:][..., :1]
    return softmax(np.where(s >= bar, s, -np.inf)) @ v


@claim("selection before the mask", spec="topk:k=4")
def selected_before_mask(q, k, v, causal=False):
    s = scores(q, k)
    bar = np.sort(s, axis=-1)[..., -4:][..., :1]
    seen = (s >= bar) & ((offsets(*s.shape[-2:]) <= 0) | (not causal))
    p = np.exp(s - s.max(-1, keepdims=True)) * seen
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-30) @ v


def features(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear(q, k, v, causal, of=features, *, divided=True, shift=0):
    p = of(q) @ of(k).swapaxes(-1, -2)
    p = np.where(offsets(*p.shape[-2:]) <= shift, p, 0) if causal else p
    return p @ v / p.sum(-1, keepdims=True) if divided else p @ v


claim("features without the 1", "features_without_one", lambda q, k, v, causal=False:
      linear(q, k, v, causal, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))), spec="linear:feature=elu")
claim("not divided by the sum of weights", "linear_not_divided", lambda q, k, v, causal=False:
      linear(q, k, v, causal, divided=False), spec="linear:feature=elu")
claim("features of exp without a stabiliser", "features_without_stabiliser", lambda q, k, v, causal=False:
      linear(q, k, v, causal, lambda x: np.exp(8 * x) ** x.dtype.type(0.125)), spec="linear:feature=exp", witness=False)
claim("a state that goes on with the next batch entry", "state_not_reset", lambda q, k, v: retention(q, k, v, reset=False),
      **RETENTION)
claim("decayed once too often", "decayed_twice", lambda q, k, v: retention(q, k, v, 0.81), **RETENTION)
claim("read before its own key", "read_before", lambda q, k, v: retention(q, k, v, read_first=True), **RETENTION)


def retention(q, k, v, gamma=0.9, *, reset=True, read_first=False):
    """S <- gamma S + k v', o = S' q / sqrt(d), query i at key i + n_kv - n_q."""
    before, o = k.shape[2] - q.shape[2], np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    state = np.zeros((q.shape[1], k.shape[3], v.shape[3]), q.dtype)
    c = q.dtype.type(q.shape[3] ** -0.5)
    for b in range(q.shape[0]):
        state *= 0 if reset else 1
        for j in range(k.shape[2]):
            if read_first and j >= before:
                o[b, :, j - before] = c * np.einsum("hd,hde->he", q[b, :, j - before], state)
            state = q.dtype.type(gamma) * state + k[b, :, j, :, None] * v[b, :, j, None, :]
            if not read_first and j >= before:
                o[b, :, j - before] = c * np.einsum("hd,hde->he", q[b, :, j - before], state)
    return o


def pooled(q, k, v, count, shift=0):
    """Softmax over means of `count` blocks of keys."""
    n = k.shape[2]
    edges = [n * i // count + (shift if 0 < i < count else 0) for i in range(count + 1)]
    short_k, short_v = (np.stack([x[:, :, a:b].mean(2) for a, b in zip(edges, edges[1:])], 2) for x in (k, v))
    return softmax(scores(q, short_k)) @ short_v


claim("blocks begin one key too late", "blocks_one_late", lambda q, k, v: pooled(q, k, v, 2, 1 if k.shape[2] > 3 else 0),
      spec="linformer:k=2,projection=pool")
claim("the estimate is 2 % too large", "estimate_biased", lambda q, k, v, causal=False:
      attnlab.attention(q, k, v, PERFORMER, causal=causal) * q.dtype.type(1.02), spec=PERFORMER)
claim("another number of features", "fewer_features", lambda q, k, v, causal=False:
      attnlab.attention(q, k, v, "performer:features=30,seed=3", causal=causal), spec=PERFORMER)
claim("other draws in each call", "other_draws", lambda q, k, v, causal=False:
      attnlab.attention(q, k, v, f"performer:features=32,seed={np.random.randint(1000)}", causal=causal), spec=PERFORMER)


@claim("sigmoid without its bias", spec="normaliser:kind=sigmoid")
def sigmoid_without_bias(q, k, v, causal=False):
    s = scores(q, k)
    p = 1 / (1 + np.exp(-s))
    return (np.where(offsets(*s.shape[-2:]) <= 0, p, 0) if causal else p) @ v
