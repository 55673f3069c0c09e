"""backward.py - the backward pass of exact attention: attnlab's beside that of PyTorch's scaled_dot_product_attention (2.0
and later), in one process on the same tensors, in turn.

    PYTHONPATH=core/python python3 experiments/peers/backward.py [--n 4096] [--d 64] [--threads 2] [--rounds 20]

Prints, of one head and of eight, causal and not, the median seconds of both and the geometric mean of their ratio with its
95 % interval (Student's t of the logarithms of the rounds' ratios), and how far the gradients are apart."""
import argparse
import math
import statistics
import time

import torch

import attnlab.torch


def seconds(attend, tensors, upstream):
    """Of the backward pass, and its gradients."""
    o = attend(*tensors)
    start = time.perf_counter()
    found = torch.autograd.grad(o, tensors, upstream)
    return time.perf_counter() - start, found


def ours(q, k, v, causal, threads):
    return attnlab.torch.attention(q, k, v, causal=causal, threads=threads)


def theirs(q, k, v, causal, _):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def compare(heads, causal, o):
    draw = torch.Generator().manual_seed(heads)
    q, k, v, upstream = (torch.randn(1, heads, o.n, o.d, generator=draw) for _ in range(4))
    tensors = [x.requires_grad_() for x in (q, k, v)]
    times, logs = {ours: [], theirs: []}, []
    for each in range(-2, o.rounds):  # the first two are not counted
        found = {}
        for attend in (ours, theirs) if each % 2 else (theirs, ours):
            spent, found[attend] = seconds(lambda *x: attend(*x, causal, o.threads), tensors, upstream)
            times[attend].append(spent)
        if each < 0:
            times = {ours: [], theirs: []}
        else:
            logs.append(math.log(times[theirs][-1] / times[ours][-1]))
    apart = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found[ours], found[theirs]))
    mean, reach = statistics.mean(logs), 2.1 * statistics.stdev(logs) / math.sqrt(len(logs))
    rate = heads * o.n * (o.n + 1 if causal else 2 * o.n) / 2 * 10 * o.d / statistics.median(times[ours]) / 1e9
    print(f"| {heads} | {'causal' if causal else ''} | {statistics.median(times[ours]):.3g} | {rate:.0f} | "
          f"{statistics.median(times[theirs]):.3g} | {math.exp(mean):.2f} ({math.exp(mean - reach):.2f}-{math.exp(mean + reach):.2f}) | {apart:.1e} |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("n", 4096), ("d", 64), ("threads", 2), ("rounds", 20)):
        options.add_argument(f"--{name}", type=int, default=value)
    o = options.parse_args()
    torch.set_num_threads(o.threads)
    print(f"PyTorch {torch.__version__}, n = {o.n}, d = {o.d}, fp32, {o.threads} threads\n")
    print("| heads | mask | attnlab, s | GFLOP/s | PyTorch, s | attnlab / it | difference |")
    print("|------:|:-----|-----------:|--------:|-----------:|-------------:|-----------:|")
    for heads in (1, 8):
        for causal in (False, True):
            compare(heads, causal, o)


main()
