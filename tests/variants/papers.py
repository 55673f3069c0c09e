#!/usr/bin/python3
"""papers.py ATTNLAB - variants against NumPy, written from the papers' definitions and not from the C code.

Each case draws queries, keys and values, has `attnlab apply` compute in fp64, and computes the same in NumPy from the
formula of the paper named with it. The scores are |s| <= S and the values |v| <= V: both sides err by at most
(2 n + 4 (d + 8) S) V of half an epsilon, sums of n weights and products over d, to first order; an inverse by its condition
times as much. Exit code 77: no NumPy."""
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("papers.py: no NumPy: the variants are not held against their papers")
    sys.exit(77)

N, HEADS, D = 157, 3, 24
rng = np.random.default_rng(20260101)
i, j = np.arange(N)[:, None], np.arange(N)[None, :]
CAUSAL = j <= i


def scores(q, k):
    return q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])


def attend(s, seen, v):
    """Softmax over the keys that are seen, times the values. seen: [n, n] or [heads, n, n]."""
    s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def best(x, count):
    """True for the `count` largest of each row of x, -inf never."""
    order = np.argsort(-x, axis=-1, kind="stable")
    chosen = np.zeros(x.shape, bool)
    np.put_along_axis(chosen, order[..., :count], True, -1)
    return chosen & (x > -np.inf)


def streaming(q, k, v):
    """StreamingLLM, Xiao et al. 2023: the first tokens, and the most recent ones with the query's own."""
    return attend(scores(q, k), CAUSAL & ((j < 3) | (i - j < 20)), v)


def strided(q, k, v):
    """Sparse transformer, Child et al. 2019, section 4.3: A1 = {max(0, i - l), ..., i}, A2 = {j : (i - j) mod l = 0}."""
    return attend(scores(q, k), CAUSAL & ((j >= i - 12) | ((i - j) % 12 == 0)), v)


def fixed(q, k, v):
    """... A1 = {j : floor(j / l) = floor(i / l)}, A2 = {j : j mod l in {l - c, ..., l - 1}}."""
    return attend(scores(q, k), CAUSAL & ((j // 12 == i // 12) | (j % 12 >= 12 - 3)), v)


def topk(q, k, v):
    """Gupta et al. 2021: the k largest scores of each row."""
    s = np.where(CAUSAL, scores(q, k), -np.inf)
    return attend(s, best(s, 9), v)


def topp(q, k, v):
    """Top-p: the fewest keys of largest weight whose weights add up to 0.8."""
    s = np.where(CAUSAL, scores(q, k), -np.inf)
    p = attend(s, CAUSAL, np.broadcast_to(np.eye(N), (len(q), N, N)))
    order = np.argsort(-p, -1, kind="stable")
    ranked = np.take_along_axis(p, order, -1)
    kept = np.zeros(p.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(ranked, -1) - ranked < 0.8, -1)
    return attend(s, kept & CAUSAL, v)


def index_scores(keys):
    """I_ij = sum_h w_ih relu(q_ih . k_j), the lightning indexer of DeepSeek-V3.2."""
    return np.einsum("hi,hij->ij", gates["iw"], np.maximum(gates["iq"] @ keys.T, 0))


def dsa(q, k, v):
    """DeepSeek-V3.2: the k keys of largest I, the same for all heads."""
    return attend(scores(q, k), best(np.where(CAUSAL, index_scores(gates["ik"]), -np.inf), 9), v)


def qsa(q, k, v):
    """QSA: pages of 4 keys by their mean index key, those before the query's own, which is kept."""
    means = np.stack([gates["ik"][f:f + 4].mean(0) for f in range(0, N, 4)])
    pages = np.arange(len(means))[None, :]
    chosen = best(np.where(pages < i // 4, index_scores(means), -np.inf), 5)
    return attend(scores(q, k), CAUSAL & ((j // 4 == i // 4) | chosen[:, np.arange(N) // 4]), v)


def hca(q, k, v):
    """DeepSeek-V4: the last keys, and the mean of each block of 12 and of the 5 keys before it, in one softmax."""
    ends = np.arange(11, N, 12)
    kept = [slice(max(e - 16, 0), e + 1) for e in ends]
    terms, values = (np.concatenate([x, np.stack([x[:, s].mean(1) for s in kept], 1)], 1) for x in (k, v))
    return attend(scores(q, terms), np.concatenate([CAUSAL & (i - j < 20), ends[None, :] <= i], 1), values)


def csa(q, k, v):
    """DeepSeek-V4: means of blocks of 4 and of the 4 keys before, of which the 7 of largest I by the means of their index
    keys, the same for all heads; the last 20 keys; a sink; in one softmax."""
    ends = np.arange(3, N, 4)
    kept = [slice(max(e - 7, 0), e + 1) for e in ends]
    index = np.stack([gates["ik"][s].mean(0) for s in kept])
    terms, values = (np.concatenate([x, np.stack([x[:, s].mean(1) for s in kept], 1)], 1) for x in (k, v))
    chosen = best(np.where(ends[None, :] <= i, index_scores(index), -np.inf), 7)
    s = np.where(np.concatenate([CAUSAL & (i - j < 20), chosen], 1), scores(q, terms), -np.inf)
    return np.exp(s) @ values / (np.exp(s).sum(-1, keepdims=True) + np.exp(SINK))


def nsa(q, k, v):
    """NSA, Yuan et al. 2025, eq. 5 to 12: blocks of l = 8 keys every d = 4, by their means; pages of l' = 16, of which are
    kept the first, the last two, and the two whose keys have most p_cmp, all heads together; the last 20 keys; gates."""
    starts, page = np.arange(0, N - 7, 4)[:, None], np.arange(-(-N // 16))[None, :]
    means = [np.stack([x[:, s:s + 8].mean(1) for s in starts[:, 0]], 1) for x in (k, v)]
    seen = starts.T + 8 <= i + 1
    p = np.where(seen, np.exp(scores(q, means[0])), 0)
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)
    shared = ((starts <= j) & (j < starts + 8)).astype(float) @ (j.T // 16 == page)
    kept = best(np.where((page > 0) & (page < i // 16 - 1), p.sum(0) @ shared, -np.inf), 2)
    kept |= (page == 0) | (page >= i // 16 - 1)
    g, s = np.split(gates["gate"], 3, -1), scores(q, k)
    return g[0] * (p @ means[1]) + g[1] * attend(s, CAUSAL & kept[:, j[0] // 16], v) + g[2] * attend(s, CAUSAL & (i - j < 20), v)


def sparq(q, k, v):
    """SparQ, Ribar et al. 2024, steps 1 and 2: keys by the r components of the query that are largest in magnitude."""
    some = np.where(best(np.abs(q), 5), q, 0)
    return attend(scores(q, k), best(np.where(CAUSAL, scores(some, k), -np.inf), 9), v)


def loki(q, k, v):
    """Loki, Singhania et al. 2024, algorithm 1, the basis of these keys: ranked by their first 5 principal coordinates."""
    basis = np.linalg.svd(k)[2][:, :5].transpose(0, 2, 1)
    return attend(scores(q, k), best(np.where(CAUSAL, (q @ basis) @ (k @ basis).transpose(0, 2, 1), -np.inf), 9), v)


def vslash(q, k, v):
    """MInference, Jiang et al. 2024, algorithm 2: sums over the last queries, by key and by distance."""
    s, last = scores(q, k), 11
    p = np.where(CAUSAL, np.exp(s), 0)[:, -last:]
    p /= p.sum(-1, keepdims=True)
    column = p.sum(1)
    column[:, :3] = -np.inf
    slash = np.stack([(p * ((i - j)[-last:] == g)).sum((1, 2)) for g in range(N)], 1)
    distance = np.take_along_axis(best(slash, 5), np.broadcast_to(np.maximum(i - j, 0).reshape(1, -1), (len(q), N * N)), 1)
    return attend(s, CAUSAL & (best(column, 6)[:, None] | distance.reshape(-1, N, N) | (j < 3) | (i - j < 2)), v)


def pages(q, k, v, rank):
    """Pages of 8 keys: the query's own, and the best of those that are wholly in the past; 4 in all."""
    s, page = scores(q, k), 8
    kept = np.zeros(s.shape, bool)
    for h in range(len(q)):
        for row in range(N):
            own = row // page
            ranks = [rank(q[h, row], k[h, b * page:(b + 1) * page]) for b in range(own)]
            for b in sorted(range(own), key=lambda b: -ranks[b])[:3] + [own]:
                kept[h, row, b * page:(b + 1) * page] = True
    return attend(s, kept & CAUSAL, v)


def quest(q, k, v):
    """Quest, Tang et al. 2024: an upper bound of a page's scores, from the extremes of each channel of its keys."""
    return pages(q, k, v, lambda x, keys: np.maximum(x * keys.min(0), x * keys.max(0)).sum())


def moba(q, k, v):
    """MoBA, Lu et al. 2025: the query times the mean of a block's keys; the current block is always chosen."""
    return pages(q, k, v, lambda x, keys: x @ keys.mean(0))


def natten(q, k, v):
    """Neighbourhood attention, Hassani et al. 2022: the window of 5 x 5 nearest pixels, moved inside at the borders."""
    n, width = q.shape[1], 13
    height = n // width

    def near(a, b, size):
        start = np.clip(a - 2, 0, size - 5)
        return (b >= start) & (b < start + 5)

    a, b = np.arange(n)[:, None], np.arange(n)[None, :]
    return attend(scores(q, k), near(a // width, b // width, height) & near(a % width, b % width, width), v)


def gat(q, k, v):
    """Graph attention, Velickovic et al. 2018: softmax over neighbours of LeakyReLU(a . [W h_i || W h_j])."""
    e = q[:, :, :1] + k[:, None, :, 1]
    return attend(np.where(e > 0, e, 0.2 * e), edges, v)


def alibi(q, k, v):
    """Press et al. 2022: -m (i - j) added to the scores, m = 2^(-8 h / heads) for 4 heads, h from 1."""
    slopes = 2.0 ** (-8.0 * np.arange(1, q.shape[0] + 1) / q.shape[0])
    return attend(scores(q, k) - slopes[:, None, None] * (i - j), CAUSAL, v)


def softcap_sink(q, k, v):
    """Gemma 2's cap t tanh(s / t), and one more logit of value zero in the softmax of each row (gpt-oss)."""
    s = np.where(CAUSAL, 2.0 * np.tanh(scores(q, k) / 2.0), -np.inf)
    p = np.exp(s)
    return p / (p.sum(-1, keepdims=True) + np.exp(0.5)) @ v


def normalised(w, seen, v):
    """Weights that are not exponentials, divided by their sum."""
    w = np.where(seen, w, 0)
    return w / w.sum(-1, keepdims=True) @ v


def products(phi, q, k):
    return phi(q) @ phi(k).transpose(0, 2, 1)


def elu_plus_one(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1


def elu(q, k, v):
    """Katharopoulos et al. 2020, eq. 7: phi(x) = elu(x) + 1, elu(x) = x or e^x - 1."""
    return normalised(products(elu_plus_one, q, k), CAUSAL, v)


def kernelised(q, k, v, seen=CAUSAL):
    """Luo et al. 2021, eq. 8: e^b_(j - i) phi(q_i) phi(k_j)^T over its sum; b those of ALiBi, which reads |i - j|."""
    slopes = 2.0 ** (-8.0 * np.arange(1, q.shape[0] + 1) / q.shape[0])
    return normalised(products(elu_plus_one, q, k) * np.exp(-slopes[:, None, None] * np.abs(i - j)), seen, v)


def kernelised_all(q, k, v):
    return kernelised(q, k, v, CAUSAL | True)


def counts(q):
    return np.arange(1, q.shape[1] + 1)[:, None]


def sigmoid(q, k, v):
    """Ramapuram et al. 2024: sigma(q k^T / sqrt(d) + b) v, b = -ln n; n are the keys before a query."""
    return np.where(CAUSAL, 1 / (1 + counts(q) * np.exp(-scores(q, k))), 0) @ v


def squared_relu(q, k, v):
    """Wortsman et al. 2023: relu(q k^T / sqrt(d))^2 / n."""
    return np.where(CAUSAL, np.maximum(scores(q, k), 0) ** 2 / counts(q), 0) @ v


def simplex(z, power):
    """max(z - tau, 0)^power of sum 1, tau by bisection: Martins and Astudillo 2016, Peters et al. 2019."""
    low, high = z.max(-1, keepdims=True) - 1, z.max(-1, keepdims=True)
    for _ in range(100):
        tau = (low + high) / 2
        above = (np.maximum(z - tau, 0) ** power).sum(-1, keepdims=True) > 1
        low, high = np.where(above, tau, low), np.where(above, high, tau)
    return np.maximum(z - low, 0) ** power


def sparsemax(q, k, v):
    return simplex(np.where(CAUSAL, scores(q, k), -np.inf), 1) @ v


def entmax15(q, k, v):
    return simplex(np.where(CAUSAL, scores(q, k) / 2, -np.inf), 2) @ v


def differential(q, k, v):
    """Ye et al. 2024, eq. 1: softmax(Q1 K1^T) - lambda softmax(Q2 K2^T), lambda = 0.3; scores over sqrt(d / 2)."""
    half = q.shape[-1] // 2
    first, second = (attend(scores(q[..., at], k[..., at]), CAUSAL, v) for at in (slice(half), slice(half, None)))
    return first - 0.3 * second


def forget(q, k, v):
    """Lin et al. 2025: softmax(q k^T + D), D_ij the sum of log f_l for j < l <= i."""
    total = gates["g1"][..., 0].cumsum(-1)
    return attend(scores(q, k) + total[:, :, None] - total[:, None, :], CAUSAL, v)


def sums(q, k, v):
    """Qin et al. 2022 (TransNormer), section 4.1, before its norm: products of features, here the scores, times values."""
    return np.where(CAUSAL, scores(q, k), 0) @ v


def retention(q, k, v):
    """RetNet, Sun et al. 2023, equation 6, token by token: S_n = gamma S_n-1 + K_n^T V_n, o_n = Q_n S_n; section 2.2:
    gamma = 1 - 2^(-5 - arange(0, heads)), and Q by 1 / sqrt(d)."""
    state, out = np.zeros((q.shape[0], q.shape[2], v.shape[2])), np.empty_like(v)
    gamma = 1 - 2.0 ** (-5 - np.arange(q.shape[0]))
    for t in range(q.shape[1]):
        state = gamma[:, None, None] * state + k[:, t, :, None] * v[:, t, None, :]
        out[:, t] = np.einsum("hd,hde->he", q[:, t] / np.sqrt(q.shape[2]), state)
    return out


def retention_rows(q, k, v):
    """... equation 7's third normalisation of scores: R~_nm = R_nm / max(|sum_i R_ni|, 1), of R by equation 5."""
    gamma = 1 - 2.0 ** (-5 - np.arange(len(q)))
    r = np.where(CAUSAL, scores(q, k) * gamma[:, None, None] ** np.maximum(i - j, 0), 0)
    return r @ v / np.maximum(np.abs(r.sum(-1, keepdims=True)), 1)


def gated(q, k, v, decay, write):
    """Token by token: S' = diag(a_t) S_t-1, S_t = S' + K_t^T write(t, k_t, S'), o_t = Q_t S_t, Q by 1 / sqrt(d)."""
    state, out = np.zeros((q.shape[0], q.shape[2], v.shape[2])), np.empty_like(v)
    for t in range(q.shape[1]):
        state = np.exp(decay[:, t])[..., None] * state
        state = state + k[:, t, :, None] * write(t, k[:, t], state)[:, None, :]
        out[:, t] = np.einsum("hd,hde->he", q[:, t] / np.sqrt(q.shape[2]), state)
    return out


def difference(v, k, state, b):
    return b * (v - np.einsum("hd,hde->he", k, state))


def unit(k):
    return k / np.linalg.norm(k, axis=-1, keepdims=True)


def mamba3(q, k, v):
    """Lahoti et al. 2026, eq. 5 and proposition 4, of complex numbers: h_t = alpha_t h_t-1 + beta_t B_t-1 x_t-1 + gamma_t
    B_t x_t, gamma = lambda Delta, beta = (1 - lambda) Delta alpha, and alpha e^(i angle) in place of alpha."""
    def pairs(x):
        return x[..., :D // 2] + 1j * x[..., D // 2:]
    state, before, out = np.zeros((q.shape[0], D // 2, v.shape[2]), complex), 0, np.empty_like(v)
    for t in range(q.shape[1]):
        alpha = np.exp(gates["g1"][:, t] + 1j * gates["angle"][:, t])[..., None]
        enters = pairs(k)[:, t, :, None] * v[:, t, None, :]
        state = alpha * (state + gates["e1"][:, t, None, None] * before) + gates["b"][:, t, None, None] * enters
        before = enters
        out[:, t] = np.einsum("hd,hde->he", np.conj(pairs(q))[:, t] / np.sqrt(D), state).real
    return out


def ssd(q, k, v):
    """Dao and Gu 2024, eq. 2: h_t = A_t h_t-1 + B_t x_t, A_t a number, B_t times Delta_t."""
    return gated(q, k, v, gates["g1"], lambda t, _, __: gates["b"][:, t, None] * v[:, t])


def gla(q, k, v):
    """Yang et al. 2023, section 4.1: S_t = (alpha_t^T 1) . S_t-1 + k_t^T v_t."""
    return gated(q, k, v, gates["g"], lambda t, _, __: v[:, t])


def deltanet(q, k, v):
    """Yang et al. 2024 (2406.06484), section 2.2: S_t = S_t-1 - beta_t (S_t-1 k_t - v_t) k_t^T, k of length 1."""
    return gated(unit(q), unit(k), v, 0 * gates["g1"], lambda t, key, s: difference(v[:, t], key, s, gates["b"][:, t, None]))


def gated_delta(q, k, v):
    """Yang et al. 2024 (2412.06464), eq. 10: S_t = S_t-1 (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T."""
    return gated(unit(q), unit(k), v, gates["g1"], lambda t, key, s: difference(v[:, t], key, s, gates["b"][:, t, None]))


def kda(q, k, v):
    """Kimi Linear 2025, eq. 1: S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_t-1 + beta_t k_t v_t^T."""
    return gated(unit(q), unit(k), v, gates["g"], lambda t, key, s: difference(v[:, t], key, s, gates["b"][:, t, None]))


def gated_delta2(q, k, v):
    """Hatamizadeh et al. 2026: S_t = (I - k_t (b_t . k_t)^T) D_t S_t-1 + k_t (w_t . v_t)^T."""
    return gated(unit(q), unit(k), v, gates["g"],
                 lambda t, key, s: difference(gates["w2"][:, t] * v[:, t], gates["e"][:, t] * key, s, 1))


def dpfp(q, k, v):
    """Schlag et al. 2021, eq. 37: phi_(i nu)(x) = r([x; -x])_i r([x; -x])_(i + nu), nu up to 3, r = max(., 0)."""
    def phi(x):
        r = np.maximum(np.concatenate([x, -x], -1), 0)
        return np.concatenate([r * np.roll(r, -nu, -1) for nu in (1, 2, 3)], -1)
    return normalised(products(phi, q, k), CAUSAL, v)


def cosformer(q, k, v):
    """Qin et al. 2022, eq. 10: s(Q_i, K_j) = ReLU(Q_i) ReLU(K_j)^T cos(pi / 2 (i - j) / M), M the length."""
    w = np.maximum(q, 0) @ np.maximum(k, 0).transpose(0, 2, 1) * np.cos(np.pi / 2 * (i - j) / N)
    return normalised(w, i == i, v)


def taylor(q, k, v):
    """Keles et al. 2022, section 4: the first terms of the series of e^s, here up to s^2 / 2, by its monomials."""
    def phi(x):
        x = x / x.shape[-1] ** 0.25
        pairs = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1) / np.sqrt(2)
        return np.concatenate([np.ones_like(x[..., :1]), x, pairs], -1)
    return normalised(products(phi, q, k), CAUSAL, v)


def hedgehog(q, k, v):
    """Zhang et al. 2024, eq. 6, with the softmax of its appendix over [W x; -W x]."""
    def phi(x):
        t = x @ mixture.astype(np.float64).T
        t = np.exp(np.concatenate([t, -t], -1))
        return t / t.sum(-1, keepdims=True)
    return normalised(products(phi, q, k), CAUSAL, v)


def landmarks(q, k):
    """The 16 means of segments of rows, and the three softmaxes between them: F, A and B of Xiong et al. 2021, eq. 13."""
    def means(x):
        return np.stack([x[:, m * N // 16:(m + 1) * N // 16].mean(1) for m in range(16)], 1)

    def softmax(x, y):
        e = np.exp(scores(x, y))
        return e / e.sum(-1, keepdims=True)
    return softmax(q, means(k)), softmax(means(q), means(k)), softmax(means(q), k)


def nystrom(q, k, v):
    """Xiong et al. 2021, Nystroemformer, eq. 11 and 14: Z_6 in the place of the inverse."""
    f, a, b = landmarks(q, k)
    one, z = np.eye(16), a.transpose(0, 2, 1) / (a.sum(1).max(-1) * a.sum(2).max(-1))[:, None, None]
    for _ in range(6):
        z = z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z))) / 4
    return f @ z @ (b @ v)


def nystrom_inverse(q, k, v):
    """... eq. 13: the Moore-Penrose inverse itself."""
    f, a, b = landmarks(q, k)
    return f @ np.linalg.pinv(a, rcond=1e-6) @ (b @ v)


def agents(q, k, v):
    """Han et al. 2023, eq. 4: softmax(Q A^T) softmax(A K^T) V, A the means of queries."""
    _, _, b = landmarks(q, k)
    f, _, _ = landmarks(q, q)
    return f @ (b @ v)


def clustered(q, k, v, keys=0):
    """Vyas et al. 2020, eq. 3 to 8: softmax of the mean of a query's cluster; of its first keys the query's own softmax, of
    their mass. Clusters by Lloyd's iteration on the queries, from one drawn of each of 12 segments."""
    out = np.empty_like(q)
    for h in range(q.shape[0]):
        means = np.stack([q[h, m * N // 12 + Random(3, 0x636c75, m).below((m + 1) * N // 12 - m * N // 12)] for m in range(12)])
        for _ in range(10):
            of = ((q[h, :, None] - means) ** 2).sum(-1).argmin(1)
            means = np.stack([q[h, of == m].mean(0) if (of == m).any() else means[m] for m in range(12)])
        shared = scores(means[None], k[h:h + 1])[0]
        first = np.argsort(-shared, kind="stable")[:, :keys]
        shared = np.exp(shared)
        p, own = (shared / shared.sum(1, keepdims=True))[of], np.exp(scores(q[h:h + 1], k[h:h + 1])[0])
        t = np.zeros(p.shape, bool)
        np.put_along_axis(t, first[of], True, 1)
        own = own * t / np.maximum((own * t).sum(1, keepdims=True), 1e-300) * (p * t).sum(1, keepdims=True)
        out[h] = np.where(t, own, p) @ v[h]
    return out


def clustered_own(q, k, v):
    return clustered(q, k, v, 9)


def coreset(q, k, v):
    """WildCat 2026: exp(Q K_S^T) (W V) over exp(Q K_S^T) (W 1), W = h_SS^-1 h_S,all, h = exp(k k'^T / t^2) of centred keys; S by
    randomly pivoted Cholesky (Chen et al. 2022): in proportion to the diagonal of what is left of h."""
    out = np.empty_like(q)
    for h in range(q.shape[0]):
        x = k[h] - k[h].mean(0)
        kernel, draws, picked = np.exp(x @ x.T / (1.5**2 * np.sqrt(q.shape[-1]))), Random(3, 0x636f72, 0), []
        left = kernel.copy()
        for _ in range(12):
            diagonal = np.maximum(left.diagonal(), 0) * (np.arange(N)[:, None] != picked).all(1)
            picked.append(np.searchsorted(np.cumsum(diagonal), draws.uniform() * diagonal.sum(), "right"))
            s = picked[-1]
            left = left - np.outer(left[:, s], left[s]) / left[s, s]
        w = np.exp(scores(q[h:h + 1], x[None, picked])[0]) @ np.linalg.solve(kernel[np.ix_(picked, picked)], kernel[picked])
        out[h] = w @ v[h] / w.sum(1, keepdims=True)
    return out


def skyformer(q, k, v):
    """Chen et al. 2021, eq. 4 to 7: kappa(Q, S) kappa(S, S)^-1 kappa(S, K) V, kappa(x, y) = exp(-|x - y|^2 / (2 sqrt d)); S drawn
    without replacement from the 2 n points [Q; K]."""
    def kappa(x, y):
        return np.exp(-((x[:, None] - y) ** 2).sum(-1) / (2 * np.sqrt(q.shape[-1])))
    draws, picked = Random(3, 0x736b79, 0), []
    for r in range(2 * N):
        if len(picked) < 12 and draws.below(2 * N - r) < 12 - len(picked):
            picked.append(r)
    points = np.concatenate([q, k], 1)[:, picked]
    return np.stack([kappa(a, s) @ np.linalg.solve(kappa(s, s), kappa(s, b)) @ c for a, s, b, c in zip(q, points, k, v)])


class Random:
    """xoshiro256** after splitmix64, and the ziggurat in Doornik's form, whose edges are those of core/rng.c."""

    MASK = (1 << 64) - 1
    EDGES = [float.fromhex(x) for x in re.findall(r"0x[0-9a-f.]+p-?\d+(?=f)", (
        pathlib.Path(__file__).parents[2] / "core/rng.c").read_text())] + [0.0]

    def __init__(self, seed, purpose, index):
        self.at = seed
        self.at = self.split() ^ purpose
        self.at = self.split() ^ index
        self.state = [self.split() for _ in range(4)]

    def split(self):
        self.at = z = (self.at + 0x9e3779b97f4a7c15) & self.MASK
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & self.MASK
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb & self.MASK
        return z ^ (z >> 31)

    def rotate(self, x, by):
        return (x << by | x >> (64 - by)) & self.MASK

    def bits(self):
        s = self.state
        result, t = self.rotate(s[1] * 5 & self.MASK, 7) * 9 & self.MASK, s[1] << 17 & self.MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = self.rotate(s[3], 45)
        return result

    def uniform(self):
        return ((self.bits() >> 11) + 0.5) / 2**53

    def below(self, n):
        limit = self.MASK - self.MASK % n
        while True:
            x = self.bits()
            if x < limit:
                return x % n

    def normal(self):
        while True:
            bits = self.bits()
            layer = bits % 128
            u = (bits >> 11) / 2**52 - 1 + 2.0**-53
            x, inner, outer = u * self.EDGES[layer], self.EDGES[layer + 1], self.EDGES[layer]
            if abs(x) < inner:
                return x
            if layer:
                top, bottom = np.exp((x * x - inner * inner) / 2), np.exp((x * x - outer * outer) / 2)
                if bottom + self.uniform() * (top - bottom) < 1:
                    return x
                continue
            while True:
                beyond, height = -np.log(self.uniform()) / inner, -np.log(self.uniform())
                if 2 * height >= beyond * beyond:
                    return np.copysign(inner + beyond, u)


def orthogonal_rows(blocks):
    """Rows of Haar matrices by NumPy's QR, as long as Gaussian ones, of w as core/rng.c draws them."""
    draws, w = Random(5, 0xfa70b, 0), []
    for _ in range(blocks):
        basis, r = np.linalg.qr(np.array([[draws.normal() for _ in range(D)] for _ in range(D)]))
        basis *= np.sign(np.diag(r))
        for column in basis.T:
            w.append(column * np.sqrt(sum(draws.normal() ** 2 for _ in range(D))))
    return np.array(w)


def favor(q, k, v):
    """FAVOR++, Likhosherstov et al. 2022: D exp(A |w|^2 + B w.x - |x|^2 / 2), B = (1 - 4A)^(1/2), D = (1 - 4A)^(d/4),
    A = (1 - 1/rho) / 8 of least variance at |x + y|^2 = 8."""
    z = 8
    rho = (np.sqrt((2 * z + D) ** 2 + 8 * D * z) - 2 * z - D) / (4 * z)
    a = (1 - 1 / rho) / 8
    b = np.sqrt(1 - 4 * a)
    # The program keeps sqrt(scale) B w in fp32.
    w = (orthogonal_rows(3) * b * D**-0.25).astype(np.float32).astype(np.float64) / (b * D**-0.25)

    def phi(x):
        x = x / D**0.25
        return np.exp(a * (w * w).sum(-1) + b * (x @ w.T) - (x * x).sum(-1, keepdims=True) / 2)
    return normalised(products(phi, q, k), CAUSAL, v)


def buckets(x, rounds, count):
    """Reformer, Kitaev et al. 2020: argmax [x R, -x R] of each round."""
    h = []
    for t in range(rounds):
        r = np.array([[d.normal() for _ in range(D)] for d in (Random(5, 0x15b, t << 32 | c) for c in range(count // 2))])
        r = r.astype(np.float32).astype(np.float64)
        h.append(np.argmax(np.concatenate((x @ r.T, -x @ r.T), -1), -1))
    return h


def scatterbrain_lsh(q, k, v):
    """... in the buckets of hashing, and the query's own key."""
    near = i == j
    for a, b in zip(buckets(q, 2, 8), buckets(k, 2, 8)):
        near = near | (a[:, :, None] == b[:, None, :])
    return scatterbrain(q, k, v, near)


def longnet(q, k, v):
    """LongNet, Ding et al. 2023, equations 8 to 10: the softmax of each branch, joined by the denominators."""
    a, numerator, denominator = np.exp(scores(q, k)), 0, 0
    for w, r in ((8, 1), (30, 3), (64, 4)):
        offset = np.arange(len(q))[:, None, None] % r
        z = np.where(CAUSAL & (i // w == j // w) & (i % w % r == offset) & (j % w % r == offset), a, 0)
        z, p = z.sum(-1, keepdims=True), z / np.maximum(z.sum(-1, keepdims=True), 1e-300)
        numerator, denominator = numerator + z * (p @ v), denominator + z
    return numerator / denominator


def scatterbrain(q, k, v, near=CAUSAL & (i - j <= 16)):
    """ScatterBrain, Chen et al. 2021: exp of the score in a window, elsewhere its estimate by exp(w.x - |x|^2 / 2)."""
    w = (orthogonal_rows(6) * D**-0.25).astype(np.float32).astype(np.float64) / D**-0.25

    def phi(x):
        x = x / D**0.25
        return np.exp(x @ w.T - (x * x).sum(-1, keepdims=True) / 2)
    weights = np.where(CAUSAL & near, np.exp(scores(q, k)), np.where(CAUSAL, products(phi, q, k) / len(w), 0))
    return (weights / weights.sum(-1, keepdims=True)) @ v


SINK = 2.5  # a logit beside the keys of those cases that have one: an estimate of the denominator no longer cancels


def hyper(q, k, v, sampling=None, sink=-np.inf):
    """HyperAttention, Han et al. 2023: the block of sortLSH, and keys drawn for all queries, with weight 1 / (m pi)."""
    heads, n, _ = q.shape
    bits, block, m, o = 6, 32, 40, np.empty(v.shape)
    blocks = -(-n // block)
    code = [[]]  # Gray's, the most significant bit first
    for _ in range(bits):
        code = [[0] + c for c in code] + [[1] + c for c in code[::-1]]
    planes = [Random(2, 0x4197e, bit) for bit in range(bits)]
    planes = np.array([[r.normal() for _ in range(D)] for r in planes]).astype(np.float32).astype(np.float64)

    def order(x):
        signs = (x @ planes.T > 0).astype(int)[:, ::-1]
        return sorted(range(n), key=lambda at: (code.index(list(signs[at])), at))
    for h in range(heads):
        w = np.concatenate([v[h], np.ones((n, 1))], -1)
        pi = np.ones(n) / n
        if sampling:
            x = np.eye(D + 1)[D]
            for _ in range(32):
                x = w.T @ (w @ x)
                norm = np.linalg.norm(x)
                x /= norm
            pi = np.linalg.norm(w, axis=-1) / np.sqrt(norm) + 1 / n
            pi /= pi.sum()
        draws = Random(3, 0x4197d, h)
        drawn = [np.searchsorted(np.cumsum(pi), draws.uniform(), "right") if sampling else draws.below(n) for _ in range(m)]
        tail = np.bincount(drawn, minlength=n) / (m * pi)
        queries, keys = order(q[h]), order(k[h])
        for first in range(0, n, block):
            tile = queries[first:first + block]
            t = (2 * first + len(tile)) * blocks // (2 * n)
            weight = tail.copy()
            weight[keys[t * n // blocks:(t + 1) * n // blocks]] = 1
            a = np.exp(q[h][tile] @ k[h].T / np.sqrt(D)) * weight
            o[h][tile] = a @ v[h] / (a.sum(-1, keepdims=True) + np.exp(sink))
    return o


def hyper_sink(q, k, v):
    """... its denominator beside a sink."""
    return hyper(q, k, v, sink=SINK)


def kdeformer(q, k, v):
    """... with the probabilities of KDEformer, Zandieh et al. 2023: |v'_j| / |V'|_2 + 1 / n, normalised."""
    return hyper(q, k, v, "values", SINK)


def rounded_normals(seed, purpose, index, count):
    """Draws of a stream, kept in fp32."""
    draws = Random(seed, purpose, index)
    return np.array([draws.normal() for _ in range(count)]).astype(np.float32).astype(np.float64)


def estimate(s, weights, v, sink=-np.inf):
    """sum_j w_j e^(s_j) v_j over the sum without v_j, w_j = 0 where the query does not see key j or did not draw it."""
    top = s.max(-1, keepdims=True)
    p = np.where(CAUSAL, weights, 0) * np.exp(s - top)
    return (p / (p.sum(-1, keepdims=True) + np.exp(sink - top))) @ v


def collisions(q, k, bits, tables):
    """In how many of the tables keys share all signs of x G with queries, and the chance (1 - angle / pi)^K of one."""
    g = np.array([[rounded_normals(3, 0x15b7a11, t << 32 | b, D) for b in range(bits)] for t in range(tables)])
    words = [np.einsum("hnd,tbd->htnb", x, g) >= 0 for x in (q, k)]
    hits = (words[0][:, :, :, None] == words[1][:, :, None]).all(-1).sum(1)
    cosine = q @ k.transpose(0, 2, 1) / np.linalg.norm(q, axis=-1)[..., None] / np.linalg.norm(k, axis=-1)[:, None]
    return hits, (1 - np.arccos(cosine) / np.pi) ** bits


def magicpig(q, k, v):
    """MagicPIG, Chen et al. 2024: sinks, a window, and keys less their mean that share all K signs of x G in two of L tables,
    over u = 1 - (1 - p)^L - L p (1 - p)^(L - 1), p = (1 - angle / pi)^K."""
    tables = 12
    hits, p = collisions(q, k - k.mean(1, keepdims=True), 4, tables)
    u = 1 - (1 - p) ** tables - tables * p * (1 - p) ** (tables - 1)
    return estimate(scores(q, k), np.where((j < 4) | (i - j < 16), 1, (hits >= 2) / u), v)


def hashed(q, k, v):
    """Horvitz and Thompson 1952 of keys that share their signs in one of the tables, of which u = 1 - (1 - p)^L."""
    hits, p = collisions(q, k, 3, 5)
    return estimate(scores(q, k), np.where(j > i - 2, 1, (hits >= 1) / (1 - (1 - p) ** 5)), v, SINK)


def without_replacement(n, budget, h, row):
    """The weights of n keys, of which `budget` are drawn for a row of a head by Floyd's rule, by which each set is as likely."""
    draws, taken = Random(3, 0x5a3b1e, h << 32 | row), set()
    for last in range(n - budget, n) if budget < n else ():
        at = draws.below(last + 1)
        taken.add(last if at in taken else at)
    return np.isin(np.arange(n), list(taken)) * n / budget if budget < n else np.ones(n)


def vattention(q, k, v):
    """vAttention, Desai et al. 2025: sinks, a window, the largest keys; of the other N keys first b0, of which e^s has the mean x
    and the deviation s, then (z s N / (eps (D_H + N x)))^2, each with the weight N / b."""
    z, eps, base = 1.6448536269514722, 0.3, 16  # delta = 0.1
    s = scores(q, k)
    heavy = best(np.where(CAUSAL, s, -np.inf), 8)
    weights = np.where(CAUSAL & (heavy | (j < 4) | (i - j < 16)), 1.0, 0.0)
    for h in range(len(q)):
        for row in range(N):
            rest = np.flatnonzero(CAUSAL[row] & (weights[h, row] == 0))
            n = budget = len(rest)
            if n > base:
                a = np.exp(s[h, row])
                draws = Random(3, 0x5a3ba5e, h << 32 | row)
                first = a[rest[[draws.below(n) for _ in range(base)]]]
                budget = z * first.std(ddof=1) * n / (eps * (a[weights[h, row] == 1].sum() + n * first.mean()))
                budget = int(min(n, max(1, np.ceil(budget**2))))
            weights[h, row, rest] = without_replacement(n, budget, h, row)
    return estimate(s, weights, v)


def bernstein(q, k, v):
    """... of all keys but the largest, b of N for |D~ - D| <= eps D except with probability delta: the deviation of e^s <= c is
    at most S = s + c sqrt(2 L / (b0 - 1)), and c / 2 (Maurer and Pontil 2009, theorem 10), their mean at least
    x - S sqrt(2 L / b0) - c L / (3 b0), and b keys err by S sqrt(2 M / b) + c M / (3 b), L = ln(3 / delta), M = ln(6 / delta)."""
    eps, base, once, twice = 0.25, 12, np.log(3 / 0.4), np.log(6 / 0.4)
    s = scores(q, k)
    weights = np.where(best(np.where(CAUSAL, s, -np.inf), 24), 1.0, 0.0)
    for h in range(len(q)):
        for row in range(N):
            rest = np.flatnonzero(CAUSAL[row] & (weights[h, row] == 0))
            n = budget = len(rest)
            if n > base:
                a = np.exp(s[h, row])
                draws, cap = Random(3, 0x5a3ba5e, h << 32 | row), a[rest].max()
                first = a[rest[[draws.below(n) for _ in range(base)]]]
                spread = min(first.std(ddof=1) + cap * np.sqrt(2 * once / (base - 1)), cap / 2)
                least = first.mean() - spread * np.sqrt(2 * once / base) - cap * once / (3 * base)
                off = eps * (a[weights[h, row] == 1].sum() + n * max(0, least)) / n
                budget = n  # the fewest keys that err by `off` at the most
                while budget > 1 and spread * np.sqrt(2 * twice / (budget - 1)) + cap * twice / (3 * (budget - 1)) <= off:
                    budget -= 1
            weights[h, row, rest] = without_replacement(n, budget, h, row)
    return estimate(s, weights, v)


def sample(q, k, v):
    """Horvitz and Thompson 1952: b of the N keys that a query sees, each for N / b of them."""
    weights = np.zeros((len(q), N, N))
    for h in range(len(q)):
        for row in range(N):
            weights[h, row, :row + 1] = without_replacement(row + 1, min(row + 1, 20), h, row)
    return estimate(scores(q, k), weights, v, SINK)


def sample_again(q, k, v):
    """Hansen and Hurwitz 1943: b draws with replacement, a key that is drawn c times for c N / b."""
    weights = np.zeros((len(q), N, N))
    for h in range(len(q)):
        for row in range(N):
            draws = Random(3, 0x5a3b1e, h << 32 | row)
            drawn = [draws.below(row + 1) for _ in range(20)]
            weights[h, row] = np.bincount(drawn, minlength=N) * (row + 1) / 20
    return estimate(scores(q, k), weights, v, SINK)


def best_weights(q, k, v):
    """Eckart and Young 1936: the first 16 terms of the singular value decomposition of the weights."""
    s = np.where(CAUSAL, scores(q, k), -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    u, sigma, w = np.linalg.svd(p / p.sum(-1, keepdims=True))
    return (u[..., :16] * sigma[:, None, :16]) @ w[:, :16] @ v


def best_scores(q, k, v):
    """... the first 5 of that of the scores, in softmax."""
    u, sigma, w = np.linalg.svd(scores(q, k))
    return attend((u[..., :5] * sigma[:, None, :5]) @ w[:, :5], CAUSAL, v)


mixture = rng.standard_normal((7, D)).astype(np.float32) / 5
edges = rng.random((N, N)) < 0.1
edges[np.arange(N), np.arange(N)] = True

gates = {"g": np.log(rng.random((HEADS, N, D))) / 8, "b": rng.random((HEADS, N)), "e": rng.random((HEADS, N, D)),
         "w2": rng.random((HEADS, N, D)), "e1": rng.random((HEADS, N)), "angle": 9 * rng.random((HEADS, N, D // 2)) - 4,
         "iq": rng.standard_normal((4, N, 6)), "ik": rng.standard_normal((N, 6)), "iw": rng.standard_normal((4, N))}
gates["g1"], gates["gate"] = gates["g"][..., :1].copy(), rng.random((HEADS, N, 3))

INDEX = ["--causal", "--extra=index_q=iq.npy", "--extra=index_k=ik.npy", "--extra=index_w=iw.npy"]
BESIDE = f"--sink={SINK}"
CASES = [  # formula, specification, options, heads, n
    (streaming, "streaming:sink=3,window=20", ["--causal"], HEADS, N),
    (strided, "sparse_transformer:mode=strided,stride=12", ["--causal"], HEADS, N),
    (fixed, "sparse_transformer:mode=fixed,stride=12,summary=3", ["--causal"], HEADS, N),
    (topk, "topk:k=9", ["--causal"], HEADS, N),
    (topp, "topk:p=0.8", ["--causal"], HEADS, N),
    (dsa, "topk:k=9,by=index,index_heads=4,index_width=6", INDEX, HEADS, N),
    (qsa, "pages:page=4,budget=24,score=index,index_heads=4,index_width=6", INDEX, HEADS, N),
    (hca, "pooled:block=12,overlap=5,window=20", ["--causal"], HEADS, N),
    (csa, "pooled:block=4,overlap=4,window=20,top=7,index_heads=4,index_width=6", [*INDEX, BESIDE], HEADS, N),
    (nsa, "nsa:block=4,overlap=4,page=16,budget=80,window=20", ["--causal", "--extra=gate=gate.npy"], HEADS, N),
    (sparq, "topk:k=9,by=sparq,r=5", ["--causal"], HEADS, N),
    (loki, "topk:k=9,by=loki,r=5", ["--causal"], HEADS, N),
    (vslash, "vslash:vertical=6,slash=5,last=11,sink=3,window=2", ["--causal"], HEADS, N),
    (quest, "pages:page=8,budget=32,score=box", ["--causal"], HEADS, N),
    (moba, "pages:page=8,budget=32,score=mean", ["--causal"], HEADS, N),
    (natten, "graph:kind=natten,width=13,kernel=5", [], HEADS, 13 * 11),
    (hyper, "hyper:exact_below=0,bits=6,block=32,sample=40,hash_seed=2,seed=3", [], HEADS, N),
    (kdeformer, "hyper:exact_below=0,bits=6,block=32,sample=40,hash_seed=2,seed=3,sampling=values", [BESIDE], HEADS, N),
    (elu, "linear", ["--causal"], HEADS, N),
    (sums, "linear:feature=identity,normalise=no", ["--causal"], HEADS, N),
    (sigmoid, "normaliser", ["--causal"], HEADS, N),
    (squared_relu, "normaliser:kind=relu,power=2", ["--causal"], HEADS, N),
    (sparsemax, "normaliser:kind=sparsemax", ["--causal"], HEADS, N),
    (entmax15, "normaliser:kind=entmax15", ["--causal"], HEADS, N),
    (differential, "differential:lambda=0.3", ["--causal"], HEADS, N),
    (forget, "forget", ["--causal", "--extra=decay=g1.npy"], HEADS, N),
    (alibi, "forget", ["--causal"], 4, N),
    (kernelised, "toeplitz:block=16", ["--causal"], 4, N),
    (kernelised_all, "toeplitz", ["--alibi"], 4, N),
    (retention, "recurrent:chunk=32", ["--causal"], HEADS, N),
    (retention_rows, "recurrent:chunk=32,normaliser=rows", ["--causal"], HEADS, N),
    (ssd, "recurrent:rule=ssd", ["--causal", "--extra=decay=g1.npy", "--extra=beta=b.npy"], HEADS, N),
    (gla, "recurrent:rule=gla", ["--causal", "--extra=decay=g.npy"], HEADS, N),
    (deltanet, "recurrent:rule=delta", ["--causal", "--extra=beta=b.npy"], HEADS, N),
    (gated_delta, "recurrent:rule=gated_delta", ["--causal", "--extra=decay=g1.npy", "--extra=beta=b.npy"], HEADS, N),
    (kda, "recurrent:rule=kda", ["--causal", "--extra=decay=g.npy", "--extra=beta=b.npy"], HEADS, N),
    (gated_delta2, "recurrent:rule=gated_delta2",
     ["--causal", "--extra=decay=g.npy", "--extra=erase=e.npy", "--extra=write=w2.npy"], HEADS, N),
    (mamba3, "recurrent:rule=mamba3",
     ["--causal", "--extra=decay=g1.npy", "--extra=beta=b.npy", "--extra=previous=e1.npy", "--extra=angle=angle.npy"],
     HEADS, N),
    (dpfp, "linear:feature=dpfp", ["--causal"], HEADS, N),
    (cosformer, "linear:feature=cos", [], HEADS, N),
    (taylor, "linear:feature=taylor", ["--causal"], HEADS, N),
    (hedgehog, "linear:feature=hedgehog,weights=w.npy,rows=7", ["--causal"], HEADS, N),
    (favor, "performer:kernel=optimal,z=8,features=72,seed=5", ["--causal"], HEADS, N),
    (magicpig, "magicpig:k=4,l=12,window=16,seed=3", ["--causal"], HEADS, N),
    (vattention, "vattention:sink=4,window=16,heavy=8,base=16,eps=0.3,seed=3", ["--causal"], HEADS, N),
    (best_weights, "svd:r=16", ["--causal"], HEADS, N),
    (best_scores, "svd:r=5,of=scores", ["--causal"], HEADS, N),
    (nystrom, "nystrom:landmarks=16", [], HEADS, N),
    (nystrom_inverse, "nystrom:landmarks=16,middle=pinv", [], HEADS, N),
    (agents, "nystrom:landmarks=16,middle=agents", [], HEADS, N),
    (clustered, "cluster:clusters=12,topk=0,seed=3", [], HEADS, N),
    (clustered_own, "cluster:clusters=12,topk=9,seed=3", [], HEADS, N),
    (coreset, "coreset:keys=12,temperature=1.5,seed=3", [], HEADS, N),
    (skyformer, "skyformer:landmarks=12,seed=3", [], HEADS, N),
    (gat, "graph:kind=file,file=edges.npy", ["--leaky=0.2", "--scale=1"], HEADS, N),
    (alibi, "tiled", ["--causal", "--alibi"], 4, N),
    (softcap_sink, "tiled", ["--causal", "--softcap=2", "--sink=0.5"], HEADS, N),
    (scatterbrain, "scatterbrain:window=32,features=144,seed=5", ["--causal"], HEADS, N),
    (scatterbrain_lsh, "scatterbrain_lsh:rounds=2,buckets=8,features=144,seed=5", ["--causal"], HEADS, N),
    (longnet, "longnet:segments=8+30+64,dilations=1+3+4", ["--causal"], 5, N),
    (hyper_sink, "hyper:exact_below=0,bits=6,block=32,sample=40,hash_seed=2,seed=3", [BESIDE], HEADS, N),
    (hashed, "lsh_tail:k=3,l=5,hits=1,centre=no,window=2,seed=3", ["--causal", BESIDE], HEADS, N),
    (sample, "sample:count=20,seed=3", ["--causal", BESIDE], HEADS, N),
    (sample_again, "sample:count=20,replacement=yes,seed=3", ["--causal", BESIDE], HEADS, N),
    (bernstein, "topk:k=24 + sample:guarantee=bernstein,eps=0.25,delta=0.4,base=12,seed=3", ["--causal"], HEADS, N),
]


def run(attnlab, here, case):
    formula, spec, options, heads, n = case
    kv_heads = 1 if formula is nsa else heads
    q, k, v = (rng.standard_normal((h, n, D)) * f for h, f in ((heads, 1.5), (kv_heads, 1.5), (kv_heads, 1.0)))
    if formula is gat:  # q . k = alpha_i + beta_j
        q, k = (np.stack(pair, -1) for pair in
                ((q[..., 0], np.ones((heads, n))), (np.ones((heads, n)), k[..., 0])))
    for name, x in (("q", q), ("k", k), ("v", v), ("edges", edges.astype(np.uint8)), ("w", mixture), *gates.items()):
        np.save(here / f"{name}.npy", x)
    subprocess.run([attnlab, "apply", spec, *options, "--dtype=f64", "--q=q.npy", "--k=k.npy", "--v=v.npy", "-o", "o.npy"],
                   cwd=here, check=True, stdin=subprocess.DEVNULL)
    error = np.abs(np.load(here / "o.npy") - formula(q, k, v)).max()
    (here / "o.npy").unlink()
    s = np.abs(scores(q, k)).max() * (np.sqrt(2) if formula is gat else 1)
    bound = (2 * n + 4 * (q.shape[-1] + 8) * s) * np.abs(v).max() * np.finfo(float).eps / 2
    if formula is nystrom_inverse:
        bound *= np.linalg.cond(landmarks(q, k)[1]).max()
    print(f"{formula.__name__:14} {spec:50} {error:.2e} <= {bound:.2e}")
    return bool(error <= bound)


def main():
    attnlab = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as here:
        wrong = [case[0].__name__ for case in CASES if not run(attnlab, pathlib.Path(here), case)]
    if wrong:
        sys.exit(f"papers.py: not what the paper defines: {' '.join(wrong)}")


main()
