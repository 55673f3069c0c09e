"""What the program computes, asked from Python: descriptions, and advice for given tensors."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

from . import library, tensors
from .library import Error


def program_path() -> str:
    """ATTNLAB_PROGRAM, that of the newest build of the source tree, that of the same prefix, or the one on PATH."""
    named = os.environ.get("ATTNLAB_PROGRAM")
    if named:
        return named
    installed = library.prefix() / "bin" / "attnlab"
    path = library.newest_of_tree("experiments/attnlab") or (installed if installed.exists() else None)
    found = str(path) if path else shutil.which("attnlab")
    if found is None:
        raise FileNotFoundError("the program attnlab is not here: build or install it, or name it in ATTNLAB_PROGRAM")
    return found


def run(*arguments: str) -> str:
    """What `attnlab ARGUMENT...` prints. Error: its last line of messages, and its exit code."""
    with_plugins = [option for path in library.plugins for option in ("--plugin", path)]
    done = subprocess.run([program_path(), *arguments, *with_plugins], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("attnlab")] or [done.stderr.strip()]
        raise Error(lines[-1].partition(": ")[2] or lines[-1], f"exit {done.returncode}")
    return done.stdout


class Description(dict):
    """What `attnlab describe NAME --json` says; as text, by str or print, what `attnlab describe NAME` prints."""

    def __init__(self, name: str):
        super().__init__(json.loads(run("describe", name, "--json")))
        self._asked = name

    def __str__(self) -> str:
        return run("describe", self._asked).rstrip("\n")


def describe(name: str) -> Description:
    """What a variant (with parameters, or without), a bound check or a dataset is: a dict with "summary", "parameters" and
    so on, and print(attnlab.describe("longformer")) for reading."""
    return Description(name)


def advise(q: Any, k: Any, v: Any, *specs: str, error: float = 0.1, causal: bool = False, layout: str = "bhnd",
           threads: int = 0) -> dict[str, Any]:
    """What each variant, or each of specs, would need on these tensors for a relative error, and what it costs.

    q, k, v as in `attention`. The dict of `attnlab advise --json`: "best" is the cheapest setting within the error, or
    None; "settings" has one dict each, with "spec", "error", "time_s", "memory_bytes", "within" and more:
    pandas.DataFrame(advice["settings"]) is a table."""
    import numpy

    with tempfile.TemporaryDirectory(prefix="attnlab-") as folder:
        arguments = ["advise", *specs, "--error", repr(float(error)), "--json"]
        for name, x in ("q", q), ("k", k), ("v", v):
            array = tensors.to_numpy(tensors.widen(x, name))
            if layout == "bnhd" and array.ndim > 2:
                array = array.swapaxes(-3, -2)
            path = pathlib.Path(folder, f"{name}.npy")
            numpy.save(path, numpy.ascontiguousarray(array))
            arguments += [f"--{name}", str(path)]
        if causal:
            arguments.append("--causal")
        if threads:
            arguments += ["--threads", str(threads)]
        return json.loads(run(*arguments))
