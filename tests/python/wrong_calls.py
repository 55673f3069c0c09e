"""Functions whose formula is right and that are wrong all the same, by types, memory or chance: CALLS[name] of a
Candidate."""
import numpy as np

from plain_attention import attend, hide, lister, scores, softmax, to_bfloat16
from wrong_functions import by_lengths, of_scores

CALLS = {}
wrong = lister(CALLS)
KEPT = {}


# -- types --

wrong("scores in float16 overflow", "half_scores", lambda q, k, v, causal=False:
      softmax(hide(scores(q.astype("f2"), k.astype("f2")).astype(q.dtype), causal)) @ v)
wrong("rounded to bfloat16 too early", "early_bfloat16", lambda q, k, v, causal=False:
      attend(to_bfloat16(q), to_bfloat16(k), v, causal))
wrong("weights in float16", "half_weights", of_scores(
    lambda s, causal: softmax(hide(s, causal)).astype("f2").astype(s.dtype)))
wrong("float64 computed in float32", "single_for_double", lambda q, k, v, causal=False:
      attend(*(x.astype("f4") for x in (q, k, v)), causal).astype(q.dtype))


@wrong("the sum of weights in float16")
def half_sum(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True).astype("f2").astype(q.dtype)


# -- memory --

@wrong("q scaled in place")
def changes_queries(q, k, v, causal=False):
    q *= q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(hide(q @ k.swapaxes(-1, -2), causal)) @ v


@wrong("v changed in place under the causal mask")
def changes_values(q, k, v, causal=False):
    o = attend(q, k, v, causal)
    if causal:
        v[:, :, -1] = 0
    return o


@wrong("lengths changed in place")
def changes_lengths(q, k, v, causal=False, kv_len=None):
    o = by_lengths(lambda j, n: j < n[:, None, None, None])(q, k, v, causal, kv_len)
    if kv_len is not None:
        kv_len //= 2
    return o


@wrong("the last rows are not written")
def rows_unwritten(q, k, v, causal=False):
    o = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
    whole = max(q.shape[2] - q.shape[2] % 4, 1)
    o[:, :, :whole] = attend(q, k, v, causal)[:, :, :whole]
    return o


@wrong("one output array for all calls")
def output_kept(q, k, v, causal=False):
    shape = (*q.shape[:3], v.shape[3])
    o = KEPT.setdefault((shape, q.dtype), np.empty(shape, q.dtype))
    o[...] = attend(q, k, v, causal)
    return o


@wrong("the last rows are those of the call before")
def stale_rows(q, k, v, causal=False):
    shape = (*q.shape[:3], v.shape[3])
    o = KEPT.setdefault(("stale", shape, q.dtype), np.zeros(shape, q.dtype))
    o[:, :, :max(shape[2] - 1, 1)] = attend(q, k, v, causal)[:, :, :max(shape[2] - 1, 1)]
    return o.copy()


@wrong("the answer of the last call with these shapes")
def remembered_by_shape(q, k, v, causal=False):
    key = (q.shape, k.shape, v.shape, q.dtype, causal)
    if key not in KEPT:
        KEPT[key] = attend(q, k, v, causal)
    return KEPT[key].copy()


@wrong("keys of the last call are kept")
def keys_kept(q, k, v, causal=False):
    before = KEPT.get("keys")
    KEPT["keys"] = k.copy(), v.copy()
    if before is not None and before[0].shape == k.shape and before[1].shape == v.shape and before[0].dtype == k.dtype:
        k, v = (np.concatenate(pair, axis=2) for pair in zip(before, (k, v)))
    return attend(q, k, v, causal)


# -- chance --

def with_dropout(draw):
    return of_scores(lambda s, causal: softmax(hide(s, causal)) * (draw(s.shape) > 0.1).astype(s.dtype) / s.dtype.type(0.9))


wrong("dropout left on", "dropout_on", with_dropout(np.random.random))
wrong("dropout with the same draws in each call", "dropout_of_a_seed", with_dropout(
    lambda shape: np.random.default_rng(0).random(shape)))


@wrong("a block is lost in one call of 20")
def lost_now_and_then(q, k, v, causal=False):
    o = attend(q, k, v, causal)
    if np.random.random() < 0.05:
        o[:, :, -1] = 0
    return o


@wrong("noise in the sixth digit")
def noisy(q, k, v, causal=False):
    o = attend(q, k, v, causal)
    return o * (1 + 1e-4 * np.random.standard_normal(o.shape)).astype(o.dtype)


@wrong("keys sampled, without bias")
def sampled_keys(q, k, v, causal=False):
    if causal or k.shape[2] < 4:
        return attend(q, k, v, causal)
    drawn = np.random.choice(k.shape[2], k.shape[2] // 2, replace=False)
    return attend(q, k[:, :, drawn], v[:, :, drawn])
