"""The figures of the report as pages of a PDF, nine for every group of runs that compare with each other:
python3 experiments/plots/figures.py results/default.h5 figures.pdf [causal]
Needs xarray, matplotlib and netCDF4 (or h5netcdf)."""
import itertools
import json
import sys

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.backends.backend_pdf import PdfPages

GROUP = ["dataset", "dtype", "d", "d_v", "heads", "kv_heads", "batch", "threads", "isa", "score", "mask", "keys"]
HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b88600", "#56b4e9", "#8a63d2", "#a0522d", "#332288", "#882255",
        "#7f7f00", "#3a7d44"]
N, VIOLATED, UNCHECKED = "n (length of the sequence)", 2, 6  # flag_meanings of verdict
ROUNDING, ZEROS = 1e-5, 1  # errors below and above which there is nothing to tell: of exact variants, and of zeros


def name_lines(runs):
    """Column line: the label. Column curve: variant and parameters that differ, except the one along the curve. Returns looks."""
    looks, params = {}, runs.params.map(lambda text: {k: v for k, v in json.loads(text or "{}").items() if k != "seed"})
    hues = itertools.cycle(HUES)
    for variant, own in params.groupby(runs.variant):
        hue = next(hues) if runs.time_median[own.index].any() else "grey"  # a baseline, which is not timed
        differ = [k for k in own.iloc[0] if own.map(lambda p: str(p.get(k))).nunique() > 1]
        # A curve runs along the number that varies most: the parameter that buys accuracy.
        numbers = [k for k in differ if own.map(lambda p: str(p.get(k)).isdigit()).all()]
        along = max(numbers, key=lambda k: own.map(lambda p: p[k]).nunique(), default=None)
        method = own.map(lambda p: " ".join([variant] + [f"{k}={p.get(k)}" for k in differ if k != along]))
        runs.loc[own.index, "curve"], runs.loc[own.index, "along"] = method, own.map(lambda p: float(p.get(along) or 0))
        for i, line in enumerate(runs.line[own.index].sort_values().unique()):
            looks[line] = {"color": hue, "marker": "osD^vP*X"[i % 8], "linestyle": ["-", "--", ":", "-."][i % 4]}
        for curve in method.unique():
            looks[curve] = {"color": hue, "marker": "osD^vP*X"[len(looks) % 8]}
    return looks


def cells(runs):
    """Every line at every n: medians over seeds, from the least to the largest end of their intervals."""
    at = runs.groupby(["line", "n"])
    c = at[["err_rel_fro", "time_median", "peak_alloc", "keys_mean", "kept_mass_mean", "regret_mean", "along"]].median().set_axis(
        ["error", "time", "memory", "keys", "kept", "regret", "along"], axis=1)
    c["left out"], c["curve"] = 1 - c.kept, at.curve.first()
    for name, mid, ends in ("error", "err_rel_fro", "err_rel_fro"), ("time", "time_median", "time_ci"):
        c[f"{name}_lo"] = np.fmin(at[mid].min(), at[f"{ends}_lo"].min())  # a single sample has no interval
        c[f"{name}_hi"] = np.fmax(at[mid].max(), at[f"{ends}_hi"].max())
    # Exact is what errs by rounding alone at every n; others are compared with the one timed most often, then fastest.
    exact = c.error.groupby("line").transform("max") < 1e-5
    c["rank"] = c.error.where(~exact, 0).where(at.verdict.agg(lambda v: not {VIOLATED, UNCHECKED} & set(v)) & (c.error < ZEROS))
    order = np.log(c.time[exact]).groupby("line").agg(["count", "sum"]).sort_values(["count", "sum"], ascending=[False, True])
    c["speed-up"] = c.index.get_level_values("n").map(c.time[order.index[0]]) / c.time if len(order) else np.nan
    return c


def exponent(own):
    """As the report has it: weighted by the intervals, of at least 1 %."""
    sigma = np.maximum(np.log(own.time_hi / own.time_lo) / 3.92, 0.01)
    return f" n^{np.polyfit(np.log(own.index), np.log(own.time), 1, w=1 / sigma)[0]:.2f}" if len(own) > 1 else ""


def draw(pdf, title, runs, bounds, profile):
    def page(what, x, y, **scales):
        plt.gca().set(**{"title": f"{what}\n{title}", "xlabel": x, "ylabel": y, "xscale": "log", "yscale": "log", **scales})
        if x == N:
            plt.xticks(lengths, lengths)
            plt.xticks([], minor=True)
        plt.grid(alpha=0.3)
        plt.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        pdf.savefig(bbox_inches="tight")
        plt.close()

    def against_n(what, name, y, note=lambda own: ""):
        for line, own in c.dropna(subset=[name]).groupby("line"):
            own = own.droplevel("line")
            bars = abs(own[[f"{name}_lo", f"{name}_hi"]].T.values - own[name].values) if f"{name}_lo" in c else None
            plt.errorbar(own.index, own[name], bars, label=line + note(own), **looks[line])
        page(what, N, y)

    def curves(name, x, what, y="relative error"):
        """The settings of a variant, joined in their order. What errs by rounding alone lies on the lower edge."""
        at = c.xs(longest, level="n").dropna(subset=[name, "time"])
        at = at.assign(y=np.maximum(at.error, at.error[at.error >= ROUNDING].min() / 2) if y == "relative error" else at["left out"].where(at["left out"] > ROUNDING))
        for curve, own in at.sort_values("along").groupby("curve", sort=False):
            oracle = own.regret.abs().max() < ROUNDING < own["left out"].max()
            plt.plot(own[name], own.y, label=curve + " (oracle)" * bool(oracle), linewidth=3 if oracle else 1, **looks[curve])
            beyond = own[own.error >= ZEROS]
            plt.plot(beyond[name], beyond.y, "kx", markersize=9)
        if name in ("time", "memory"):
            best = at.dropna(subset=["rank"]).sort_values([name, "rank"])
            best = best[best["rank"] < best["rank"].cummin().shift(fill_value=np.inf)]
            plt.step(best[name], best.y, where="post", color="grey", zorder=0, label="front")
        if y == "relative error":
            plt.axhline(ZEROS, color="grey", linestyle=":", label="zeros; a cross: zeros are as near")
        page(f"{what}, n = {longest}", x, y)

    looks, c, lengths = name_lines(runs), cells(runs), sorted(set(runs.n))
    longest = c.time.dropna().index.get_level_values("n").max()
    against_n("Time against n, with fitted exponents", "time", "time of one execution, s", exponent)
    against_n("Error against n", "error", "relative error")
    curves("time", "time of one execution, s", "Error against time")
    curves("memory", "memory of plan and work, bytes", "Error against memory")
    value, measured, verdict = (bounds[name].values[runs.index] for name in ("value", "measured", "verdict"))
    valued = np.isfinite(value) & (value > 0) & np.isfinite(measured)
    edge = value[valued].min() * 1e-3  # what is far below every bound lies on the lower edge
    for line, look in looks.items():
        for kind in (False, True):
            here = valued & (verdict != VIOLATED) & ((verdict > VIOLATED) == kind) & (runs.line == line).values[:, None]
            plt.plot(value[here], np.maximum(measured[here], edge), label=line if here.any() and not kind else None, markersize=4,
                     **{**look, "linestyle": "", "fillstyle": "none" if kind else "full"})
    bad = np.isfinite(value) & (verdict == VIOLATED)
    if bad.any():
        plt.plot(np.maximum(value[bad], edge), np.where(np.isfinite(measured[bad]), np.maximum(measured[bad], edge), value[valued].max() * 1e3), "rX", markersize=9, zorder=3, label=f"violated: {bad.sum()}")
    plt.axline((edge, edge), (1, 1), color="grey", label="y = x")
    page("Measured against bound (hollow: not judged)", "bound", "measured")
    for line, own in runs[runs.n == longest].groupby("line"):
        error = profile.err_rel_l2.isel(run=own.index).median("run")
        plt.plot(profile.position, error, label=line, **{**looks[line], "marker": "", "linewidth": 1})
    page(f"Error against position, n = {longest}", "position, as a fraction of n", "relative error of rows", xscale="linear")
    against_n("Speed-up over exact attention", "speed-up", "times as fast")
    curves("keys", "keys of a row, mean", "Error against keys")
    curves("keys", "keys of a row, mean", "Mass left out against keys", "exact mass left out (1 - kept)")


plt.rcParams["figure.figsize"] = 8, 5
runs = xr.open_dataset(sys.argv[1]).to_dataframe()
runs["line"], runs["keys"] = runs.label, runs.n_kv.where(runs.n_kv != runs.n, 0)  # 0: as many as n
runs = runs[(runs.status == 0) & (runs.cache_state == 0) & (runs.causal.astype(bool) == ("causal" in sys.argv[3:]))]
groups = [xr.open_dataset(sys.argv[1], group=name) for name in ("bounds", "profile")]
with PdfPages(sys.argv[2]) as pdf:
    for key, own in runs.groupby(GROUP):
        print(f"{len(own)} runs of {key[0]}: {own.time_median.min():.4g} to {own.time_median.max():.4g} s")
        named = dict(zip(GROUP, key))
        named["else"] = "".join([f", {named[name]}" for name in ("score", "mask") if named[name]] + [f", n_kv = {named['keys']}"] * bool(named["keys"]))
        draw(pdf, "{dataset}, {dtype}, d = {d}, {heads} heads, {threads} threads{else}".format(**named), own.copy(), *groups)
