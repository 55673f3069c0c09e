"""What errs how much, costs how much and grows how fast: figures of `attnlab.load`'s runs, each by one line.

    attnlab.plot.error(runs, causal=True)       error against n
    attnlab.plot.front(runs, causal=True)       error against time, memory or keys, with what is best
    attnlab.plot.scaling(runs, causal=True)     time or memory against n, with fitted exponents

Drawn are runs that ended well, with a warm cache, and were checked and violate no bound. A point is the median over seeds, its
bars reach from the least to the largest end of the 95 % intervals. Only runs of one problem compare: ValueError names
what differs, and a keyword of that column's name chooses, `causal=True`, `n=4096`, `dataset="gaussian"`; a part of a text
is enough."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# In which runs of one figure must agree.
PROBLEM = ["dataset", "causal", "dtype", "d", "d_v", "heads", "kv_heads", "batch", "threads", "isa", "score", "mask",
           "rows"]
HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b88600", "#56b4e9", "#8a63d2", "#a0522d", "#332288", "#882255",
        "#7f7f00", "#3a7d44"]
ROUNDING = 1e-5  # a relative error below it is that of rounding, whatever computed it
WIDEST = 0.5  # an exponent with a wider interval is not shown, as in `attnlab check`
STUDENT = [1.96, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]  # 97.5 %, by degrees of freedom; 0: normal
BLIND = ["null_zeros", "null_mean_v"]  # baselines that look at no key
N, TIME, MEMORY, ERROR = "n (length of the sequence)", "time of one execution, s", "memory, bytes", "relative error"
COSTS = {"time": ("time_median", "time_ci_lo", "time_ci_hi", TIME),
         "memory": ("peak_alloc", "peak_alloc", "peak_alloc", MEMORY + " of plan and work"),
         "keys": ("keys_mean", "keys_mean", "keys_mean", "keys that a query reads, mean")}


def error(runs: pandas.DataFrame, ax: Axes | None = None, **where: Any) -> Axes:
    """Relative Frobenius error against n, a line for each label. What errs by rounding alone lies on the lower edge."""
    points = _points(runs, where, "err_rel_fro", "err_rel_fro_lo", "err_rel_fro_hi")
    ax, looks = _axes(ax, points["label"].nunique()), _looks(runs)
    floor = _lift_rounding(points)
    for label, own in points.groupby("label", sort=False):
        _line(ax, own, "n", label, looks[label])
    _name_floor(ax, floor)
    return _finish(ax, points, N, ERROR, along_n=True)


def scaling(runs: pandas.DataFrame, ax: Axes | None = None, cost: str = "time", **where: Any) -> Axes:
    """cost="time" or "memory" against n, a line for each label, with the exponent of n that fits it where its 95 % interval
    is at most 0.5 wide."""
    middle, low, high, title = _cost(cost)
    points = _points(runs, where, middle, low, high)
    ax, looks = _axes(ax, points["label"].nunique()), _looks(runs)
    for label, own in points.groupby("label", sort=False):
        _line(ax, own, "n", label + _exponent(own, cost == "time"), looks[label])
    return _finish(ax, points, N, title, along_n=True)


def front(runs: pandas.DataFrame, ax: Axes | None = None, cost: str = "time", times: Any = None, **where: Any) -> Axes:
    """Relative error against cost="time", "memory" or "keys" at one n, the largest that was timed if none is named. The
    settings of a method are joined along the number in which they differ most; the grey steps are the front: nothing below and left of them was measured. What
    is no better than an output of zeros, whose error is 1, or than the mean of V, is on no front: it lies above the dashed line.
    times: of others, a table or a file as of `attnlab report --times` whose settings are labels; a dotted line for each
    device, which is on no front."""
    middle, low, high, title = _cost(cost)
    if "n" not in where:
        timed = _select(runs, where)
        where = {**where, "n": timed["n"][timed[middle].notna()].max()}
    points = _points(runs, where, "err_rel_fro", "err_rel_fro_lo", "err_rel_fro_hi")
    blind = points[points["variant"].isin(BLIND)]
    costs = _points(runs, where, middle, low, high)
    points = points.merge(costs[["label", "y", "lo", "hi"]], on="label", suffixes=("", "_cost"))
    ax = _axes(ax)
    floor = _lift_rounding(points)
    limit = float(min([1.0, *blind["y"]]))
    best = points[points["y"] < limit].sort_values(["y_cost", "y"])
    best = best[best["y"] < best["y"].cummin().shift(fill_value=float("inf"))]
    ax.step(best["y_cost"], best["y"], where="post", color="grey", linewidth=1, zorder=0, label="front")
    looks, settings = _looks(runs), _settings(runs)
    points = points.join(settings[["method", "along"]], on="label")
    for method, own in points.groupby("method", sort=False):
        _line(ax, own.sort_values("along"), "y_cost", method, {**looks[own["label"].iloc[0]], "linestyle": "-"})
    middle_of_axis = (points["y_cost"].min() * points["y_cost"].max()) ** 0.5
    for _, point in best.iterrows():
        left = point["y_cost"] > middle_of_axis
        ax.annotate(point["label"], (point["y_cost"], point["y"]), xytext=(-3 if left else 3, 3), fontsize=6,
                    textcoords="offset points", ha="right" if left else "left")
    ax.axhline(limit, color="grey", linestyle="--", linewidth=1, zorder=0)
    ax.annotate("no better than the mean of V" if limit < 1 else "no better than zeros", (0.01, limit), xytext=(0, 2),
                xycoords=("axes fraction", "data"), textcoords="offset points", va="bottom", fontsize=6)
    _name_floor(ax, floor)
    if times is not None:
        others = _other_times(times, _select(runs, where)).merge(points[["label", "y"]], on="label").sort_values("x")
        for device, own in others.groupby("device"):
            ax.plot(own["x"].to_numpy(), own["y"].to_numpy(), "x:", color="grey", label=device)
            ax.annotate(str(device), (own["x"].iloc[0], own["y"].iloc[0]), xytext=(0, 5), textcoords="offset points", fontsize=6)
    return _finish(ax, points, title, f"{ERROR}, n = {where['n']}")


def _other_times(times: Any, runs: pandas.DataFrame) -> pandas.DataFrame:
    """Those that agree with these runs: label, device, and seconds as x."""
    import pandas

    others = times if isinstance(times, pandas.DataFrame) else pandas.read_csv(times)
    missing = {"setting", "device", "n", "milliseconds"} - set(others)
    spent = pandas.to_numeric(others["milliseconds"], errors="coerce") / 1e3 if not missing else []
    if missing or not all(0 < x < float("inf") for x in spent):
        raise ValueError(f"times: expected {', '.join(sorted(missing)) or 'milliseconds above 0'}")
    for name in (set(others) & set(runs)) - {"label"}:
        others = others[others[name].isna() | others[name].replace({"yes": True, "no": False}).isin(runs[name].unique())]
    return others.assign(label=others["setting"], x=spent)


def _exponent(own: pandas.DataFrame, sampled: bool) -> str:
    """That of y in n, by least squares on logarithms weighted by the intervals (experiments/analysis/fit.c); empty if its
    own is unknown or too wide to tell n from n log n. sampled: a value without an interval is one of which none is known."""
    import numpy

    freedom = len(own) - 2
    if freedom < 0 or (not freedom and sampled and not (own["hi"] > own["lo"]).all()):
        return ""
    x, y = numpy.log(own["n"]), numpy.log(own["y"])
    weights = 1 / numpy.maximum(numpy.log(own["hi"] / own["lo"]) / 3.92, 0.01) ** 2  # a 95 % interval's, 1 % at least
    x = x - numpy.average(x, weights=weights)
    square = (weights * x**2).sum()
    slope = (weights * x * y).sum() / square
    left = (weights * (y - numpy.average(y, weights=weights) - slope * x) ** 2).sum()
    reach = STUDENT[min(freedom, len(STUDENT) - 1)] * numpy.sqrt(max(1, left / freedom if freedom else 1) / square)
    return f"  n^{slope:.2f}" if 2 * reach <= WIDEST else ""


def _cost(name: str) -> tuple[str, str, str, str]:
    if name not in COSTS:
        raise ValueError(f"cost={name!r}; expected one of {', '.join(COSTS)}")
    return COSTS[name]


def _select(runs: pandas.DataFrame, where: dict[str, Any]) -> pandas.DataFrame:
    """The runs that may be compared, and were asked for. ValueError: there are none, or they are of several problems."""
    good = runs[(runs["status"] == "ok") & (runs["cache_state"] == "warm") & ~runs["verdict"].isin(["violated", "error", "unchecked"])]
    for column, value in where.items():
        if column not in runs:
            raise ValueError(f"{column}={value!r}: the runs have no such column")
        same = good[column] == value
        if isinstance(value, str) and not same.any():
            same = good[column].str.contains(value, regex=False)
        good = good[same]
    if good.empty:
        raise ValueError(f"no run that ended well has {where}" if where else "no run ended well")
    differ = {column: sorted(map(str, good[column].unique())) for column in PROBLEM
              if column in good and good[column].nunique() > 1}
    keys = good.groupby("n")["n_kv"].unique() if "n_kv" in good else []
    if any(len(values) > 1 for values in keys):
        differ["n_kv"] = [str(value) for value in sorted(good["n_kv"].unique())]
    if differ:
        said = "; ".join(f"{column}: {', '.join(values)}" for column, values in differ.items())
        raise ValueError(f"runs of several problems do not compare; choose one by {' and '.join(differ)} ({said})")
    return good


def _points(runs: pandas.DataFrame, where: dict[str, Any], middle: str, low: str, high: str) -> pandas.DataFrame:
    """The median over seeds for each label and n, y, between lo and hi. One run alone may have no interval."""
    import numpy

    good = _select(runs, where)
    good = good[good[middle] > 0] if middle != "err_rel_fro" else good[good[middle].notna()]
    if good.empty:
        raise ValueError(f"no run has the column {middle}")
    at = good.groupby(["variant", "label", "n"])
    points = at[[middle]].median().rename(columns={middle: "y"})
    points["lo"] = numpy.fmin(at[middle].min(), at[low].min())
    points["hi"] = numpy.fmax(at[middle].max(), at[high].max())
    order = {label: place for place, label in enumerate(_settings(runs).index)}
    return points.reset_index().sort_values(["label", "n"], key=lambda x: x.map(order) if x.name == "label" else x)


def _lift_rounding(points: pandas.DataFrame) -> float | None:
    """Moves errors of rounding, and zeros, to a lower edge, and gives its height; None: there are none, or nothing
    else."""
    exact = points["y"] < ROUNDING
    if not exact.any() or exact.all():
        points[["y", "lo"]] = points[["y", "lo"]].clip(lower=points["y"][points["y"] > 0].min())
        return None
    floor = points["y"][~exact].min() / 3
    points.loc[exact, ["y", "lo", "hi"]] = floor
    points["lo"] = points["lo"].clip(lower=floor)
    return float(floor)


def _name_floor(ax: Axes, floor: float | None) -> None:
    if floor:
        ax.axhline(floor, color="grey", linestyle=":", linewidth=1, zorder=0)
        ax.annotate("rounding alone", (0.01, floor), xytext=(0, -2), xycoords=("axes fraction", "data"),
                    textcoords="offset points", va="top", fontsize=6)


def _legend_columns(lines: int) -> int:
    return 1 + lines // 32


def _axes(ax: Axes | None, lines: int = 1) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot

    return matplotlib.pyplot.subplots(figsize=(5 + 3 * _legend_columns(lines), 4.5), layout="constrained")[1]


def _settings(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Of each label its variant, its method (the label without the number in which the variant's labels differ most) and
    that number, in the order of legends."""
    settings = runs.drop_duplicates("label").set_index("label").assign(method="", along=0.0)
    for variant, own in settings.groupby("variant"):
        counts = {name: own[name].nunique() for name in own if name.startswith("p_") and name != "p_seed"
                  and own[name].dtype.kind == "f"}
        name = max(counts, key=lambda n: counts[n], default="")
        differ = counts.get(name, 0) > 1
        for label in own.index:
            method = re.sub(f"(?<=[:,]){name[2:]}=[^,]*,?", "", label).rstrip(":,") if differ else label
            settings.loc[label, ["method", "along"]] = [method, own.loc[label, name] if differ else 0.0]
    return settings[["variant", "method", "along"]].sort_values(["variant", "method", "along"])


def _looks(runs: pandas.DataFrame) -> dict[str, dict[str, Any]]:
    """A colour for each variant, a marker and a stroke for each of its labels, the same in all figures of these runs;
    baselines are grey."""
    looks: dict[str, dict[str, Any]] = {}
    number = baselines = 0
    for variant, own in _settings(runs).groupby("variant"):
        baseline = str(variant).startswith("null_")
        for i, label in enumerate(own.index):
            looks[label] = {"color": "grey" if baseline else HUES[number % len(HUES)],
                            "marker": "osD^vP*X"[(i + baselines) % 8 if baseline else i % 8],
                            "linestyle": "--" if baseline else ["-", "--", ":", "-."][i % 4]}
        number += not baseline
        baselines += len(own) if baseline else 0
    return looks


def _line(ax: Axes, own: pandas.DataFrame, x: str, label: Any, look: dict[str, Any]) -> None:
    """A line of ax, with bars in y, and in x where its values have ends; a value without an interval has no bar."""
    def ends(y: str, lo: str, hi: str) -> list[Any] | None:
        some = own[hi] > own[lo]
        return None if not some.any() else [(own[y] - own[lo]).where(some).to_numpy(), (own[hi] - own[y]).where(some).to_numpy()]

    bars = {"yerr": ends("y", "lo", "hi")}
    if x == "y_cost":
        bars["xerr"] = ends("y_cost", "lo_cost", "hi_cost")
    ax.errorbar(own[x].to_numpy(), own["y"].to_numpy(), **bars, label=label, linewidth=1, markersize=4, capsize=2, **look)


def _finish(ax: Axes, points: pandas.DataFrame, x: str, y: str, along_n: bool = False) -> Axes:
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    if along_n:
        lengths = sorted(points["n"].unique())
        ax.set_xticks(lengths, [str(n) for n in lengths])
        ax.set_xticks([], minor=True)
    ax.grid(alpha=0.3)
    lines, labels = ax.get_legend_handles_labels()
    ax.legend([line[0] if isinstance(line, tuple) else line for line in lines], labels, fontsize=6, loc="upper left",
              bbox_to_anchor=(1, 1), ncol=_legend_columns(len(lines)))
    return ax
