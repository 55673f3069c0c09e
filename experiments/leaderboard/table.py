#!/usr/bin/python3
"""table.py <RUNS.csv - the table of the leaderboard, in Markdown, of what `attnlab export --csv` prints: of each method the error
where it reads a share of the keys that a causal query sees, between two settings by the straight line of logarithms."""
import collections
import csv
import math
import re
import sys

NEAR = 0.03  # an outermost setting whose share is as near as this, in its logarithm, stands for it


def shorter(label):
    """The label without each of its numbers."""
    return {re.sub(re.escape(item) + ",?", "", label, count=1).rstrip(":,") for item in re.findall(r"\w+=\d+(?=,|$| )", label)}


def error_at(points, share):
    x, points = math.log(share), sorted((math.log(read), math.log(error)) for read, error in points)
    found = [low + (high - low) * (x - a) / (b - a) for (a, low), (b, high) in zip(points, points[1:]) if a < x < b]
    found += [error for at, error in points if abs(at - x) < NEAR]
    return math.exp(found[0]) if found else math.nan


def shown(errors):
    return " / ".join("-" if math.isnan(x) else f"{x:.3f}" for x in errors)


runs = [run for run in csv.DictReader(sys.stdin) if run["status"] == "ok"]
names = collections.Counter(name for label in {run["label"] for run in runs} for name in shorter(label))
datasets = sorted({run["dataset"] for run in runs})
methods = collections.defaultdict(lambda: [[] for _ in datasets])
for run in runs:
    method = max(sorted(shorter(run["label"])) or [run["label"]], key=lambda name: names[name])
    method += f" ({run['verdict']})" * (run["verdict"] in ("violated", "unchecked"))
    share = 2 * float(run["keys_mean"] or "nan") / (int(run["n"]) + 1)
    methods[method][datasets.index(run["dataset"])].append((share, float(run["err_rel_fro"])))
rows = []
for method, points in methods.items():
    cells = [[error_at(of, share) for of in points] for share in (0.05, 0.1, 0.2)]
    if all(math.isnan(error) for cell in cells for error in cell):
        share = next(share for of in points for share, _ in of)
        method += ": " + shown(of[0][1] if of else math.nan for of in points) + f" at {100 * share:.1f} %" * (share > 0)
    rows.append(([math.inf if math.isnan(error) else error for error in cells[1]], method, *map(shown, cells)))
print(f"| {' / '.join(re.sub('.*/|[.]h5', '', name) for name in datasets)} | 5 % | 10 % | 20 % |\n|:---|---:|---:|---:|")
for row in sorted(rows):
    print(f"| {' | '.join(row[1:])} |")
