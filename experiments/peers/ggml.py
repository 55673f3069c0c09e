"""ggml.py - one query against long caches of keys and values: attnlab's beside ggml's flash attention
(ggml_flash_attn_ext), in one process on the same numbers, in turn.

    PYTHONPATH=core/python python3 experiments/peers/ggml.py DIRECTORY [--n 65536] [--heads 8] [--threads 2] [--rounds 20]

DIRECTORY has libggml-base.so and libggml-cpu.so, as ggml's CMakeLists.txt builds them with -DBUILD_SHARED_LIBS=ON. Prints, of f16
and q8_0 and heads of 64 and 128, the median milliseconds of both, the geometric mean of the ratio of speeds with its 95 % interval
(Student's t of the logarithms of the rounds' ratios), and how far the outputs are apart."""
import argparse
import ctypes
import math
import pathlib
import statistics
import time
from ctypes import c_bool, c_float, c_int, c_int64, c_size_t, c_void_p

import attnlab
import numpy as np

F32, F16, Q8_0 = 0, 1, 8  # ggml_type
ROOM = 1 << 28  # bytes of a context beside its tensors: each execution takes its working memory from there


class Parameters(ctypes.Structure):
    _fields_ = [("bytes", c_size_t), ("buffer", c_void_p), ("no_alloc", c_bool)]


def load(directory):
    base = ctypes.CDLL(directory / "libggml-base.so", mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(directory / "libggml-cpu.so")
    for name, result, arguments in (
            ("ggml_init", c_void_p, [Parameters]), ("ggml_free", None, [c_void_p]), ("ggml_get_data", c_void_p, [c_void_p]),
            ("ggml_nbytes", c_size_t, [c_void_p]), ("ggml_new_tensor_3d", c_void_p, [c_void_p, c_int] + 3 * [c_int64]),
            ("ggml_flash_attn_ext", c_void_p, 5 * [c_void_p] + 3 * [c_float]), ("ggml_new_graph", c_void_p, [c_void_p]),
            ("ggml_build_forward_expand", None, [c_void_p] * 2),
            ("ggml_quantize_chunk", c_size_t, [c_int, c_void_p, c_void_p] + 3 * [c_int64] + [c_void_p])):
        getattr(base, name).restype, getattr(base, name).argtypes = result, arguments
    cpu.ggml_graph_compute_with_ctx.restype, cpu.ggml_graph_compute_with_ctx.argtypes = c_int, [c_void_p, c_void_p, c_int]
    return base, cpu


class Theirs:
    def __init__(self, libraries, kind, q, k, v, threads):
        self.base, self.cpu = libraries
        self.threads = threads
        heads, n, d = k.shape
        self.context = self.base.ggml_init(Parameters(2 * k.nbytes + ROOM, None, False))
        tensors = [self.base.ggml_new_tensor_3d(self.context, F32 if of is q else kind, d, of.shape[1], heads)
                   for of in (q, k, v)]
        for tensor, of in zip(tensors, (q, k, v)):
            to = self.base.ggml_get_data(tensor)
            if of is q:
                ctypes.memmove(to, of.ctypes.data, of.nbytes)
            else:
                self.base.ggml_quantize_chunk(kind, of.ctypes.data, to, 0, heads * n, d, None)
        self.out = self.base.ggml_flash_attn_ext(self.context, *tensors, None, 1 / math.sqrt(d), 0, 0)
        self.graph = self.base.ggml_new_graph(self.context)
        self.base.ggml_build_forward_expand(self.graph, self.out)
        self.shape = (heads, d)

    def run(self):
        if self.cpu.ggml_graph_compute_with_ctx(self.context, self.graph, self.threads):
            raise RuntimeError("ggml does not compute the graph")

    def output(self):
        floats = ctypes.cast(self.base.ggml_get_data(self.out), ctypes.POINTER(c_float))
        return np.ctypeslib.as_array(floats, self.shape).copy()

    def close(self):
        self.base.ggml_free(self.context)


class Ours:
    def __init__(self, name, q, k, v, threads):
        heads, n, d = k.shape
        self.cache = attnlab.Cache(f"store:k={name},v={name}", heads=heads, d=d, positions=n, threads=threads)
        self.cache.append(k[None], v[None])
        self.q = q[None]

    def run(self):
        self.o = self.cache.attend(self.q)

    def output(self):
        return np.asarray(self.o)[0, :, 0]


def compare(libraries, name, kind, d, o):
    draw = np.random.default_rng(d)
    q, k, v = (draw.standard_normal((o.heads, n, d), dtype=np.float32) for n in (1, o.n, o.n))
    ours, theirs = Ours(name, q, k, v, o.threads), Theirs(libraries, kind, q, k, v, o.threads)
    times, logs = {ours: [], theirs: []}, []
    for each in range(-2, o.rounds):  # the first two are not counted
        for who in (ours, theirs) if each % 2 else (theirs, ours):
            start = time.perf_counter()
            who.run()
            times[who].append(time.perf_counter() - start)
        if each >= 0:
            logs.append(math.log(times[theirs][-1] / times[ours][-1]))
    apart = abs(ours.output() - theirs.output()).max() / abs(ours.output()).max()
    theirs.close()
    mean, reach = statistics.mean(logs), 2.1 * statistics.stdev(logs) / math.sqrt(len(logs))
    print(f"| {name} | {d} | {1e3 * statistics.median(times[ours]):.3g} | {1e3 * statistics.median(times[theirs]):.3g} | "
          f"{math.exp(mean):.2f} ({math.exp(mean - reach):.2f}-{math.exp(mean + reach):.2f}) | {apart:.1e} |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory", type=pathlib.Path)
    for name, value in (("n", 65536), ("heads", 8), ("threads", 2), ("rounds", 20)):
        options.add_argument(f"--{name}", type=int, default=value)
    o = options.parse_args()
    libraries = load(o.directory)
    print("| stored | d | attnlab, ms | ggml, ms | attnlab / ggml | difference |\n|---|---|---|---|---|---|")
    for name, kind in (("f16", F16), ("q8_0", Q8_0)):
        for d in (64, 128):
            compare(libraries, name, kind, d, o)


main()
