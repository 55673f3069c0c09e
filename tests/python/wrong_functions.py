"""Wrong attention, one mistake each: WRONG[name] of a Candidate. Those of types and memory are in wrong_calls.py, claims
of other specs in wrong_claims.py."""
import numpy as np

from plain_attention import attend, hide, lister, offsets, repeat, scores, softmax

WRONG = {}
wrong = lister(WRONG)
KEPT = {}


# -- the causal mask --

@wrong("causal off by one: the next key is seen")
def sees_next_key(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal, 1)) @ v


@wrong("causal off by one: the query's own key is hidden")
def misses_own_key(q, k, v, causal=False):
    return np.nan_to_num(softmax(hide(scores(q, k), causal, -1))) @ v


@wrong("causal ignored")
def causal_ignored(q, k, v, causal=False):
    return attend(q, k, v)


@wrong("causal mask transposed")
def sees_future(q, k, v, causal=False):
    s = scores(q, k)
    return softmax(np.where(offsets(*s.shape[-2:]) >= 0, s, -np.inf) if causal else s) @ v


@wrong("causal by blocks of two")
def causal_by_blocks(q, k, v, causal=False):
    s = scores(q, k)
    i, j = np.arange(s.shape[-2])[:, None] + s.shape[-1] - s.shape[-2], np.arange(s.shape[-1])
    return softmax(np.where(j // 2 <= i // 2, s, -np.inf) if causal else s) @ v


@wrong("causal mask of the first call with as many queries")
def mask_by_queries(q, k, v, causal=False):
    n_q, n_kv = q.shape[2], k.shape[2]
    if causal and n_q not in KEPT:
        KEPT[n_q] = offsets(n_q, max(n_kv, n_q)) <= 0
    s = scores(q, k)
    return softmax(np.where(KEPT[n_q][:, :n_kv], s, -np.inf) if causal and KEPT[n_q].shape[1] >= n_kv else hide(s, causal)) @ v


@wrong("causal mask off by one with a cache of earlier keys")
def own_key_missing_in_decoding(q, k, v, causal=False):
    cached = q.shape[2] < k.shape[2]
    return softmax(hide(scores(q, k), causal, -1 if cached else 0)) @ v


@wrong("weights masked after the softmax, not divided again")
def masked_afterwards(q, k, v, causal=False):
    p = softmax(scores(q, k))
    return (np.where(offsets(*p.shape[-2:]) <= 0, p, 0) if causal else p) @ v


@wrong("hidden scores are 0, not -inf")
def hidden_scores_zero(q, k, v, causal=False):
    s = scores(q, k)
    return softmax(np.tril(s, s.shape[-1] - s.shape[-2]) if causal else s) @ v


@wrong("a mask of -10, too small")
def soft_mask(q, k, v, causal=False):
    s = scores(q, k)
    return softmax(s + np.where(offsets(*s.shape[-2:]) > 0, -10, 0).astype(s.dtype) if causal else s) @ v


@wrong("the maximum of hidden keys too: underflow", witness=False)
def maximum_of_all(q, k, v, causal=False):
    s = scores(q, k)
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p * (offsets(*s.shape[-2:]) <= 0) if causal else p
    return p / p.sum(-1, keepdims=True) @ v


# -- scale and softmax --

@wrong("scale missing")
def scale_missing(q, k, v, causal=False):
    return softmax(hide(q @ k.swapaxes(-1, -2), causal)) @ v


@wrong("scale twice")
def scale_twice(q, k, v, causal=False):
    return softmax(hide(scores(q, k) / q.dtype.type(q.shape[-1] ** 0.5), causal)) @ v


@wrong("scale of the width of all heads")
def scale_of_model(q, k, v, causal=False):
    return softmax(hide(scores(q, k) / q.dtype.type(q.shape[1] ** 0.5), causal)) @ v


@wrong("scale of the values' width")
def scale_of_values(q, k, v, causal=False):
    return softmax(hide(q @ k.swapaxes(-1, -2) / q.dtype.type(v.shape[-1] ** 0.5), causal)) @ v


@wrong("the argument scale is ignored")
def scale_ignored(q, k, v, causal=False, scale=None):
    return attend(q, k, v, causal)


@wrong("softmax over the queries")
def over_queries(q, k, v, causal=False):
    return np.nan_to_num(softmax(hide(scores(q, k), causal), axis=-2)) @ v


@wrong("softmax over the heads")
def over_heads(q, k, v, causal=False):
    return np.nan_to_num(softmax(hide(scores(q, k), causal), axis=1)) @ v


@wrong("one sum for all queries of a head")
def over_queries_and_keys(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal), axis=(-2, -1)) @ v


@wrong("no softmax")
def without_softmax(q, k, v, causal=False):
    s = scores(q, k)
    return (np.where(offsets(*s.shape[-2:]) <= 0, s, 0) if causal else s) @ v


@wrong("powers of 2, not of e")
def base_two(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    p = np.exp2(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@wrong("1 added to the sum of weights")
def one_more_weight(q, k, v, causal=False):
    p = np.exp(hide(scores(q, k), causal))
    return p / (1 + p.sum(-1, keepdims=True)) @ v


@wrong("exponentials without a maximum overflow")
def without_maximum(q, k, v, causal=False):
    p = np.exp(hide(scores(q, k), causal))
    return p / p.sum(-1, keepdims=True) @ v


@wrong("an exponential of a polynomial")
def polynomial_exponential(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    x = np.maximum(s - s.max(-1, keepdims=True), -60) / 64
    p = (1 + x + x * x / 2) ** 64 * np.isfinite(s)
    return p / p.sum(-1, keepdims=True) @ v


@wrong("only the 32 largest weights", witness=False)
def largest_weights(q, k, v, causal=False):
    s = hide(scores(q, k), causal)
    if s.shape[-1] > 32:
        s = np.where(s >= np.partition(s, -32, axis=-1)[..., -32:-31], s, -np.inf)
    return softmax(s) @ v


@wrong("outputs 2 % too large")
def biased(q, k, v, causal=False):
    return attend(q, k, v, causal) * q.dtype.type(1.02)


@wrong("outputs 0.01 % too large")
def slightly_biased(q, k, v, causal=False):
    return attend(q, k, v, causal) * q.dtype.type(1.0001)


# -- padding --

@wrong("padding attended")
def padding_attended(q, k, v, causal=False, kv_len=None):
    return attend(q, k, v, causal)


def padded(q, k, v, causal, seen):
    s = np.where(seen, hide(scores(q, k), causal), -np.inf)
    p = np.exp(s - np.maximum(s.max(-1, keepdims=True), -1e30)) * np.isfinite(s)
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-30) @ v


@wrong("padding off by one")
def padding_off_by_one(q, k, v, causal=False, kv_len=None):
    seen = True if kv_len is None else np.arange(k.shape[2]) <= kv_len[:, None, None, None]
    return padded(q, k, v, causal, seen)


@wrong("the lengths of batch entries taken for those of heads")
def lengths_of_heads(q, k, v, causal=False, kv_len=None):
    seen = True if kv_len is None else np.arange(k.shape[2]) < kv_len[:, None, None]
    return padded(q, k, v, causal, seen)


@wrong("one length for all batch entries")
def one_length(q, k, v, causal=False, kv_len=None):
    return padded(q, k, v, causal, True if kv_len is None else np.arange(k.shape[2]) < max(kv_len))


@wrong("-inf - -inf where an entry has no key")
def empty_rows(q, k, v, causal=False, kv_len=None):
    seen = True if kv_len is None else np.arange(k.shape[2]) < kv_len[:, None, None, None]
    return softmax(np.where(seen, hide(scores(q, k), causal), -np.inf)) @ v


# -- blocks --

def online(q, k, v, causal, size, *, rescale=True, rescale_sum=True, first=0, absent=False):
    """Online softmax over blocks of keys, each of whose steps can be left out."""
    n = k.shape[2]
    m = np.full((*q.shape[:3], 1), -np.inf, q.dtype)
    total, o = np.zeros_like(m), np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    s_all = hide(scores(q, k), causal)
    for j in range(first, n, size):
        s = s_all[..., j:j + size]
        block_v = v[:, :, j:j + size]
        if absent and s.shape[-1] < size:
            s = np.pad(s, [(0, 0)] * 3 + [(0, size - s.shape[-1])])
            block_v = np.pad(block_v, [(0, 0)] * 2 + [(0, size - block_v.shape[2]), (0, 0)])
        new = np.maximum(m, s.max(-1, keepdims=True))
        p, shrunk = np.exp(s - new), np.exp(m - new)
        total = total * (shrunk if rescale_sum else 1) + p.sum(-1, keepdims=True)
        o = o * (shrunk if rescale else 1) + p @ block_v
        m = new
    return o / total


@wrong("online softmax without rescaling what was summed")
def not_rescaled(q, k, v, causal=False):
    return online(q, k, v, causal, 4, rescale=False)


@wrong("online softmax without rescaling the sum of weights")
def sum_not_rescaled(q, k, v, causal=False):
    return online(q, k, v, causal, 4, rescale_sum=False)


@wrong("keys that fill up the last block have a weight")
def block_filled_up(q, k, v, causal=False):
    return online(q, k, v, causal, 4, absent=True)


@wrong("keys behind the last whole block are dropped")
def remainder_dropped(q, k, v, causal=False):
    n = k.shape[2] - k.shape[2] % 4 if k.shape[2] > 4 and not causal else k.shape[2]
    return attend(q, k[:, :, :n], v[:, :, :n], causal)


@wrong("keys behind the last whole block of 64 are dropped", witness=False)
def long_remainder_dropped(q, k, v, causal=False):
    n = k.shape[2] - k.shape[2] % 64 if k.shape[2] > 64 and not causal else k.shape[2]
    return attend(q, k[:, :, :n], v[:, :, :n], causal)


@wrong("-inf - -inf where the first block is hidden")
def first_block_hidden(q, k, v, causal=False):
    n, pieces = k.shape[2], []
    s = hide(scores(q, k), causal)
    for j in range(0, n, 4):
        block = s[..., j:j + 4]
        m = block.max(-1, keepdims=True)
        p = np.exp(block - m)
        pieces.append((m, p.sum(-1, keepdims=True), p @ v[:, :, j:j + 4]))
    top = np.max([m for m, _, _ in pieces], axis=0)
    return sum(np.exp(m - top) * o for m, _, o in pieces) / sum(np.exp(m - top) * z for m, z, _ in pieces)


@wrong("only 1024 keys", witness=False)
def first_keys_only(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal)[..., :1024]) @ v[:, :, :1024]


@wrong("one query alone sees the last 128 keys", witness=False)
def decoding_window(q, k, v, causal=False):
    few = q.shape[2] == 1
    return attend(q, k[:, :, -128:], v[:, :, -128:], causal) if few else attend(q, k, v, causal)


# -- heads and axes --

@wrong("heads rolled")
def heads_rolled(q, k, v, causal=False):
    return np.roll(attend(q, k, v, causal), 1, axis=1)


@wrong("heads joined without a transposition")
def heads_not_transposed(q, k, v, causal=False):
    o = attend(q, k, v, causal)
    return o.transpose(0, 2, 1, 3).reshape(o.shape)


@wrong("shared heads tiled, not repeated")
def heads_tiled(q, k, v, causal=False):
    return attend(q, *(np.tile(x, (1, q.shape[1] // x.shape[1], 1, 1)) for x in (k, v)), causal)


@wrong("shared heads: the first for all")
def first_head_for_all(q, k, v, causal=False):
    shared = k.shape[1] != q.shape[1]
    return attend(q, k[:, :1], v[:, :1], causal) if shared else attend(q, k, v, causal)


@wrong("values of shared heads tiled, keys repeated")
def values_tiled(q, k, v, causal=False):
    return attend(q, repeat(q, k)[0], np.tile(v, (1, q.shape[1] // v.shape[1], 1, 1)), causal)


@wrong("more heads than rows taken for another layout")
def layout_guessed(q, k, v, causal=False):
    if q.shape[1] > q.shape[2] and q.shape == k.shape == v.shape:
        return attend(*(x.swapaxes(1, 2) for x in (q, k, v)), causal).swapaxes(1, 2)
    return attend(q, *repeat(q, k, v), causal)


@wrong("keys of the first batch entry for all")
def first_entry_for_all(q, k, v, causal=False):
    return attend(q, k[:1], v, causal)


@wrong("einsum with the weights transposed")
def weights_transposed(q, k, v, causal=False):
    p = softmax(hide(scores(q, k), causal))
    return np.einsum("bhkq,bhkd->bhqd", p, v) if p.shape[-1] == p.shape[-2] else p @ v


@wrong("keys for values")
def keys_for_values(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal)) @ (k if k.shape == v.shape else v)


@wrong("values of the keys before")
def values_rolled(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal)) @ np.roll(v, 1, axis=2)
