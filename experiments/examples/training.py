#!/usr/bin/python3
"""training.py [SPEC...] - trains a model of two layers with the attention of each variant, from the same weights and on the
same data, and says how far its losses are from those of attention by formula.

    PYTHONPATH=core/python python3 experiments/examples/training.py longformer:window=16 topk:k=8

The task: 24 random letters, and then the same ones again, which have to be predicted. A window of 16 letters does not
reach back to them."""
import sys

import torch

import attnlab.torch

LETTERS, HALF, WIDTH, HEADS, BATCH, STEPS = 16, 24, 64, 4, 16, 100


def formula(q, k, v):
    """Exact and causal, as autograd differentiates it."""
    n = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf), -1) @ v


class Model(torch.nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.letters = torch.nn.Embedding(LETTERS, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(2 * HALF, WIDTH) / 2)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, LETTERS)

    def forward(self, text):
        x = self.letters(text) + self.places[:text.shape[1]]
        for norm, qkv, out in zip(self.norms, self.qkv, self.out):
            q, k, v = qkv(norm(x)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return self.head(self.norms[2](x))


def losses(attend):
    torch.manual_seed(0)
    model = Model(attend)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    curve = []
    for _ in range(STEPS):
        text = torch.randint(LETTERS, (BATCH, HALF)).repeat(1, 2)
        predicted = model(text[:, :-1])[:, HALF - 1:]
        loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), text[:, HALF:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        curve.append(loss.item())
    return curve


exact = losses(formula)
print(f"{'by formula':32}  loss {exact[0]:.3f} ... {exact[-1]:.3f}")
for spec in ["tiled", *(sys.argv[1:] or ["longformer:window=16"])]:
    curve = losses(lambda q, k, v: attnlab.torch.attention(q, k, v, spec, causal=True))
    apart = max(abs(a - b) / b for a, b in zip(curve, exact))
    print(f"{spec:32}  loss {curve[0]:.3f} ... {curve[-1]:.3f}  losses apart by {apart:.1e} at most")
