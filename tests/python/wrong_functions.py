"""Wrong attention, one mistake each: WRONG[name] of a Candidate. Those of types and memory are in wrong_calls.py, claims
of other specs in wrong_claims.py."""
import numpy as np

from plain_attention import attend, hide, lister, offsets, repeat, scores, softmax

WRONG = {}
wrong = lister(WRONG)
KEPT = {}


def of_scores(weights):
    """O = weights(scores, causal) V."""
    def attention(q, k, v, causal=False):
        return weights(scores(q, k), causal) @ v

    attention.__name__ = weights.__name__
    return attention


def seen(s, causal=True):
    return (offsets(*s.shape[-2:]) <= 0) | (not causal)


# -- the causal mask --

@wrong("causal off by one: the next key is seen")
def sees_next_key(q, k, v, causal=False):
    return softmax(hide(scores(q, k), causal, 1)) @ v


wrong("causal off by one: the query's own key is hidden", "misses_own_key", of_scores(
    lambda s, causal: np.nan_to_num(softmax(hide(s, causal, -1)))))
wrong("causal ignored", "causal_ignored", lambda q, k, v, causal=False: attend(q, k, v))
wrong("causal mask transposed", "sees_future", of_scores(
    lambda s, causal: softmax(np.where((offsets(*s.shape[-2:]) >= 0) | (not causal), s, -np.inf))))
wrong("causal mask off by one with a cache of earlier keys", "own_key_missing_in_decoding", of_scores(
    lambda s, causal: softmax(hide(s, causal, -1 if s.shape[-2] < s.shape[-1] else 0))))
wrong("weights masked after the softmax, not divided again", "masked_afterwards", of_scores(
    lambda s, causal: softmax(s) * seen(s, causal)))
wrong("hidden scores are 0, not -inf", "hidden_scores_zero", of_scores(lambda s, causal: softmax(s * seen(s, causal))))
wrong("a mask of -10, too small", "soft_mask", of_scores(
    lambda s, causal: softmax(s + np.where(seen(s, causal), 0, -10).astype(s.dtype))))


@wrong("causal by blocks of two")
@of_scores
def causal_by_blocks(s, causal):
    i, j = np.arange(s.shape[-2])[:, None] + s.shape[-1] - s.shape[-2], np.arange(s.shape[-1])
    return softmax(np.where((j // 2 <= i // 2) | (not causal), s, -np.inf))


@wrong("causal mask of the first call with as many queries")
def mask_by_queries(q, k, v, causal=False):
    n_q, n_kv = q.shape[2], k.shape[2]
    if causal and n_q not in KEPT:
        KEPT[n_q] = offsets(n_q, max(n_kv, n_q)) <= 0
    s = scores(q, k)
    return softmax(np.where(KEPT[n_q][:, :n_kv], s, -np.inf) if causal and KEPT[n_q].shape[1] >= n_kv else hide(s, causal)) @ v


@wrong("the maximum of hidden keys too: underflow", witness=False)
@of_scores
def maximum_of_all(s, causal):
    p = np.exp(s - s.max(-1, keepdims=True)) * seen(s, causal)
    return p / p.sum(-1, keepdims=True)


# -- scale and softmax --

def at_scale(factor):
    """factor(q, v) for 1/sqrt(d)."""
    return lambda q, k, v, causal=False: softmax(hide(q @ k.swapaxes(-1, -2) * q.dtype.type(factor(q, v)), causal)) @ v


wrong("scale missing", "scale_missing", at_scale(lambda q, v: 1))
wrong("scale twice", "scale_twice", at_scale(lambda q, v: 1 / q.shape[-1]))
wrong("scale of the width of all heads", "scale_of_model", at_scale(lambda q, v: (q.shape[-1] * q.shape[1]) ** -0.5))
wrong("scale of the values' width", "scale_of_values", at_scale(lambda q, v: v.shape[-1] ** -0.5))
wrong("the argument scale is ignored", "scale_ignored", lambda q, k, v, causal=False, scale=None: attend(q, k, v, causal))
wrong("softmax over the queries", "over_queries", of_scores(lambda s, causal: np.nan_to_num(softmax(hide(s, causal), axis=-2))))
wrong("softmax over the heads", "over_heads", of_scores(lambda s, causal: np.nan_to_num(softmax(hide(s, causal), axis=1))))
wrong("one sum for all queries of a head", "over_queries_and_keys", of_scores(
    lambda s, causal: softmax(hide(s, causal), axis=(-2, -1))))
wrong("no softmax", "without_softmax", of_scores(lambda s, causal: s * seen(s, causal)))
wrong("outputs 2 % too large", "biased", lambda q, k, v, causal=False: attend(q, k, v, causal) * q.dtype.type(1.02))
wrong("outputs 0.01 % too large", "slightly_biased", lambda q, k, v, causal=False: attend(q, k, v, causal) * q.dtype.type(1.0001))


@wrong("powers of 2, not of e")
@of_scores
def base_two(s, causal):
    s = hide(s, causal)
    p = np.exp2(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@wrong("1 added to the sum of weights")
@of_scores
def one_more_weight(s, causal):
    p = np.exp(hide(s, causal))
    return p / (1 + p.sum(-1, keepdims=True))


@wrong("exponentials without a maximum overflow")
@of_scores
def without_maximum(s, causal):
    p = np.exp(hide(s, causal))
    return p / p.sum(-1, keepdims=True)


@wrong("an exponential of a polynomial")
@of_scores
def polynomial_exponential(s, causal):
    s = hide(s, causal)
    x = np.maximum(s - s.max(-1, keepdims=True), -60) / 64
    p = (1 + x + x * x / 2) ** 64 * np.isfinite(s)
    return p / p.sum(-1, keepdims=True)


@wrong("only the 32 largest weights", witness=False)
@of_scores
def largest_weights(s, causal):
    s = hide(s, causal)
    bar = np.sort(s, axis=-1)[..., -32:][..., :1]
    return softmax(np.where(s >= bar, s, -np.inf))


# -- padding --

def padded(q, k, v, causal, exists):
    s = np.where(exists, hide(scores(q, k), causal), -np.inf)
    p = np.exp(s - np.maximum(s.max(-1, keepdims=True), -1e30)) * np.isfinite(s)
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-30) @ v


def by_lengths(exists, rows=padded):
    """exists(keys, lengths): which there are; rows: attention to these."""
    return lambda q, k, v, causal=False, kv_len=None: rows(
        q, k, v, causal, True if kv_len is None else exists(np.arange(k.shape[2]), kv_len))


def ends_at_lengths(q, k, v, causal, lengths):
    """The causal mask of FlashAttention: the last query stands at the last key that exists."""
    lengths = lengths[:, None, None, None]
    own = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None] <= lengths - q.shape[2]
    return padded(q, *repeat(q, k, v), False, (np.arange(k.shape[2]) < lengths) & (own | (not causal)))


wrong("padding attended", "padding_attended", lambda q, k, v, causal=False, kv_len=None: attend(q, k, v, causal))
wrong("padding off by one", "padding_off_by_one", by_lengths(lambda j, n: j <= n[:, None, None, None]))
wrong("the lengths of batch entries taken for those of heads", "lengths_of_heads", by_lengths(lambda j, n: j < n[:, None, None]))
wrong("one length for all batch entries", "one_length", by_lengths(lambda j, n: j < max(n)))
wrong("-inf - -inf where an entry has no key", "empty_rows", by_lengths(
    lambda j, n: j < n[:, None, None, None],
    lambda q, k, v, causal, exists: softmax(np.where(exists, hide(scores(q, k), causal), -np.inf)) @ v))
wrong("a causal mask that ends at the longest length for all", "ends_at_longest", lambda q, k, v, causal=False, kv_len=None:
      ends_at_lengths(q, k, v, causal, np.full(len(q), k.shape[2] if kv_len is None else max(kv_len))))


# -- blocks --

def online(q, k, v, causal, size, *, rescale=True, rescale_sum=True, absent=False):
    """Online softmax over blocks of keys, each of whose steps can be left out."""
    m = np.full((*q.shape[:3], 1), -np.inf, q.dtype)
    total, o = np.zeros_like(m), np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    s_all = hide(scores(q, k), causal)
    for j in range(0, k.shape[2], size):
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


def without_remainder(size):
    def attention(q, k, v, causal=False):
        n = k.shape[2] - k.shape[2] % size if k.shape[2] > size and not causal else k.shape[2]
        return attend(q, k[:, :, :n], v[:, :, :n], causal)
    return attention


wrong("online softmax without rescaling what was summed", "not_rescaled",
      lambda q, k, v, causal=False: online(q, k, v, causal, 4, rescale=False))
wrong("online softmax without rescaling the sum of weights", "sum_not_rescaled",
      lambda q, k, v, causal=False: online(q, k, v, causal, 4, rescale_sum=False))
wrong("keys that fill up the last block have a weight", "block_filled_up",
      lambda q, k, v, causal=False: online(q, k, v, causal, 4, absent=True))
wrong("keys behind the last whole block are dropped", "remainder_dropped", without_remainder(4))
wrong("keys behind the last whole block of 64 are dropped", "long_remainder_dropped", without_remainder(64), witness=False)


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


wrong("only 1024 keys", "first_keys_only", lambda q, k, v, causal=False:
      softmax(hide(scores(q, k), causal)[..., :1024]) @ v[:, :, :1024], witness=False)
wrong("one query alone sees the last 128 keys", "decoding_window", lambda q, k, v, causal=False:
      attend(q, k[:, :, -128:], v[:, :, -128:], causal) if q.shape[2] == 1 else attend(q, k, v, causal), witness=False)


# -- heads and axes --

def tiled(q, x):
    return np.tile(x, (1, q.shape[1] // x.shape[1], 1, 1))


wrong("heads rolled", "heads_rolled", lambda q, k, v, causal=False: np.roll(attend(q, k, v, causal), 1, axis=1))
wrong("shared heads tiled, not repeated", "heads_tiled", lambda q, k, v, causal=False: attend(q, tiled(q, k), tiled(q, v), causal))
wrong("values of shared heads tiled, keys repeated", "values_tiled",
      lambda q, k, v, causal=False: attend(q, *repeat(q, k), tiled(q, v), causal))
wrong("shared heads: the first for all", "first_head_for_all", lambda q, k, v, causal=False:
      attend(q, k[:, :1], v[:, :1], causal) if k.shape[1] != q.shape[1] else attend(q, k, v, causal))
wrong("keys of the first batch entry for all", "first_entry_for_all", lambda q, k, v, causal=False: attend(q, k[:1], v, causal))
wrong("keys for values", "keys_for_values", lambda q, k, v, causal=False:
      softmax(hide(scores(q, k), causal)) @ (k if k.shape == v.shape else v))
wrong("values of the keys before", "values_rolled", lambda q, k, v, causal=False: attend(q, k, np.roll(v, 1, axis=2), causal))


@wrong("heads joined without a transposition")
def heads_not_transposed(q, k, v, causal=False):
    o = attend(q, k, v, causal)
    return o.transpose(0, 2, 1, 3).reshape(o.shape)


@wrong("more heads than rows taken for another layout")
def layout_guessed(q, k, v, causal=False):
    if q.shape[1] > q.shape[2] and q.shape == k.shape == v.shape:
        return attend(*(x.swapaxes(1, 2) for x in (q, k, v)), causal).swapaxes(1, 2)
    return attend(q, *repeat(q, k, v), causal)


@wrong("einsum with the weights transposed")
def weights_transposed(q, k, v, causal=False):
    p = softmax(hide(scores(q, k), causal))
    return np.einsum("bhkq,bhkd->bhqd", p, v) if p.shape[-1] == p.shape[-2] else p @ v
