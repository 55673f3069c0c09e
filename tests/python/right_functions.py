"""Right attention in unlike styles: RIGHT[name] of a Candidate. Those of PyTorch and JAX are in right_torch.py."""
import functools

import numpy as np

import attnlab
from plain_attention import attend, hide, lister, offsets, repeat, scores, softmax
from wrong_claims import features, largest, linear, over, pooled, retention, window
from wrong_functions import online, padded

RIGHT = {}
right = lister(RIGHT)


@right("the formula")
def formula(q, k, v, causal=False):
    return attend(q, k, v, causal)


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


@right("blocks of keys with a running maximum")
def by_blocks(q, k, v, causal=False):
    return online(q, *repeat(q, k, v), causal, 48)


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


@right("float64 for float32")
def always_double(q, k, v, causal=False):
    return attend(*(x.astype("f8") for x in (q, k, v)), causal)


@right("float64 inside")
def double_inside(q, k, v, causal=False):
    return attend(*(x.astype("f8") for x in (q, k, v)), causal).astype(q.dtype)


@right("float32 for float64")
def always_single(q, k, v, causal=False):
    return attend(*(x.astype("f4") for x in (q, k, v)), causal)


@right("float16 throughout")
def half_throughout(q, k, v, causal=False):
    return attend(*(x.astype("f2").astype("f4") for x in (q, k, v)), causal).astype("f2")


@right("outputs and log-sum-exps")
def with_lse(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    m = s.max(-1, keepdims=True)
    z = np.exp(s - m).sum(-1, keepdims=True)
    return np.exp(s - m) @ v / z, (m + np.log(z))[..., 0]


@right("a mask of -1e9 added")
def additive_mask(q, k, v, causal=False):
    s = scores(q, k)
    return softmax(s + np.where(offsets(*s.shape[-2:]) > 0, -1e9, 0).astype(s.dtype) if causal else s) @ v


@right("a mask of the least number")
def least_number_mask(q, k, v, causal=False):
    s = scores(q, k)
    return softmax(np.where(offsets(*s.shape[-2:]) > 0, np.finfo(s.dtype).min, s) if causal else s) @ v


@right("layout [batch, n, heads, d]", layout="bnhd")
def in_bnhd(q, k, v, causal=False):
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return np.einsum("bhqk,bkhd->bqhd", softmax(hide(s, causal)), v)


@right("a mask that begins at the first key")
def first_key_first(q, k, v, causal=False):
    s = scores(q, k)
    seen = np.tri(*s.shape[-2:], dtype=bool)
    return softmax(np.where(seen, s, -np.inf) if causal else s) @ v


@right("no shared heads")
def refuses_groups(q, k, v, causal=False):
    if q.shape[1] != k.shape[1]:
        raise NotImplementedError("shared heads")
    return attend(q, k, v, causal)


@right("no odd lengths")
def refuses_odd(q, k, v, causal=False):
    if q.shape[2] % 2 or k.shape[2] % 2:
        raise ValueError(f"n = {q.shape[2]} is odd")
    return attend(q, k, v, causal)


@right("multiples of 16 and widths up to 128 only, by assert")
def refuses_most(q, k, v, causal=False):
    assert q.shape[2] == k.shape[2] and q.shape[2] % 16 == 0 and q.shape[3] == v.shape[3] <= 128
    return attend(q, k, v, causal)


@right("at most 512 keys")
def refuses_long(q, k, v, causal=False):
    if k.shape[2] > 512:
        raise ValueError("positions beyond 512")
    return attend(q, k, v, causal)


@right("float32 only")
def refuses_double(q, k, v, causal=False):
    if q.dtype != np.float32:
        raise TypeError(f"{q.dtype} instead of float32")
    return attend(q, k, v, causal)


@right("one batch entry and one shape of heads")
def refuses_batches(q, k, v, causal=False):
    if q.shape[0] > 1 or q.shape[1] != 4:
        raise ValueError("expected [1, 4, n, d]")
    return attend(q, k, v, causal)


@right("no causal argument")
def never_causal(q, k, v):
    return attend(q, k, v)


@right("always causal", causal=True)
def always_causal(q, k, v):
    return attend(q, k, v, True)


@right("causal or nothing")
def causal_or_nothing(q, k, v, causal=True):
    if not causal:
        raise NotImplementedError("it is causal")
    return attend(q, k, v, True)


@right("its own names of arguments")
def named_otherwise(query, key, value, *, is_causal=False, sm_scale=None):
    sm_scale = query.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    return softmax(hide(query * query.dtype.type(sm_scale) @ key.swapaxes(-1, -2), is_causal)) @ value


@right("any arguments")
def any_arguments(*tensors, **options):
    return attend(*tensors, options.get("causal", False))


@right("lengths of padded keys")
def padded_keys(q, k, v, causal=False, kv_len=None):
    seen = True if kv_len is None else np.arange(k.shape[2]) < kv_len[:, None, None, None]
    return padded(q, *repeat(q, k, v), causal, seen)


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


@right("keys less their mean")
def centred_keys(q, k, v, causal=False):
    return attend(q, k - k.mean(2, keepdims=True), v, causal)


@right("keys from last to first")
def backwards(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal)[..., ::-1]) @ v[:, :, ::-1]


@right("a strided result")
def strided(q, k, v, causal=False):
    return np.asfortranarray(attend(q, k, v, causal))


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


def add(name, kind, function, **options):
    RIGHT[name] = RIGHT["formula"]._replace(function=function, kind=kind, options=options)


add("partial", "functools.partial", functools.partial(_at_scale, None))
add("method", "a method of an object", Layer().attend)
add("callable_object", "an object that is called", Layer())
add("lambda", "a lambda", lambda q, k, v, causal=False: attend(q, k, v, causal))
add("the_library", "attnlab itself", attnlab.attention)


# -- claims --

@right("a window", spec="longformer:window=8")
def a_window(q, k, v, causal=False):
    return over(q, k, v, window(q, k, causal, 4, 4))


@right("a causal window alone", spec="longformer:window=8", causal=True)
def a_causal_window(q, k, v):
    return over(q, k, v, window(q, k, True, 4, 0))


@right("sinks and a window", spec="streaming:sink=2,window=3", causal=True)
def a_stream(q, k, v):
    return over(q, k, v, window(q, k, True, 2, 0, 2))


@right("global tokens", spec="longformer:window=4,global=1")
def a_global_token(q, k, v, causal=False):
    seen = window(q, k, causal, 2, 2, 1)
    at = offsets(q.shape[2], k.shape[2])
    first = (np.arange(q.shape[2]) + k.shape[2] - q.shape[2] == 0)[:, None]
    return over(q, k, v, seen | (first & ((at <= 0) | (not causal))))


@right("the largest scores", spec="topk:k=4")
def the_largest(q, k, v, causal=False):
    return largest(q, k, v, causal, 4)


@right("linear attention", spec="linear:feature=elu")
def a_linear(q, k, v, causal=False):
    return linear(q, k, v, causal)


@right("linear attention, a state a key", spec="linear:feature=elu", causal=True)
def a_linear_state(q, k, v):
    s = np.cumsum(features(k)[..., None] * v[..., None, :], axis=2)[:, :, k.shape[2] - q.shape[2]:]
    z = np.cumsum(features(k), axis=2)[:, :, k.shape[2] - q.shape[2]:]
    return np.einsum("bhnd,bhnde->bhne", features(q), s) / (features(q) * z).sum(-1, keepdims=True)


@right("retention", spec="recurrent:rule=retention,decay=constant,gamma=0.9", causal=True)
def a_retention(q, k, v):
    return retention(q, k, v)


@right("means of blocks", spec="linformer:k=2,projection=pool")
def means_of_blocks(q, k, v):
    if k.shape[2] < 2:
        raise ValueError("fewer keys than blocks")
    return pooled(q, k, v, 2)


@right("random features of a seed", spec="performer:features=32,seed=3")
def seeded_features(q, k, v, causal=False):
    return attnlab.attention(q, k, v, "performer:features=32,seed=3", causal=causal)


@right("exact weights of half of the keys, drawn for each query")
@attnlab.variant(seed="seed", unbiased=True)
def unbiased_draws(q, k, v, causal=False, seed=0, size=1):
    p = softmax(hide(scores(q, k), causal))
    return np.where(np.random.default_rng(seed).random(p.shape) < 0.5, p * p.dtype.type(2 * size), 0) @ v
