"""Time and memory against n, from thousands of tokens to millions:
attnlab bench long --json long.json && python3 experiments/plots/scale.py long.json scale.svg
Needs matplotlib."""
import itertools
import json
import sys

import matplotlib
import matplotlib.pyplot as plt

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60}


def seconds(figure):
    value, unit = figure.split()
    return float(value) * UNITS[unit]


def main(source, to):
    with open(source) as file:
        rows = json.load(file)["rows"]
    times, memory, exponents, crossings = {}, {}, {}, {}
    for row in rows:
        name, _, kind = row["what"].rpartition(": ")
        if kind == "peak GiB" and row["ratio"] is not None:
            times.setdefault(name, {})[row["n"]] = seconds(row["figure"])
            memory.setdefault(name, {})[row["n"]] = row["ratio"]
        elif kind == "exponent":
            exponents[name] = f" n^{row['ratio']:.2f}"
        elif kind == "overtakes tiled":
            crossings[name] = f", faster from {row['figure']}" if row["figure"].startswith("n") else ""
    plt.rcParams["svg.hashsalt"] = "attnlab"  # the same names in each drawing
    figure, axes = plt.subplots(1, 2, figsize=(13, 6), sharex=True)
    looks = itertools.cycle((hue, dash) for dash in ("-", "--") for hue in matplotlib.colormaps["tab10"].colors)
    for name, (hue, dash) in zip(times, looks):
        label = name + exponents.get(name, "") + crossings.get(name, "")
        for ax, values in (axes[0], times[name]), (axes[1], memory[name]):
            ax.plot(values.keys(), values.values(), dash, color=hue, marker=".", label=label)
    for ax, what in zip(axes, ("seconds of one execution", "peak resident memory, GiB")):
        ax.set(yscale="log", xlabel="n", ylabel=what)
        ax.set_xscale("log", base=2)
        ax.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=3, fontsize="x-small")
    figure.tight_layout(rect=(0, 0.22, 1, 1))
    figure.savefig(to, metadata={"Date": None})


main(*sys.argv[1:])
