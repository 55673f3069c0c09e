"""Right attention in unlike styles: RIGHT[name] of a Candidate. Those of PyTorch and JAX are in torch_functions.py and jax_functions.py."""
import functools

import numpy as np

import attnlab
from plain_attention import attend, hide, lister, offsets, repeat, scores, softmax
from wrong_claims import PERFORMER, RETENTION, STREAM, largest, linear, over, pooled, retention, window
from wrong_functions import by_lengths, ends_at_lengths, of_scores, online, padded, seen

RIGHT = {}
right = lister(RIGHT)


right("the formula", "formula", attend)


@right("einsum, grouped heads without a copy")
def by_einsum(q, k, v, causal=False):
    b, h, n, d = q.shape
    q = q.reshape(b, k.shape[1], -1, n, d)
    s = np.einsum("bhgqd,bhkd->bhgqk", q, k, optimize=True) * d ** -0.5
    return np.einsum("bhgqk,bhkd->bhgqd", softmax(hide(s, causal)), v, optimize=True).reshape(b, h, n, -1).astype(q.dtype)


@right("loops over rows")
def by_loops(q, k, v, causal=False):
    o = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for b, h, i in np.ndindex(q.shape[:3]):
        n = i + 1 + k.shape[2] - q.shape[2] if causal else k.shape[2]
        s = k[b, h, :n] @ q[b, h, i] / np.sqrt(q.shape[3])
        p = np.exp(s - s.max())
        o[b, h, i] = p @ v[b, h, :n] / p.sum()
    return o


@right("loops over heads, keys of shared heads by index")
def by_heads(q, k, v, causal=False):
    group = q.shape[1] // k.shape[1]
    return np.stack([attend(q[:, h], k[:, h // group], v[:, h // group], causal) for h in range(q.shape[1])], axis=1)


right("blocks of keys with a running maximum", "by_blocks", lambda q, k, v, causal=False:
      online(q, *repeat(q, k, v), causal, 48))


@right("keys split in parts that are joined by log-sum-exps")
def by_parts(q, k, v, causal=False):
    s, parts = hide(scores(q, k), causal), []
    for j in range(0, k.shape[2], 100):
        m = np.maximum(s[..., j:j + 100].max(-1, keepdims=True), -1e30)
        p = np.exp(s[..., j:j + 100] - m)
        z = np.maximum(p.sum(-1, keepdims=True), 1e-37)
        parts.append((m + np.log(z), p @ v[:, :, j:j + 100] / z))
    top = np.max([m for m, _ in parts], axis=0)
    total = sum(np.exp(m - top) for m, _ in parts)
    return sum(np.exp(m - top) / total * o for m, o in parts), top + np.log(total)


right("float64 for float32", "always_double", lambda q, k, v, causal=False:
      attend(*(x.astype("f8") for x in (q, k, v)), causal))
right("float64 inside", "double_inside", lambda q, k, v, causal=False:
      attend(*(x.astype("f8") for x in (q, k, v)), causal).astype(q.dtype))
right("float32 for float64", "always_single", lambda q, k, v, causal=False:
      attend(*(x.astype("f4") for x in (q, k, v)), causal))
right("float16 throughout", "half_throughout", lambda q, k, v, causal=False:
      attend(*(x.astype("f2").astype("f4") for x in (q, k, v)), causal).astype("f2"))


@right("outputs and log-sum-exps")
def with_lse(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    m = s.max(-1, keepdims=True)
    z = np.exp(s - m).sum(-1, keepdims=True)
    return np.exp(s - m) @ v / z, (m + np.log(z))[..., 0]


right("a mask of -1e9 added", "additive_mask", of_scores(
    lambda s, causal: softmax(s + np.where(seen(s, causal), 0, -1e9).astype(s.dtype))))
right("a mask of the least number", "least_number_mask", of_scores(
    lambda s, causal: softmax(np.where(seen(s, causal), s, np.finfo(s.dtype).min))))
right("a mask that begins at the first key", "first_key_first", of_scores(
    lambda s, causal: softmax(np.where(np.tri(*s.shape[-2:], dtype=bool) | (not causal), s, -np.inf))))


@right("layout [batch, n, heads, d]", layout="bnhd")
def in_bnhd(q, k, v, causal=False):
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return np.einsum("bhqk,bkhd->bqhd", softmax(hide(s, causal)), v)


def refusing(error, said, takes):
    """The formula, of what takes(q, k, v) lets through."""
    def attention(q, k, v, causal=False):
        if not takes(q, k, v):
            raise error(said)
        return attend(q, k, v, causal)
    return attention


right("no shared heads", "refuses_groups", refusing(
    NotImplementedError, "shared heads", lambda q, k, v: q.shape[1] == k.shape[1]))
right("no odd lengths", "refuses_odd", refusing(
    ValueError, "n is odd", lambda q, k, v: q.shape[2] % 2 == k.shape[2] % 2 == 0))
right("multiples of 16 and widths up to 128 only, by assert", "refuses_most", refusing(
    AssertionError, "", lambda q, k, v: q.shape[2] == k.shape[2] and q.shape[2] % 16 == 0 and q.shape[3] == v.shape[3] <= 128))
right("at most 512 keys", "refuses_long", refusing(ValueError, "positions beyond 512", lambda q, k, v: k.shape[2] <= 512))
right("float32 only", "refuses_double", refusing(TypeError, "not float32", lambda q, k, v: q.dtype == np.float32))
right("one batch entry and one shape of heads", "refuses_batches", refusing(
    ValueError, "expected [1, 4, n, d]", lambda q, k, v: q.shape[:2] == (1, 4)))
right("no causal argument", "never_causal", lambda q, k, v: attend(q, k, v))
right("always causal", "always_causal", lambda q, k, v: attend(q, k, v, True), causal=True)


@right("causal or nothing")
def causal_or_nothing(q, k, v, causal=True):
    if not causal:
        raise NotImplementedError("it is causal")
    return attend(q, k, v, True)


@right("its own names of arguments")
def named_otherwise(query, key, value, *, is_causal=False, sm_scale=None):
    sm_scale = query.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    return softmax(hide(query * query.dtype.type(sm_scale) @ key.swapaxes(-1, -2), is_causal)) @ value


right("a mask before the scale, which is to be above 0", "masked_before_scale", lambda q, k, v, causal=False, scale=None:
      softmax(hide(q @ k.swapaxes(-1, -2), causal) * q.dtype.type(scale or q.shape[-1] ** -0.5)) @ v)
right("any arguments", "any_arguments", lambda *tensors, **options: attend(*tensors, options.get("causal", False)))
right("lengths of padded keys", "padded_keys", by_lengths(
    lambda j, n: j < n[:, None, None, None], lambda q, k, v, *masks: padded(q, *repeat(q, k, v), *masks)))
right("a causal mask that ends at the last key that exists", "ends_at_length", lambda q, k, v, causal=False, kv_len=None:
      ends_at_lengths(q, k, v, causal, np.full(len(q), k.shape[2]) if kv_len is None else kv_len))


@right("padded keys by an added mask of -1e9")
def padded_keys_added(q, k, v, causal=False, kv_len=None):
    s = hide(scores(q, k), causal)
    if kv_len is not None:
        s = np.maximum(s, -1e9) + np.where(np.arange(k.shape[2]) < kv_len[:, None, None, None], 0, -1e9).astype(s.dtype)
    return softmax(s) @ v


@right("powers of 2 of scores times log2(e)")
def by_powers_of_two(q, k, v, causal=False):
    s = hide(q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5 * np.log2(np.e)), causal)
    p = np.exp2(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


right("keys less their mean", "centred_keys", lambda q, k, v, causal=False: attend(q, k - k.mean(2, keepdims=True), v, causal))
right("keys from last to first", "backwards", lambda q, k, v, causal=False:
      softmax(hide(scores(q, k), causal)[..., ::-1]) @ v[:, :, ::-1])
right("a strided result", "strided", lambda q, k, v, causal=False: np.asfortranarray(attend(q, k, v, causal)))


def _at_scale(scale, q, k, v, causal=False):
    return softmax(hide(q @ k.swapaxes(-1, -2) * q.dtype.type(scale or q.shape[-1] ** -0.5), causal)) @ v


class Layer:
    """Attention with masks and a buffer that are kept between calls."""

    def __init__(self):
        self.masks, self.buffer = {}, np.empty(0)

    def attend(self, q, k, v, causal=False):
        s = scores(q, k)
        mask = self.masks.setdefault(s.shape[-2:], offsets(*s.shape[-2:]) <= 0)
        self.buffer = np.where(mask, s, -np.inf) if causal else s
        return softmax(self.buffer) @ v

    __call__ = attend


right("functools.partial", "partial", functools.partial(_at_scale, None))
right("a method of an object", "method", Layer().attend)
right("an object that is called", "callable_object", Layer())
right("attnlab itself", "the_library", attnlab.attention)


# -- claims --

right("a window", "a_window", lambda q, k, v, causal=False: over(q, k, v, window(q, k, causal, 4, 4)), spec="longformer:window=8")
right("a causal window alone", "a_causal_window", lambda q, k, v: over(q, k, v, window(q, k, True, 4, 0)),
      spec="longformer:window=8", causal=True)
right("sinks and a window", "a_stream", lambda q, k, v: over(q, k, v, window(q, k, True, 2, 0, 2)), **STREAM)
right("the largest scores", "the_largest", lambda q, k, v, causal=False: largest(q, k, v, causal, 4), spec="topk:k=4")
right("linear attention", "a_linear", lambda q, k, v, causal=False: linear(q, k, v, causal), spec="linear:feature=elu")
right("retention", "a_retention", lambda q, k, v: retention(q, k, v), **RETENTION)
right("random features of a seed", "seeded_features", lambda q, k, v, causal=False:
      attnlab.attention(q, k, v, PERFORMER, causal=causal), spec=PERFORMER)


@right("global tokens", spec="longformer:window=4,global=1")
def a_global_token(q, k, v, causal=False):
    first = (np.arange(q.shape[2]) + k.shape[2] - q.shape[2] == 0)[:, None]
    return over(q, k, v, window(q, k, causal, 2, 2, 1) | (first & seen(scores(q, k), causal)))


@right("means of blocks", spec="linformer:k=2,projection=pool")
def means_of_blocks(q, k, v):
    if k.shape[2] < 2:
        raise ValueError("fewer keys than blocks")
    return pooled(q, k, v, 2)


@right("exact weights of half of the keys, drawn for each query")
@attnlab.variant(seed="seed", unbiased=True)
def unbiased_draws(q, k, v, causal=False, seed=0, size=1):
    p = softmax(hide(scores(q, k), causal))
    return np.where(np.random.default_rng(seed).random(p.shape) < 0.5, p * p.dtype.type(2 * size), 0) @ v
