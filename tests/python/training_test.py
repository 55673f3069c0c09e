"""Gradients in PyTorch: gradcheck, upstream gradients of every form, narrow types, models that train, what is refused."""
import unittest

import torch

import attnlab
import attnlab.torch
import oracle
import stand_in

BATCH, HEADS, KV_HEADS, N_Q, N_KV, D, D_V = 2, 4, 2, 7, 9, 3, 5


def problem(dtype=torch.float64, needed=True, n_q=N_Q, n_kv=N_KV, d=D, d_v=D_V):
    shapes = (HEADS, n_q, d), (KV_HEADS, n_kv, d), (KV_HEADS, n_kv, d_v)
    return [torch.from_numpy(oracle.draw(i, BATCH, *shape, dtype="f8")).to(dtype).requires_grad_(needed)
            for i, shape in enumerate(shapes)]


def by_formula(q, k, v, seen=None):
    """The textbook form, as autograd differentiates it; and its weights."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    p = torch.softmax(s if seen is None else s.masked_fill(~seen, -torch.inf), -1)
    return p @ v, p


def gradients(o, inputs, grad_o=None):
    return torch.autograd.grad(o, inputs, torch.ones_like(o) if grad_o is None else grad_o)


class Derivatives(unittest.TestCase):
    def check(self, tensors, **how):
        self.assertTrue(torch.autograd.gradcheck(lambda *x: attnlab.torch.attention(
            *x[:3], threads=1, **dict(zip(("sink", "bias"), x[3:])), **how), tensors))

    def test_exact_attention(self):
        for how in ({}, {"causal": True}, {"causal": True, "kv_len": [N_KV, 4]}, {"softcap": 2.0}, {"leaky": 0.3, "scale": 0.7},
                    {"mask": "documents:0+3+5", "alibi": True}, {"causal": True, "q_position": [0, 2]}):
            with self.subTest(how):
                self.check(problem(), return_lse="kv_len" not in how, **how)  # without keys it is -inf
        self.check([x.transpose(1, 2).detach().requires_grad_() for x in problem()], layout="bnhd")
        self.check([x[0, 0].detach().requires_grad_() for x in problem()])

    def test_sinks(self):
        for sink in torch.linspace(-1, 1, HEADS, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64):
            self.check([*problem(), sink.requires_grad_()], causal=True, return_lse=True)

    def test_biases(self):
        for shape in (N_Q, N_KV), (1, HEADS, N_Q, N_KV), (BATCH, 1, 1, N_KV):
            bias = torch.linspace(-1, 1, torch.tensor(shape).prod(), dtype=torch.float64).reshape(shape).requires_grad_()
            with self.subTest(shape):
                self.check([*problem(), None, bias], causal=True, softcap=2.0, return_lse=True)
        q, k, v = problem(torch.float32, needed=False)
        bias = torch.randn(N_Q, N_KV, requires_grad=True)
        by, = torch.autograd.grad(attnlab.torch.attention(q, k, v, "full", bias=bias).square().sum(), bias)
        self.assertEqual((by.dtype, by.shape, bool(by.any())), (bias.dtype, bias.shape, True))

    def test_patterns_and_selections(self):
        self.check(problem(n_kv=N_Q), spec="longformer:window=4,global=1", causal=True, return_lse=True)
        q, k, v = problem(n_q=6, n_kv=12)
        s = (q @ k.repeat_interleave(2, 1).transpose(-1, -2)).detach().sort(-1, descending=True)[0]
        self.assertGreater((s[..., 3] - s[..., 4]).min(), 1e-3)  # no step of gradcheck selects another key
        self.check([q, k, v], spec="topk:k=4", return_lse=True)

    def test_features(self):
        for spec in "linear", "linear:feature=dpfp,eps=0.1", "performer:features=8,eps=0.001":
            for causal in True, False:
                with self.subTest(spec, causal=causal):
                    self.check(problem(), spec=spec, causal=causal)
        with self.assertRaisesRegex(attnlab.Error, "^variant linear:? .*log-sum-exp"):
            attnlab.torch.attention(*problem(), "linear", return_lse=True)

    def test_upstream_gradients(self):
        q, k, v = inputs = problem(torch.float32)
        o, lse = attnlab.torch.attention(q, k, v, causal=True, return_lse=True)
        whole = torch.randn(o.shape)
        for of, same in ((torch.tensor(1.0).expand(o.shape), torch.ones_like(o)), (torch._neg_view(whole), -whole),
                         (whole.transpose(1, 2).contiguous().transpose(1, 2), whole), (whole.repeat(1, 1, 1, 2)[..., :D_V], whole),
                         (whole.transpose(2, 3).contiguous().transpose(2, 3), whole),
                         (whole[:1, :1].expand(o.shape), whole[:1, :1].repeat(BATCH, HEADS, 1, 1))):
            for got, want in zip(torch.autograd.grad(o, inputs, of, retain_graph=True),
                                 torch.autograd.grad(o, inputs, same, retain_graph=True)):
                self.assertTrue(torch.equal(got, want))
        alone = torch.autograd.grad(lse.sum(), inputs, retain_graph=True, allow_unused=True)
        both = torch.autograd.grad((o, lse), inputs, (torch.zeros_like(o), torch.ones_like(lse)))
        self.assertTrue(all(map(torch.equal, alone, both)))
        for place, x in enumerate(inputs):  # one alone, and one that is no leaf
            given = [y.detach() for y in inputs]
            given[place] = x.detach().requires_grad_()
            attnlab.torch.attention(*given, causal=True).backward(whole)
            want = attnlab.backward(*(y.detach() for y in inputs), whole, causal=True)[place]
            self.assertTrue(torch.equal(given[place].grad, want))
            self.assertTrue(all(y.grad is None for i, y in enumerate(given) if i != place))

    def test_narrow_types(self):
        """Errors are those of the output that was rounded to the type, which stands in D, and of the result: half an
        epsilon each; those of the fp32 arithmetic are less than a tenth."""
        for dtype in torch.float16, torch.bfloat16:
            inputs = problem(dtype)
            o = attnlab.torch.attention(*inputs)
            of = torch.randn(o.shape, dtype=torch.float64).to(dtype)
            exact = [x.detach().double().requires_grad_() for x in inputs]
            wide, p = by_formula(*exact)
            unit = torch.finfo(dtype).eps / 2 * 1.1
            row = (of.double() * wide).abs().sum(-1, keepdim=True) * p * D**-0.5  # of |D| that reaches each pair
            k = exact[1].repeat_interleave(2, 1)
            of_k = (row.transpose(-1, -2) @ exact[0].abs()).view(BATCH, KV_HEADS, 2, N_KV, D).sum(2)
            for got, want, error in zip(gradients(o, inputs, of), gradients(wide, exact, of.double()), (row @ k.abs(), of_k, 0)):
                self.assertIs(got.dtype, dtype)
                self.assertTrue(((got.double() - want).abs() <= unit * (want.abs() + error) + torch.finfo(dtype).tiny).all())

    def test_operator(self):
        inputs = problem(torch.float32, n_kv=N_Q)
        for how in {"spec": "longformer:window=4", "causal": True}, {"scale": 0.3}:
            o = torch.ops.attnlab.attention(*inputs, **how)
            same = attnlab.torch.attention(*inputs, **how)
            self.assertTrue(torch.equal(o, same) and all(map(torch.equal, gradients(o, inputs), gradients(same, inputs))))
        seen = torch.ones(N_Q, N_Q, dtype=torch.bool).tril()
        for got, want in zip(gradients(torch.ops.attnlab.attention(*inputs, causal=True), inputs),
                             gradients(by_formula(*inputs, seen)[0], inputs)):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            self.assertFalse(torch.ops.attnlab.attention(*inputs).requires_grad)

    def test_plans_outlive_those_that_are_kept(self):
        inputs = problem()
        o = attnlab.torch.attention(*inputs, causal=True)
        want = gradients(attnlab.torch.attention(*inputs, causal=True), inputs)
        for i in range(40):
            attnlab.attention(*(x.detach() for x in inputs), scale=1 + i)
        self.assertTrue(all(map(torch.equal, gradients(o, inputs), want)))


class Models(unittest.TestCase):
    def test_hugging_face(self):
        stand_in.install()
        stand_in.attention_interface.register("eager", stand_in.eager)
        stand_in.mask_interface.register("eager", stand_in.eager_mask)
        stand_in.attention_interface.register("attnlab", attnlab.torch.hf_attention("tiled"))
        stand_in.mask_interface.register("attnlab", attnlab.torch.hf_mask)
        model, x = stand_in.Model(), torch.randn(2, 40, 48)
        here = torch.ones(2, 40, dtype=torch.long)
        here[1, 33:] = 0
        for mask in None, here:
            of = {name: gradients(model(x, name, mask, None)[:, :33].square().mean(), list(model.parameters()))
                  for name in ("eager", "attnlab")}
            for got, want in zip(of["attnlab"], of["eager"]):
                self.assertGreater(want.abs().max(), 0)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))


class Refusals(unittest.TestCase):
    def test_second_derivatives(self):
        q, k, v = problem()
        for place in range(3):
            first = torch.autograd.grad(attnlab.torch.attention(q, k, v).sum(), (q, k, v), create_graph=True)[place]
            with self.assertRaisesRegex(attnlab.Error, "^variant tiled: .*no second derivative"):
                (first.sum() + q.square().sum()).backward()

    def test_what_has_no_gradient(self):
        q, k, v = problem()
        with self.assertRaisesRegex(attnlab.Error, "^variant tiled: no gradient where steps are passed over"):
            attnlab.torch.attention(q, k, v, "tiled:skip=0.001")
        q, k, v = problem(n_q=N_KV, d_v=D)
        for spec in "svd", "cluster", "toeplitz":
            with self.subTest(spec), self.assertRaisesRegex(attnlab.Error, f"^variant {spec}: no gradient[ :]"):
                attnlab.torch.attention(q, k, v, spec)
        with self.assertRaisesRegex(TypeError, "^mask requires a gradient"):
            attnlab.torch.attention(q, k, v, mask=torch.zeros(N_Q, N_KV, requires_grad=True))
        for call in attnlab.torch.attention, torch.ops.attnlab.attention:
            with torch.autograd.forward_ad.dual_level(), self.assertRaisesRegex(TypeError, "^q has a tangent"):
                call(torch.autograd.forward_ad.make_dual(q.detach(), torch.ones_like(q)), k, v)

    def test_tensors_that_were_changed(self):
        q, k, v = problem()
        for change in lambda o: o.mul_(2), lambda o: k.detach().mul_(2):
            o = attnlab.torch.attention(q, k, v)
            change(o)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                o.sum().backward()
