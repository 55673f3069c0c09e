"""Functions (q, k, v, state) -> (o, state) for the judge, caches and recurrences: WRONG_STATES and RIGHT_STATES of Candidates."""
import numpy as np

import attnlab
from plain_attention import attend, lister, repeat
from wrong_claims import features

WRONG_STATES, RIGHT_STATES, KEPT = {}, {}, {}
wrong, right = lister(WRONG_STATES), lister(RIGHT_STATES)


def cache(keep=lambda x: x, rows=attend):
    """rows: attention to all keys so far; keep: what of these and their values is held."""
    @attnlab.variant(state="state")
    def attention(q, k, v, state=None):
        k, v = (np.concatenate(x, axis=2) for x in zip(state, (k, v))) if state else (k, v)
        return rows(q, *repeat(q, k, v), True), (keep(k), keep(v))
    return attention


def recurrence(begin=np.zeros, hand_on=lambda s: s):
    """Linear attention by S <- S + phi(k) (v, 1)', o = S' phi(q) over its last number."""
    @attnlab.variant(state="state", spec="linear:feature=elu")
    def attention(q, k, v, state=None):
        k, v = repeat(q, k, np.concatenate([v, np.ones_like(v[..., :1])], axis=3))
        s = begin((*q.shape[:2], k.shape[3], v.shape[3]), q.dtype) if state is None else state
        s = s[:, :, None] + np.cumsum(features(k)[..., None] * v[..., None, :], axis=2)
        o = np.einsum("bhnd,bhnde->bhne", features(q), s)
        return o[..., :-1] / o[..., -1:], hand_on(s[:, :, -1])
    return attention


wrong("positions begin at 0 in each part", "position_not_advanced", cache(
    rows=lambda q, k, v, causal: attend(q, k[:, :, :q.shape[2]], v[:, :, :q.shape[2]], causal)))
wrong("a ring that is too short overwrites keys", "ring_too_short", cache(lambda x: x[:, :, -6:]))
wrong("the last key of a part is lost", "last_key_lost", cache(lambda x: x[:, :, :-1]))
wrong("other outputs of more than 5 rows in one call", "one_call_differs", cache(rows=lambda q, k, v, causal: attend(
    q, k, v, causal) * q.dtype.type(1.01 if q.shape[2] == k.shape[2] > 5 else 1)), witness=False)
wrong("the state of the first batch entry for all", "state_of_first_entry", recurrence(
    hand_on=lambda s: np.broadcast_to(s[:1], s.shape)))
wrong("a sequence begins with the state of the one before", "state_kept", recurrence(
    lambda *kind: KEPT.get(kind, np.zeros(*kind)), lambda s: KEPT.update({(s.shape, s.dtype): s}) or s))
wrong("the state in float16", "state_in_half", recurrence(hand_on=lambda s: s.astype("f2").astype(s.dtype)))
wrong("it returns no state", "no_state", attnlab.variant(state="state")(lambda q, k, v, state=None: attend(q, k, v, True)))
right("a cache of keys and values", "a_cache", cache())
right("a state of linear attention", "a_recurrence", recurrence())
