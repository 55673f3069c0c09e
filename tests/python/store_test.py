"""Types of caches: the codes of rows bit by bit, by the definitions in their papers and of llama.cpp's formats, written here
in NumPy; attention to stored keys and values, and caches of them. TurboQuant and QJL by their papers' algorithms, with the
library's random numbers; latents by NumPy's singular value decomposition."""
import ctypes
import unittest

import numpy as np

import attnlab
import oracle
from attnlab.library import library

F32, NAMES = 0, {"fp8": 4, "q8_0": 5, "q4_0": 6, **{f"int{bits}": 6 + bits for bits in range(1, 9)}}
f4 = np.float32


def half(x):
    with np.errstate(over="ignore"):
        return np.asarray(x, f4).astype("f2")


def planes(codes, bits):
    """Codes of 32 numbers, low bits first: w = 2, 4, 8 bits are 4 w bytes, element j in byte j mod 4 w; 1 bit is bit j."""
    out, shift = b"", 0
    for width in 1, 2, 4, 8:
        part = codes >> shift & (1 << width) - 1
        if bits & width and width == 1:
            out += np.packbits(part.astype("u1"), bitorder="little").tobytes()
        elif bits & width:
            part = part.reshape(8 // width, 4 * width) << (np.arange(8 // width) * width)[:, None]
            out += part.sum(0).astype("u1").tobytes()
        shift += bits & width
    return out


def q8_0(x):
    """Blocks of 32: d = max |x| / 127, codes round(x / d); d in f16."""
    d = f4(abs(x).max()) / f4(127)
    scaled = x * (f4(1) / d if d else f4(0))
    codes = np.trunc(scaled + np.copysign(f4(0.5), scaled))  # halves away from 0
    return half(d).tobytes() + codes.astype("i1").tobytes(), half(d).astype(f4) * codes


def q4_0(x):
    """d = the x of largest |x| / -8, codes x / d + 8.5, cut off, at most 15."""
    d = x[abs(x).argmax()] / f4(-8)
    codes = np.minimum(15, np.trunc(x * (f4(1) / d if d else f4(0)) + f4(8.5))).astype("i8")
    return half(d).tobytes() + planes(codes, 4), half(d).astype(f4) * (codes - 8).astype(f4)


def asymmetric(x, bits):
    """KIVI, section 3: z = min x, s = (max x - min x) / (2^B - 1), Q(x) = round((x - z) / s); s, z in f16."""
    s, z = half((x.max() - x.min()) / f4(2**bits - 1)), half(x.min())
    own, least = s.astype(f4), z.astype(f4)
    codes = np.clip(np.rint((x - least) / own), 0, 2**bits - 1) if own else np.zeros(len(x), f4)
    return s, z, codes.astype("i8"), own * codes.astype(f4) + least


def integers(bits):
    def encode(x):
        s, z, codes, numbers = asymmetric(x, bits)
        return s.tobytes() + z.tobytes() + planes(codes, bits), numbers

    return encode


def fp8(x):
    """e4m3: the nearest of its numbers, ties to even codes."""
    codes = np.arange(127)
    exponent, fraction = codes >> 3, codes & 7
    numbers = np.where(exponent, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    size = np.minimum(abs(x.astype("f8")), 448)
    off = abs(size[:, None] - numbers)
    near = np.array([min(np.flatnonzero(row == row.min()), key=lambda c: c % 2) for row in off])
    return (near + 128 * np.signbit(x)).astype("u1").tobytes(), (np.copysign(numbers[near], x)).astype(f4)


ENCODE = {"fp8": fp8, "q8_0": q8_0, "q4_0": q4_0, **{f"int{bits}": integers(bits) for bits in range(1, 9)}}


def stored(x, name):
    """Every row of d elements as it is kept, the last block of a row filled up with zeros."""
    d = x.shape[-1]
    rows = np.zeros((x.size // d, -(-d // 32) * 32), f4)
    rows[:, :d] = x.reshape(-1, d)
    kept = np.array([ENCODE[name](block)[1] for block in rows.reshape(-1, 32)]).reshape(rows.shape)
    return kept[:, :d].reshape(x.shape)


class Stores(unittest.TestCase):
    def convert(self, source, kind, count, to, out):
        library().attn_convert(source.ctypes.data_as(ctypes.c_void_p), kind, ctypes.c_int64(count), to,
                               out.ctypes.data_as(ctypes.c_void_p))

    def test_codes_are_those_of_the_definitions(self):
        library().attn_convert.restype = None
        draw = np.random.default_rng(5)
        blocks = [(draw.normal(size=32) * 10.0 ** draw.uniform(-3, 2) + draw.choice([0, 0, 3])).astype(f4) for _ in range(400)]
        blocks += [np.zeros(32, f4), np.full(32, 2, f4), np.arange(-16, 16).astype(f4), np.linspace(-600, 600, 32).astype(f4)]
        for name, kind in NAMES.items():
            for x in blocks:
                want, numbers = ENCODE[name](x)
                codes, back = np.zeros(64, "u1"), np.zeros(32, f4)
                self.convert(x, F32, 32, kind, codes)
                self.convert(codes, kind, 32, F32, back)
                self.assertEqual(codes[:len(want)].tobytes(), want, f"{name}: {x}")
                np.testing.assert_array_equal(back, numbers, err_msg=name)

    def test_attention_reads_what_is_stored(self):
        q, k, v = (oracle.draw(s, 2, h, 90, d) for s, h, d in ((1, 4, 48), (2, 2, 48), (3, 2, 40)))
        for of_k, of_v in ("q8_0", "q4_0"), ("int4", "int2"), ("int3", "fp8"), ("int1", "int8"):
            o = attnlab.attention(q, k, v, f"store:k={of_k},v={of_v}", causal=True)
            want = oracle.attention(q, stored(k, of_k), stored(v, of_v), oracle.triangle(90, 90))
            self.assertLess(abs(o - want).max(), 2e-6, (of_k, of_v))
            cache = attnlab.Cache(f"store:k={of_k},v={of_v}", batch=2, heads=4, kv_heads=2, d=48, d_v=40)
            cache.append(k[:, :, :57], v[:, :, :57])
            cache.append(k[:, :, 57:], v[:, :, 57:])
            self.assertLess(abs(cache.attend(q[:, :, -3:]) - want[:, :, -3:]).max(), 2e-6)

    def test_bytes_are_those_of_the_codes(self):
        """Bits of a code and 16 or 32 of 32 elements; rows of all else are what they are for fp32."""
        for name, bits in ("q8_0", 8.5), ("q4_0", 4.5), ("int2", 3), ("fp8", 8), ("f16", 16):
            size = {}
            for n in 1024, 4096:
                cache = attnlab.Cache(f"store:k={name},v={name}", heads=2, d=64, positions=n)
                k = oracle.draw(1, 1, 2, n, 64)
                cache.append(k, k)
                size[n] = cache.bytes
            self.assertEqual(size[4096] - size[1024], 2 * 3072 * 2 * 64 * bits / 8, name)


def normals(seed, purpose, index, rows, d):
    """A Gaussian matrix from the library's stream."""
    state = (ctypes.c_uint64 * 4)()
    library().attn_rng_normal.restype = ctypes.c_double
    library().attn_rng_init(state, *(ctypes.c_uint64(x) for x in (seed, purpose, index)))
    return np.array([library().attn_rng_normal(state) for _ in range(rows * d)]).reshape(rows, d)


def levels(bits, d):
    """TurboQuant: a continuous k-means of the density (1 - t^2)^((d-3)/2), by sums over a fine grid."""
    t = np.linspace(-1, 1, 400001)
    density = (1 - t * t) ** ((d - 3) / 2)
    mass, moment = (np.concatenate([[0], np.cumsum((f[1:] + f[:-1]) / 2)]) for f in (density, density * t))
    centre = np.linspace(-1, 1, 2**bits + 2)[1:-1] * min(1, 3 / d**0.5)
    for _ in range(4000):
        cells = np.concatenate([[-1], (centre[1:] + centre[:-1]) / 2, [1]])
        centre = np.diff(np.interp(cells, t, moment)) / np.diff(np.interp(cells, t, mass))
    return centre


def quantised(u, rotation, centre):
    """Algorithm 1: DeQuant(Quant(u)) of unit rows."""
    return centre[abs((u @ rotation.T)[..., None] - centre).argmin(-1)] @ rotation


def signs(x, s):
    """QJL as a row: sqrt(pi/2) / m S' sign(S x), whose products are the estimates of x / |x|."""
    return (np.pi / 2) ** 0.5 / len(s) * np.where(x @ s.T < 0, -1, 1) @ s


def lengths(x):
    return half(np.linalg.norm(x, axis=-1, keepdims=True)).astype("f8")


def turbo(x, bits, prod, seed, side):
    """Algorithms 1 and 2 of unit vectors, with norms in 16 bits."""
    d, x = x.shape[-1], x.astype("f8")
    u = x / np.linalg.norm(x, axis=-1, keepdims=True)
    q, r = np.linalg.qr(normals(seed, 0x70B0 + side, 0, d, d))
    back = np.zeros_like(u) if bits == prod else quantised(u, q * np.sign(np.diag(r)), levels(bits - prod, d))
    if prod:
        rest = u - back
        back = back + (1 if bits == 1 else lengths(rest)) * signs(rest, normals(seed, 0x70B0 + side, 1, d, d))
    return (lengths(x) * back).astype(f4)


class Schemes(unittest.TestCase):
    def test_one_value_is_read_as_it_is_decoded(self):
        """Of one key the output is its value: the decoded row, rounded once."""
        for d in 40, 64:
            v = oracle.draw(d, 50, 1, 1, d) * np.geomspace(0.01, 100, 50).astype(f4)[:, None, None, None]
            for bits, prod, seed in (1, 0, 0), (2, 0, 1), (3, 0, 2), (4, 0, 3), (1, 1, 4), (2, 1, 5), (4, 1, 6):
                spec = f"turbo:bits={bits},prod={'yes' if prod else 'no'},of=v,seed={seed}"
                want = turbo(v, bits, prod, seed, 1)
                o = attnlab.attention(oracle.draw(2, 50, 1, 1, d), oracle.draw(3, 50, 1, 1, d), v, spec)
                self.assertLess((abs(o - want) / np.linalg.norm(v, axis=-1, keepdims=True)).max(), 2e-7, spec)

    def test_attention_reads_what_is_decoded(self):
        q, k, v = (oracle.draw(s, 2, h, 90, d) for s, h, d in ((1, 4, 48), (2, 2, 48), (3, 2, 40)))
        seen = oracle.triangle(90, 90)
        o = attnlab.attention(q, k, v, "turbo:bits=3,seed=7", causal=True)
        want = oracle.attention(q, turbo(k, 3, 0, 7, 0), turbo(v, 3, 0, 7, 1), seen)
        self.assertLess(abs(o - want).max(), 2e-6)
        x = k.astype("f8")
        kept = lengths(x) * signs(x, normals(9, 0x7151, 1, 3 * 48, 48))
        o = attnlab.attention(q, k, v, "qjl:bits=3,seed=9", causal=True)
        self.assertLess(abs(o - oracle.attention(q, kept.astype(f4), v, seen)).max(), 2e-6)

    def test_rows_are_turned_before_they_are_stored(self):
        q, k, v = (oracle.draw(s, 2, h, 90, 48) for s, h in ((1, 4), (2, 2), (3, 2)))
        o = attnlab.attention(q, k, v, "rotated:k=int3,v=q4_0", causal=True)
        want = oracle.attention(q, turned(stored(turned(k), "int3")), turned(stored(turned(v), "q4_0")), oracle.triangle(90, 90))
        self.assertLess(abs(o - want).max(), 2e-6)

    def test_a_cache_refuses_them(self):
        with self.assertRaisesRegex(attnlab.Error, "it holds number types, and 'turbo' codes rows otherwise"):
            attnlab.Cache("turbo", heads=2, d=64)


def turned(x):
    """H x: Sylvester's matrix over sqrt(16), of 16 elements at a time (d = 48)."""
    h = np.ones((1, 1))
    for _ in range(4):
        h = np.kron([[1, 1], [1, -1]], h)
    return (x.reshape(-1, 16).astype("f8") @ h / 4).reshape(x.shape).astype(f4)


def sage(k, bits, group, smooth=True):
    """SageAttention, sections 4.2 and 4.3: codes of K - mean(K) with one scale for a block of tokens, their
    largest magnitude over 2^(bits-1) - 1; numbers with the mean, which softmax does not see. Keys [n, d]."""
    top, total = 2 ** (bits - 1) - 1, np.zeros(k.shape[1])
    for key in k:
        total += key
    mean = (total / len(k) if smooth else total * 0).astype(f4)
    codes, kept = np.zeros(k.shape, "i1"), np.empty_like(k)
    for rows in (slice(at, at + group) for at in range(0, len(k), group)):
        x = k[rows] - mean
        scale = abs(x).max() / f4(top)
        if scale:
            codes[rows] = np.clip(np.rint(x / scale), -top, top)
        kept[rows] = (np.float64(scale) * codes[rows] + mean).astype(f4)
    return codes, kept


def kivi(k, v, bits, group, residual):
    """KIVI, token by token: keys that wait are coded once they are as many as the residual, the oldest value once more wait
    than that. The keys and values that each token's query reads."""
    k, v, waiting_k, waiting_v = k.copy(), v.copy(), [], []
    for t in range(k.shape[-2]):
        waiting_k.append(t)
        waiting_v.append(t)
        if len(waiting_k) == residual:
            for first in waiting_k[::group]:
                rows = slice(first, first + group)
                k[..., rows, :] = np.apply_along_axis(lambda x: asymmetric(x, bits)[3], -2, k[..., rows, :])
            waiting_k = []
        if len(waiting_v) > residual:
            rows = slice(waiting_v[0], waiting_v.pop(0) + 1)
            v[..., rows, :] = stored(v[..., rows, :], f"int{bits}")
        yield k[..., :t + 1, :], v[..., :t + 1, :]


class KeyGroups(ctypes.Structure):
    """attn_kv_store: types of keys and values, two schemes, a reader; residual, group, prompt; smooth."""
    _fields_ = [("types", ctypes.c_int * 2), ("schemes", ctypes.c_int64 * 17), ("waits", ctypes.c_int64 * 3),
                ("smooth", ctypes.c_bool)]


class Sage(unittest.TestCase):
    def test_keys_are_those_of_the_codes_bit_by_bit(self):
        library().attn_kv_groups.restype = None
        cases = ((150, 40, 8, 64, True), (64, 32, 4, 64, True), (1, 7, 8, 64, True), (129, 48, 2, 8, True),
                 (77, 24, 8, 13, False), (300, 16, 5, 1, True))
        for n, d, bits, group, smooth in cases:
            k = oracle.draw(n, n, d) + 3 * oracle.draw(n + 1, d)
            k[-1] *= 50
            x, room = k.copy(), np.zeros(d)
            store = KeyGroups((NAMES[f"int{bits}"], 0), waits=(0, group, 0), smooth=smooth)
            library().attn_kv_groups(ctypes.byref(store), F32, *map(ctypes.c_int64, (n, d)),
                                     *(a.ctypes.data_as(ctypes.c_void_p) for a in (x, room)))
            np.testing.assert_array_equal(x, sage(k, bits, group, smooth)[1], err_msg=str((n, d, bits)))

    def test_attention_reads_them(self):
        """Of grouped heads and other lengths of keys; a vector in all keys changes codes at ties alone."""
        q, k, v = (oracle.draw(s, 2, h, 150, d) for s, h, d in ((1, 4, 48), (2, 2, 48), (3, 2, 40)))
        cases = (8, 64, "yes", (150, 150)), (3, 32, "yes", (150, 77)), (4, 7, "no", (90, 150))
        for bits, group, smooth, lengths in cases:
            kept = np.zeros_like(k)
            for b, n in enumerate(lengths):
                for h in range(2):
                    kept[b, h, :n] = sage(k[b, h, :n], bits, group, smooth == "yes")[1]
            spec = f"sage:bits={bits},group={group},smooth={smooth},v=f32"
            o = attnlab.attention(q, k, v, spec, causal=True, kv_len=lengths)
            seen = oracle.triangle(150, 150) & (np.arange(150) < np.array(lengths)[:, None, None, None])
            self.assertLess(abs(o - oracle.attention(q, kept, v, seen)).max(), 3e-6, spec)
        codes = [sage(x, 8, 64)[0] for x in (k[0, 0], k[0, 0] + 5 * oracle.draw(9, 48))]
        self.assertLess((codes[0] != codes[1]).mean(), 1e-3)
        self.assertLessEqual(abs(codes[0].astype(int) - codes[1]).max(), 1)


class Kivi(unittest.TestCase):
    def test_queries_read_what_the_algorithm_leaves(self):
        q, k, v = (oracle.draw(s, 2, h, 75, d) for s, h, d in ((1, 4, 40), (2, 2, 40), (3, 2, 36)))
        k[:, :, :32, 3] = 0.25  # a group without a step
        for bits, group, residual, start in (2, 8, 16, 0), (4, 1, 5, 0), (1, 32, 32, 0), (8, 16, 64, 0), (2, 8, 8, 30):
            spec = f"kivi:bits={bits},group={group},residual={residual},prompt={start}"
            o = attnlab.attention(q, k, v, spec, causal=True)
            last = attnlab.attention(q[:, :, -3:], k, v, spec, causal=True)
            for t, (kept_k, kept_v) in enumerate(kivi(k, v, bits, group, residual)):
                if t < start:
                    kept_k, kept_v = k[:, :, :t + 1], v[:, :, :t + 1]
                want = oracle.attention(q[:, :, t:t + 1], kept_k, kept_v)
                self.assertLess(abs(o[:, :, t:t + 1] - want).max(), 3e-6, (spec, t))
                if t >= 72:
                    self.assertLess(abs(last[:, :, t - 72:t - 71] - want).max(), 3e-6, (spec, t))

    def test_a_policy_ranks_keys_as_they_are_given(self):
        q, k, v = (oracle.draw(s, 1, 2, 60, 32) for s in (1, 2, 3))
        o = attnlab.attention(q, k, v, "evict:score=knorm,budget=20,recent=4 | kivi:bits=2,group=4,residual=8", causal=True)
        held = [[], []]
        for t, (kept_k, kept_v) in enumerate(kivi(k, v, 2, 4, 8)):
            for h, keys in enumerate(held):
                keys.append(t)
                if len(keys) > 20:
                    keys.remove(max(keys[:-4], key=lambda j: np.linalg.norm(k[0, h, j].astype("f8"))))
                want = oracle.attention(q[:, h:h + 1, t:t + 1], kept_k[:, h:h + 1, keys], kept_v[:, h:h + 1, keys])
                self.assertLess(abs(o[:, h:h + 1, t:t + 1] - want).max(), 3e-6, (t, h))


def factored(k, v, rank):
    """TransMLA: of each entry's [K of all heads | V of all heads] the best approximation of this rank."""
    heads, d = k.shape[1], k.shape[3]
    x = np.concatenate([*k.swapaxes(0, 1), *v.swapaxes(0, 1)], -1).astype("f8")
    u, s, wt = np.linalg.svd(x, full_matrices=False)
    c, w = u[..., :rank] * s[:, None, :rank], wt[:, :rank].swapaxes(-1, -2)
    return c, w[:, :heads * d].reshape(len(k), heads, d, -1), w[:, heads * d:].reshape(len(k), heads, v.shape[3], -1)


class Latents(unittest.TestCase):
    def test_outputs_are_those_of_numpys_factors(self):
        for n_q, n, rank in (90, 90, 24), (5, 33, 20), (1, 130, 1), (20, 20, 56):
            q, k, v = (oracle.draw(s, 3, h, m, d) for s, h, m, d in ((1, 4, n_q, 16), (2, 2, n, 16), (3, 2, n, 12)))
            seen = oracle.triangle(n_q, n)
            c, w_k, w_v = factored(k, v, rank)
            naive = oracle.attention(q, c[:, None] @ w_k.swapaxes(-1, -2), c[:, None] @ w_v.swapaxes(-1, -2), seen)
            # DeepSeek-V2, section 2.1.2: queries that absorb W_UK, outputs that absorb W_UV.
            turned = q @ np.repeat(w_k, 2, 1)
            shared = np.repeat(c[:, None], 4, 1)
            absorbed = oracle.attention(turned, shared, shared, seen, scale=16**-0.5) @ np.repeat(w_v, 2, 1).swapaxes(-1, -2)
            np.testing.assert_allclose(absorbed, naive, atol=1e-12)
            for path in "naive", "absorbed":
                o = attnlab.attention(q, k, v, f"latent:rank={rank},path={path}", causal=True)
                self.assertLess(abs(o - naive).max(), 4e-6, (n, rank, path))
                wide = attnlab.attention(*(x.astype("f8") for x in (q, k, v)), f"latent:rank={rank},path={path}", causal=True)
                self.assertLess(abs(wide - naive).max(), 1e-12, (n, rank, path))

    def test_prompts_and_shared_columns_are_numpys(self):
        heads, n, d, d_v = 2, 70, 16, 12
        for prompt, shared, rank in (40, 0, 24), (30, 4, 20), (0, 6, 20), (65, 16, 12):
            q, k, v = (oracle.draw(s, 2, h, n, w).astype("f8") for s, h, w in ((1, 4, d), (2, heads, d), (3, heads, d_v)))
            front = d - shared
            x = np.concatenate([*k[..., :front].swapaxes(0, 1), *v.swapaxes(0, 1)], -1)
            w = np.linalg.svd(x[:, :prompt or None])[2][:, :rank].swapaxes(-1, -2)
            flat = x @ w @ w.swapaxes(-1, -2)
            of_k = flat[..., :heads * front].reshape(2, n, heads, front).swapaxes(1, 2)
            of_v = flat[..., heads * front:].reshape(2, n, heads, d_v).swapaxes(1, 2)
            mean = np.repeat(k[..., front:].mean(1, keepdims=True), heads, 1)
            latent = oracle.attention(q, np.concatenate([of_k, mean], -1), of_v, oracle.triangle(n, n))
            given = oracle.attention(q, k, v, oracle.triangle(n, n))
            want = np.concatenate([given[:, :, :prompt], latent[:, :, prompt:]], 2)
            spec = f"latent:rank={rank},shared={shared},prompt={prompt}"
            for path in "naive", "absorbed":
                o = attnlab.attention(q, k, v, f"{spec},path={path}", causal=True)
                self.assertLess(abs(o - want).max(), 1e-12, (spec, path))
            if not prompt:
                continue
            cache = attnlab.Cache(spec, batch=2, heads=4, kv_heads=heads, d=d, d_v=d_v, dtype="float64", positions=n)
            for first, end in (0, prompt - 9), (prompt - 9, prompt), (prompt, prompt + 1), (prompt + 1, n):
                cache.append(k[:, :, first:end], v[:, :, first:end])
                self.assertLess(abs(cache.attend(q[:, :, first:end]) - want[:, :, first:end]).max(), 1e-12, (spec, end))
            # C of rank + shared numbers a token, W, and less than 64 KiB besides; attention takes memory for its plan.
            cache = attnlab.Cache(spec, batch=2, heads=4, kv_heads=heads, d=d, d_v=d_v, dtype="float64", positions=n)
            cache.append(k, v)
            held = 8 * 2 * (rank + shared) * (n + heads * (d + d_v))
            self.assertTrue(held < cache.bytes < held + 65536, (spec, held, cache.bytes))


if __name__ == "__main__":
    unittest.main()
