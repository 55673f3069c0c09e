"""Results files as tables of pandas."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

from . import program

if TYPE_CHECKING:
    import pandas

SCHEMAS = ("attnlab-results", "attnlab-eval", "attnlab-training")


def load(path: str | os.PathLike[str]) -> pandas.DataFrame:
    """The runs of a results file of `attnlab run`, of an evaluation of `attnlab eval`, or of a study of `attnlab train`
    (a model each), a row each.

    Columns are those of the file, with their names: time_median in s between time_ci_lo and time_ci_hi, err_rel_fro
    between err_rel_fro_lo and err_rel_fro_hi, peak_alloc in bytes, and so on; `attrs["columns"]` says what each is, with
    its unit. Flags such as status and verdict are texts, causal is bool, times of day are timestamps. `label` names the
    variant with its parameters, as they may be typed after `attnlab apply`; medians over seeds are over rows of one label.
    `attrs` has the attributes of the file, too. ValueError: it is no such file."""
    import h5py
    import pandas

    with h5py.File(path, "r") as file:
        attributes = {name: _text(value) for name, value in file.attrs.items()}
        if attributes.get("schema") not in SCHEMAS:
            raise ValueError(f"{os.fspath(path)}: expected a results file of attnlab")
        variables = {name: item for name, item in file.items()
                     if isinstance(item, h5py.Dataset) and item.shape == file["run"].shape}
        runs = pandas.DataFrame({name: _values(item) for name, item in variables.items()})
        columns = {name: " ".join(filter(None, (_attribute(item, "long_name"), _unit(item))))
                   for name, item in variables.items()}
    if "label" not in runs and "params" in runs:
        runs["label"] = [_label(*run) for run in zip(runs["variant"], runs["params"])]
    elif "label" not in runs:
        runs["label"] = runs["spec"]
    runs.attrs = {**attributes, "path": os.fspath(path), "columns": columns}
    return runs


def run(config: str | os.PathLike[str] | dict[str, Any], output: str | os.PathLike[str] | None = None) -> pandas.DataFrame:
    """Runs an experiment as `attnlab run` does, a YAML file or a dict with its keys (`attnlab help config`), and loads its
    rows: {"schema": 1, "grid": {"n": [256, 512]}, "variants": ["tiled", {"topk": {"k": [8, 16]}}], "datasets": "gaussian"}.

    output: where the results file stays, from which the same call resumes an interrupted experiment. A violated bound or
    a failed run stands in its row. Error: the configuration is wrong, and whatever else ends the program."""
    with tempfile.TemporaryDirectory(prefix="attnlab-") as folder:
        path = os.path.abspath(output) if output else os.path.join(folder, "results.h5")
        if isinstance(config, dict):
            written = pathlib.Path(folder, "config.yaml")
            written.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")  # which is YAML
            config = written
        program.run("run", os.fspath(config), options=["--quiet", "--output", path], good=(0, 1, 3))
        runs = load(path)
    if not output:
        del runs.attrs["path"]
    return runs


def bounds(path: str | os.PathLike[str]) -> pandas.DataFrame:
    """What was checked, a row for each run and bound that applies to it: run (the row of `load`), key, label, bound, kind,
    verdict, value (of the bound), measured, margin (measured over value), p_value, message."""
    import h5py
    import pandas

    runs = load(path)
    with h5py.File(path, "r") as file:
        group = file.get("bounds", file.get("checks"))
        if group is None:
            return pandas.DataFrame(columns=["run", "key", "label", "bound", "kind", "verdict", "value", "measured",
                                             "margin", "p_value", "message"])
        own = [name for name, item in group.items() if item.ndim == 1][0]
        names = group[own].asstr()[()]
        cells = {name: _values(item) for name, item in group.items() if item.ndim == 2}
    count = len(runs)
    table = {"run": runs.index.repeat(len(names)), "key": runs["key"].repeat(len(names)),
             "label": runs["label"].repeat(len(names)), "bound": list(names) * count}
    tidy = pandas.DataFrame({name: list(values) for name, values in table.items()})
    for name, values in cells.items():
        tidy[name] = values.reshape(-1)
    return tidy[tidy["verdict"] != "not_applicable"].reset_index(drop=True)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _attribute(item: Any, name: str) -> str:
    return str(_text(item.attrs.get(name, "")))


def _unit(item: Any) -> str:
    unit = _attribute(item, "units")
    return "" if unit in ("", "1") or "since" in unit else f"[{unit}]"


def _values(item: Any) -> Any:
    """A variable's values, decoded."""
    import h5py
    import numpy

    if h5py.check_string_dtype(item.dtype):
        return item.asstr()[()]
    values = item[()]
    meanings = _attribute(item, "flag_meanings").split()
    if meanings:
        return numpy.array(meanings, dtype=object)[values]
    if _attribute(item, "dtype") == "bool":
        return values.astype(bool)
    if _attribute(item, "units").startswith("seconds since 1970"):
        known = numpy.where(numpy.isfinite(values), values, 0)
        times = (known * 1e6).astype("int64").astype("datetime64[us]").astype("datetime64[ns]")
        return numpy.where(numpy.isfinite(values), times, numpy.datetime64("NaT", "ns"))
    return values


def _label(variant: str, params: str) -> str:
    """Of files without the column: every parameter but the seed, over which medians are."""
    values = {name: value for name, value in json.loads(params or "{}").items() if name != "seed"}
    return ":".join(filter(None, (variant, ",".join(f"{name}={value}" for name, value in values.items()))))
