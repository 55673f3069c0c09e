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


def attend(q, k, v, causal=False, hidden=None, value=float("-inf"), axis=-1, dropout=0.0):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(later(q, k) if hidden is None else hidden, value)
    return torch.nn.functional.dropout(torch.softmax(s, axis), dropout) @ v


# -- wrong --

wrong("dropout left on, PyTorch", "torch_dropout", lambda q, k, v, causal=False: attend(q, k, v, causal, dropout=0.1))
wrong("q scaled in place, PyTorch", "torch_in_place", lambda q, k, v, causal=False:
      attend(q.div_(math.sqrt(q.shape[-1])) * math.sqrt(q.shape[-1]), k, v, causal))
wrong("the softmax of the dimension before the last", "torch_dimension", lambda q, k, v, causal=False:
      attend(q, k, v, causal, value=-1e9, axis=-2))
wrong("the diagonal of triu(0) hides each query's own key", "torch_diagonal", lambda q, k, v, causal=False: attend(
    q, k, v, causal, torch.ones(q.shape[2], k.shape[2]).triu(k.shape[2] - q.shape[2]).bool(), value=-1e9))
wrong("bfloat16 inside, float32 outside", "torch_bfloat16_inside", lambda q, k, v, causal=False:
      attend(*(x.bfloat16() for x in (q, k, v)), causal).to(q.dtype))
wrong("bfloat16 throughout, scale missing", "torch_bfloat16_unscaled", lambda q, k, v, causal=False:
      attend((q * math.sqrt(q.shape[-1])).bfloat16(), k.bfloat16(), v.bfloat16(), causal))


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


wrong("a module in training mode", "torch_training", TorchTraining())


# -- right --

right("masked_fill", "torch_masked_fill", lambda q, k, v, is_causal=False: attend(q, k, v, is_causal))
right("autograd on, keywords unused", "torch_with_gradient", lambda q, k, v, causal=False, **_:
      attend(*(x.requires_grad_() for x in (q, k, v)), causal))
right("bfloat16 throughout", "torch_bfloat16", lambda q, k, v, causal=False: attend(*(x.bfloat16() for x in (q, k, v)), causal))


@right("repeat_interleave and baddbmm")
def torch_baddbmm(q, k, v, causal=False):
    b, h, n, d = q.shape
    k, v = (x.repeat_interleave(h // x.shape[1], 1).flatten(0, 1) for x in (k, v))
    mask = torch.zeros(n, k.shape[1], dtype=q.dtype)
    mask = mask.masked_fill(later(q, k), -1e9) if causal else mask
    s = torch.baddbmm(mask.expand(b * h, -1, -1), q.flatten(0, 1), k.mT, alpha=d ** -0.5)
    return torch.bmm(s.softmax(-1), v).unflatten(0, (b, h))


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


right("a module", "torch_module", Module())
right("a scripted module", "torch_script", torch.jit.script(Module()))
if FUSED:
    right("PyTorch's own, its mask begins at the first key", "torch_fused", FUSED)
    right("PyTorch's own with a mask of its bottom right", "torch_fused_masked", lambda q, k, v, causal=False:
          FUSED(q, k, v, attn_mask=~later(q, k) if causal else None))

    @right("PyTorch's own in bfloat16, shared heads")
    def torch_fused_bfloat16(q, k, v, causal=False):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        return FUSED(*(x.bfloat16() for x in (q, k, v)), is_causal=causal)
