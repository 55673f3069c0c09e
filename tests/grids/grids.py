#!/usr/bin/python3
"""grids.py ATTNLAB [--seed S] [--count N] [--only I] [--keep DIR] [--jobs J] [--plugin FILE] - odd but legal grids, from a seed.

Each is a configuration of `attnlab run': sizes from 1, shapes that fit no block, grouped heads, biases with -inf, sinks, masks and
datasets from files, lists of values, every variant and generator with parameters drawn from what `attnlab describe' says it takes,
and expressions of expressions. It fails on a bound that is violated, on a run that failed, crashed, or took too long or too much
memory, on an output that is not finite where the inputs are, on a run that passes without an error, on one that is not supported and
that a dry run planned, and on a sweep that repeats a run when it is given again. What a variant refuses or does not support is no
failure; how much that was is printed. Exit codes: 0, 1, or 2 for wrong arguments."""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 40, 57, 63, 64, 65, 96, 100, 127, 128, 129, 130, 197, 200, 255, 256, 257]
LARGE = [300, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 2048, 2049]
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 24, 32, 33, 40, 48, 64, 65, 80, 96, 127, 128, 129, 160, 255, 256]
HEADS = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (6, 2), (6, 3), (8, 1), (8, 4)]
PAIRS = 3_000_000  # of all heads: what keeps a grid short
SEEDS = [0, 1, 10**15]
MOST = {"features": 300, "l": 200, "iterations": 40, "landmarks": 64, "rounds": 16, "random": 40, "nu": 8,
        "count": 4000}  # of costly parameters
SOURCES = ["gaussian", "clustered", "lowrank", "heavytailed", "flat", "peaked", "duplicate", "outlier", "hopfield", "gat", "needle",
           "rope", "npy"]
COSTLY = {"buckets", "k", "bits", "degree", "rows", "page", "block_q", "block_k"}
ENDS = {"failed", "crashed", "timeout", "oom"}
LIMIT = 600  # seconds of a grid


class Program:
    """attnlab, and what it says of its variants and datasets."""
    def __init__(self, path, plugins):
        self.path, self.plugins = path, [f"--plugin={plugin}" for plugin in plugins]
        self.variants = {}
        for variant in self.ask("list", "variants", *self.plugins)["variants"]:
            sheet = self.ask("describe", *self.plugins, variant["name"])
            self.variants[variant["name"]] = sheet["parameters"], " ".join(sheet["properties"])
        self.sources = {name: self.ask("describe", name)["parameters"] for name in SOURCES}
        told = subprocess.run([path, "info"], check=True, capture_output=True, text=True).stdout
        self.isas = re.search(r"^kernels for +(.*)", told, re.M)[1].split()

    def ask(self, *arguments):
        return json.loads(subprocess.run([self.path, *arguments, "--json"], check=True, capture_output=True, text=True).stdout)

    def knows(self, spec):
        return subprocess.run([self.path, "describe", *self.plugins, "--", spec], capture_output=True).returncode == 0


class Files:
    """Arrays of a grid, as .npy."""
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def path(self, suffix):
        self.count += 1
        return self.folder / f"a{self.count}.{suffix}"

    def write(self, kind, shape, values):
        """kind: "f4", "f8", "b1", "u1" or "i8"."""
        path = self.path("npy")
        head = f"{{'descr': '{'<' if kind[1] != '1' else '|'}{kind}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        letter = {"f4": "f", "f8": "d", "b1": "?", "u1": "B", "i8": "q"}[kind]
        body = struct.pack(f"<{len(values)}{letter}", *values)
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body)
        return path.name

    def write_rows(self, rows):
        """Compressed sparse rows, .safetensors."""
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row))
        edges, path, at = sum(rows, []), self.path("safetensors"), 8 * len(starts)
        head = json.dumps({"indptr": {"dtype": "I64", "shape": [len(starts)], "data_offsets": [0, at]},
                           "indices": {"dtype": "I64", "shape": [len(edges)], "data_offsets": [at, at + 8 * len(edges)]}}).encode()
        path.write_bytes(struct.pack("<Q", len(head)) + head + struct.pack(f"<{len(starts) + len(edges)}q", *starts, *edges))
        return path.name


class Grid:
    def __init__(self, program, rng, files):
        self.program, self.rng, self.known, self.files = program, rng, program.variants, files
        self.n, self.n_kv = self.lengths()
        self.d = rng.choice(WIDTHS)
        self.d_v = self.d if rng.random() < 0.7 else rng.choice(WIDTHS)
        self.heads, self.kv_heads = rng.choice(HEADS)
        self.batch = rng.choice([1, 1, 2, 3])
        while self.batch > 1 and self.batch * self.heads * self.n * self.n_kv > PAIRS:
            self.batch -= 1
        if self.heads * self.n * self.n_kv > PAIRS:
            self.heads = self.kv_heads = 1
        self.causal = rng.random() < 0.6
        self.small = self.n * self.n_kv * self.heads * self.batch < 400_000  # so that files may be as large

    def lengths(self):
        n = self.rng.choice(SIZES if self.rng.random() < 0.85 else LARGE)
        other = self.rng.random()
        if other < 0.5:
            return n, n
        if other < 0.6:
            return 1, n
        if other < 0.9:  # more keys than queries: a chunk of a prompt, or a step of decoding
            return min(n, self.rng.choice(SIZES)), n
        return n, self.rng.choice([size for size in SIZES if size <= n])

    # -- scores and masks --

    def shares(self):
        """How many matrices a file has: for all, for heads, for batch entries and heads."""
        return self.rng.choice([(), (self.heads,), (self.batch, self.heads)])

    def bias(self):
        shape = (*self.shares(), self.n, self.n_kv)
        hidden = self.rng.choice([0, 0, 0.1, 0.5, 0.95, 1])
        size = self.rng.choice([1, 1, 0, 30, 1e4])
        hides = self.rng.random
        values = [-math.inf if hides() < hidden else self.rng.gauss(0, size) for _ in range(math.prod(shape))]
        return "bias=" + self.files.write(self.rng.choice(["f4", "f8"]), shape, values)

    def score(self):
        parts, rng = [], self.rng
        if rng.random() < 0.5:
            return ""
        if rng.random() < 0.3:
            parts.append(rng.choice(["softcap=5", "softcap=30", "softcap=0.01", "softcap=1e6",
                                     "leaky=0.2", "leaky=1e-6", "leaky=0.999"]))
        if rng.random() < 0.3:
            parts.append(rng.choice(["alibi", "t5=0.5", "t5=-2", "t5"]))
            if parts[-1] == "t5":
                shape = 32, rng.choice([1, self.heads])
                parts[-1] += "=" + self.files.write("f4", shape, [rng.gauss(0, 2) for _ in range(math.prod(shape))])
        if rng.random() < 0.4 and self.small:
            parts.append(self.bias())
        if rng.random() < 0.4:
            parts.append(rng.choice(["sink=0", "sink=-3", "sink=4.5", "sink=80", "sink=-1e4"]))
            if rng.random() < 0.3:
                parts[-1] = "sink=" + self.files.write("f4", (self.heads,), [rng.gauss(0, 3) for _ in range(self.heads)])
        return ",".join(parts)

    def mask_file(self):
        """Rows are queries, or all positions; of all heads, or of one each."""
        rows = self.n_kv if self.n < self.n_kv and self.rng.random() < 0.3 else self.n
        shape = (*self.rng.choice([(), (self.heads,)]), rows, self.n_kv)
        seen = self.rng.choice([0, 0.02, 0.3, 0.9, 1])
        if self.rng.random() < 0.2:
            return self.files.write_rows([[j for j in range(self.n_kv) if self.rng.random() < seen] for _ in range(rows)])
        return self.files.write(self.rng.choice(["b1", "u1"]), shape, [self.rng.random() < seen for _ in range(math.prod(shape))])

    def offsets(self, first):
        return "+".join(map(str, first + sorted(self.rng.sample(range(1, self.n_kv), min(self.n_kv - 1, self.rng.randint(1, 20))))))

    def mask(self):
        rng = self.rng
        kind = rng.choice(["", "", "", "prefix", "block_causal", "documents", "offsets", "file"])
        if kind == "offsets":
            return "documents:" + self.offsets([0])
        if kind == "file":
            return self.mask_file() if self.small else ""
        return kind and f"{kind}:{rng.randint(kind != 'prefix', 2 * self.n_kv)}"

    # -- variants --

    def integer(self, name, low, high):
        """Small ones are as likely as those about as large as n; seldom the largest of all that cost nothing."""
        if name not in MOST and name not in COSTLY and self.rng.random() < 0.05:
            return int(high)
        high = min(high, MOST.get(name, 2 * self.n_kv + 2))
        low = min(low, high)
        return int(math.exp(self.rng.uniform(math.log(max(low, 0.5)), math.log(high + 1)))) if high > low else low

    def value(self, p):
        rng, takes = self.rng, p["takes"]
        bounds = re.search(r"from (\S+) to (\S+)", takes)
        if p["name"] in ("seed", "hash_seed"):
            return str(rng.choice([rng.randint(0, 9), *SEEDS]))
        if p["type"] == "choice":
            return rng.choice([choice for choice in takes.split(" | ") if choice not in ("file", "tree")])
        if p["type"] == "integer" and not bounds:  # only a least value
            return str(self.integer(p["name"], float(takes.split()[-1]), 2 * self.n_kv))
        if p["type"] == "integer":
            return str(max(self.integer(p["name"], float(bounds[1]), float(bounds[2])), int(float(bounds[1]))))
        if p["type"] == "number":
            low, high = float(bounds[1]), float(bounds[2])
            return f"{rng.choice([low, high, low + (high - low) * rng.random(), max(low, high * 10 ** rng.uniform(-3, 0))]):.6g}"
        if p["type"] == "integers" and self.n_kv > 1:
            return self.offsets([])
        return None  # a file

    def of_a_file(self, name):
        """A variant that reads a file; "": no such, or not now."""
        rng = self.rng
        if not self.small or rng.random() < 0.7:
            return ""
        if name == "graph" and rng.random() < 0.5:
            parents = [rng.randint(-1, i - 1) if i else -1 for i in range(self.n_kv)]
            return f"graph:kind=tree,file={self.files.write('i8', (self.n_kv,), parents)}"
        if name == "graph":
            return f"graph:kind=file,file={self.mask_file()}"
        rows = rng.randint(1, 40)
        columns = {"linformer": self.n_kv, "linear": self.d}.get(name, 0)
        file = columns and self.files.write("f4", (rows, columns), [rng.gauss(0, 0.3) for _ in range(rows * columns)])
        if name == "linformer":
            return f"linformer:k={rows},projection=file,projection_file={file}"
        if name == "linear":
            return f"linear:feature={rng.choice(['elu', 'hedgehog', 'exp', 'relu'])},weights={file},rows={rows}"
        return ""

    def given(self, parameters, share):
        values = [(p["name"], self.value(p)) for p in parameters if self.rng.random() < share]
        return {name: value for name, value in values if value is not None}

    def atom(self, name):
        file = self.of_a_file(name)
        given = self.given(self.known[name][0], 0.5)
        if given.get("path") == "split" or given.get("precision") == "bf16":  # emulated, blocks of few rows take minutes
            given = {key: value for key, value in given.items() if not key.startswith("block_")}
        text = ",".join(f"{key}={value}" for key, value in given.items())
        return file or name + (":" + text if text else "")

    def expression(self):
        """One that there is: not all terms can be joined."""
        while True:
            spec = self.any_expression(2)
            if len(spec) < 1000 and self.program.knows(spec):
                return spec

    def any_expression(self, depth):
        """An atom, or terms that are expressions themselves."""
        rng = self.rng
        joined = [name for name, (_, properties) in self.known.items() if "log-sum-exp" in properties]
        tails = ["lsh_tail", "sample", "performer", "linear:feature=elu"]
        inner = lambda: self.any_expression(depth - 1) if depth > 1 and rng.random() < 0.4 else self.atom(rng.choice(joined))
        kind = rng.random()
        if kind < 0.25:
            return f"dyadic({inner()},base={rng.choice([1, 2, 7, 16, 64, 1024])})"
        if kind < 0.5:
            gates = rng.choice([("0.5", "0.5"), ("2", "-1"), ("0.25", "0.75"), ("1", "1", "-1"), ("0", "1")])
            terms = [inner() if rng.random() < 0.5 else self.atom(rng.choice(list(self.known))) for _ in gates]
            return " + ".join(f"{gate}*({term})" if " " in term else f"{gate}*{term}"
                              for gate, term in zip(gates, terms)).replace("+ -", "- ")
        terms = [self.atom(rng.choice(joined)) for _ in range(rng.choice([1, 1, 2, 3]))]
        last = rng.choice([*joined, *tails])
        return " + ".join([*terms, self.atom(last) if last in self.known else last])

    def listed(self, name):
        """NAME: {PARAMETER: [values]}"""
        given = self.given(self.known[name][0], 0.4)
        lists = {p["name"]: sorted({given[p["name"]], self.value(p)}) for p in self.known[name][0]
                 if p["name"] in given and p["type"] in ("integer", "choice") and self.rng.random() < 0.6}
        return {name: {**given, **lists}} if given else name

    def variant(self):
        kind = self.rng.random()
        if kind < 0.3:
            return self.expression()
        name = self.rng.choice(list(self.known))
        return self.listed(name) if kind < 0.4 else self.atom(name)

    # -- datasets --

    def numbers(self, count, kind):
        gauss = self.rng.gauss
        if kind == "places":  # that are not finite
            values, bad = [gauss(0, 1) for _ in range(count)], self.rng.choice([math.nan, math.inf, -math.inf])
            values[self.rng.randrange(count)] = bad
            return values
        draw = {"zeros": lambda: self.rng.choice([0.0, -0.0]), "ones": lambda: 1.0,
                "signs": lambda: self.rng.choice([-1.0, 0.0, 1.0]), "tiny": lambda: gauss(0, 1e-42), "small": lambda: gauss(0, 1e-20), "large": lambda: gauss(0, 1e5)}
        draw = draw.get(kind, lambda: gauss(0, 1))
        return [draw() for _ in range(count)]

    def arrays(self):
        """.npy files, which may hold more positions, or heads after positions."""
        rng, more = self.rng, self.rng.choice([0, 0, 5])
        layout, kind = rng.choice(["bhnd", "bnhd"]), rng.choice(["f4", "f4", "f8"])
        given = {"layout": layout}
        for name, heads, n, d in ("q", self.heads, self.n, self.d), ("k", self.kv_heads, self.n_kv, self.d), \
                ("v", self.kv_heads, self.n_kv, self.d_v):
            shape = (self.batch, heads, n + more, d) if layout == "bhnd" else (self.batch, n + more, heads, d)
            what = rng.choice(["normal", "normal", "normal", "zeros", "ones", "signs", "tiny", "small", "large", "places"])
            given[name] = self.files.write(kind, shape, self.numbers(math.prod(shape), what))
        return "npy:" + ",".join(f"{name}={value}" for name, value in given.items())

    def dataset(self):
        name = self.rng.choice(SOURCES)
        if name == "npy":
            size = self.batch * self.heads * max(self.n, self.n_kv) * max(self.d, self.d_v)
            return self.arrays() if size < 400_000 else "gaussian"
        given = self.given(self.program.sources[name], 0.5)
        if self.rng.random() < 0.8:  # that there is
            given = {key: str(min(int(value), self.n_kv - 1)) if key in ("distance", "distinct") else value
                     for key, value in given.items()}
            for key, most in ("rank", self.d), ("channels", self.d):
                if key in given:
                    given[key] = str(min(int(given[key]), most))
        return name + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")

    def text(self):
        rng = self.rng
        dataset = self.dataset()
        grid = {"n": self.n, "n_kv": self.n_kv, "d": self.d, "d_v": self.d_v, "heads": self.heads, "kv_heads": self.kv_heads,
                "batch": self.batch, "causal": "yes" if self.causal else "no", "dtype": rng.choice(["f32", "f32", "f64"]),
                "score": json.dumps(self.score() or "none"), "mask": json.dumps(self.mask() or "none")}
        keys = {"threads": rng.choice(["1", "2"]), "nulls": rng.choice(["yes", "no"]), "cache": rng.choice(["warm"] * 9 + ["cold"]),
                "rows": rng.choice(["auto", "auto", "all", "2", "5"]), "maps": rng.choice([0, 0, 0, 64])}
        variants = [self.variant() for _ in range(7)]
        if rng.random() < 0.25 and not self.files.count:  # no file says how long it is
            grid.update(rng.choice([{"n": [1, self.n]}, {"n": sorted({self.n, max(self.n - 1, 1)}), "n_kv": self.n_kv},
                                    {"d": [1, self.d]}, {"dtype": ["f32", "f64"]}, {"causal": ["yes", "no"]}, {"batch": [1, 2]},
                                    {"heads": [1, 2], "kv_heads": 1}]))
            variants = variants[:4]
        grid.update(rng.choice([{}, {}, {"seed": [0, 7]}, {"data_seed": 10**15}, {"seed": 10**15}]))
        lines = ["schema: 1", "grid: {" + ", ".join(f"{key}: {value}" for key, value in grid.items()) + "}", "variants:"]
        lines += ["  - " + json.dumps(spec) for spec in variants]
        lines += ["datasets: [" + json.dumps(dataset) + "]"] + [f"{key}: {value}" for key, value in keys.items()]
        lines += ["budget: {time: 300}",  # as long as a machine at work takes
                  "timing: {min_time: 0.0001, max_time: 0.0005, warmup: 0, sample_time: 0.0001, samples: 2, rounds: 1}"]
        return "\n".join(lines) + "\n"


def faults_of(folder, planned):
    """Wrong rows of a journal, and the numbers of those of each status. planned: keys of runs that are to be."""
    faults, counts = [], {}
    for line in (folder / "x.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "key" not in row:
            continue
        counts[row["status"]] = counts.get(row["status"], 0) + 1
        label, said = row["label"], row["message"]
        if row["status"] in ENDS:
            faults.append(f"{row['status']}: {label}: {said}")
        if "violated" in (row["verdict"], row["model_verdict"]):
            broken = [f"{name} {cell}" for name, cell in row["bounds"].items() if "violated" in json.dumps(cell)] \
                if isinstance(row["bounds"], dict) else [json.dumps(cell) for cell in row["bounds"] if "violated" in json.dumps(cell)]
            faults.append(f"violated: {label}: {'; '.join(broken)[:600]}")
        if "error" in (row["verdict"], row["model_verdict"]):
            faults.append(f"check failed: {label}: {said}")
        if row["status"] == "unsupported" and row["key"] in planned and "beyond the range" not in said:
            faults.append(f"planned, but not supported: {label}: {said}")
        if row["status"] == "ok" and not isinstance(row["err_max_abs"], (int, float)) and row["rows_sampled"]:
            if "cancel" not in said and "the inputs are not finite" not in said:
                faults.append(f"not finite: {label}: {said}")
            if row["verdict"] == "pass":
                faults.append(f"passes without an error: {label}: {said}")
    return faults, counts


def try_grid(program, seed, index, folder):
    """(index, faults, counts, refused) of one grid."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"{seed}/{index}")
    text = Grid(program, rng, Files(folder)).text()
    (folder / "x.yaml").write_text(text)
    for name in "x.jsonl", "x.h5":
        (folder / name).unlink(missing_ok=True)
    isa = rng.choice([program.isas[0], *program.isas])

    def run(*arguments):
        return subprocess.run([program.path, "run", "x.yaml", "-o", "x.h5", *program.plugins, *arguments], cwd=folder,
                              capture_output=True, text=True, timeout=LIMIT, env={**os.environ, "ATTN_ISA": isa})
    try:
        plan, done = run("--dry-run", "--json"), run()
    except subprocess.TimeoutExpired:
        return index, [f"no end within {LIMIT} s"], {}, 0
    refused = sum(int(count) for count in re.findall(r"^attnlab run: (\d+) runs refused: ", done.stderr, re.M))
    if done.returncode == 2 and "every run is refused" in done.stderr and plan.returncode == 2:
        return index, [], {}, 7
    if not (folder / "x.jsonl").exists() or plan.returncode:
        return index, [f"exit codes {plan.returncode}, {done.returncode}: {plan.stderr.strip()} {done.stderr.strip()}"], {}, refused
    journal = (folder / "x.jsonl").read_bytes()
    planned = {entry["key"] for entry in json.loads(plan.stdout)["runs"] if entry["status"] == "planned"}
    faults, counts = faults_of(folder, planned)
    if done.returncode not in (0, 3) and not faults:
        faults.append(f"exit code {done.returncode}: {done.stderr.strip()}")
    run()
    if (folder / "x.jsonl").read_bytes() != journal:
        faults.append("given again, the sweep repeats runs that it has")
    return index, faults, counts, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attnlab", type=pathlib.Path)
    parser.add_argument("--seed", default="1", help="of every draw (1)")
    parser.add_argument("--count", type=int, default=30, help="grids (30)")
    parser.add_argument("--only", type=int, help="this grid of them")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for configurations and results")
    parser.add_argument("--jobs", type=int, default=2, help="grids at a time (2)")
    parser.add_argument("--plugin", type=pathlib.Path, action="append", default=[], help="a variant that is drawn, too")
    given = parser.parse_args()
    os.environ["ATTNLAB_CALIBRATION"] = ""  # a dry run's, of which nothing is asked here
    program = Program(str(given.attnlab.resolve()), [plugin.resolve() for plugin in given.plugin])
    totals, refused, wrong = {}, 0, 0
    indices = [given.only] if given.only is not None else range(given.count)
    print(f"grids of seed {given.seed}: {len(indices)}", flush=True)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        place = (given.keep or pathlib.Path(scratch)).resolve()
        tries = [pool.submit(try_grid, program, given.seed, i, place / f"{given.seed}-{i}") for i in indices]
        for future in concurrent.futures.as_completed(tries):
            index, faults, counts, out = future.result()
            refused += out
            wrong += len(faults)
            for status, count in counts.items():
                totals[status] = totals.get(status, 0) + count
            for fault in faults:
                print(f"--seed {given.seed} --only {index}: {fault}", flush=True)
    print(f"{sum(totals.values())} runs: " + ", ".join(f"{count} {status}" for status, count in sorted(totals.items())) +
          f"; {refused} refused before; {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
