"""compare.py - the driver of run.sh: the same tensors for every participant, in turn; a table in Markdown."""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import time

import numpy

PAUSE = 0.02  # seconds before an execution, for the threads of the one before to go to sleep
SAMPLED_ROWS = 64
FP32, BF16 = 1e-4, 2e-2  # tolerances, far above what rounding of the operands does
HERE, BUILD = pathlib.Path(__file__).parent, pathlib.Path("build/peers").resolve()
PEERS = "build/release/experiments/peers/peers"
# 97.5 % points of Student's t for 1 to 10 degrees of freedom; beyond, an approximation good to 0.3 %.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]


def participants(specs):
    """Of each computation: name, command, the ratios of speeds that are aimed at (by width, without and with
    a causal mask). The others are compared with the first."""
    none = ({}, {})
    loop, products = {64: 1.9, 128: 1.6}, {64: 0.8, 128: 0.8}
    onnx = ({64: 2, 128: 1.6}, {64: 5, 128: 3})
    return {"attention": [*((f"attnlab {spec}", [PEERS, spec], none) for spec in specs),
                          ("OpenBLAS flash loop", [PEERS, "flash"], (loop, loop)),
                          ("ONNX Runtime", ["node", HERE / "onnx.js"], onnx),
                          ("PyTorch", [os.environ["PEERS_PYTHON"], HERE / "pytorch.py"], none)],
            "products": [("attnlab gemm", [PEERS, "products"], none),
                         ("OpenBLAS sgemm", [PEERS, "sgemm"], (products, products))]}


class Peer:
    """A process that answers a line with a line (README.md has the protocol)."""

    def __init__(self, name, command, target):
        self.name, self.command, self.target = name, command, target
        self.description = self.error = self.problem = self.process = None

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        word, _, rest = self.process.stdout.readline().rstrip("\n").partition(" ")
        if word != "ok":
            raise RuntimeError(rest or f"ended: exit code {self.process.wait()}")
        return rest

    def introduce(self, request, environment, check):
        """Loads, executes once and compares the output, which is returned unless there is a problem."""
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True, env=environment)
            self.description = self.ask(request)
            self.ask("run")
            self.ask(f"save {BUILD}/data/o.npy")
            output = numpy.load(BUILD / "data/o.npy")
            error = float(check(output) / numpy.abs(output).max())
            if not error <= (BF16 if "bf16" in self.name else FP32):
                raise RuntimeError(f"output differs by {error:.1e}")
            self.error = error
            return output
        except (OSError, RuntimeError) as failure:
            self.problem = "not installed" if isinstance(failure, FileNotFoundError) else str(failure)
            print(f"{self.name}: {self.problem}", file=sys.stderr)
            return None


def make(heads, n, d, **_):
    """Q, K, V of mean 0 and variance 1."""
    (BUILD / "data").mkdir(parents=True, exist_ok=True)
    draws = numpy.random.default_rng(1)
    tensors = [draws.uniform(-math.sqrt(3), math.sqrt(3), (heads, n, d)).astype("f4") for _ in range(3)]
    for name, tensor in zip("qkv", tensors):
        numpy.save(BUILD / f"data/{name}.npy", tensor)
    return tensors


def from_reference(output, tensors, computation, heads, n, d, causal):
    """The largest difference of rows drawn at random from the same in double precision."""
    draws, worst = random.Random(0), 0
    for _ in range(SAMPLED_ROWS):
        head, i = draws.randrange(heads), draws.randrange(n)
        q, k, v = (tensor[head].astype("f8") for tensor in tensors)
        weights = k[:i + 1 if causal else n] @ q[i]
        if computation == "attention":
            weights = numpy.exp((weights - weights.max()) / math.sqrt(d))
            weights /= weights.sum()
        worst = max(worst, numpy.abs(output[head, i] - weights @ v[:len(weights)]).max())
    return worst


def run_case(case, peers, options, done):
    tensors = make(**case)
    request = f"load {int(case['causal'])} {options.threads} {BUILD}/data"
    threads = {"OPENBLAS_NUM_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads)}
    ours, rounds = None, []
    for peer in peers:
        output = peer.introduce(request, os.environ | threads, lambda o: numpy.abs(o - ours).max()
                                if ours is not None else from_reference(o, tensors, **case))
        ours = output if ours is None else ours
        if ours is None:
            break
    start = time.monotonic()
    while len(rounds) < options.rounds and time.monotonic() - start < options.seconds:
        able = [peer for peer in peers if peer.error is not None and not peer.problem]
        random.Random(1000 * (done + len(rounds)) + case["n"] + case["d"]).shuffle(able)
        rounds.append({})
        for peer in able:
            time.sleep(PAUSE)
            try:
                rounds[-1][peer.name] = float(peer.ask("run"))
            except (OSError, RuntimeError) as failure:
                peer.problem = str(failure)
    for peer in peers:
        if peer.process:
            peer.process.communicate()
    return rounds


def choose(only, heads):
    """Cases, by "key=value+value,key=value"."""
    every = [{"computation": "attention", "heads": heads, "n": n, "d": d, "causal": causal}
             for n in (4096, 16384) for d in (64, 128) for causal in (False, True)]
    every += [dict(every[0], computation="products", d=d) for d in (64, 128)]
    for condition in filter(None, only.split(",")):
        key, _, values = condition.partition("=")
        if key not in every[0]:
            raise ValueError(f"--only: no '{key}'; expected {', '.join(every[0])}")
        names = {True: "yes", False: "no"}
        every = [c for c in every if str(names[c[key]] if key == "causal" else c[key]) in values.split("+")]
        if not every:
            raise ValueError(f"--only {only}: no such case")
    return every


def facts(options):
    def first(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[0]
    model = first("sed", "-n", "s/^model name[^:]*: //p", "/proc/cpuinfo")
    return {"machine": f"{model}, {os.cpu_count()} processors, {platform.system()} {platform.release()}; "
                       f"attnlab {first('git', 'describe', '--always', '--dirty')}; "
                       f"{first('cc', '--version')}",
            "threads": options.threads, "heads": options.heads, "date": str(datetime.date.today())}


def comparison(rounds, ours, peer, target):
    """ "1.52 (1.50-1.55)" and "1.6: no" of attnlab's speed over a peer's: the geometric mean over rounds with
    the 95 % interval of the mean logarithm; open: the target is in it."""
    logs = [math.log(r[peer] / r[ours]) for r in rounds if peer in r and ours in r]
    if len(logs) < 2:
        return "", ""
    t = STUDENT[len(logs) - 2] if len(logs) <= len(STUDENT) + 1 else 1.96 + 2.6 / (len(logs) - 1)
    mean, reach = statistics.mean(logs), t * statistics.stdev(logs) / math.sqrt(len(logs))
    low, ratio, high = (math.exp(mean + sign * reach) for sign in (-1, 0, 1))
    verdict = "" if not target else "met" if low >= target else "no" if high < target else "open"
    return f"{ratio:.2f} ({low:.2f}-{high:.2f})", f"{target}: {verdict}" if target else ""


def case_rows(case, peers, rounds):
    pairs = case["n"] * (case["n"] + 1) / 2 if case["causal"] else case["n"] ** 2
    flops = 4 * case["heads"] * case["d"] * pairs  # of the products of matrices, as is usual
    for place, peer in enumerate(peers):
        where = [case["computation"], case["n"], case["d"], "causal" if case["causal"] else "", peer["name"]]
        seconds = [r[peer["name"]] for r in rounds if peer["name"] in r]
        if peer["problem"] or not seconds:
            yield [*where, peer["problem"] or "not run", "", "", "", ""]
            continue
        ratio = comparison(rounds, peers[0]["name"], peer["name"], peer["target"]) if place else ("", "")
        middle = statistics.median(seconds)
        yield [*where, f"{middle:.3g}", f"{flops / middle / 1e9:.0f}", *ratio, f"{peer['error']:.1e}"]


def table(state):
    order = sorted(state["cases"], key=lambda c: tuple(c["case"].values()))
    rows = [["", "n", "d", "mask", "who", "seconds", "GFLOP/s", "attnlab / it", "target", "difference"]]
    about = {}
    for c in order:
        rows += case_rows(**c)
        for peer in c["peers"]:
            about.setdefault(peer["name"], {})[peer["description"] or peer["problem"]] = True
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    left = (0, 3, 4)
    lines = [[f"{cell:<{w}}" if i in left else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths))]
             for row in rows]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i in left else ":") for i, w in enumerate(widths)) + "|"
    counts, f = [len(c["rounds"]) for c in order], state["facts"]
    print(f"{f['machine']}; {f['date']}; {f['threads']} threads, batch 1, {f['heads']} heads, fp32.\n"
          f"{'. '.join(f'{who}: ' + ' or '.join(what) for who, what in about.items())}.\n")
    lines = [f"| {' | '.join(line)} |" for line in lines]
    print("\n".join([lines[0], rule, *lines[1:]]))
    rounds = " to ".join(str(n) for n in sorted({min(counts), max(counts)}))
    print(f"\nMedians of {rounds} rounds: one execution of each in random order. "
          "attnlab / it: ratio of speeds,\ngeometric mean over rounds with its 95 % interval; target: met or "
          "no if the whole interval lies on that side. Difference: the\nlargest from attnlab's output (attnlab: from "
          f"{SAMPLED_ROWS} rows in double precision), as a fraction of the largest element.")


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh", add_help=False)
    for name, kind, preset in (("only", str, ""), ("rounds", int, 10), ("seconds", float, math.inf),
                               ("threads", int, 2), ("heads", int, 8)):
        parser.add_argument(f"--{name}", type=kind, default=preset)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--ours", action="append")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--continue", action="store_true", dest="go_on")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.only = 5, f"n=4096,d=64,{options.only}"
    try:
        options.cases = choose(options.only, options.heads)
    except ValueError as wrong:
        parser.error(str(wrong))
    return options


def add_rounds(state, case, options):
    asked = participants(options.ours or ["tiled"])[case["computation"]]
    peers = [Peer(*who) for who in asked if who[0] not in options.without]
    record = next((c for c in state["cases"] if c["case"] == case), None)
    if not record:
        record = {"case": case, "peers": [], "rounds": []}
        state["cases"].append(record)
    record["rounds"] += run_case(case, peers, options, len(record["rounds"]))
    known = {p["name"]: p for p in record["peers"]} | {
        p.name: {"name": p.name, "description": p.description, "error": p.error, "problem": p.problem,
                 "target": p.target[case["causal"]].get(case["d"])} for p in peers}
    place = {who[0]: at for at, who in enumerate(asked)}
    record["peers"] = sorted(known.values(), key=lambda p: place.get(p["name"], len(place)))


def main():
    options, journal = arguments(), BUILD / "journal.json"
    now = facts(options)
    old = options.go_on and journal.exists()
    state = json.loads(journal.read_text()) if old else {"facts": now, "cases": []}
    for key in ("machine", "threads", "heads"):
        if state["facts"][key] != now[key]:
            sys.exit(f"--continue: begun with {state['facts'][key]}, now {now[key]}")
    for case in options.cases:
        print(json.dumps(case), file=sys.stderr)
        add_rounds(state, case, options)
        journal.write_text(json.dumps(state, indent=1))
    table(state)


main()
