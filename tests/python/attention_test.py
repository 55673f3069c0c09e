"""Attention of NumPy arrays and buffers: against an fp64 oracle, without copies, and what is refused."""
import array
import contextlib
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import warnings
from unittest import mock

import numpy as np

import attnlab
import oracle
from attnlab import compute, library, tensors
from attnlab.compute import Operands

BATCH, HEADS, KV_HEADS, N, D = 2, 4, 2, 67, 24


def problem(dtype="f4", n_q=N, n_kv=N, d_v=D):
    return (oracle.draw(1, BATCH, HEADS, n_q, D, dtype=dtype), oracle.draw(2, BATCH, KV_HEADS, n_kv, D, dtype=dtype),
            oracle.draw(3, BATCH, KV_HEADS, n_kv, d_v, dtype=dtype))


def other_layout(x):
    """The same numbers as [batch, n, heads, d], contiguous."""
    return np.ascontiguousarray(x.swapaxes(-3, -2))


class Values(unittest.TestCase):
    def close(self, got, want, q, k, v, **bound):
        self.assertEqual((got.shape, got.dtype), (want.shape, q.dtype))
        worst = abs(got - want).max()
        self.assertTrue(worst <= oracle.tolerance(q, k, v, **bound), f"{worst} from the oracle")

    def test_types_causality_and_lengths(self):
        for dtype in "f4", "f8":
            for n_q, n_kv, d_v in (N, N, D), (5, N, 40), (1, N, D):
                q, k, v = problem(dtype, n_q, n_kv, d_v)
                self.close(attnlab.attention(q, k, v), oracle.attention(q, k, v), q, k, v)
                seen = oracle.triangle(n_q, n_kv)
                self.close(attnlab.attention(q, k, v, causal=True), oracle.attention(q, k, v, seen), q, k, v)

    def test_scale(self):
        q, k, v = problem()
        self.close(attnlab.attention(q, k, v, scale=0.5), oracle.attention(q, k, v, scale=0.5), q, k, v, scale=0.5)

    def test_fewer_axes(self):
        q, k, v = problem()
        whole = attnlab.attention(q, k, v, causal=True)
        np.testing.assert_array_equal(attnlab.attention(q[1], k[1], v[1], causal=True), whole[1])
        np.testing.assert_array_equal(attnlab.attention(q[1, 3], k[1, 1], v[1, 1], causal=True), whole[1, 3])

    def test_scores(self):
        q, k, v = problem()
        for transform in {"softcap": 2.0}, {"leaky": 0.2}:
            self.close(attnlab.attention(q, k, v, **transform), oracle.attention(q, k, v, **transform), q, k, v)
        for sink in 0.5, [0.5, -1, 2, 0], np.array([0.5, -1, 2, 0], "f4"):
            want = oracle.attention(q, k, v, sink=np.broadcast_to(sink, HEADS))
            self.close(attnlab.attention(q, k, v, sink=sink), want, q, k, v)

    def test_alibi(self):
        q, k, v = problem(n_q=40)
        distance = abs(np.arange(N) - (np.arange(40)[:, None] + N - 40))
        bias = -distance * 2.0 ** (-8 / HEADS * np.arange(1, HEADS + 1))[:, None, None]
        want = oracle.attention(q, k, v, oracle.triangle(40, N), bias)
        self.close(attnlab.attention(q, k, v, causal=True, alibi=True), want, q, k, v, bias=bias)

    def test_biases(self):
        q, k, v = problem()
        wide = oracle.draw(4, BATCH, HEADS, N, 2 * N)[..., :N]  # rows with a gap
        for bias in wide[0, 0], wide[0], wide, wide[:, :1], wide.astype("f8"), wide.astype("f2"), \
                np.broadcast_to(wide[0, 0, :1], (N, N)):
            want = oracle.attention(q, k, v, bias=bias.astype("f8"))
            self.close(attnlab.attention(q, k, v, bias=bias), want, q, k, v, bias=bias)
        for spec in "tiled", "full", "topk:k=999", "columns":  # the least number is no -Inf: where all have it, all weigh alike
            low = attnlab.attention(*map(np.float32, (q, k, v)), spec, bias=np.full((N, N), np.finfo("f4").min, "f4"))
            np.testing.assert_allclose(low, np.broadcast_to(oracle.attention(0 * q, k, v), low.shape), atol=1e-5)
            bad = np.zeros((N, N))
            bad[3, 5] = np.nan
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = np.isnan(attnlab.attention(q, k, v, spec, bias=bad)).all((0, 1, 3))
            np.testing.assert_array_equal(rows, np.arange(N) == 3, spec)

    def test_masks(self):
        q, k, v = problem()
        seen = np.random.default_rng(5).random((BATCH, HEADS, N, N)) < 0.5
        seen[..., 0] = True
        for mask in seen[0, 0], seen[0], seen, seen[:, :1]:
            self.close(attnlab.attention(q, k, v, mask=mask), oracle.attention(q, k, v, mask), q, k, v)
        bias = oracle.draw(4, N, N)
        want = oracle.attention(q, k, v, seen & oracle.triangle(N, N), bias)
        self.close(attnlab.attention(q, k, v, mask=seen, bias=bias, causal=True), want, q, k, v, bias=bias)
        none = np.zeros((N, N), bool)
        self.assertFalse(attnlab.attention(q, k, v, mask=none).any(), "a row without keys is not zero")

    def test_masks_with_a_name(self):
        q, k, v = problem()
        i, j = np.arange(N)[:, None], np.arange(N)
        begins = np.searchsorted([0, 30, 50], np.arange(N), "right")
        for mask, seen in (("prefix:9", (j < 9) | (j <= i)), ("block_causal:16", j // 16 <= i // 16),
                           ("documents:16", j // 16 == i // 16), ("documents:0+30+50", begins == begins[:, None])):
            got = attnlab.attention(q, k, v, mask=mask, causal=mask.startswith("prefix"))
            if mask.startswith("prefix"):  # causal hides what the prefix shows
                seen = j <= i
            self.close(got, oracle.attention(q, k, v, seen), q, k, v)
        self.close(attnlab.attention(q, k, v, mask="prefix:9"), oracle.attention(q, k, v, (j < 9) | (j <= i)), q, k, v)

    def test_padding(self):
        q, k, v = problem()
        k[1, :, 40:], v[1, :, 40:] = np.nan, np.nan
        got = attnlab.attention(q, k, v, kv_len=[N, 40])
        for b, length in (0, N), (1, 40):
            own = q[b], k[b, :, :length], v[b, :, :length]
            self.close(got[b], oracle.attention(*own), *own)
        np.testing.assert_array_equal(attnlab.attention(q, k, v, kv_len=40), attnlab.attention(q, k, v, kv_len=[40, 40]))

    def test_positions(self):
        q, k, v = problem(n_q=5)
        k[1, :, 40:], v[1, :, 40:] = np.nan, np.nan
        got = attnlab.attention(q, k, v, causal=True, kv_len=[N, 40], q_position=[N - 5, 35])
        for b, length in (0, N), (1, 40):
            own = q[b], k[b, :, :length], v[b, :, :length]
            self.close(got[b], oracle.attention(*own, oracle.triangle(5, length)), *own)
        with self.assertRaisesRegex(attnlab.Error, "positions of queries and keys"):
            attnlab.attention(q, k, v, "nystrom", q_position=3)

    def test_log_sum_exp(self):
        q, k, v = problem()
        seen = oracle.triangle(N, N)
        _, want = oracle.weights(oracle.scores(q, k), seen)
        out, lse = attnlab.attention(q, k, v, causal=True, return_lse=True)
        np.testing.assert_array_equal(out, attnlab.attention(q, k, v, causal=True))
        self.assertEqual((lse.shape, lse.dtype), ((BATCH, HEADS, N), np.float64))
        self.assertTrue(abs(lse - want).max() <= oracle.tolerance(q, k, np.ones_like(v)))
        _, other = attnlab.attention(*map(other_layout, (q, k, v)), causal=True, layout="bnhd", return_lse=True)
        np.testing.assert_array_equal(other, lse)
        self.assertEqual(attnlab.attention(q[0, 0], k[0, 0], v[0, 0], return_lse=True)[1].shape, (N,))

    def test_state(self):
        """RetNet, arXiv:2307.08621, equation 6, token by token, in parts that hand their state on."""
        for dtype in "f4", "f8":
            q, k, v = (x.astype(dtype) for x in problem())
            group = q.shape[1] // k.shape[1]
            decay = (1 - 2.0 ** (-5 - np.arange(q.shape[1])))[:, None, None]
            held, want, state, parts = np.zeros(q.shape[:2] + (q.shape[3], v.shape[3])), np.empty(q.shape), None, []
            for t in range(q.shape[2]):
                write = np.einsum("bhd,bhe->bhde", k[:, :, t], v[:, :, t])
                held = decay * held + write.repeat(group, 1)
                want[:, :, t] = np.einsum("bhd,bhde->bhe", q[:, :, t], held) / np.sqrt(q.shape[3])
            for first, end in (0, 40), (40, 41), (41, 42), (42, q.shape[2]):
                o, state = attnlab.attention(*(x[:, :, first:end] for x in (q, k, v)), "recurrent:chunk=16", causal=True,
                                             state=state, return_state=True)
                parts.append(o)
            off = np.abs(np.concatenate(parts, 2) - want).max() / np.abs(want).max()
            self.assertTrue(off <= 2**10 * np.finfo(dtype).eps and state.dtype == dtype)
            self.assertTrue(np.abs(state - held).max() <= 2**10 * np.finfo(dtype).eps * np.abs(held).max())
        with self.assertRaisesRegex(ValueError, "^state is .*contiguous"):
            attnlab.attention(q, k, v, "recurrent", causal=True, state=state.astype("f4"))
        with self.assertRaisesRegex(ValueError, "^state is .*contiguous"):
            attnlab.attention(q, k, v, "recurrent", causal=True, state=state.swapaxes(2, 3))
        with self.assertRaisesRegex(attnlab.Error, "carries no state"):
            attnlab.attention(q, k, v, causal=True, return_state=True)

    def test_gates(self):
        """Gated DeltaNet, arXiv:2412.06464, equation 10, token by token, with gates of the call."""
        q, k, v = problem()
        draw = np.random.default_rng(5)
        gates = {"decay": np.log(draw.random(q.shape[:3] + (1,))) / 4, "beta": draw.random((1, q.shape[1], q.shape[2], 1))}
        group = q.shape[1] // k.shape[1]
        unit, keys = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
        keys, values = keys.repeat(group, 1), v.repeat(group, 1)
        held, want = np.zeros(q.shape[:2] + (q.shape[3], v.shape[3])), np.empty(q.shape)
        for t in range(q.shape[2]):
            held = np.exp(gates["decay"][:, :, t])[..., None] * held
            said = np.einsum("bhd,bhde->bhe", keys[:, :, t], held)
            held += np.einsum("bhd,bhe->bhde", keys[:, :, t], gates["beta"][:, :, t] * (values[:, :, t] - said))
            want[:, :, t] = np.einsum("bhd,bhde->bhe", unit[:, :, t], held) / np.sqrt(q.shape[3])
        got = attnlab.attention(q, k, v, "recurrent:rule=gated_delta", causal=True, extra=gates)
        self.assertTrue(np.abs(got - want).max() <= 2**10 * np.finfo(q.dtype).eps * np.abs(want).max())
        with self.assertRaisesRegex(ValueError, "^extra.'beta'. is .*contiguous"):
            attnlab.attention(q, k, v, "recurrent:rule=delta", causal=True, extra={"beta": gates["beta"][..., 0]})
        with self.assertRaisesRegex(attnlab.Error, "extra tensor 'gating'"):
            attnlab.attention(q, k, v, "recurrent:rule=delta", causal=True, extra={"gating": gates["beta"]})
        with self.assertRaisesRegex(attnlab.Error, "decay.0, 0, 0, 0. = 1, expected a logarithm"):
            attnlab.attention(q, k, v, "recurrent:rule=ssd", causal=True, extra={"decay": 1 + 0 * gates["decay"]})

    def test_half(self):
        q, k, v = (x.astype("f2") for x in problem())
        wide = [x.astype("f4") for x in (q, k, v)]
        got = attnlab.attention(q, k, v)
        self.assertEqual(got.dtype, np.float16)
        np.testing.assert_array_equal(got, attnlab.attention(*wide).astype("f2"))
        out = np.full_like(got, np.nan)
        self.assertIs(attnlab.attention(q, k, v, out=out), out)
        np.testing.assert_array_equal(out, got)
        operands = Operands(q, k, v, out, "bhnd")
        for x, seen in zip((q, k, v, out), (operands.q, operands.k, operands.v, operands.o)):
            self.assertEqual(seen.place.address, x.ctypes.data)
        with self.assertWarns(RuntimeWarning):  # 1.5 times the largest number
            self.assertTrue(np.isinf(attnlab.attention(q, k, np.full_like(v, 65504), "0.75*tiled + 0.75*tiled")).all())
        bias = oracle.draw(4, HEADS, N, N).astype("f2")
        np.testing.assert_array_equal(attnlab.attention(q, k, v, bias=bias), attnlab.attention(*wide, bias=bias).astype("f2"))

    def test_what_is_not_finite_is_warned_of(self):
        ones = np.ones((2, 3, 5, 4), "f4")
        with self.assertWarnsRegex(RuntimeWarning, "output of linear:.* is not finite, although q, k and v are") as seen:
            attnlab.attention(ones, -ones, ones, "linear:feature=relu")  # no feature in common: 0/0
        self.assertEqual(pathlib.Path(seen.filename).name, "attention_test.py")
        with self.assertWarns(RuntimeWarning):
            attnlab.Plan(ones, ones, ones, "linear:feature=relu", layout="bnhd")(ones, -ones, ones)
        one_nan = ones.copy()
        one_nan[1, 2, 3, 3] = np.nan
        for q, k, v in (ones, ones, ones), (one_nan, ones, ones), (ones, ones, one_nan):
            for layout in "bhnd", "bnhd":
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    o = attnlab.attention(q, k, v, layout=layout)
                self.assertEqual(bool(np.isfinite(o).all()), q is v)

    def test_matrix(self):
        for dtype in "f4", "f8", "f2":
            q, k, v = problem(dtype, n_kv=300)
            p = attnlab.matrix(q, k, causal=True)
            want, _ = oracle.weights(oracle.scores(q, k), oracle.triangle(N, 300))
            self.assertEqual((p.shape, p.dtype), ((BATCH, HEADS, N, 300), "f8" if dtype == "f8" else "f4"))
            self.assertTrue(abs(p - want).max() <= oracle.tolerance(q, k, np.ones_like(p)))
        q, k, v = problem()
        p = attnlab.matrix(q, k, "linformer:k=16")
        got = attnlab.attention(q, k, v, "linformer:k=16")
        self.assertTrue(abs(p @ np.repeat(v, 2, 1) - got).max() <= 4 * N * abs(v).max() * abs(p).sum(-1).max() * 2**-24)
        np.testing.assert_array_equal(attnlab.matrix(other_layout(q), other_layout(k), "linformer:k=16", layout="bnhd"), p)
        self.assertEqual(attnlab.matrix(q[0, 0], k[0, 0]).shape, (N, N))


class Memory(unittest.TestCase):
    def test_arrays_are_read_where_they_are(self):
        q, k, v = problem()
        packed = oracle.draw(6, BATCH, N, 3, HEADS, D)  # as one projection gives them
        views = [packed[:, :, i].swapaxes(1, 2) for i in range(3)]
        for given in (q, k, v), views, [x[:, ::2, 3:50] for x in views]:
            operands = Operands(*given, None, "bhnd")
            for x, seen in zip(given, (operands.q, operands.k, operands.v)):
                self.assertEqual(seen.place.address, x.ctypes.data)
                self.assertEqual([seen.stride.batch, seen.stride.head, seen.stride.row],
                                 [step // x.itemsize for step in x.strides[:3]])

    def test_strides_change_no_bit(self):
        q, k, v = problem()
        want = attnlab.attention(q, k, v, causal=True)
        strided = [other_layout(x).swapaxes(1, 2) for x in (q, k, v)]
        self.assertFalse(strided[0].flags.c_contiguous)
        np.testing.assert_array_equal(attnlab.attention(*strided, causal=True), want)
        wide = [np.repeat(np.repeat(x, 2, 2), 2, 1)[:, ::2, ::2] for x in (q, k, v)]
        np.testing.assert_array_equal(attnlab.attention(*wide, causal=True), want)
        rows = [np.concatenate([x, x], -1)[..., :D] for x in (q, k, v)]
        np.testing.assert_array_equal(attnlab.attention(*rows, causal=True), want)
        shared = np.broadcast_to(k[:, :1], k.shape)
        np.testing.assert_array_equal(attnlab.attention(q, shared, v), attnlab.attention(q, shared.copy(), v))

    def test_layouts(self):
        q, k, v = problem()
        want = attnlab.attention(q, k, v, causal=True)
        got = attnlab.attention(*map(other_layout, (q, k, v)), causal=True, layout="bnhd")
        self.assertTrue(got.flags.c_contiguous)
        np.testing.assert_array_equal(got, want.swapaxes(1, 2))
        one = attnlab.attention(*(other_layout(x[0]) for x in (q, k, v)), causal=True, layout="bnhd")
        np.testing.assert_array_equal(one, want[0].swapaxes(0, 1))

    def test_read_only_arrays(self):
        q, k, v = problem()
        want = attnlab.attention(q, k, v)
        for x in q, k, v:
            x.flags.writeable = False
        np.testing.assert_array_equal(attnlab.attention(q, k, v), want)

    def test_out(self):
        q, k, v = problem()
        want = attnlab.attention(q, k, v)
        whole = np.full((BATCH, N, HEADS, 2 * D), np.nan, "f4")
        out = whole[..., :D].swapaxes(1, 2)
        self.assertIs(attnlab.attention(q, k, v, out=out), out)
        np.testing.assert_array_equal(out, want)
        self.assertTrue(np.isnan(whole[..., D:]).all(), "written beside the result")

    def test_buffers(self):
        numbers = array.array("f", oracle.draw(7, 4 * 3).tolist())
        x = memoryview(numbers).cast("B").cast("f", (4, 3))
        same = np.frombuffer(numbers, "f4").reshape(4, 3)
        np.testing.assert_array_equal(attnlab.attention(x, x, x), attnlab.attention(same, same, same))
        self.assertEqual(tensors.look_at(x, "x").address, numbers.buffer_info()[0])
        c = ((ctypes.c_double * 3) * 4)()
        self.assertFalse(attnlab.attention(c, c, c).any())

    def test_dlpack(self):
        numbers = oracle.draw(7, 3, 5)

        class Exporter:
            """An exporter whose tensor begins within its memory, on a device."""
            dtype, device = "float32", 1

            def __dlpack_device__(self):
                return self.device, 0

            def __dlpack__(self):
                shape = (ctypes.c_int64 * 2)(2, 5)
                self.managed = tensors._DLTensor(numbers.ctypes.data, 1, 0, 2, 2, 32, 1, shape, None, 5 * 4)
                new = ctypes.pythonapi.PyCapsule_New
                new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
                return new(ctypes.addressof(self.managed), b"dltensor", None)

        x = Exporter()
        got = attnlab.attention(x, x, x)
        np.testing.assert_array_equal(got, attnlab.attention(numbers[1:], numbers[1:], numbers[1:]))
        # JAX, which Debian has not, exports its arrays so; the results must be JAX arrays.
        jax, jax_numpy = types.ModuleType("jax"), types.ModuleType("jax.numpy")
        jax.numpy, jax_numpy.asarray = jax_numpy, lambda array, dtype: ("jax", dtype, array)
        with mock.patch.dict(sys.modules, {"jax": jax, "jax.numpy": jax_numpy}), \
                mock.patch.object(Exporter, "__module__", "jax"):
            kind, dtype, array = attnlab.attention(x, x, x)
            self.assertEqual((kind, dtype), ("jax", "float32"))
            np.testing.assert_array_equal(array, got)
            with self.assertRaisesRegex(ValueError, "out is .*read-only"):
                attnlab.attention(numbers[1:], numbers[1:], numbers[1:], out=x)
        x.device = 2
        with self.assertRaisesRegex(TypeError, "q is not in the memory of the CPU"):
            attnlab.attention(x, x, x)

    def test_nothing_leaks(self):
        q, k, v = problem()

        def resident():
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

        def use(times):
            for i in range(times):
                attnlab.attention(q, k, v)
                attnlab.attention(q, k, v, scale=1 + i)  # another plan each time
                attnlab.attention(q, k, v, mask=np.ones((N, N), bool))

        use(100)
        before = resident()
        use(1000)
        # An output of each call would be 51 MB, their plans and masks more.
        self.assertLess(resident() - before, 10 << 20)


class Refusals(unittest.TestCase):
    def test_arguments_are_named(self):
        q, k, v = problem()
        small = np.zeros((N, N), bool)
        unaligned = np.frombuffer(bytes(4 * N * D + 1), "u1")[1:].view("f4").reshape(N, D)
        for wrong, kind, words in (
                (lambda: attnlab.attention(q.tolist(), k, v), TypeError, "q is a list"),
                (lambda: attnlab.attention(q, k.astype("i4"), v), TypeError, "k is of int32"),
                (lambda: attnlab.attention(q, k.astype(">f4"), v), TypeError, "k is of >f4"),
                (lambda: attnlab.attention(q, k, v.astype("f8")), TypeError, "v is .* of float64, but q is"),
                (lambda: attnlab.attention(small, k, v), TypeError, "q is of bool"),
                (lambda: attnlab.attention(q[..., ::2], k, v), ValueError, "q: its last axis is not contiguous"),
                (lambda: attnlab.attention(q, k[0], v), ValueError, r"k is \(2, 67, 24\) of float32, which does not fit q"),
                (lambda: attnlab.attention(q, k[:, :, :5], v), ValueError, "v is .* does not fit k"),
                (lambda: attnlab.attention(q, k[..., :5], v), ValueError, "k is .* its rows be as wide"),
                (lambda: attnlab.attention(q[:, :3], k, v), ValueError, "k is .* its heads must divide"),
                (lambda: attnlab.attention(q, other_layout(k), v, layout="bnhd"), ValueError, "k is .* layout bnhd"),
                (lambda: attnlab.attention(q[:, :, :0], k, v), ValueError, "does not fit q"),
                (lambda: attnlab.attention(unaligned, unaligned, unaligned), ValueError, "q: .* not aligned"),
                (lambda: attnlab.attention(q[0, 0, 0], k, v), ValueError, r"q has the shape \(24,\)"),
                (lambda: attnlab.attention(np.broadcast_to(q[0, 0, 0], q.shape), k, v), ValueError, "q repeats one row"),
                (lambda: attnlab.attention(q, k, v, layout="nbhd"), ValueError, "layout='nbhd'"),
                (lambda: attnlab.attention(q, k, v, mask="window:3"), ValueError, "mask='window:3'"),
                (lambda: attnlab.attention(q, k, v, mask="prefix:3+4"), ValueError, "mask='prefix:3\\+4'"),
                (lambda: attnlab.attention(q, k, v, mask=small[:5]), ValueError, r"mask has the shape \(5, 67\)"),
                (lambda: attnlab.attention(q, k, v, mask=small.astype("f4")), TypeError, "mask is of float32"),
                (lambda: attnlab.attention(q, k, v, bias=small), TypeError, "bias is of bool"),
                (lambda: attnlab.attention(q, k, v, softcap=-1), ValueError, "softcap=-1"),
                (lambda: attnlab.attention(q, k, v, sink=[1, 2]), ValueError, "sink has 2 numbers"),
                (lambda: attnlab.attention(q, k, v, kv_len=[1, 2, 3]), ValueError, "kv_len has 3 numbers"),
                (lambda: attnlab.attention(q, k, v, kv_len=N + 1), ValueError, "kv_len=68"),
                (lambda: attnlab.attention(q, k, v, kv_len=2.5), ValueError, "kv_len=2.5"),
                (lambda: attnlab.attention(q, k[:, :, :9], v[:, :, :9], q_position=1), ValueError, "q_position=1"),
                (lambda: attnlab.attention(q, k, v, casual=True), TypeError, "casual"),
                (lambda: attnlab.Plan(q, k, v, casual=True), TypeError, "casual")):
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                wrong()

    def test_out(self):
        q, k, v = problem()
        frozen = np.empty_like(q)
        frozen.flags.writeable = False
        for out, words in ((np.empty((1, 1), "f4"), "out is"), (np.empty(q.shape), "out is .* float64"),
                           (frozen, "read-only"), (q, "out shares memory with q"),
                           (np.broadcast_to(np.empty_like(q[:, :, :1]), q.shape), "out is .*read-only")):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                attnlab.attention(q, k, v, out=out)
        overlapping = np.lib.stride_tricks.as_strided(np.empty(q.size, "f4"), q.shape, (4, 4, 4, 4))
        with self.assertRaisesRegex(attnlab.Error, "overlap"):
            attnlab.attention(q, k, v, out=overlapping)

    def test_lines_of_the_library(self):
        q, k, v = problem()
        for spec, target, status, words in (
                ("longformer:windw=3", {}, "not found", "windw"),
                ("longforme", {}, "not found", "longforme"),
                ("linformer", {"causal": True}, "unsupported", "causal"),
                ("performer", {"return_lse": True}, "unsupported", "log-sum-exp|lse"),
                ("performer", {"softcap": 5.0}, "unsupported", "score|softcap"),
                ("tiled", {"isa": "abacus"}, "invalid argument", "abacus"),
                ("tiled", {"mask": "documents:0+50+40"}, "invalid argument", "offsets"),
                ("tiled", {"scale": float("nan")}, "invalid argument", "scale")):
            with self.subTest(spec=spec, **target), self.assertRaisesRegex(attnlab.Error, words) as caught:
                attnlab.attention(q, k, v, spec, **target)
            self.assertEqual(caught.exception.status, status)

    def test_strides_that_are_not_read(self):
        q, k, v = problem()
        for name, given in ("q", (q[:, :, ::-1], k, v)), ("k", (q, k[:, ::-1], v)), ("v", (q, k, v[::-1])):
            with self.assertRaisesRegex(ValueError, f"^{name} has a negative stride; a copy has none"):
                attnlab.attention(*given)
        with self.assertRaisesRegex(ValueError, "^out has a negative stride"):
            attnlab.attention(q, k, v, out=np.empty_like(q)[:, :, ::-1])

    def test_flags_are_booleans(self):
        q, k, v = problem()
        attnlab.attention(q, k, v, causal=True, alibi=True)  # kept, and equal to 1
        for name in "causal", "alibi", "return_lse", "return_state":
            for value in "no", "", 1, 2, 0.0, None, [True], np.ones(1, bool):
                with self.subTest(name, value=value), self.assertRaisesRegex(TypeError, f"^{name}=.*True or False"):
                    attnlab.attention(q, k, v, **{name: value})
        np.testing.assert_array_equal(attnlab.attention(q, k, v, causal=np.bool_(True)), attnlab.attention(q, k, v, causal=True))

    def test_integers_and_texts_are_taken_whole(self):
        q, k, v = problem()
        for kind, words, spec, target in (
                (ValueError, "^threads=4294967297; expected 0 to 2147483647", "tiled", {"threads": 2**32 + 1}),
                (ValueError, "^threads=-1; expected 0 to", "tiled", {"threads": -1}),
                (TypeError, "^threads is a float", "tiled", {"threads": 1.0}),
                (TypeError, "^threads is a bool", "tiled", {"threads": True}),
                (ValueError, "^mask: its size=18446744073709551616", "tiled", {"mask": f"prefix:{2**64}"}),
                (ValueError, "^mask: its size=", "tiled", {"mask": f"documents:0+{2**64 + 30}"}),
                (TypeError, "^spec is a NoneType", None, {}), (TypeError, "^spec is a bytes", b"tiled", {}),
                (ValueError, "^spec=.*NUL", "tiled\0garbage", {}), (ValueError, "^isa=.*NUL", "tiled", {"isa": "scalar\0"}),
                (TypeError, "^isa is a int", "tiled", {"isa": 3})):
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                attnlab.attention(q, k, v, spec, **target)

    def test_masked_arrays(self):
        q, k, v = problem()
        with self.assertRaisesRegex(TypeError, r"^k is a masked array.*filled\(value\)"):
            attnlab.attention(q, np.ma.masked_greater(k, 1), v)
        for name, shape in ("mask", (N, N)), ("bias", (N, N)), ("sink", (q.shape[1],)), ("kv_len", (q.shape[0],)):
            given = np.ma.array(np.ones(shape, bool if name == "mask" else "f4"), mask=True)
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"^{name} is a masked array"):
                attnlab.attention(q, k, v, **{name: given})

    def test_masks_and_biases_in_any_order(self):
        q, k, v = problem()
        seen = oracle.draw(4, N, N) > 0
        seen[:, 0] = True
        shift = oracle.draw(5, N, N)
        for name, given in ("mask", seen), ("bias", shift):
            want = attnlab.attention(q, k, v, **{name: given})
            for other in np.asfortranarray(given), np.ascontiguousarray(given[::-1])[::-1], \
                    np.ascontiguousarray(given.T).T, np.ascontiguousarray(given[:, ::-1])[:, ::-1]:
                np.testing.assert_array_equal(attnlab.attention(q, k, v, **{name: other}), want)

    def test_masks_and_biases_for_all_queries_or_keys(self):
        q, k, v = problem()
        for name, row in ("mask", np.arange(N) % 3 > 0), ("bias", oracle.draw(6, N)):
            for one in row[None], row[None, None], np.stack([row, row[::-1]])[:, None, None], row[:, None]:
                whole = np.array(np.broadcast_to(one, (*one.shape[:-2], N, N)))
                np.testing.assert_array_equal(attnlab.attention(q, k, v, **{name: one}),
                                              attnlab.attention(q, k, v, **{name: whole}))


class Plans(unittest.TestCase):
    def test_what_a_plan_says(self):
        q, k, v = problem()
        plan = attnlab.Plan(q, k, v, "longformer:window=16", causal=True, threads=1)
        self.assertRegex(plan.spec, "^longformer:window=16,dilation=1,global=0")
        self.assertGreater(plan.cost.mul_add, 0)
        self.assertGreater(plan.work_bytes, 0)
        self.assertGreater(plan.bytes, 0)
        self.assertIn(plan.spec, repr(plan))
        scalar = attnlab.Plan(q, k, v, isa="scalar")
        self.assertEqual(scalar.isa, "scalar")

    def test_a_plan_is_what_a_call_makes(self):
        q, k, v = problem()
        plan = attnlab.Plan(q, k, v, "performer:features=32", causal=True)
        np.testing.assert_array_equal(plan(q, k, v), attnlab.attention(q, k, v, "performer:features=32", causal=True))
        other = np.repeat(k, 2, 1)
        np.testing.assert_array_equal(plan(other, k, v), attnlab.attention(other, k, v, "performer:features=32", causal=True))

    def test_other_tensors_are_refused(self):
        q, k, v = problem()
        plan = attnlab.Plan(q, k, v)
        strided = other_layout(k).swapaxes(1, 2)
        for given, name in ((q[:1], k[:1], v[:1]), "q"), ((q, strided, v), "k"), ((q, k, v[..., :3]), "v"):
            with self.assertRaisesRegex(ValueError, f"^{name}: shape, strides and type"):
                plan(*given)
        with self.assertRaisesRegex(ValueError, "^out: shape"):
            plan(q, k, v, out=np.empty((BATCH, N, HEADS, D), "f4").swapaxes(1, 2))

    def test_a_bias_is_read_by_each_call(self):
        q, k, v = problem()
        bias = oracle.draw(8, N, N)
        plan = attnlab.Plan(q, k, v, bias=bias)
        before = plan(q, k, v)
        bias[:] = 0
        np.testing.assert_array_equal(plan(q, k, v), attnlab.attention(q, k, v, bias=np.zeros((N, N), "f4")))
        self.assertTrue((plan(q, k, v) != before).any())

    def test_a_plan_keeps_what_it_reads(self):
        q, k, v = problem()
        plan = attnlab.Plan(q, k, v, mask=np.tri(N, dtype=bool))
        gc.collect()
        rubbish = [np.full((N, N), np.nan, "f4") for _ in range(50)]
        np.testing.assert_array_equal(plan(q, k, v), attnlab.attention(q, k, v, mask=np.tri(N, dtype=bool)))
        del rubbish

    def test_calls_do_not_share_arrays(self):
        q, k, v = problem()
        for name, values in (("mask", [np.tri(N, dtype=bool), np.ones((N, N), bool)]), ("sink", [[0, 0, 0, 0], [5, 5, 5, 5]]),
                             ("bias", [np.zeros((N, N)), oracle.draw(9, N, N, dtype="f8")]), ("alibi", [True, False])):
            first, second = (attnlab.attention(q, k, v, **{name: value}) for value in values)
            self.assertTrue((first != second).any(), name)

    def test_threads(self):
        q, k, v = problem(n_q=400, n_kv=400)
        plan = attnlab.Plan(q, k, v, "full", threads=1)  # which writes its weights to work memory
        want = plan(q, k, v)
        same = []

        def call():
            same.append(all(np.array_equal(plan(q, k, v), want) for _ in range(5)))

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(same, [True] * 8)

    def test_kept_plans_are_few(self):
        q, k, v = problem()
        for i in range(2 * compute.KEPT_PLANS):
            attnlab.attention(q, k, v, scale=2.0 + i)
        self.assertLessEqual(len(compute._plans), compute.KEPT_PLANS)


def python(code, **environment):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], env={**os.environ, **environment}, text=True,
                          capture_output=True, check=False)


class Module(unittest.TestCase):
    def test_import_brings_in_nothing(self):
        done = python("import attnlab, sys; print({'numpy', 'torch', 'pandas', 'h5py', 'matplotlib'} & set(sys.modules))",
                      ATTNLAB_LIBRARY="/nowhere")
        self.assertEqual((done.stdout, done.stderr), ("set()\n", ""))

    def test_without_a_library(self):
        done = python("import attnlab; attnlab.variants()", ATTNLAB_LIBRARY="/nowhere/libattn.so")
        self.assertRegex(done.stderr, "ImportError: /nowhere/libattn.so: ")
        done = python("import attnlab; attnlab.describe('tiled')", ATTNLAB_PROGRAM="/nowhere/attnlab")
        self.assertRegex(done.stderr, "FileNotFoundError.*/nowhere/attnlab")

    def test_finds_the_source_tree(self):
        code = "from attnlab import library, program; print(library.library_path(), program.program_path())"
        done = python(code, ATTNLAB_LIBRARY="", ATTNLAB_PROGRAM="")
        tree = pathlib.Path(__file__).resolve().parents[2] / "build"
        if any(b.name not in library.NOT_FOR_USE for b in tree.glob("*") if (b / "core" / "libattn.so").exists()):
            for path in done.stdout.split():
                self.assertTrue(path.startswith(f"{tree}/"), path)

    def test_interfaces_must_agree(self):
        @contextlib.contextmanager
        def fresh():
            library.library.cache_clear()
            yield
            library.library.cache_clear()

        abi = library.ABI
        with fresh(), mock.patch.object(library, "ABI", 3), \
                self.assertRaisesRegex(ImportError, f"interface {abi}, .* for 3"):
            attnlab.variants()
        with fresh(), mock.patch.dict(library.STRUCTS, problem=library.Stride), \
                self.assertRaisesRegex(ImportError, "attn_problem has"):
            attnlab.variants()
        self.assertIn("tiled", attnlab.variants())

    def test_variants_and_descriptions(self):
        self.assertGreaterEqual(set(attnlab.variants()), {"full", "tiled", "longformer", "performer"})
        self.assertRegex(attnlab.version(), r"^\d+\.\d+\.\d+$")
        about = attnlab.describe("longformer")
        self.assertEqual((about["name"], about["parameters"][0]["name"]), ("longformer", "window"))
        self.assertRegex(str(about), "^longformer: .*\n(.*\n)*  window=256")
        with self.assertRaisesRegex(attnlab.Error, "'longfomer'.*longformer") as caught:
            attnlab.describe("longfomer")
        self.assertEqual(caught.exception.status, "exit 2")

    def test_names_are_no_options(self):
        for name in "--help", "--plugin=/nowhere.so", "-x":
            with self.assertRaisesRegex(attnlab.Error, f"'{name}'"):
                attnlab.describe(name)
            with self.assertRaisesRegex(attnlab.Error, name):
                attnlab.advise(*problem(), name)
        with self.assertRaisesRegex(TypeError, "^3 is a int"):
            attnlab.describe(3)

    def test_saved_tensors(self):
        q, k, v = problem()
        with tempfile.TemporaryDirectory() as folder:
            path, out = pathlib.Path(folder, "qkv.npz"), pathlib.Path(folder, "o.npy")
            for given in {}, {"layout": "bnhd"}:
                arrays = map(other_layout, (q, k, v)) if given else (q, k, v)
                attnlab.save(path, *arrays, **given)
                subprocess.run([os.environ["ATTNLAB_PROGRAM"], "apply", "tiled", "--in", path, "-o", out], check=True)
                np.testing.assert_array_equal(np.load(out), attnlab.attention(q, k, v))
            with self.assertRaisesRegex(ValueError, r"qkv.h5: expected a name that ends with .npz"):
                attnlab.save(path.with_suffix(".h5"), q, k, v)

    def test_saved_numbers_of_16_bits(self):
        class Bfloat16:
            """As an array of ml_dtypes, which Debian has not, shows itself to NumPy's interface."""
            dtype = "bfloat16"

            def __init__(self, bits):
                self.bits, self.__array_interface__ = bits, {**bits.__array_interface__, "typestr": "<V2"}

            def astype(self, kind):
                return (self.bits.astype("u4") << 16).view("f4").astype(kind)

        bits = np.arange(2**16, dtype="u2").reshape(1, 1, 2**10, 2**6)
        with tempfile.TemporaryDirectory() as folder:
            for x in Bfloat16(bits), bits.view("f2"):
                attnlab.save(pathlib.Path(folder, "x.npz"), x, x, x)
                saved = np.load(pathlib.Path(folder, "x.npz"))["v"]
                self.assertEqual(saved.dtype, np.float32)
                np.testing.assert_array_equal(saved, x.astype("f4"))

    def test_advice(self):
        q, k, v = problem()
        mask = np.tri(N, dtype=bool) & (np.arange(N) % 5 != 2)
        asked = {"error": 0.3, "limit": 60, "threads": 1}
        for target in {"causal": True}, {"mask": mask}, {"mask": "documents:0+30", "causal": True}, \
                {"bias": oracle.draw(8, N, N), "softcap": 5.0, "alibi": True, "sink": [0, 1, 2, 0]}:
            advice = attnlab.advise(q, k, v, "longformer", "topk", **asked, **target)
            names = [row["spec"].partition(":")[0] for row in advice["settings"]]
            # A mask of several runs of keys a query is a graph, which keys that are selected do not combine with.
            self.assertEqual(names, ["longformer"] if target.get("mask") is mask else ["longformer", "topk"])
            self.assertTrue(advice["best"] is None or advice["best"] in [row["spec"] for row in advice["settings"]])
            exact = attnlab.attention(*(x.astype("f8") for x in (q, k, v)), **target)
            for row in advice["settings"]:
                got = attnlab.attention(q, k, v, row["spec"], **target)
                error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
                # Either norm is that of rows which are off by no more than the oracle's tolerance.
                allowed = oracle.tolerance(q, k, v, bias=8) * np.sqrt(got.size) / np.linalg.norm(exact)
                self.assertTrue(abs(row["error"] - error) <= allowed, (row["spec"], row["error"], error))
                self.assertEqual(row["within"], row["error"] <= 0.3)
        other = attnlab.advise(*map(other_layout, (q, k, v)), "topk:k=4", layout="bnhd", **asked)
        self.assertEqual([other["input"][name] for name in ("batch", "heads", "kv_heads", "n_q")], [BATCH, HEADS, KV_HEADS, N])
        with self.assertRaisesRegex(attnlab.Error, "topkk.*topk") as caught:
            attnlab.advise(q, k, v, "topkk")
        self.assertEqual(caught.exception.status, "exit 2")

    def test_plugins(self):
        plugin = pathlib.Path(os.environ["ATTNLAB_BUILD"], "tests", "plugins", "template.so")
        use = ("import numpy as np; x = np.ones((1, 1, 8, 4), 'f4')\n"
               "assert 'template' in attnlab.variants()\n"
               "assert (attnlab.attention(x, x, x, 'template') == 1).all()\n"
               "print(attnlab.describe('template')['name'])")
        done = python(f"import attnlab; attnlab.load_plugin({str(plugin)!r})\n{use}")
        self.assertEqual(done.stdout, "template\n", done.stderr)
        done = python(f"import attnlab\n{use}", ATTN_PLUGIN_PATH=str(plugin))
        self.assertEqual(done.stdout, "template\n", done.stderr)
        for path in "/nowhere.so", os.environ["ATTNLAB_LIBRARY"]:
            with self.assertRaises(attnlab.Error):
                attnlab.load_plugin(path)
