"""Gradients of recurrences against complex steps, in fp64, through each rule token by token as its paper has it, by queries,
keys, values and gates.

Bounds: with matrices by their norms, S_t = T_t S' and S' = a_t R_t S_t-1, so that an error e of S_t-1 becomes |T_t| max a_t e, and
each product adds EPS times the magnitudes that it sums; so does G, the gradient by S_t, from the last token to the first."""
import unittest

import numpy as np

import attnlab

STEP = 1e-30
GATES = {"retention": (), "ssd": ("decay", "beta"), "gla": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta"),
         "kda": ("decay", "beta"), "gated_delta2": ("decay", "erase", "write"), "mamba3": ("decay", "beta", "previous", "angle")}
SPECS = [f"recurrent:rule={rule}" for rule in GATES]


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


def told(x, state):
    """x^T S"""
    return (x[..., None] * state).sum(-2)


def rotated(state, angle):
    one, two = np.split(state, 2, -2)
    c, s = np.cos(angle)[..., None], np.sin(angle)[..., None]
    return np.concatenate([one * c - two * s, one * s + two * c], -2)


# The state behind a token of the one before: x has its k, v and gates, and of the token before, k0 and v0.
def retention(state, x):
    heads = np.arange(state.shape[-3])
    return (1 - 2.0**(-5 - heads))[:, None, None] * state + x["k"][..., None] * x["v"][..., None, :]


def ssd(state, x):
    return np.exp(x["decay"])[..., None] * state + x["k"][..., None] * (x["beta"] * x["v"])[..., None, :]


def gla(state, x):
    return np.exp(x["decay"])[..., None] * state + x["k"][..., None] * x["v"][..., None, :]


def delta(state, x):
    return state + x["beta"][..., None] * x["k"][..., None] * (x["v"] - told(x["k"], state))[..., None, :]


def gated_delta(state, x):
    return delta(np.exp(x["decay"])[..., None] * state, x)


def gated_delta2(state, x):
    state = np.exp(x["decay"])[..., None] * state
    return state + x["k"][..., None] * (x["write"] * x["v"] - told(x["erase"] * x["k"], state))[..., None, :]


def mamba3(state, x):
    before = x["previous"][..., None] * x["k0"][..., None] * x["v0"][..., None, :]
    return (rotated(np.exp(x["decay"])[..., None] * (state + before), x["angle"]) +
            x["k"][..., None] * (x["beta"] * x["v"])[..., None, :])


STATES = {"retention": retention, "ssd": ssd, "gla": gla, "delta": delta, "gated_delta": gated_delta, "kda": gated_delta,
          "gated_delta2": gated_delta2, "mamba3": mamba3}

RULES_OF_DELTA = ("delta", "gated_delta", "kda", "gated_delta2")


def norm(x):
    return np.sqrt((x * x).sum(-1))


class Case:
    """A problem: tensors by name, of fp64, and what a token is told."""

    def __init__(self, rule, seed, n_q, n_kv, batch=2, kv_heads=2, group=2, d=6, d_v=5, before=False, keys=None, documents=(0,),
                 dtype="f8"):
        draw = np.random.default_rng(seed)
        self.rule, self.before, self.documents = rule, before, documents
        self.keys = [n_kv] * batch if keys is None else keys
        heads = kv_heads * group
        width = {"decay": d if rule in ("gla", "kda", "gated_delta2") else 1, "erase": d, "write": d_v, "angle": d // 2}
        self.x = {name: draw.normal(size=(batch, h, n, w)) for name, h, n, w in (
            ("q", heads, n_q, d), ("k", kv_heads, n_kv, d), ("v", kv_heads, n_kv, d_v))}
        for i, name in enumerate(GATES[rule]):
            shape = (batch if (seed + i) % 2 else 1, (heads, kv_heads, 1)[(seed + i) % 3], n_kv,
                     width.get(name, 1) if (seed + i) % 4 else 1)
            self.x[name] = -draw.uniform(0.05, 0.8, shape) if name == "decay" else draw.uniform(0.1, 0.9, shape)
        self.of = draw.normal(size=(batch, heads, n_q, d_v))
        self.x, self.of = {name: x.astype(dtype) for name, x in self.x.items()}, self.of.astype(dtype)
        self.unit = np.finfo(dtype).eps / 2

    def wide(self, x=None):
        """Tensors in fp64 with the batch and heads of queries."""
        batch, heads, _, d = self.x["q"].shape
        out = {}
        for name, y in (x or self.x).items():
            y = y.astype("c16" if np.iscomplexobj(y) else "f8")
            y = np.repeat(y, heads // y.shape[-3], -3)
            out[name] = np.broadcast_to(y, (*y.shape[:-4], batch, *y.shape[-3:]))
        if self.rule in RULES_OF_DELTA:
            out["q"], out["k"] = unit(out["q"]), unit(out["k"])
        out["q"] = out["q"] / np.sqrt(d)
        return out

    def tokens(self, x):
        """Each token, what it is told, and of which batch entries it exists; the key before is one of its document."""
        for t in range(x["k"].shape[-2]):
            token = {name: y[..., t, :] for name, y in x.items() if name != "q"}
            for name in "k", "v":
                token[name + "0"] = x[name][..., t - 1, :] if t not in self.documents else 0 * token[name]
            alive = np.array([t < n for n in self.keys])
            yield t, token, alive

    def loss(self, given):
        x = self.wide(given)
        n_q, n_kv = x["q"].shape[-2], x["k"].shape[-2]
        state = np.zeros((1, len(self.keys), x["q"].shape[-3], x["k"].shape[-1], x["v"].shape[-1]))
        sees, total = np.zeros(len(self.keys), bool), 0
        for t, token, alive in self.tokens(x):
            if t in self.documents:
                state, sees = 0 * state, sees & False
            i = t - (n_kv - n_q)
            if self.before and i >= 0:
                total = total + self.read(x, state, sees, i)
            state = np.where(alive[:, None, None, None], STATES[self.rule](state, token), state)
            sees = sees | alive
            if not self.before and i >= 0:
                total = total + self.read(x, state, sees, i)
        return total

    def read(self, x, state, sees, i):
        return (sees[:, None, None] * told(x["q"][..., i, :], state) * self.of[..., i, :]).sum((-1, -2, -3))

    def gradient(self, name, at):
        """Of the loss, by elements of a tensor."""
        moved = np.zeros((len(at), self.x[name].size), "c16")
        moved[np.arange(len(at)), at] = 1j * STEP
        moved = self.x[name].astype("f8") + moved.reshape(len(at), *self.x[name].shape)
        return self.loss({**{other: x[None] for other, x in self.x.items()}, name: moved}).imag / STEP

    def bounds(self):
        """How far each gradient of a query head may be off, [batch, heads, n], by the norms of rows and states."""
        x = self.wide()
        n_q, n_kv, d, d_v = x["q"].shape[2], x["k"].shape[2], x["k"].shape[3], x["v"].shape[3]
        eps, asks, up = self.unit * (2 * (d + d_v) + 32), self.rule in RULES_OF_DELTA, norm(self.of.astype("f8"))
        off = {name: np.zeros(up.shape if name == "q" else x["k"].shape[:3]) for name in self.x}
        last = [np.minimum(np.arange(n_q) + n_kv - n_q - self.before, keys - 1) for keys in self.keys]
        steps, s, es = [], np.zeros(up.shape[:2]), np.zeros(up.shape[:2])
        for t, y, _ in self.tokens(x):
            a = np.exp(y["decay"]).max(-1) if "decay" in y else np.ones_like(s)
            b = y.get("erase", y.get("beta", 1)) * np.ones_like(y["k"]) * asks
            w, k, v = y.get("write", y.get("beta", 1)) * np.ones_like(y["v"]), norm(y["k"]), norm(y["v"])
            carried = y["previous"][..., 0] if "previous" in y else 0
            norm_t = np.linalg.norm(np.eye(d) - y["k"][..., :, None] * (b * y["k"])[..., None, :], 2, (-2, -1))
            m = a * (s + carried * norm(y["k0"]) * norm(y["v0"]))
            em = a * es + eps * m
            c, enters = norm(b * y["k"]), norm(w * y["v"])
            u, eu = enters + c * m, c * em + eps * (enters + c * m)
            s, es = norm_t * m + k * enters, norm_t * em + eps * (m + k * u)
            steps.append((a, norm_t, k, v, c, b.max(-1), w.max(-1), carried, m, em, u, eu))
            for batch in range(len(self.keys)):
                off["q"][batch][..., last[batch] == t] = (es + eps * s)[batch][:, None] * up[batch][:, last[batch] == t]
        g, eg = 0 * s, 0 * s
        for t in reversed(range(n_kv)):
            a, norm_t, k, v, c, b, w, carried, m, em, u, eu = steps[t]
            g = g + np.array([((last[i] == t) * (norm(x["q"]) * up)[i]).sum(-1) for i in range(len(self.keys))])
            eg = eg + eps * g
            du, edu = k * g, k * eg + eps * k * g
            asked = em * du + m * edu + eps * m * du
            off["k"][..., t] += eg * u + g * eu + eps * g * u + b * asked
            off["v"][..., t] += w * (edu + eps * du)
            written, erased = v * (edu + eps * du), k * asked * asks
            g, eg = norm_t * g, norm_t * eg + eps * (g + c * du)
            turned = 2 * (eg * m + g * em + eps * g * m)
            for name, by in (("beta", written + erased), ("write", written), ("erase", erased), ("decay", turned),
                             ("angle", turned)):
                if name in off:
                    off[name][..., t] += by
            g, eg = a * g, a * eg + eps * a * g
            if "previous" in off and t:
                k0, v0 = steps[t - 1][2:4]
                off["previous"][..., t] += (eg + eps * g) * k0 * v0
                off["k"][..., t - 1] += carried * (eg + eps * g) * v0
                off["v"][..., t - 1] += carried * (eg + eps * g) * k0
        group = self.x["q"].shape[1] // self.x["k"].shape[1]
        if asks:  # through the length: its slope is a projection, and rounds as its terms
            off["q"] *= 2 / norm(self.x["q"].astype("f8"))
            off["k"] *= 2 / np.repeat(norm(self.x["k"].astype("f8")), group, 1)
        off["q"] /= np.sqrt(d)
        for name, of in self.x.items():  # summed over what shares a row
            off[name] = off[name].reshape(of.shape[0], -1, of.shape[1], up.shape[1] // of.shape[1], of.shape[2]).sum((1, 3))
        return off


class Recurrences(unittest.TestCase):
    worst = 0.0

    def judge(self, case, many):
        given = {name: case.x[name] for name in GATES[case.rule]}
        spec = f"recurrent:rule={case.rule}" + ",read=before" * case.before
        mask = "documents:" + "+".join(map(str, case.documents)) if len(case.documents) > 1 else None
        *got, extra = attnlab.backward(*(case.x[name] for name in "qkv"), case.of, spec, causal=True, extra=given, mask=mask,
                                       kv_len=case.keys, return_extra=True)
        got, off, draw = {**dict(zip("qkv", got)), **extra}, case.bounds(), np.random.default_rng(1)
        for name, x in case.x.items():
            self.assertEqual((got[name].shape, np.isfinite(got[name]).all()), (x.shape, True), name)
            at = np.arange(x.size) if x.size <= many else np.unique(draw.integers(0, x.size, many))
            if name != "q" and x.shape[2] > 130:  # and keys on both sides of an edge
                row = np.arange(x.shape[3])
                at = np.unique(np.concatenate([at, *(t * x.shape[3] + row for t in (0, 7, 8, 127, 128))]))
            want = case.gradient(name, at)
            error, most = abs(got[name].reshape(-1)[at] - want), np.repeat(off[name][..., None], x.shape[3], -1).reshape(-1)[at]
            with np.errstate(divide="ignore", invalid="ignore"):
                worst = float(np.where(error == 0, 0, error / most).max())
            self.assertTrue(worst <= 1, f"d{name}: {worst} times the bound")
            Recurrences.worst = max(Recurrences.worst, worst)

    def test_layouts_types_and_what_is_not_read(self):
        case = Case("gated_delta", 3, 20, 20, dtype="f4")
        given, tensors = {name: case.x[name] for name in GATES[case.rule]}, [case.x[name] for name in "qkv"] + [case.of]
        spec, how = "recurrent:rule=gated_delta", {"causal": True, "extra": given}
        want = attnlab.backward(*tensors, spec, return_extra=True, **how)
        for x, y in zip(attnlab.backward(*(x.swapaxes(1, 2).copy() for x in tensors), spec, layout="bnhd", **how), want):
            np.testing.assert_array_equal(x.swapaxes(1, 2), y)
        half = [x.astype("f2") for x in tensors]
        of_wide = attnlab.backward(*(x.astype("f4") for x in half), spec, **how)
        for x, y in zip(attnlab.backward(*half, spec, **how), of_wide):  # in fp32 on the same numbers, rounded once
            np.testing.assert_array_equal(x, y.astype("f2"), strict=True)
        *_, unread = attnlab.backward(*tensors, "tiled", return_extra=True, **how)
        self.assertEqual({name: (x.shape, x.any()) for name, x in unread.items()}, {name: (x.shape, False) for name, x in given.items()})
        with self.assertRaisesRegex(attnlab.Error, "no log-sum-exp"):
            attnlab.backward(*tensors, spec, grad_lse=np.zeros(case.of.shape[:3]), **how)

    @classmethod
    def tearDownClass(cls):
        print(f"recurrences: errors of gradients are at most {cls.worst:.3g} times their bounds")

    def test_every_rule(self):
        for rule in GATES:
            for seed, (n_q, n_kv, before, keys, documents, dtype) in enumerate((
                    (11, 11, False, None, (0,), "f8"), (9, 13, True, (13, 10), (0, 5, 11), "f8"),
                    (13, 13, False, (13, 0), (0, 1), "f4"), (7, 12, True, (12, 3), (0,), "f4"))):
                with self.subTest(rule=rule, seed=seed):
                    self.judge(Case(rule, seed, n_q, n_kv, before=before, keys=keys, documents=documents, dtype=dtype), 10000)

    def test_long_sequences(self):
        for rule in GATES:
            with self.subTest(rule=rule):
                self.judge(Case(rule, 2, 140, 140, batch=1, kv_heads=1, group=2), 40)


if __name__ == "__main__":
    unittest.main()
