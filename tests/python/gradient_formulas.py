"""Attention of few rows that stand for all, and of weights by other functions than softmax, from the definitions in NumPy: of
one batch entry, q [heads, n_q, d], k and v [heads, n, d] of the keys that exist, the scale c and which keys are seen. They
take complex numbers, so that a step in the imaginary direction gives their slopes. They return outputs and, of landmarks, the
log-sum-exp."""
import numpy as np


def turned(x):
    return x.swapaxes(-1, -2)


def softmax(s, seen=True):
    """The weights, and the logarithm of their sum before they are divided."""
    shown = np.where(seen, s, 0)
    top = np.where(seen, s.real, -np.inf).max(-1, keepdims=True)
    e = np.where(seen, np.exp(shown - top), 0)
    return e / e.sum(-1, keepdims=True), np.log(e.sum(-1)) + top[..., 0]


def means(x, m):
    n = x.shape[1]
    return np.stack([x[:, i * n // m:(i + 1) * n // m].mean(1) for i in range(m)], 1)


def pooled(slots):
    def attend(q, k, v, c, seen):
        m = min(slots, k.shape[1])
        return softmax(c * q @ turned(means(k, m)))[0] @ means(v, m), None
    return attend


def newton(a, steps):
    """Sums of rows and columns are of numbers above 0; the largest is the one with the largest real part."""
    one, z = np.eye(a.shape[-1]), np.empty_like(a)
    for h, x in enumerate(a):
        rows, columns = x.sum(1), x.sum(0)
        z[h] = x.T / (rows[rows.real.argmax()] * columns[columns.real.argmax()])
    for _ in range(steps):
        az = a @ z
        z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
    return z


def landmarks(count, between, agents=False):
    def attend(q, k, v, c, seen):
        m = min(count, q.shape[1], k.shape[1])
        of_q, of_k = means(q, m), means(k, m)
        a, log_a = softmax(c * of_q @ turned(of_k))
        b, log_b = softmax(c * of_q @ turned(k))
        z = between(a)
        f, log_f = softmax(c * q @ turned(of_k))
        o = (softmax(c * q @ turned(of_q))[0] if agents else f) @ (z @ (b @ v))
        g = f @ z
        return o, log_f + (g @ (log_b - log_a)[..., None])[..., 0] / g.sum(-1)
    return attend


def by_weights(weigh, first=0, count=None, gain=1.0):
    """Weights that are a function of the scores, of some columns."""
    def attend(q, k, v, c, seen):
        part = slice(first, None if count is None else first + count)
        s = gain * c * q[..., part] @ turned(k[..., part])
        return weigh(s, np.broadcast_to(seen, s.shape)) @ v, None
    return attend


def half(d, second):
    return {"first": d // 2 if second else 0, "count": (d + 1) // 2, "gain": (d / ((d + 1) // 2))**0.5}


def columns(second):
    def attend(q, k, v, c, seen):
        return by_weights(lambda s, seen: softmax(s, seen)[0], **half(q.shape[-1], second))(q, k, v, c, seen)
    return attend


def differential(q, k, v, c, seen):
    first, second = (columns(which)(q, k, v, c, seen)[0] for which in (False, True))
    return first - 0.8 * second, None


def last_and_blocks(block, overlap, window):
    """The last keys one by one, and means of blocks that end at the query or before; causal."""
    def attend(q, k, v, c, seen):
        keys = np.arange(k.shape[1])
        end = np.arange(block, k.shape[1] + 1, block)
        first = np.maximum(end - block - overlap, 0)
        mean = ((keys >= first[:, None]) & (keys < end[:, None])) / (end - first)[:, None]
        place = seen[0].sum() - 1 + np.arange(q.shape[1])[:, None]
        shown = np.concatenate([seen & (keys > place - window), end - 1 <= place], 1)
        k, v = (np.concatenate([x, mean @ x], 1) for x in (k, v))
        return softmax(c * q @ turned(k), shown)[0] @ v, None
    return attend


def counts(seen):
    return seen.sum(-1, keepdims=True)


def sigmoid(s, seen):
    return np.where(seen, 1 / (1 + counts(seen) * np.exp(-s)), 0)


def relu(power):
    return lambda s, seen: np.where(seen & (s.real > 0), s**power, 0) / counts(seen)


def summing_to_one(power):
    """max(z - tau, 0)^power of sum 1, z = s / power; tau is that of the most largest numbers that are
    above it."""
    def weigh(s, seen):
        w = np.zeros_like(s)
        for at in np.ndindex(s.shape[:-1]):
            keys = np.flatnonzero(seen[at])
            keys = keys[np.argsort(-s[at][keys].real)]
            for j in range(1, len(keys) + 1):
                z = s[at][keys[:j]] / power
                mean = z.sum() / j
                left = 1 + 0j if power == 1 else 1 - ((z - mean)**2).sum()
                tau = mean - (1 / j if power == 1 else np.sqrt(left / j))
                if left.real <= 0 or tau.real >= z[-1].real:
                    break
                w[at] = 0
                w[at][keys[:j]] = (z - tau)**power
        return w
    return weigh


def forget(q, k, v, c, seen):
    """ALiBi's slopes, of heads that are a power of two."""
    heads, n = q.shape[0], k.shape[1]
    last = np.where(seen, np.arange(n), -1).max(-1)
    slopes = alibi_slopes(heads)[:, None, None]
    return softmax(c * q @ turned(k) - slopes * np.maximum(last[:, None] - np.arange(n), 0), seen)[0] @ v, None


def alibi_slopes(heads):
    power = 2**int(np.log2(heads))
    return np.array([2**(-8 * (h + 1) / power) if h < power else 2**(-4 * (2 * (h - power) + 1) / power) for h in range(heads)])


ALL = {
    "full": by_weights(lambda s, seen: softmax(s, seen)[0]),
    "columns:of=first": columns(False),
    "columns:of=second": columns(True),
    "differential": differential,
    "normaliser:kind=sigmoid": by_weights(sigmoid),
    "normaliser:kind=relu": by_weights(relu(1)),
    "normaliser:kind=relu,power=3": by_weights(relu(3)),
    "normaliser:kind=sparsemax": by_weights(summing_to_one(1)),
    "normaliser:kind=entmax15": by_weights(summing_to_one(2)),
    "forget": forget,
    "pooled:block=6,overlap=3,window=5": last_and_blocks(6, 3, 5),
    "linformer:k=7,projection=pool": pooled(7),
    "nystrom:landmarks=9": landmarks(9, lambda a: newton(a, 6)),
    "nystrom:landmarks=5,iterations=2": landmarks(5, lambda a: newton(a, 2)),
    "nystrom:landmarks=6,middle=pinv,rcond=0": landmarks(6, np.linalg.inv),
    "nystrom:landmarks=9,middle=agents": landmarks(9, lambda a: np.eye(a.shape[-1]), agents=True),
}
