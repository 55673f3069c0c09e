"""Functions of PyTorch for the judge, wrong and right ones: WRONG_TORCH and RIGHT_TORCH of Candidates."""
import math

import torch

from plain_attention import lister

WRONG_TORCH, RIGHT_TORCH = {}, {}
wrong, right = lister(WRONG_TORCH), lister(RIGHT_TORCH)
FUSED = getattr(torch.nn.functional, "scaled_dot_product_attention", None)  # from PyTorch 2.0 on


def later(q, k):
    """Which keys stand behind each query."""
    n_q, n_kv = q.shape[-2], k.shape[-2]
    return torch.ones(n_q, n_kv, dtype=torch.bool).triu(1 + n_kv - n_q)


def attend(q, k, v, causal=False, **_):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(later(q, k), float("-inf"))
    return torch.softmax(s, -1) @ v


# -- wrong --

@wrong("dropout left on, PyTorch")
def torch_dropout(q, k, v, causal=False):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(later(q, k), float("-inf")) if causal else s
    return torch.nn.functional.dropout(torch.softmax(s, -1), 0.1) @ v


@wrong("q scaled in place, PyTorch")
def torch_in_place(q, k, v, causal=False):
    q.div_(math.sqrt(q.shape[-1]))
    s = q @ k.transpose(-2, -1)
    return torch.softmax(s.masked_fill(later(q, k), float("-inf")) if causal else s, -1) @ v


@wrong("the softmax of the dimension before the last")
def torch_dimension(q, k, v, causal=False):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(later(q, k), -1e9) if causal else s
    return torch.softmax(s, -2) @ v


@wrong("the diagonal of triu(0) hides each query's own key")
def torch_diagonal(q, k, v, causal=False):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    hidden = torch.ones(s.shape[-2:], dtype=torch.bool).triu(s.shape[-1] - s.shape[-2])
    return torch.softmax(s.masked_fill(hidden, -1e9) if causal else s, -1) @ v


@wrong("bfloat16 inside, float32 outside")
def torch_bfloat16_inside(q, k, v, causal=False):
    return attend(*(x.bfloat16() for x in (q, k, v)), causal).to(q.dtype)


@wrong("bfloat16 throughout, scale missing")
def torch_bfloat16_unscaled(q, k, v, causal=False):
    return attend((q * math.sqrt(q.shape[-1])).bfloat16(), k.bfloat16(), v.bfloat16(), causal)


@wrong("repeat in place of repeat_interleave")
def torch_repeat(q, k, v, causal=False):
    k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v))
    return attend(q, k, v, causal)


@wrong("view in place of transpose", layout="bnhd")
def torch_view(q, k, v, causal=False):
    b, n, h, _ = q.shape
    return attend(*(x.reshape(b, h, n, -1) for x in (q, k, v)), causal).reshape(b, n, h, -1)


class TorchTraining(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.2)

    def forward(self, q, k, v, causal=False):
        return self.dropout(attend(q, k, v, causal))


WRONG_TORCH["torch_training"] = WRONG_TORCH["torch_dropout"]._replace(
    function=TorchTraining(), kind="a module in training mode")


# -- right --

@right("masked_fill")
def torch_masked_fill(q, k, v, is_causal=False):
    return attend(q, k, v, is_causal)


@right("autograd on, keywords unused")
def torch_with_gradient(q, k, v, causal=False, **options):
    return attend(*(x.requires_grad_() for x in (q, k, v)), causal, **options)


@right("bfloat16 throughout")
def torch_bfloat16(q, k, v, causal=False):
    return attend(*(x.bfloat16() for x in (q, k, v)), causal)


@right("repeat_interleave and baddbmm")
def torch_baddbmm(q, k, v, causal=False):
    b, h, n, d = q.shape
    k, v = (x.repeat_interleave(h // x.shape[1], 1).flatten(0, 1) for x in (k, v))
    mask = torch.zeros(n, k.shape[1], dtype=q.dtype)
    mask = mask.masked_fill(later(q, k), -1e9) if causal else mask
    s = torch.baddbmm(mask.expand(b * h, -1, -1), q.flatten(0, 1), k.mT, alpha=d ** -0.5)
    return torch.bmm(s.softmax(-1), v).unflatten(0, (b, h))


def add(name, kind, function, **options):
    RIGHT_TORCH[name] = RIGHT_TORCH["torch_masked_fill"]._replace(function=function, kind=kind, options=options)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Softmax(-1)

    def forward(self, q, k, v, is_causal: bool = False):
        s = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        if is_causal:
            n_q, n_kv = s.shape[-2], s.shape[-1]
            s = s + torch.full((n_q, n_kv), float("-inf")).triu(1 + n_kv - n_q)
        return torch.einsum("bhqk,bhkd->bhqd", self.weights(s), v)


add("torch_module", "a module", Module())
add("torch_script", "a scripted module", torch.jit.script(Module()))
if FUSED:
    add("torch_fused", "PyTorch's own, its mask begins at the first key", FUSED)

    @right("PyTorch's own with a mask of its bottom right")
    def torch_fused_masked(q, k, v, causal=False):
        return FUSED(q, k, v, attn_mask=~later(q, k) if causal else None)

    @right("PyTorch's own in bfloat16, shared heads")
    def torch_fused_bfloat16(q, k, v, causal=False):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        return FUSED(*(x.bfloat16() for x in (q, k, v)), is_causal=causal)
