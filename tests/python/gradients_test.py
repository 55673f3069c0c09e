"""Gradients of NumPy arrays. Those of every variant that gives them are compared with complex steps in fp64 through the map of
the scores and the softmax, and with differences of the variant's outputs, within first-order bounds on the rounding."""
import ctypes
import unittest

import numpy as np

import attnlab
import gradient_formulas
import oracle
import recurrence_gradients_test
from attnlab.library import library

STEP = 1e-30
# Weights of these are e^score over keys that are picked or seen, times constants.
SPECS = ["tiled", "tiled:block_k=16,block_q=8", "topk:k=9", "topk:k=5,share=group", "longformer:window=12,global=2",
         "longformer:window=24,dilation=3", "bigbird:block=8,window=3,random=2,global=1", "pages:page=8,budget=24",
         "lsh:rounds=2,buckets=4", "vslash:vertical=9,slash=9", "lsh_tail:k=4,l=20", "sample:count=16", "magicpig:window=8",
         "vattention:sink=4,window=8,heavy=8,base=8,eps=0.5", "hyper:block=16,sample=16,exact_below=0",
         "streaming:sink=2,window=9", "evict:score=h2o,budget=24", "sparse_transformer:stride=7",
         "longnet:segments=16+32,dilations=1+2", "graph:kind=documents,size=20", "streaming:sink=2,window=7 + topk:k=4", "dyadic(longformer:window=24,base=16)"]


def relu(x):
    return np.where(x.real > 0, x, 0)


def dpfp(x, nu):
    u = relu(np.concatenate([x, -x], -1))
    return np.concatenate([u * np.roll(u, -r, -1) for r in range(1, nu + 1)], -1)


def taylor(x):
    pairs = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1) / 2**0.5
    return np.concatenate([np.ones(x.shape[:-1] + (1,)), x, pairs], -1)


def hedgehog(x):
    e = np.exp(np.concatenate([2 * x, -2 * x], -1))
    return e / e.sum(-1, keepdims=True)


def cosine(x, at, n):
    angle = np.pi * (at[:, None] + 1) / (2 * n)
    return np.concatenate([relu(x) * np.cos(angle), relu(x) * np.sin(angle)], -1)


# Features of x, which has the positions `at` of n; those of the scores' kernels of x times the root of the scale.
FEATURES = {"linear": lambda x, at, n: np.where(x.real < 0, np.exp(x), x + 1),
            "linear:feature=exp": lambda x, at, n: np.exp(x),
            "linear:feature=relu,eps=0.05": lambda x, at, n: relu(x) + 0.05,
            "linear:feature=relu2,eps=0.1": lambda x, at, n: relu(x)**2 + 0.1,
            "linear:feature=dpfp,nu=1,eps=0.05": lambda x, at, n: dpfp(x, 1) + 0.05,
            "linear:feature=dpfp,nu=3,eps=0.05": lambda x, at, n: dpfp(x, 3) + 0.05,
            "linear:feature=cos,normalise=no": cosine,
            "linear:feature=taylor": lambda x, at, n: taylor(x / x.shape[-1]**0.25),
            "linear:feature=identity,normalise=no": lambda x, at, n: x / x.shape[-1]**0.25,
            "linear:feature=hedgehog": lambda x, at, n: hedgehog(x)}
DRAWN = ["performer:features=32", "performer:features=24,kernel=hyperbolic", "performer:features=24,kernel=optimal"]

# Rows are read as a store holds them, and count as given.
STORES = ["store:k=q8_0,v=q4_0", "store:k=bf16,v=fp8", "turbo:bits=3", "qjl:bits=2", "rotated:k=q4_0,v=q8_0",
          "longformer:window=12,global=2 | store:k=int4,v=int8"]
JUDGED = ["sage", "nsa"]  # by GRAD-FP and GRAD-FD alone: keys less the mean of all, and a sum of terms that are here


def instruction_sets():
    listed = library().attn_isa_list
    listed.restype = ctypes.POINTER(ctypes.c_char_p)
    names, each = [], listed()
    while each[len(names)]:
        names.append(each[len(names)].decode())
    return names


def mapped(s, softcap=None, leaky=None):
    s = softcap * np.tanh(s / softcap) if softcap else s
    return np.where(s.real < 0, leaky * s, s) if leaky else s


def summed(x, kv_heads):
    return x.reshape(x.shape[0], kv_heads, -1, *x.shape[2:]).sum(2)


def of_weights(q, k, v, of, p, dlse=0, scale=None, sink=None, bias=0, unit=2**-53, **maps):
    """The gradients at weights p, the last by scores, and bounds on what rounding makes of them: each score y has an error h, and so has lse the
    largest of a row and that of its sum; these are relative errors of p. D has that of the output."""
    kv_heads, (d, d_v) = k.shape[1], (q.shape[3], v.shape[3])
    q, k, v, of = (x.astype("f8") for x in (q, k, v, of))
    k, v = (np.repeat(x, q.shape[1] // kv_heads, 1) for x in (k, v))
    c = d**-0.5 if scale is None else scale
    s, values, transposed = c * q @ k.swapaxes(-1, -2), of @ v.swapaxes(-1, -2), lambda x: x.swapaxes(-1, -2)
    blind = ~p.any(-1, keepdims=True)
    p = p if sink is not None else p / np.where(blind, 1, p.sum(-1, keepdims=True))
    dlse = np.where(blind[..., 0], 0, dlse)[..., None] * (sink is None or ~blind)
    o = (of * (p @ v)).sum(-1, keepdims=True)
    # One score of each row is moved: of e^(y + const) of sum 1 with the rest, so are the output and lse.
    ds, dy = (((o + moved * values) / (1 + moved) + dlse * np.log(1 + moved)).imag / STEP for moved in (
        p * (np.exp(step) - 1) for step in (mapped(s + 1j * STEP, **maps) - mapped(s, **maps), 1j * STEP)))
    h = unit * (4 * (d + 8) * c * abs(q) @ abs(transposed(k)) + 2 * abs(np.where(np.isfinite(bias), bias, 0)) + 32 +
                16 * (maps.get("softcap") or 0))
    h = h + np.where(p > 0, h, 0).max(-1, keepdims=True) + 4 * unit * p.shape[-1]
    delta = (abs(of) * (2 * (p * h) @ abs(v))).sum(-1, keepdims=True) + 4 * unit * (abs(of) * (p @ abs(v))).sum(-1, keepdims=True)
    error = p * (h * abs(values - o + dlse) + unit * (d_v + 2) * abs(of) @ abs(transposed(v)) + delta) + 4 * unit * abs(ds)
    chain = unit * (p.shape[-1] + q.shape[1] * p.shape[-2])
    of_pairs, error, weight = error + (4 * unit + chain) * abs(dy), error + chain * abs(ds), p * (h + chain)
    return ([c * ds @ k, summed(c * transposed(ds) @ q, kv_heads), summed(transposed(p) @ of, kv_heads), dy],
            [c * error @ abs(k), summed(c * transposed(error) @ abs(q), kv_heads), summed(transposed(weight) @ abs(of), kv_heads),
             of_pairs])


def over(x, shape):
    """Summed over the axes that the shape has for all."""
    shape = (1,) * (4 - len(shape)) + shape
    return x.sum(tuple(i for i in range(4) if shape[i] == 1), keepdims=True)


def along_a_line(spec, given, to, of, causal, keys, unit):
    """The slope of <of, output> along a line, by a complex step, and a bound on what rounding makes of it: a product of
    features is off by h of the sum of its terms' magnitudes, and so is each sum and what is made of it."""
    (n_q, d), n_kv, group = given[0].shape[2:], given[1].shape[2], given[0].shape[1] // given[1].shape[1]
    x = [g.astype("f8") + 1j * STEP * t for g, t in zip(given, to)]
    x[1:] = (np.repeat(y, group, 1) for y in x[1:])
    at = np.arange(n_kv)
    f, g = FEATURES[spec](x[0], at[n_kv - n_q:], n_kv), FEATURES[spec](x[1], at, n_kv)
    seen = (at < np.array(keys)[:, None])[:, None, None] & ((at <= np.arange(n_q)[:, None] + n_kv - n_q) | (not causal))
    w, turned = np.where(seen, f @ g.swapaxes(-1, -2), 0), abs(g).swapaxes(-1, -2)
    z = np.ones(w.shape[:-1] + (1,)) if "normalise=no" in spec else np.where(seen.any(-1, keepdims=True), w.sum(-1, keepdims=True), 1)
    slope = (of * (w @ x[2] / z)).imag.sum() / STEP
    size, f1, g1 = seen * (abs(f) @ turned), abs(f.imag) / STEP, abs(g.imag) / STEP
    moved = seen * (f1 @ turned + abs(f) @ g1.swapaxes(-1, -2))
    odd = 1 if "normalise=no" in spec else size.sum(-1, keepdims=True) / abs(z)  # how much is lost in a denominator
    values, means = abs(of) @ abs(x[2]).swapaxes(-1, -2), (abs(of) * (size @ abs(x[2]) / abs(z))).sum(-1, keepdims=True)
    of_v = (size / abs(z) * (abs(of) @ (abs(x[2].imag) / STEP).swapaxes(-1, -2))).sum(-1, keepdims=True)
    return slope, 4 * unit * (f.shape[-1] + 2 * d + max(group * n_q, n_kv) + 32) * (
        (1 + odd)**2 * ((moved / abs(z) * (values + means)).sum(-1, keepdims=True) + of_v)).sum()


def worst(got, want, bounds):
    """The largest error over its bound; where that is 0, values are exactly 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(float(np.where(g == w, 0, abs(g - w) / b).max()) for g, w, b in zip(got, want, bounds))


class Values(unittest.TestCase):
    def within(self, got, want, bounds):
        for name, x, y in zip("qkvb", got, want):
            self.assertEqual((x.shape, np.isfinite(x).all()), (y.shape, True), f"d{name}")
        self.assertTrue(worst(got, want, bounds) <= 1, f"{worst(got, want, bounds)} times the bound")

    def test_exact_attention(self):
        isas = instruction_sets()
        for seed in range(100):
            draw = np.random.default_rng(seed)
            batch, kv_heads, group, d, d_v = (int(draw.integers(1, 1 + most)) for most in (2, 3, 3, 80, 80))
            n_q = int(draw.integers(1, 131) if seed % 2 else draw.integers(1, 12))
            n_kv, dtype = n_q + int(draw.integers(0, 40) * draw.integers(2)), draw.choice(["f4", "f8"])
            q, k, v, of = (draw.normal(size=(batch, *x)).astype(dtype) for x in (
                (kv_heads * group, n_q, d), (kv_heads, n_kv, d), (kv_heads, n_kv, d_v), (kv_heads * group, n_q, d_v)))
            shape = q.shape[:3] + (n_kv,)
            chance, seen, maps, how, bias = draw.random(8), np.ones(shape, bool), {}, {}, 0
            if chance[0] < 0.5:
                how["causal"], at = True, [n_kv - n_q] * batch
                if chance[1] < 0.3:
                    how["q_position"] = at = [int(draw.integers(0, n_kv - n_q + 1)) for _ in range(batch)]
                seen &= np.arange(n_kv) <= np.arange(n_q)[:, None] + np.array(at)[:, None, None, None]
            if chance[2] < 0.3:
                how["kv_len"] = [int(draw.integers(0, n_kv + 1)) for _ in range(batch)]
                seen &= np.arange(n_kv) < np.array(how["kv_len"])[:, None, None, None]
            if chance[3] < 0.4:
                maps = {"softcap": 2.0} if chance[3] < 0.2 else {"leaky": 0.3}
            if chance[4] < 0.3:
                own = tuple(1 if one else n for one, n in zip(draw.random(4) < (0.4, 0.4, 0.2, 0.2), shape))
                own = own[2:] if seed % 4 == 0 else own
                how["bias"] = bias = np.where(draw.random(own) < 0.9, draw.normal(size=own), -np.inf).astype(dtype)
                how["return_bias"] = True
            if chance[5] < 0.3:
                how["mask"] = draw.random(shape) < 0.7
                seen &= how["mask"]
            sink = draw.normal(size=shape[1]) if chance[6] < 0.3 else None
            scale = 0.2 if chance[7] < 0.3 else None
            dlse = draw.normal(size=shape[:3]) if seed % 3 else None
            seen = np.where(seen, np.where(np.isfinite(bias), bias, -np.inf), -np.inf)
            isa = isas[seed % len(isas)]
            with self.subTest(seed=seed, shape=shape, d=d, d_v=d_v, dtype=dtype, how=list(how), maps=maps, isa=isa):
                with np.errstate(invalid="ignore"):
                    p, _ = oracle.weights(oracle.scores(q, k, scale, **maps) + seen, True, sink)
                expected = of_weights(q, k, v, of, np.nan_to_num(p), 0 if dlse is None else dlse, scale, sink, bias,
                                      np.finfo(dtype).eps / 2, **maps)
                got = attnlab.backward(q, k, v, of, scale=scale, sink=sink, grad_lse=dlse, isa=isa, **maps, **how)
                if "bias" in how:
                    self.assertEqual(got[3].shape, bias.shape)
                    got, expected = (*got[:3], got[3][(None,) * (4 - bias.ndim)]), [[*x[:3], over(x[3], bias.shape)] for x in expected]
                self.within(got, *expected)

    def test_biases_sinks_and_gates(self):
        """By complex steps of each element in the formula of the softmax, in fp64; gates are those of forget."""
        largest = 0
        for seed in range(12):
            draw = np.random.default_rng(seed)
            q, k, v, of = (draw.normal(size=(2, heads, n, 6)) for heads, n in ((4, 11), (2, 13), (2, 13), (4, 11)))
            picks = ("topk:k=5", "topk:k=5,share=group", "streaming:sink=1,window=3 + topk:k=3")[seed // 4]
            spec = ("tiled", "full", "forget", picks)[seed % 4]
            bias = draw.normal(size=((2, 4, 11, 13), (1, 4, 11, 13), (2, 1, 11, 13), (11, 13))[seed // 4])
            gates, sink, forgets = -draw.random((1, 2, 13, 1)), draw.normal(size=4), spec == "forget"
            seen = np.arange(13) <= np.arange(11)[:, None] + 2
            if spec == picks:
                seen = attnlab.matrix(q, k, spec, causal=True, softcap=1.5, bias=bias) > 0
            where = {"causal": True, "softcap": 1.5, "bias": bias, **({} if forgets else {"sink": sink})}
            if forgets:
                where["extra"] = {"decay": gates}

            def loss(b, z, g):
                s = mapped(q @ np.repeat(k, 2, 1).swapaxes(-1, -2) * 6**-0.5, 1.5) + b
                if forgets:
                    sums = np.cumsum(np.repeat(g, 2, 1)[..., 0], -1)
                    s = s + sums[:, :, 2:, None] - sums[:, :, None]
                e = np.where(seen, np.exp(s), 0)
                total = e.sum(-1) + (0 if forgets else np.exp(z)[:, None])
                return (of * (e @ np.repeat(v, 2, 1)) / total[..., None]).sum().imag / STEP

            given = [bias, sink, gates]
            got = attnlab.backward(q, k, v, of, spec, return_bias=True, return_sink=not forgets, return_extra=forgets, **where)[3:]
            for which, gradient in {0: got[0], 2: got[1]["decay"]}.items() if forgets else {0: got[1], 1: got[0]}.items():
                self.assertEqual(gradient.shape, given[which].shape)
                for i in np.ndindex(gradient.shape):
                    moved = [x.astype(complex) for x in given]
                    moved[which][i] += 1j * STEP
                    largest = max(largest, abs(gradient[i] - loss(*moved)) / abs(of).sum())
        self.assertLess(largest, 2**-53)
        with self.assertRaisesRegex(ValueError, "there is no bias"):
            attnlab.backward(q, k, v, of, return_bias=True)

    def test_gates_of_terms(self):
        """By a gate d_o times what it multiplies; heads and batch entries that share a gate add theirs."""
        draw = np.random.default_rng(5)
        q, k, v, of = draw.normal(size=(4, 2, 4, 9, 6))
        by = np.stack([sign * of * attnlab.attention(q, k, v, spec, causal=True) for sign, spec in ((1, "tiled"), (-1, "topk:k=3"))], 3)
        for batch, heads, width in (2, 4, 1), (2, 4, 6), (1, 1, 1), (2, 1, 6), (1, 4, 1):
            gate = draw.normal(size=(batch, heads, 9, 2 * width))
            got = attnlab.backward(q, k, v, of, "gate*tiled - gate*topk:k=3", causal=True, extra={"gate": gate}, return_extra=True)[3]
            want = by.sum(tuple(axis for axis in (0, 1, 4) if (batch, heads, 0, 0, width)[axis] == 1), keepdims=True).reshape(gate.shape)
            self.assertLess(abs(got["gate"] - want).max(), 1e-13)

    def test_patterns_and_selections(self):
        tried = set()
        for spec in SPECS:
            for seed, (n_q, n_kv, d, d_v, kv_heads, group, causal, dtype) in enumerate((
                    (130, 130, 32, 24, 2, 2, True, "f8"), (130, 130, 16, 16, 1, 1, False, "f8"), (70, 113, 24, 40, 2, 3, True, "f8"),
                    (97, 97, 33, 17, 2, 2, True, "f4"), (64, 64, 16, 5, 1, 2, False, "f4"))):
                draw = np.random.default_rng(seed)
                q, k, v, of = (draw.normal(size=(2, *x)).astype(dtype) for x in (
                    (kv_heads * group, n_q, d), (kv_heads, n_kv, d), (kv_heads, n_kv, d_v), (kv_heads * group, n_q, d_v)))
                with self.subTest(spec, seed=seed):
                    try:
                        got = attnlab.backward(q, k, v, of, spec, causal=causal)
                    except attnlab.Error as error:
                        self.assertEqual(error.status, "unsupported", error)
                        continue
                    tried.add((spec, dtype))
                    p = attnlab.matrix(q, k, spec, causal=causal).astype("f8")
                    self.within(got, *of_weights(q, k, v, of, p, unit=np.finfo(dtype).eps / 2))
        self.assertEqual(tried, {(spec, dtype) for spec in SPECS for dtype in ("f4", "f8")})

    def test_features(self):
        for spec in FEATURES:
            for seed, (n_q, n_kv, d, d_v, kv_heads, group, causal, dtype) in enumerate((
                    (130, 130, 9, 5, 2, 2, True, "f8"), (97, 210, 8, 16, 1, 3, True, "f8"), (130, 99, 7, 4, 2, 1, False, "f8"),
                    (20, 31, 6, 3, 1, 2, True, "f4"), (20, 24, 8, 5, 2, 2, False, "f4"), (30, 2300, 5, 3, 1, 1, True, "f8"))):
                if n_q > n_kv and spec.startswith("linear:feature=cos"):
                    continue
                draw = np.random.default_rng(seed)
                given = [draw.normal(size=(2, *x)).astype(dtype) for x in (
                    (kv_heads * group, n_q, d), (kv_heads, n_kv, d), (kv_heads, n_kv, d_v))]
                of, keys = draw.normal(size=(2, kv_heads * group, n_q, d_v)).astype(dtype), [n_kv, n_kv - 9]
                got = attnlab.backward(*given, of, spec, causal=causal, kv_len=keys)
                for which in range(3):
                    for direction in range(4):
                        to = [draw.normal(size=x.shape) * (i == which) for i, x in enumerate(given)]
                        slope, bound = along_a_line(spec, given, to, of, causal, keys, np.finfo(dtype).eps / 2)
                        error = abs((got[which].astype("f8") * to[which]).sum() - slope)
                        self.assertTrue(error <= bound, f"{spec} seed {seed}: d{'qkv'[which]} is off by {error / bound} bounds")
        with self.assertRaisesRegex(attnlab.Error, "^variant linear: gives no log-sum-exp"):
            attnlab.backward(*given, of, "linear", grad_lse=np.zeros(of.shape[:3]))

    def test_stores(self):
        """Rows as they are stored are outputs and log-sum-exps of attention to one key, by unit queries."""
        draw = np.random.default_rng(5)
        q, k, v, of = (draw.normal(size=(2, heads, 70, d)).astype("f4") for heads, d in ((4, 64), (2, 64), (2, 32), (4, 32)))
        for spec in STORES:
            reader, store = ("tiled | " + spec).split(" | ")[-2:]
            with self.subTest(spec):
                o, lse = attnlab.attention(np.tile(np.eye(64, dtype="f4"), (280, 1, 1, 1)), k.reshape(280, 1, 1, 64),
                                           v.reshape(280, 1, 1, 32), store, return_lse=True)
                kept = (lse * 8).reshape(k.shape).astype("f4"), o[:, :, 0].reshape(v.shape)
                p = attnlab.matrix(q, kept[0], reader, causal=True).astype("f8")
                self.within(attnlab.backward(q, k, v, of, spec, causal=True), *of_weights(q, *kept, of, p, unit=2.0**-24))
    def test_formulas(self):
        """Slopes along lines, by complex steps; they may be off by what inputs give that are off by 512 roundings."""
        for seed, (n_q, n_kv, d, d_v, kv_heads, group, causal, dtype) in enumerate((
                (30, 30, 9, 5, 2, 2, False, "f8"), (20, 35, 9, 5, 2, 2, True, "f8"), (20, 300, 8, 6, 1, 3, False, "f8"),
                (60, 31, 7, 4, 1, 2, False, "f8"), (40, 64, 8, 5, 1, 2, False, "f4"), (30, 50, 8, 5, 1, 2, True, "f4"))):
            draw = np.random.default_rng(seed)
            of, keys = draw.normal(size=(2, kv_heads * group, n_q, d_v)).astype(dtype), [n_kv, n_kv - 5]
            given = [draw.normal(size=(2, *x)).astype(dtype) for x in (
                (kv_heads * group, n_q, d), (kv_heads, n_kv, d), (kv_heads, n_kv, d_v))]
            for spec, formula in gradient_formulas.ALL.items():
                dlse = draw.normal(size=of.shape[:3]) if seed and spec.startswith("nystrom") else None
                with self.subTest(spec, seed=seed):
                    try:
                        got = attnlab.backward(*given, of, spec, causal=causal, kv_len=keys, grad_lse=dlse)
                    except attnlab.Error as error:
                        self.assertRegex(str(error), "causal")
                        continue
                    for which in range(3):
                        to = [draw.normal(size=x.shape) * (i == which) for i, x in enumerate(given)]
                        self.slope_within(formula, given, to, of, dlse, causal, keys, got[which], to[which], draw)

    def slope_within(self, formula, given, to, of, dlse, causal, keys, gradient, direction, draw):
        group, n_q, n_kv = given[0].shape[1] // given[1].shape[1], given[0].shape[2], given[1].shape[2]

        def slope(off):
            total = 0
            for b, exist in enumerate(keys):
                x = [(g[b].astype("f8") * (1 + off * draw.choice([-1, 1], g[b].shape))) + 1j * STEP * t[b] for g, t in zip(given, to)]
                q, k, v = x[0], *(np.repeat(y[:, :exist], group, 0) for y in x[1:])
                seen = (np.arange(exist) <= np.arange(n_q)[:, None] + n_kv - n_q) | (not causal)
                o, lse = formula(q, k, v, q.shape[-1]**-0.5, seen)
                total += (of[b] * o).sum() + (0 if dlse is None else (dlse[b] * lse).sum())
            return total.imag / STEP

        exact, unit = slope(0), np.finfo(given[0].dtype).eps / 2
        error = abs((gradient.astype("f8") * direction).sum() - exact)
        allowed = max(abs(slope(512 * unit) - exact) for _ in range(4))
        self.assertTrue(error <= allowed, f"{error / allowed} times what may be")

    def test_every_gradient_is_tested(self):
        x = np.random.default_rng(0).normal(size=(1, 2, 64, 16)).astype("f4")
        for spec in attnlab.variants():
            for causal in True, False:
                try:
                    attnlab.backward(x, x, x, x, spec, causal=causal)
                except attnlab.Error:
                    continue
                listed = [*SPECS, *STORES, *JUDGED, *FEATURES, *DRAWN, *gradient_formulas.ALL, *recurrence_gradients_test.SPECS]
                self.assertTrue(any(x.startswith(spec) for x in listed), f"{spec} has a gradient that no line tests")

    def test_scores_that_are_large_and_alike(self):
        draw = np.random.default_rng(0)
        q, k, v = (draw.standard_normal((1, 1, 8, 4)).astype("f4") for _ in range(3))
        for size in 1e4, 1e6, 1e9:  # weights of a row add up to 1, whatever all its scores are raised by
            dv = attnlab.backward(q, k, v, np.ones_like(v), "tiled", bias=np.full((8, 8), -size, "f4"))[2]
            np.testing.assert_allclose(dv.sum(2), 8, rtol=1e-5)

    def test_differences_of_outputs(self):
        """Those of a step and of half of it, extrapolated; a step that changes what is seen shows nothing."""
        shown = 0
        for spec in "tiled", "longformer:window=12,global=2", "bigbird:block=8,window=3,random=1,global=1", "topk:k=6", "lsh", \
                "streaming:sink=2,window=9", "pages:page=8,budget=24", "sparse_transformer:stride=7", "evict:score=h2o,budget=24", *DRAWN:
            draw = np.random.default_rng(7)
            given = [draw.normal(size=(2, heads, 40, 9)) for heads in (4, 2, 2)]
            of = draw.normal(size=(2, 4, 40, 9))
            gradients = attnlab.backward(*given, of, spec, causal=True)
            seen = attnlab.matrix(*given[:2], spec, causal=True) > 0
            for which, gradient in enumerate(gradients):
                to = draw.normal(size=gradient.shape) / 64

                def loss(h):
                    moved = [x + h * to if i == which else x for i, x in enumerate(given)]
                    same = which == 2 or np.array_equal(attnlab.matrix(*moved[:2], spec, causal=True) > 0, seen)
                    return (of * attnlab.attention(*moved, spec, causal=True)).sum() if same else np.nan

                h = 2.0**-4
                whole, half = ((loss(x) - loss(-x)) / (2 * x) for x in (h, h / 2))
                if np.isnan(whole + half):
                    continue
                shown += 1
                error = abs((4 * half - whole) / 3 - (gradient * to).sum())
                rounding = 2**-53 * 64 * abs(of * attnlab.attention(*map(abs, given), spec, causal=True)).sum() / h
                self.assertTrue(error <= abs(whole - half) / 16 + rounding, (spec, "qkv"[which], error))
        self.assertGreater(shown, 20)

    def test_layouts_and_types(self):
        q, k, v, of = (oracle.draw(i, 2, heads, 21, 12) for i, heads in enumerate((4, 2, 2, 4)))
        want = attnlab.backward(q, k, v, of, causal=True)
        for other in (attnlab.backward(*(x.swapaxes(1, 2).copy() for x in (q, k, v, of)), causal=True, layout="bnhd"),
                      attnlab.backward(*(x.swapaxes(1, 2) for x in (q, k, v, of)), causal=True, layout="bnhd")):
            for x, y in zip(other, want):
                np.testing.assert_array_equal(x.swapaxes(1, 2), y)
        of_one = attnlab.backward(q[1], k[1], v[1], of[1], causal=True)
        for x, y in zip(of_one, want):
            np.testing.assert_array_equal(x, y[1])
        half = [x.astype("f2") for x in (q, k, v, of)]
        wide = [x.astype("f4") for x in half]
        plan = attnlab.Plan(*wide[:3])
        o, lse = plan(*wide[:3], return_lse=True)
        of_wide = plan.backward(*wide[:3], o.astype("f2").astype("f4"), lse, wide[3])
        for x, y in zip(attnlab.backward(*half), of_wide):  # in fp32 on the same numbers, rounded once
            np.testing.assert_array_equal(x, y.astype("f2"), strict=True)
        for words, wrong in ((r"grad_o is \(2, 4, 20, 12\) of float32; expected", of[:, :, :20]),
                             ("grad_o is .* float64", of.astype("f8"))):
            with self.assertRaisesRegex(ValueError, words):
                attnlab.backward(q, k, v, wrong)
        with self.assertRaisesRegex(ValueError, "^grad_lse is"):
            attnlab.backward(q, k, v, of, grad_lse=np.zeros((2, 4, 20)))
        plan = attnlab.Plan(q, k, v, causal=True)
        o, lse = plan(q, k, v, return_lse=True)
        for x, y in zip(plan.backward(q, k, v, o, lse, of), want):
            np.testing.assert_array_equal(x, y)
