"""Types of caches: the codes of rows bit by bit, by the definitions in their papers and of llama.cpp's formats, written here
in NumPy; attention to stored keys and values, and caches of them."""
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


def integers(bits):
    def encode(x):
        """KIVI, section 3: z = min x, s = (max x - min x) / (2^B - 1), Q(x) = round((x - z) / s); s, z in f16."""
        s, z = half((x.max() - x.min()) / f4(2**bits - 1)), half(x.min())
        own, least = s.astype(f4), z.astype(f4)
        codes = np.clip(np.rint((x - least) / own), 0, 2**bits - 1) if own else np.zeros(32, f4)
        return s.tobytes() + z.tobytes() + planes(codes.astype("i8"), bits), own * codes.astype(f4) + least

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


if __name__ == "__main__":
    unittest.main()
