#!/usr/bin/python3
"""torch_module.py [SPEC...] - swaps the attention of a PyTorch module, and says what that does to its output.

    PYTHONPATH=core/python python3 experiments/examples/torch_module.py longformer:window=64 performer:features=256

A model of Hugging Face takes attnlab.torch.hf_attention instead (experiments/docs/python.md)."""
import sys

import torch

import attnlab


def softmax_attention(q, k, v):
    """Exact and causal: what the module was written with."""
    n = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf), -1) @ v


class SelfAttention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.attend = softmax_attention  # the one line to swap

    def forward(self, x):
        # [batch, n, 3, heads, d]: three views, whose strides attnlab reads as they are
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        o = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(o.transpose(1, 2).flatten(2))


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


def swap(model, spec):
    """Every SelfAttention of the model computes this variant from now on."""
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.attend = lambda q, k, v: attnlab.attention(q, k, v, spec, causal=True)


torch.manual_seed(0)
model = torch.nn.Sequential(*(Block(width=128, heads=4) for _ in range(3))).eval()
x = torch.randn(2, 512, 128)
with torch.no_grad():  # only attnlab.torch.attention records gradients
    before = model(x)
    for spec in ["tiled", *(sys.argv[1:] or ["longformer:window=64"])]:
        swap(model, spec)
        change = (model(x) - before).norm() / before.norm()
        print(f"{spec:40}  output changed by {change:.1e}")
