#!/usr/bin/python3
"""grids.py ATTNLAB [--seed S] [--count N] [--only I] [--keep DIR] [--jobs J] - odd but legal grids, drawn from a seed.

Each is a configuration of `attnlab run': sizes from 1, shapes that fit no block, grouped heads, biases with -inf, sinks, masks from
files, every variant with parameters drawn from what `attnlab describe' says it takes, and expressions. It fails on a bound that is
violated, on a run that failed, crashed, or took too long or too much memory, and on an output that is not finite. What a variant
refuses or does not support is no failure; how much that was is printed. Exit codes: 0, 1, or 2 for wrong arguments."""
import argparse
import concurrent.futures
import json
import math
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
MOST = {"features": 300, "l": 200, "iterations": 40, "landmarks": 64, "rounds": 16, "random": 40, "nu": 8}  # of costly parameters
DATASETS = {
    "gaussian": ["std_q=1,std_k=1", "std_q=4,std_k=1", "std_q=0,std_k=1", "std_q=20,std_k=2"],
    "clustered": ["", "clusters=3", "spread=0.01"], "lowrank": ["rank=1", "rank=2"], "heavytailed": ["dof=3"], "flat": [""],
    "peaked": [""], "duplicate": ["distinct=1", "distinct=5"], "outlier": ["factor=100"], "hopfield": ["beta=50"], "gat": [""],
    "needle": ["distance=5", "distance=3,strength=20"], "rope": ["", "position=sinusoidal"]}
ENDS = {"failed", "crashed", "timeout", "oom"}
LIMIT = 600  # seconds of a grid


def sheets(attnlab):
    """name: (parameters, properties) of every variant."""
    def ask(*arguments):
        return json.loads(subprocess.run([attnlab, *arguments, "--json"], check=True, capture_output=True, text=True).stdout)
    known = {}
    for variant in ask("list", "variants")["variants"]:
        sheet = ask("describe", variant["name"])
        known[variant["name"]] = sheet["parameters"], " ".join(sheet["properties"])
    return known


class Files:
    """Arrays of a grid, as .npy."""
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def write(self, kind, shape, values):
        """kind: "f4" or "b1"."""
        self.count += 1
        path = self.folder / f"a{self.count}.npy"
        head = f"{{'descr': '{'<f4' if kind == 'f4' else '|b1'}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        body = struct.pack(f"<{len(values)}{'f' if kind == 'f4' else '?'}", *values)
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body)
        return path.name


class Grid:
    def __init__(self, attnlab, rng, known, files):
        self.attnlab, self.rng, self.known, self.files = attnlab, rng, known, files
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

    def lengths(self):
        n = self.rng.choice(SIZES if self.rng.random() < 0.85 else LARGE)
        other = self.rng.random()
        if other < 0.6:
            return n, n
        if other < 0.9:  # more keys than queries: a chunk of a prompt, or a step of decoding
            return min(n, self.rng.choice(SIZES)), n
        return n, self.rng.choice([size for size in SIZES if size <= n])

    # -- scores and masks --

    def shares(self):
        """How many matrices a file has: for all, for heads, for batch entries and heads."""
        return self.rng.choice([(), (self.heads,), (self.batch, self.heads)])

    def bias(self):
        shape = (*self.shares(), self.n, self.n_kv)
        hidden = self.rng.choice([0, 0, 0.1, 0.5, 0.95])
        hides = self.rng.random
        values = [-math.inf if hides() < hidden else self.rng.gauss(0, 1) for _ in range(math.prod(shape))]
        return "bias=" + self.files.write("f4", shape, values)

    def score(self):
        parts, rng = [], self.rng
        if rng.random() < 0.5:
            return ""
        if rng.random() < 0.3:
            parts.append(rng.choice(["softcap=5", "softcap=30", "leaky=0.2"]))
        if rng.random() < 0.3:
            parts.append(rng.choice(["alibi", "t5=0.5"]))
        if rng.random() < 0.4 and self.n * self.n_kv * self.heads * self.batch < 400_000:
            parts.append(self.bias())
        if rng.random() < 0.4:
            parts.append(rng.choice(["sink=0", "sink=-3", "sink=4.5"]))
            if rng.random() < 0.3:
                parts[-1] = "sink=" + self.files.write("f4", (self.heads,), [rng.gauss(0, 3) for _ in range(self.heads)])
        return ",".join(parts)

    def mask_file(self):
        shape = (*self.rng.choice([(), (self.heads,)]), self.n, self.n_kv)
        seen = self.rng.choice([0.02, 0.3, 0.9])
        sees = self.rng.random
        return self.files.write("b1", shape, [sees() < seen for _ in range(math.prod(shape))])

    def offsets(self, first):
        return "+".join(map(str, first + sorted(self.rng.sample(range(1, self.n_kv), min(self.n_kv - 1, self.rng.randint(1, 20))))))

    def mask(self):
        rng = self.rng
        kind = rng.choice(["", "", "", "prefix", "block_causal", "documents", "offsets", "file"])
        if kind == "offsets":
            return "documents:" + self.offsets([0])
        if kind == "file":
            return self.mask_file() if self.n * self.n_kv * self.heads < 400_000 else ""
        return kind and f"{kind}:{rng.randint(1, 2 * self.n_kv)}"

    # -- variants --

    def integer(self, name, low, high):
        """Small ones are as likely as those about as large as n."""
        high = min(high, MOST.get(name, 2 * self.n_kv + 2))
        low = min(low, high)
        return int(math.exp(self.rng.uniform(math.log(max(low, 0.5)), math.log(high + 1)))) if high > low else low

    def value(self, p):
        rng, takes = self.rng, p["takes"]
        bounds = re.search(r"from (\S+) to (\S+)", takes)
        if p["name"] in ("seed", "hash_seed"):
            return str(rng.randint(0, 9))
        if p["type"] == "choice":
            return rng.choice([choice for choice in takes.split(" | ") if choice not in ("file", "tree")])
        if p["type"] == "integer":
            return str(max(self.integer(p["name"], float(bounds[1]), float(bounds[2])), int(float(bounds[1]))))
        if p["type"] == "number":
            low, high = float(bounds[1]), float(bounds[2])
            return f"{rng.choice([low, high, low + (high - low) * rng.random(), max(low, high * 10 ** rng.uniform(-3, 0))]):.6g}"
        if p["type"] == "integers" and self.n_kv > 1:
            return self.offsets([])
        return None  # a file

    def atom(self, name):
        if name == "graph" and self.rng.random() < 0.2 and self.n * self.n_kv * self.heads < 400_000:
            return f"graph:kind=file,file={self.mask_file()}"
        given = []
        for p in self.known[name][0]:
            value = self.value(p) if self.rng.random() < 0.5 else None
            if value is not None:
                given.append(f"{p['name']}={value}")
        return name + (":" + ",".join(given) if given else "")

    def expression(self):
        """One that there is: not all terms can be joined."""
        while True:
            spec = self.any_expression()
            if subprocess.run([self.attnlab, "describe", "--", spec], capture_output=True).returncode == 0:
                return spec

    def any_expression(self):
        rng = self.rng
        joined = [name for name, (_, properties) in self.known.items() if "log-sum-exp" in properties]
        tails = ["lsh_tail", "sample", "performer", "linear:feature=elu"]
        kind = rng.random()
        if kind < 0.25:
            return f"dyadic({self.atom(rng.choice(joined))},base={rng.choice([1, 2, 7, 16, 64, 1024])})"
        if kind < 0.5:
            gates = rng.choice([("0.5", "0.5"), ("2", "-1"), ("0.25", "0.75")])
            return " + ".join(f"{gate}*{self.atom(rng.choice(list(self.known)))}" for gate in gates).replace("+ -", "- ")
        terms = [self.atom(rng.choice(joined)) for _ in range(rng.choice([1, 1, 2]))]
        last = rng.choice([*joined, *tails])
        return " + ".join([*terms, self.atom(last) if last in self.known else last])

    def variants(self, count):
        names = list(self.known)
        return [self.expression() if self.rng.random() < 0.3 else self.atom(self.rng.choice(names)) for _ in range(count)]

    def text(self):
        rng = self.rng
        dataset = rng.choice(list(DATASETS))
        parameters = rng.choice(DATASETS[dataset])
        grid = {"n": self.n, "n_kv": self.n_kv, "d": self.d, "d_v": self.d_v, "heads": self.heads, "kv_heads": self.kv_heads,
                "batch": self.batch, "causal": "yes" if self.causal else "no", "dtype": rng.choice(["f32", "f32", "f64"]),
                "score": json.dumps(self.score() or "none"), "mask": json.dumps(self.mask() or "none")}
        lines = ["schema: 1", "grid: {" + ", ".join(f"{key}: {value}" for key, value in grid.items()) + "}", "variants:"]
        lines += ["  - " + json.dumps(spec) for spec in self.variants(7)]
        lines += ["datasets: [" + json.dumps(dataset + (":" + parameters if parameters else "")) + "]",
                  "nulls: " + rng.choice(["yes", "no"]), "threads: " + rng.choice(["1", "2"]),
                  "budget: {time: 300}",  # as long as a machine at work takes
                  "timing: {min_time: 0.0001, max_time: 0.0005, warmup: 0, sample_time: 0.0001, samples: 2, rounds: 1}"]
        return "\n".join(lines) + "\n"


def faults_of(folder):
    """Wrong rows of a journal, and the numbers of those of each status."""
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
        if row["status"] == "ok" and not isinstance(row["err_max_abs"], (int, float)) and "cancel" not in said \
                and row["rows_sampled"]:
            faults.append(f"not finite: {label}: {said}")
    return faults, counts


def try_grid(attnlab, known, seed, index, folder):
    """(index, faults, counts, refused) of one grid."""
    folder.mkdir(parents=True, exist_ok=True)
    text = Grid(attnlab, random.Random(f"{seed}/{index}"), known, Files(folder)).text()
    (folder / "x.yaml").write_text(text)
    for name in "x.jsonl", "x.h5":
        (folder / name).unlink(missing_ok=True)
    try:
        done = subprocess.run([attnlab, "run", "x.yaml", "-o", "x.h5"], cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return index, [f"no end within {LIMIT} s"], {}, 0
    refused = sum(int(count) for count in re.findall(r"^attnlab run: (\d+) runs refused: ", done.stderr, re.M))
    if done.returncode == 2 and "every run is refused" in done.stderr:
        return index, [], {}, 7
    if not (folder / "x.jsonl").exists():
        return index, [f"exit code {done.returncode}: {done.stderr.strip()}"], {}, refused
    faults, counts = faults_of(folder)
    if done.returncode not in (0, 3) and not faults:
        faults.append(f"exit code {done.returncode}: {done.stderr.strip()}")
    return index, faults, counts, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attnlab", type=pathlib.Path)
    parser.add_argument("--seed", default="1", help="of every draw (1)")
    parser.add_argument("--count", type=int, default=30, help="grids (30)")
    parser.add_argument("--only", type=int, help="this grid of them")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for configurations and results")
    parser.add_argument("--jobs", type=int, default=2, help="grids at a time (2)")
    given = parser.parse_args()
    attnlab = str(given.attnlab.resolve())
    known, totals, refused, wrong = sheets(attnlab), {}, 0, 0
    indices = [given.only] if given.only is not None else range(given.count)
    print(f"grids of seed {given.seed}: {len(indices)}", flush=True)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        place = (given.keep or pathlib.Path(scratch)).resolve()
        tries = [pool.submit(try_grid, attnlab, known, given.seed, i, place / f"{given.seed}-{i}") for i in indices]
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
