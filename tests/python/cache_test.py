"""Caches of keys and values: which keys they hold by the papers' definitions, written here in NumPy; outputs, lengths,
copies and refusals."""
import unittest

import numpy as np

import attnlab
import oracle

BATCH, HEADS, KV_HEADS, N, D = 2, 4, 2, 80, 16
GROUP = HEADS // KV_HEADS
BUDGET, RECENT = 24, 5


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def weights(q, k, held):
    """Of one query of each head of a kv head, over the held keys: q [group, d], k [n, d]."""
    return softmax(q @ k[held].T / np.sqrt(D)).mean(0)


class Policy:
    """One kv head. history[u] is {key: weight} of query u; later[t][j] what queries t ... give key j among all keys."""

    def __init__(self, name, later=None):
        self.name, self.held, self.history, self.queries, self.later = name, [], [], [], later
        self.budget = BUDGET

    def lag(self, x):  # Liang et al. 2025: each chunk in the ranges of the next; the standard deviation, then softmax
        chunks = x[4:4 + (len(x) - 4) // RECENT * RECENT].reshape(-1, RECENT, x.shape[1])
        low, high = (f(chunks[1:], axis=1, keepdims=True) for f in (np.min, np.max))
        span = np.where(high > low, high - low, np.inf)
        return softmax(((chunks[:-1] - low) / span).std(-1, ddof=1)).ravel()

    def scores(self, k, v, t):
        held = self.held
        if self.name == "knorm":  # Devoto et al. 2024: the L2 norm, the smallest stay
            return {j: -np.linalg.norm(k[j]) for j in held}
        if self.name == "streaming":  # Xiao et al. 2023: four sinks and a window
            return {j: np.inf if j < 4 else j for j in held}
        if self.name == "exact":  # an oracle
            return {j: self.later[t][j] for j in held}
        if self.name == "keydiff":  # Park et al. 2025: cosine with the mean of the normalised keys, the least stay
            unit = k[held] / np.linalg.norm(k[held], axis=1, keepdims=True)
            anchor = unit.mean(0)
            return {j: -(u @ anchor) / np.linalg.norm(anchor) for j, u in zip(held, unit)}
        if self.name == "lagkv":
            own = self.lag(k[held]) + self.lag(v[held])
            return {j: np.inf if i < 4 else own[i - 4] if i - 4 < len(own) else 2 + j for i, j in enumerate(held)}
        if self.name == "expected":  # Devoto et al. 2025: the mean weight under normal queries, times the value's norm
            products = np.array(self.queries[-64:]) @ k[held].T / np.sqrt(D)
            weight = softmax(products.mean(0) + products.var(0) / 2).mean(0)
            return dict(zip(held, np.log(weight * np.linalg.norm(v[held], axis=1))))
        if self.name == "tova":  # Oren et al. 2024: the last query's weights
            return {j: self.history[-1][j] for j in held}
        if self.name in ("h2o", "h2o_mean"):  # Zhang et al. 2023: accumulated weights
            seen = {j: [w[j] for w in self.history if j in w] for j in held}
            return {j: np.sum(x) if self.name == "h2o" else np.mean(x) for j, x in seen.items()}
        # Li et al. 2024: the last 64 queries' weights, pooled over 5 neighbours
        own = np.array([sum(w.get(j, 0) for w in self.history[-64:]) for j in held])
        pooled = np.convolve(own, np.ones(5), mode="same") if len(own) >= 5 else np.full(len(own), own.sum())
        return dict(zip(held, pooled))

    def admit(self, k, v, t, prompt, least):  # Huang et al. 2025, arXiv:2512.17452, with a score for the gate
        old = [j for j in self.held if j <= t - RECENT] if t >= prompt else []
        judged = old if t == prompt else [j for j in old if j == t - RECENT]
        scores = self.scores(k, v, t) if old else {}
        self.held = [j for j in self.held if j not in judged or scores[j] >= least]
        old = [j for j in old if j in self.held]  # the budget takes of these, by the same scores
        for j in sorted(old, key=lambda j: (scores[j], -j))[:max(0, len(self.held) + 1 - self.budget)]:
            self.held.remove(j)

    def step(self, q, k, v, t, prompt, every=1, chunk=1, admit=0):
        if admit:
            self.admit(k, v, t, prompt, admit)
        elif t >= prompt and len(self.held) >= self.budget:
            scores, edge = self.scores(k, v, t), (t - RECENT + 1) // chunk
            chunks = sorted({j // chunk for j in self.held if j // chunk < edge}, key=lambda u: (
                np.mean([scores[j] for j in self.held if j // chunk == u]), -u))
            stay = (self.budget - RECENT + 1) // chunk - -(-every // chunk)
            gone = chunks[:len(chunks) - stay]
            self.held = [j for j in self.held if j // chunk not in gone]
        self.held.append(t)
        self.queries.append(q)
        self.history.append(dict(zip(self.held, weights(q, k, self.held))))


class Caches(unittest.TestCase):
    def setUp(self):
        self.q = oracle.draw(1, BATCH, HEADS, N, D, dtype="f8")
        self.k, self.v = (oracle.draw(s, BATCH, KV_HEADS, N, D, dtype="f8") for s in (2, 3))

    def cache(self, spec, **options):
        return attnlab.Cache(spec, batch=BATCH, heads=HEADS, kv_heads=KV_HEADS, d=D, **{"dtype": "float64", **options})

    def append(self, cache, a, b):
        cache.append(self.k[:, :, a:b], self.v[:, :, a:b], self.q[:, :, a:b])

    def hold_survivors(self, name, prompt, every=1, chunk=1, admit=0):
        cache = self.cache(f"evict:score={name},budget={BUDGET},recent={RECENT},prompt={prompt},every={every},chunk={chunk},"
                           f"admit={admit}")
        policies, held = {(b, h): Policy(name) for b in range(BATCH) for h in range(KV_HEADS)}, []
        for t in range(N):
            self.append(cache, t, t + 1)
            o = cache.attend(self.q[:, :, t:t + 1])
            for (b, h), policy in policies.items():
                group = slice(h * GROUP, (h + 1) * GROUP)
                policy.step(self.q[b, group, t], self.k[b, h], self.v[b, h], t, prompt, every, chunk, admit)
                self.assertEqual(cache.positions(b, h), policy.held)
                p = softmax(self.q[b, group, t] @ self.k[b, h, policy.held].T / np.sqrt(D))
                self.assertLess(abs(o[b, group, 0] - p @ self.v[b, h, policy.held]).max(), 1e-12)
                held.append(len(policy.held))
        return held

    def test_survivors_are_those_of_the_papers(self):
        for name in ("streaming", "knorm", "keydiff", "tova", "h2o", "h2o_mean", "snapkv", "lagkv", "expected"):
            self.k[..., 3] = self.k[..., 3] if name != "lagkv" else 1  # of no range
            for prompt in 0, 50:
                with self.subTest(name=name, prompt=prompt):
                    self.hold_survivors(name, prompt)

    def test_keys_go_together(self):  # Liu et al. 2025, arXiv:2502.00299: chunks by the mean of their scores
        for every, chunk in (6, 1), (1, 4), (5, 3):
            for name, prompt in ("knorm", 0), ("h2o", 50), ("snapkv", 0):
                with self.subTest(name=name, every=every, chunk=chunk):
                    self.hold_survivors(name, prompt, every, chunk)

    def test_keys_are_admitted(self):
        for name, least in ("knorm", -3.5), ("h2o", 0.8), ("h2o_mean", 0.1), ("tova", 0.05), ("snapkv", 2):
            for prompt in 0, 50:
                with self.subTest(name=name, prompt=prompt):
                    held = self.hold_survivors(name, prompt, admit=least)
                    self.assertTrue(prompt or min(held[BATCH * KV_HEADS * 50:]) < BUDGET, "nothing is refused")

    def test_the_oracle_keeps_what_later_queries_read(self):
        o = attnlab.attention(self.q, self.k, self.v, f"evict:score=exact,budget={BUDGET},recent={RECENT}", causal=True)
        for b in range(BATCH):
            for h in range(KV_HEADS):
                group = slice(h * GROUP, (h + 1) * GROUP)
                every = np.zeros((N, N))
                for t in range(N):
                    every[t, :t + 1] = weights(self.q[b, group, t], self.k[b, h], range(t + 1))
                policy = Policy("exact", every[::-1].cumsum(0)[::-1])
                for t in range(N):
                    policy.step(self.q[b, group, t], self.k[b, h], self.v[b, h], t, 0)
                    p = softmax(self.q[b, group, t] @ self.k[b, h, policy.held].T / np.sqrt(D))
                    self.assertLess(abs(o[b, group, t] - p @ self.v[b, h, policy.held]).max(), 1e-12)

    def test_heads_share_their_budgets(self):  # Feng et al. 2024, arXiv:2407.11550
        prompt, own = 50, 7  # of a budget of 24 half is shared, and 5 are recent
        for name in "snapkv", "knorm", "h2o":
            spec = f"evict:score={name},budget={BUDGET},recent={RECENT},prompt={prompt},shared=0.5"
            o = attnlab.attention(self.q, self.k, self.v, spec, causal=True)
            cache, budgets, last = self.cache(spec), [], {}
            for first, end in (0, 31), (31, prompt + 3), (prompt + 3, N):
                self.append(cache, first, end)
            for b in range(BATCH):
                policies = [Policy(name) for _ in range(KV_HEADS)]
                for t in range(N):
                    if t == prompt:
                        ranks = [sorted((-s for j, s in policy.scores(k, v, t).items() if j <= t - RECENT))
                                 for policy, k, v in zip(policies, self.k[b], self.v[b])]
                        pool = sorted((s, h) for h, rank in enumerate(ranks) for s in rank[own:])
                        for _, h in pool[:(BUDGET - RECENT - own) * KV_HEADS]:
                            ranks[h].append(None)
                        for policy, rank in zip(policies, ranks):
                            policy.budget = RECENT + own + rank.count(None)
                            budgets.append(policy.budget)
                    for h, policy in enumerate(policies):
                        group = slice(h * GROUP, (h + 1) * GROUP)
                        policy.step(self.q[b, group, t], self.k[b, h], self.v[b, h], t, prompt)
                        p = softmax(self.q[b, group, t] @ self.k[b, h, policy.held].T / np.sqrt(D))
                        self.assertLess(abs(o[b, group, t] - p @ self.v[b, h, policy.held]).max(), 1e-12)
                last.update({(b, h): policy.held for h, policy in enumerate(policies)})
            self.assertEqual(sum(budgets), BUDGET * BATCH * KV_HEADS)
            self.assertNotEqual(set(budgets), {BUDGET})
            self.assertEqual({(b, h): cache.positions(b, h) for b, h in last}, last)
            self.assertLess(abs(cache.attend(self.q[:, :, N - 1:]) - o[:, :, N - 1:]).max(), 1e-12)

    def test_any_variant_reads_a_cache(self):
        for spec in "tiled", "pages:page=8,budget=40", "topk:k=16":
            cache = self.cache(spec)
            self.append(cache, 0, 30)
            self.append(cache, 30, N)
            o, lse = cache.attend(self.q[:, :, -3:], return_lse=True)
            want, want_lse = attnlab.attention(self.q[:, :, -3:], self.k, self.v, spec, causal=True, return_lse=True)
            self.assertLess(abs(o - want).max(), 1e-12)
            self.assertLess(abs(lse - want_lse).max(), 1e-12)
            self.assertEqual(cache.positions(1, 1), list(range(N)))

    def test_lengths_truncate_and_copy(self):
        cache = self.cache("tiled")
        cache.append(self.k, self.v, lengths=[N, 33])
        self.assertEqual([cache.length(0), cache.length(1)], [N, 33])
        q = np.stack([self.q[0, :, N - 1:], self.q[1, :, 32:33]])
        o = cache.attend(q)
        for b, n in enumerate((N, 33)):
            want = attnlab.attention(q[b:b + 1], self.k[b:b + 1, :, :n], self.v[b:b + 1, :, :n], causal=True)
            self.assertLess(abs(o[b] - want[0]).max(), 1e-12)
        other = cache.copy()
        other.truncate([10, 0])
        self.assertEqual([other.length(0), other.length(1), cache.length(0)], [10, 0, N])
        other.append(self.k[:, :, 10:], self.v[:, :, 10:], lengths=[N - 10, 1])
        np.testing.assert_array_equal(other.attend(q)[0], o[0])
        self.assertGreater(cache.bytes, BATCH * KV_HEADS * N * D * 2 * 8)

    def test_what_is_wrong_is_named(self):
        cache = self.cache("evict:score=h2o,budget=8,recent=2")
        with self.assertRaisesRegex(attnlab.Error, "looks at queries"):
            cache.append(self.k, self.v)
        with self.assertRaisesRegex(ValueError, r"k is .* expected \[batch, kv_heads, n, d_qk\]"):
            cache.append(self.q, self.v)
        with self.assertRaisesRegex(ValueError, "float64"):
            cache.append(self.k.astype("f4"), self.v)
        with self.assertRaisesRegex(ValueError, "d_qk=0"):
            attnlab.Cache(heads=1, d=0)
        with self.assertRaisesRegex(attnlab.Error, "expected at least recent = 9"):
            self.cache("evict:budget=8,recent=9")
        with self.assertRaisesRegex(attnlab.Error, "score=exact ranks by queries that are still to come"):
            self.cache("evict:score=exact")
        with self.assertRaisesRegex(attnlab.Error, "more in batch entry 0, which has 0 of at most 64"):
            self.cache("tiled", positions=64).append(self.k, self.v)
        self.append(cache, 0, 20)
        with self.assertRaisesRegex(attnlab.Error, "cannot go back"):
            cache.truncate([5, 5])
        with self.assertRaisesRegex(ValueError, "dtype"):
            self.cache("tiled", dtype="int8")


if __name__ == "__main__":
    unittest.main()
