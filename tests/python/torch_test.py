"""PyTorch: its tensors without copies, its types, its operator; and the contract of Hugging Face, on a stand-in."""
import gc
import os
import pathlib
import tempfile
import unittest

import numpy as np
import torch

import attnlab
import attnlab.torch
import oracle
import stand_in
from attnlab import judged_gradients, tensors
from attnlab.claims import Claims
from attnlab.compute import Operands
from attnlab.serve import Function

BATCH, HEADS, KV_HEADS, N, D = 2, 4, 2, 67, 24


def problem(dtype=torch.float32):
    return [torch.from_numpy(oracle.draw(i, BATCH, h, N, D)).to(dtype) for i, h in enumerate((HEADS, KV_HEADS, KV_HEADS))]


class Tensors(unittest.TestCase):
    def test_values(self):
        for dtype in torch.float32, torch.float64:
            q, k, v = problem(dtype)
            got = attnlab.attention(q, k, v, causal=True)
            self.assertIs(got.dtype, dtype)
            arrays = [x.numpy() for x in (q, k, v)]
            worst = abs(got.numpy() - oracle.attention(*arrays, oracle.triangle(N, N))).max()
            self.assertTrue(worst <= oracle.tolerance(*arrays), worst)

    def test_narrow_types(self):
        for dtype in torch.float16, torch.bfloat16:
            q, k, v = problem(dtype)
            got = attnlab.attention(q, k, v)
            self.assertIs(got.dtype, dtype)
            want = attnlab.attention(q.float(), k.float(), v.float()).to(dtype)
            self.assertTrue(torch.equal(got, want))
            out = torch.full_like(q, float("nan"))
            self.assertIs(attnlab.attention(q, k, v, out=out), out)
            self.assertTrue(torch.equal(out, want))
            operands = Operands(q, k, v, out, "bhnd")
            for x, seen in zip((q, k, v, out), (operands.q, operands.k, operands.v, operands.o)):
                self.assertEqual(seen.place.address, x.data_ptr())
            bnhd = attnlab.attention(*(x.transpose(1, 2).contiguous() for x in (q, k, v)), layout="bnhd")
            self.assertTrue(torch.equal(bnhd.transpose(1, 2), want))
        self.assertEqual(attnlab.matrix(q, k).dtype, np.float32)

    def test_every_bfloat16_is_saved(self):
        x = torch.arange(-2**15, 2**15, dtype=torch.int16).view(torch.bfloat16).reshape(1, 1, 2**10, 2**6)
        with tempfile.TemporaryDirectory() as folder:
            attnlab.save(f"{folder}/x.npz", x, x, x)
            saved = np.load(f"{folder}/x.npz")["k"]
        bits = x.view(torch.int16).numpy().astype("u2").astype("u4") << 16
        np.testing.assert_array_equal(saved, bits.view("f4"))

    def test_nothing_is_copied(self):
        packed = torch.randn(BATCH, N, 3, HEADS, D)
        views = [packed[:, :, i].transpose(1, 2) for i in range(3)]
        for given in problem(), views, [x[:, 1:3, 5:] for x in views]:
            operands = Operands(*given, None, "bhnd")
            for x, seen in zip(given, (operands.q, operands.k, operands.v)):
                self.assertEqual(seen.place.address, x.data_ptr())
                self.assertEqual((seen.stride.batch, seen.stride.head, seen.stride.row), x.stride()[:3])
        want = attnlab.attention(*(x.contiguous() for x in views), causal=True)
        self.assertTrue(torch.equal(attnlab.attention(*views, causal=True), want))

    def test_out_lse_masks_and_plans(self):
        q, k, v = problem()
        want, lse = attnlab.attention(q, k, v, causal=True, return_lse=True)
        self.assertEqual((lse.dtype, tuple(lse.shape)), (torch.float64, (BATCH, HEADS, N)))
        out = torch.empty(BATCH, N, HEADS, D).transpose(1, 2)
        self.assertIs(attnlab.attention(q, k, v, causal=True, out=out), out)
        self.assertTrue(torch.equal(out, want))
        self.assertTrue(torch.equal(attnlab.Plan(q, k, v, causal=True)(q, k, v), want))
        seen = torch.ones(N, N, dtype=torch.bool).tril()
        masked = attnlab.attention(q, k, v, mask=seen)
        self.assertTrue((masked - want).abs().max() <= oracle.tolerance(*(x.numpy() for x in (q, k, v))))
        self.assertTrue(torch.equal(attnlab.attention(q, k, v, bias=torch.zeros(N, N).masked_fill(~seen, -torch.inf)), masked))
        self.assertTrue(torch.equal(attnlab.attention(q, k, v, kv_len=torch.tensor([N, N])), attnlab.attention(q, k, v)))

    def test_refusals(self):
        q, k, v = problem()
        for given, kind, words in (((q, k.requires_grad_(), v), TypeError, r"k requires a gradient.*attnlab\.torch\.attention.*detach\(\)"),
                                   ((q.to("meta"), k, v), TypeError, "q is not in the memory of the CPU"),
                                   ((q.int(), k, v), TypeError, "q is of torch.int32"),
                                   ((q.byte(), k, v), TypeError, "q is of torch.uint8"),
                                   ((q.double(), k.detach(), v), TypeError, "k is .* float32, but q is .* float64")):
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                attnlab.attention(*given)

    def test_without_gradients(self):
        q, k, v = problem()
        want = attnlab.attention(q, k, v)
        for off in torch.no_grad, torch.inference_mode:
            with off():
                for given in (torch.nn.Parameter(q), k, v), (q, k.clone().requires_grad_(), v.half().float()), \
                        [torch.nn.Parameter(x) for x in (q, k, v)]:
                    got = attnlab.attention(*given)
                    self.assertFalse(got.requires_grad)
                    if given[2] is v:
                        self.assertTrue(torch.equal(got, want))
                self.assertTrue(torch.equal(torch.ops.attnlab.attention(torch.nn.Parameter(q), k, v), want))
                half = attnlab.attention(*(torch.nn.Parameter(x.half()) for x in (q, k, v)))
                self.assertTrue(torch.equal(half, attnlab.attention(q.half(), k.half(), v.half())))

    def test_gradients_without_a_log_sum_exp(self):
        given = [x.clone().requires_grad_() for x in problem()]
        attnlab.torch.attention(*given, "recurrent", causal=True).square().sum().backward()
        values = [x.detach() for x in given]
        want = attnlab.backward(*values, 2 * attnlab.attention(*values, "recurrent", causal=True), "recurrent", causal=True)
        self.assertTrue(all(torch.equal(x.grad, y) for x, y in zip(given, want)))
        with self.assertRaisesRegex(attnlab.Error, "^variant recurrent: gives no log-sum-exp"):
            attnlab.torch.attention(*given, "recurrent", causal=True, return_lse=True)

    def test_gradients_of_sinks_are_refused(self):
        q, k, v = problem()
        sink = torch.zeros(HEADS, requires_grad=True)
        with self.assertRaisesRegex(TypeError, "^sink requires a gradient"):
            attnlab.attention(q, k, v, sink=sink)
        with torch.no_grad():
            self.assertTrue(torch.equal(attnlab.attention(q, k, v, sink=sink), attnlab.attention(q, k, v, sink=0)))

    def test_signs_that_are_put_off(self):
        q, k, v = problem()
        want = attnlab.attention(-q, k, v)
        self.assertTrue(torch.equal(attnlab.attention(torch._neg_view(q), k, v), want))
        half = attnlab.attention(torch._neg_view(q.half()), k.half(), v.half())
        self.assertTrue(torch.equal(half, attnlab.attention(-q.half(), k.half(), v.half())))
        bias = torch.from_numpy(oracle.draw(9, N, N))
        self.assertTrue(torch.equal(attnlab.attention(q, k, v, bias=torch._neg_view(bias)), attnlab.attention(q, k, v, bias=-bias)))
        self.assertTrue(torch.equal(attnlab.attention(q, k, v, bias=torch._neg_view(bias.t())),
                                    attnlab.attention(q, k, v, bias=-bias.t())))
        np.testing.assert_array_equal(attnlab.matrix(torch._neg_view(q), k), attnlab.matrix(-q, k))
        with self.assertRaisesRegex(ValueError, "^out is .*read-only"):
            attnlab.attention(q, k, v, out=torch._neg_view(torch.empty_like(q)))

    def test_tangents_are_refused(self):
        q, k, v = problem()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(k, torch.ones_like(k))
            with torch.no_grad(), self.assertRaisesRegex(TypeError, "^k has a tangent"):
                attnlab.attention(q, dual, v)

    def test_tensors_are_given_back(self):
        def resident():
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

        def use(times):
            for _ in range(times):
                x = torch.ones(1, 1, 16, 1 << 16)  # 4 MiB
                tensors.look_at(x, "x")
                attnlab.attention(x[..., :8], x[..., :8], x[..., :8])

        use(5)
        before = resident()
        use(100)
        self.assertLess(resident() - before, 100 << 20)


class Operator(unittest.TestCase):
    def test_attention(self):
        q, k, v = problem()
        got = torch.ops.attnlab.attention(q, k, v, "longformer:window=16", causal=True, scale=0.3)
        self.assertTrue(torch.equal(got, attnlab.attention(q, k, v, "longformer:window=16", causal=True, scale=0.3)))
        other = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        self.assertTrue(torch.equal(torch.ops.attnlab.attention(*other, layout="bnhd").transpose(1, 2),
                                    torch.ops.attnlab.attention(q, k, v)))

    @unittest.skipIf(torch.__version__.startswith("1."), "meta tensors need PyTorch 2")
    def test_shapes_alone(self):
        q, k, v = (x.to("meta") for x in problem())
        self.assertEqual(torch.ops.attnlab.attention(q, k, v[..., :5]).shape, (BATCH, HEADS, N, 5))


class HuggingFace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stand_in.install()
        stand_in.attention_interface.register("eager", stand_in.eager)
        stand_in.mask_interface.register("eager", stand_in.eager_mask)
        cls.model = stand_in.Model()
        torch.manual_seed(1)
        cls.x = torch.randn(2, 40, 48)

    def run_model(self, spec, x=None, mask=attnlab.torch.hf_mask, attention_mask=None, cache=None, **where):
        stand_in.attention_interface.register("attnlab", attnlab.torch.hf_attention(spec, **where))
        stand_in.mask_interface.register("attnlab", mask)
        with torch.no_grad():
            return self.model(self.x if x is None else x, "attnlab", attention_mask, cache)

    def eager(self, x=None, attention_mask=None, cache=None):
        with torch.no_grad():
            return self.model(self.x if x is None else x, "eager", attention_mask, cache)

    def test_prefill(self):
        for mask in attnlab.torch.hf_mask, stand_in.eager_mask:
            torch.testing.assert_close(self.run_model("tiled", mask=mask), self.eager(), rtol=1e-5, atol=1e-5)
        # Performers take no masks: what is causal and no more must not reach them as one.
        performer = self.run_model("performer:features=32")
        self.assertTrue(torch.equal(self.run_model("performer:features=32", mask=stand_in.eager_mask), performer))

    def test_padding(self):
        here = torch.ones(2, 40, dtype=torch.long)
        here[1, :7] = 0
        want = self.eager(attention_mask=here)
        for mask in attnlab.torch.hf_mask, stand_in.eager_mask:
            got = self.run_model("tiled", mask=mask, attention_mask=here)
            torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(got[1, 7:], want[1, 7:], rtol=1e-5, atol=1e-5)

    def test_decoding(self):
        want = self.eager()
        for sizes in [30] + 10 * [1], [30, 10]:
            cache, got = {}, []
            for part in self.x.split(sizes, 1):
                got.append(self.run_model("tiled", part, cache=cache))
            torch.testing.assert_close(torch.cat(got, 1), want, rtol=1e-5, atol=1e-5)
        cache = {}  # the second part's mask is causal and no more, which performers take
        parts = [self.run_model("performer:features=32", part, cache=cache) for part in self.x.split([30, 10], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), self.run_model("performer:features=32"), rtol=1e-3, atol=1e-3)

    def test_layers_and_phases(self):
        exact, window = self.run_model("tiled"), self.run_model("streaming:window=4,sink=0")
        self.assertFalse(torch.allclose(exact, window, atol=1e-2))
        first = self.run_model("streaming:window=4,sink=0", layers=[0])
        for other in exact, window:
            self.assertFalse(torch.allclose(first, other, atol=1e-3))
        named = self.run_model("streaming:window=4,sink=0@0\n")  # as a file has it
        self.assertTrue(torch.equal(named, first))
        both = self.run_model("streaming:window=4,sink=0@0;tiled@1-2,3")
        self.assertTrue(torch.equal(both, first))
        with self.assertRaisesRegex(ValueError, "expected layers for each variant"):
            attnlab.torch.hf_attention("tiled;streaming@0")
        with self.assertRaisesRegex(TypeError, "k requires a gradient"):
            attnlab.Cache(heads=1, d=4).append(torch.zeros(1, 1, 1, 4, requires_grad=True), torch.zeros(1, 1, 1, 4))
        for layers in "3-1", "0,,1", "0-2,1":
            with self.assertRaisesRegex(ValueError, "expected layers such as"):
                attnlab.torch.hf_attention(f"topk:k=4@{layers}")
        self.assertTrue(torch.equal(self.run_model("streaming:window=4,sink=0", layers=[]), exact))
        self.assertTrue(torch.equal(self.run_model("streaming:window=4,sink=0", phase="decode"), exact))
        self.assertTrue(torch.equal(self.run_model("streaming:window=4,sink=0", phase="prefill"), window))
        cache = {}
        self.run_model("streaming:window=4,sink=0", self.x[:, :39], cache=cache, phase="decode")
        got = self.run_model("streaming:window=4,sink=0", self.x[:, 39:], cache=cache, phase="decode")
        self.assertFalse(torch.allclose(got, exact[:, 39:], atol=1e-3))

    def test_bfloat16_and_a_mask_of_numbers(self):
        module = self.model.layers[0]
        q, k, v = (x.bfloat16() for x in problem())
        forward = attnlab.torch.hf_attention("tiled")
        out, weights = forward(module, q, k, v, None, scaling=D**-0.5)
        self.assertEqual((out.dtype, tuple(out.shape), weights), (torch.bfloat16, (BATCH, N, HEADS, D), None))
        self.assertTrue(torch.equal(out.transpose(1, 2), attnlab.attention(q, k, v, causal=True)))
        bias = torch.randn(1, 1, N, N)
        hidden = torch.full((N, N), torch.finfo(torch.float32).min).triu(1)
        for numbers in bias + hidden, (bias + hidden).masked_fill(hidden < 0, -torch.inf):
            got = forward(module, q, k, v, numbers, scaling=D**-0.5)[0].transpose(1, 2)
            want = attnlab.attention(q, k, v, causal=True, bias=bias)
            self.assertTrue(torch.allclose(got.float(), want.float(), atol=1e-6))
        for one in torch.zeros(BATCH, 1, 1, N), torch.zeros(1, 1, 1, N), torch.ones(BATCH, 1, 1, N, dtype=torch.bool):
            got = forward(module, q, k, v, one, scaling=D**-0.5)[0].transpose(1, 2)
            self.assertTrue(torch.equal(got, attnlab.attention(q, k, v)))
        padded = torch.zeros(BATCH, 1, 1, N)
        padded[1, ..., 50:] = torch.finfo(torch.float32).min
        got = forward(module, q, k, v, padded, scaling=D**-0.5)[0].transpose(1, 2)
        self.assertTrue(torch.allclose(got.float(), attnlab.attention(q, k, v, kv_len=[N, 50]).float(), atol=1e-2))
        capped = forward(module, q, k, v, None, scaling=1.0, softcap=2.0, s_aux=torch.zeros(HEADS))[0].transpose(1, 2)
        self.assertTrue(torch.equal(capped, attnlab.attention(q, k, v, causal=True, scale=1.0, softcap=2.0, sink=0)))

    def test_captured(self):
        """Queries, keys and values of a live model, by layer."""
        captured = {}
        q, k, v = problem()
        attnlab.torch.hf_attention("tiled", captured=captured)(self.model.layers[1], q, k, v, None)
        self.assertEqual(list(captured), [self.model.layers[1].layer_idx])
        got = captured[self.model.layers[1].layer_idx]
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(got, (q, k, v))))
        q.zero_()
        self.assertFalse(torch.equal(got[0], q))

    def test_refusals(self):
        q, k, v = problem()
        with self.assertRaisesRegex(ValueError, "phase='all'"):
            attnlab.torch.hf_attention("tiled", phase="all")
        with self.assertRaisesRegex(ValueError, "dropout=0.1"):
            attnlab.torch.hf_attention("tiled")(self.model.layers[0], q, k, v, None, dropout=0.1)
        for shape in (BATCH + 1, 1, 1, N), (1, HEADS + 1, 1, N), (BATCH, 1, 5, N), (1, 1, 1, N - 1), (1, BATCH, 1, N, N):
            with self.subTest(shape), self.assertRaisesRegex(ValueError, "^attention_mask has the shape"):
                attnlab.torch.hf_attention("tiled")(self.model.layers[0], q, k, v, torch.zeros(shape))
        bias = torch.randn(1, 1, N, N, requires_grad=True)
        with self.assertRaisesRegex(TypeError, r"bias requires a gradient.*torch.no_grad\(\)"):
            attnlab.attention(q, k, v, bias=bias)
        attnlab.torch.hf_attention("tiled")(self.model.layers[0], q, k, v, bias)[0].sum().backward()
        self.assertEqual(bias.grad.shape, bias.shape)


class WrongBackward(torch.autograd.Function):
    """softmax(q k^T / sqrt(d)) v, whose gradient by k lacks the scale."""
    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            o = torch.softmax(inputs[0] @ inputs[1].transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ inputs[2]
            dq, dk, dv = torch.autograd.grad(o, inputs, grad)
        return dq, dk * q.shape[-1] ** 0.5, dv


class JudgedGradients(unittest.TestCase):
    def judged(self, function, **options):
        return judged_gradients.judge(Function(function, arrays="torch", **options), Claims())

    def test_wrong(self):
        wrong, reason = self.judged(WrongBackward.apply, causal=False)
        self.assertIsNone(reason)
        self.assertTrue(wrong and all("the gradient by k of" in sentence for sentence in wrong), wrong)

    def test_right(self):
        self.assertEqual(self.judged(lambda q, k, v: torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v), ([], None))
        self.assertEqual(self.judged(lambda q, k, v: attnlab.torch.attention(q, k, v, "tiled", causal=True), causal=True), ([], None))
        turned = [1, 2]
        self.assertEqual(self.judged(lambda q, k, v: (torch.softmax(q.transpose(*turned) @ k.transpose(*turned).mT * q.shape[-1] ** -0.5, -1)
                                                      @ v.transpose(*turned)).transpose(*turned), layout="bnhd"), ([], None))

    def test_none(self):
        found = self.judged(lambda q, k, v: torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1).detach() @ v.detach())
        self.assertEqual(found, ([], "the output requires no gradient"))
