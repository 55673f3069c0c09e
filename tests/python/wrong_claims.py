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


@claim("window one short", spec="longformer:window=8")
def window_one_short(q, k, v, causal=False):
    return over(q, k, v, window(q, k, causal, 3, 3))


@claim("window one short on one side", spec="longformer:window=8")
def window_lopsided(q, k, v, causal=False):
    return over(q, k, v, window(q, k, causal, 3, 4))


@claim("the causal window counts both sides", spec="longformer:window=4")
def window_twice(q, k, v, causal=False):
    return over(q, k, v, window(q, k, causal, 4 if causal else 2, 2))


@claim("a window without its sinks", spec="streaming:sink=2,window=3", causal=True)
def sinks_missing(q, k, v):
    return over(q, k, v, window(q, k, True, 2, 0))


@claim("sinks one short", spec="streaming:sink=2,window=3", causal=True)
def sinks_one_short(q, k, v):
    return over(q, k, v, window(q, k, True, 2, 0, 1))


@claim("global tokens see no more than others", spec="longformer:window=4,global=1")
def global_queries_missing(q, k, v, causal=False):
    return over(q, k, v, window(q, k, causal, 2, 2, 1))


@claim("one key fewer", spec="topk:k=4")
def one_key_fewer(q, k, v, causal=False):
    return largest(q, k, v, causal, 3)


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


@claim("features without the 1", spec="linear:feature=elu")
def features_without_one(q, k, v, causal=False):
    return linear(q, k, v, causal, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))))


@claim("not divided by the sum of weights", spec="linear:feature=elu")
def linear_not_divided(q, k, v, causal=False):
    return linear(q, k, v, causal, divided=False)


@claim("features of exp without a stabiliser", spec="linear:feature=exp", witness=False)
def features_without_stabiliser(q, k, v, causal=False):
    return linear(q, k, v, causal, lambda x: np.exp(8 * x) ** x.dtype.type(0.125))


@claim("a state that goes on with the next batch entry", spec="recurrent:rule=retention,decay=constant,gamma=0.9", causal=True)
def state_not_reset(q, k, v):
    return retention(q, k, v, reset=False)


@claim("decayed once too often", spec="recurrent:rule=retention,decay=constant,gamma=0.9", causal=True)
def decayed_twice(q, k, v):
    return retention(q, k, v, 0.81)


@claim("read before its own key", spec="recurrent:rule=retention,decay=constant,gamma=0.9", causal=True)
def read_before(q, k, v):
    return retention(q, k, v, read_first=True)


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


@claim("blocks begin one key too late", spec="linformer:k=2,projection=pool")
def blocks_one_late(q, k, v):
    return pooled(q, k, v, 2, 1 if k.shape[2] > 3 else 0)


@claim("the estimate is 2 % too large", spec="performer:features=32,seed=3")
def estimate_biased(q, k, v, causal=False):
    return attnlab.attention(q, k, v, "performer:features=32,seed=3", causal=causal) * q.dtype.type(1.02)


@claim("another number of features", spec="performer:features=32,seed=3")
def fewer_features(q, k, v, causal=False):
    return attnlab.attention(q, k, v, "performer:features=30,seed=3", causal=causal)


@claim("other draws in each call", spec="performer:features=32,seed=3")
def other_draws(q, k, v, causal=False):
    return attnlab.attention(q, k, v, f"performer:features=32,seed={np.random.randint(1000)}", causal=causal)


@claim("sigmoid without its bias", spec="normaliser:kind=sigmoid")
def sigmoid_without_bias(q, k, v, causal=False):
    s = scores(q, k)
    p = 1 / (1 + np.exp(-s))
    return (np.where(offsets(*s.shape[-2:]) <= 0, p, 0) if causal else p) @ v
