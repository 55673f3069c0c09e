"""What the program computes, asked from Python: descriptions, and advice for given tensors."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Container, NoReturn, Sequence

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


def run(command: str, *names: str, options: Sequence[str] = (), good: Container[int] = (0,)) -> str:
    """What `attnlab COMMAND OPTION... -- NAME...` prints. Error: its last line of messages, and its exit code."""
    with_plugins = [option for path in library.plugins for option in ("--plugin", path)]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is a {type(name).__name__}; expected a string")
    done = subprocess.run([program_path(), command, *options, *with_plugins, "--", *names], capture_output=True, text=True,
                          check=False)
    if done.returncode not in good:
        lines = [line for line in done.stderr.splitlines() if line.startswith("attnlab")] or [done.stderr.strip()]
        raise Error(lines[-1].partition(": ")[2] or lines[-1], f"exit {done.returncode}")
    return done.stdout


def main() -> NoReturn:
    """The command `attnlab` of a wheel: the program takes the place of the interpreter."""
    os.environ.setdefault("ATTNLAB_PYTHON", sys.executable)  # which has this module; another may not
    os.execv(program_path(), ["attnlab", *sys.argv[1:]])


class Description(dict):
    """What `attnlab describe NAME --json` says; as text, by str or print, what `attnlab describe NAME` prints."""

    def __init__(self, name: str):
        super().__init__(json.loads(run("describe", name, options=["--json"])))
        self._asked = name

    def __str__(self) -> str:
        return run("describe", self._asked).rstrip("\n")


def describe(name: str) -> Description:
    """What a variant (with parameters, or without), a bound check or a dataset is: a dict with "summary", "parameters" and
    so on, and print(attnlab.describe("longformer")) for reading."""
    return Description(name)


def compare(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> dict[str, Any]:
    """What changed between two results files: the dict of `attnlab compare --json`, whose ratios of times have 95 %
    intervals."""
    return json.loads(run("compare", os.fspath(before), os.fspath(after), options=["--json"], good=(0, 1)))


def save(path: str | os.PathLike[str], q: Any, k: Any, v: Any, *, layout: str = "bhnd") -> None:
    """Writes tensors of NumPy, PyTorch or JAX as an .npz file, which `attnlab --in` and datasets read; float16 and
    bfloat16 as float32, which loses nothing. The axes are [batch, heads, n, d] in the file, whatever the layout here."""
    import numpy

    path = os.fspath(path)
    if not path.endswith(".npz"):
        raise ValueError(f"{path}: expected a name that ends with .npz")
    numpy.savez(path, **_arrays(q, k, v, layout))


def _arrays(q: Any, k: Any, v: Any, layout: str) -> dict[str, Any]:
    """NumPy arrays with heads before positions, of types that the program computes in."""
    if layout not in ("bhnd", "bnhd"):
        raise ValueError(f"layout={layout!r}; expected \"bhnd\" or \"bnhd\"")
    arrays = {name: tensors.to_numpy(tensors.widen(x, name)) for name, x in (("q", q), ("k", k), ("v", v))}
    if layout == "bhnd":
        return arrays
    return {name: x.swapaxes(-3, -2) if x.ndim > 2 else x for name, x in arrays.items()}


def advise(q: Any, k: Any, v: Any, *specs: str, error: float = 0.1, causal: bool = False, layout: str = "bhnd",
           mask: Any = None, bias: Any = None, alibi: bool = False, softcap: float | None = None,
           leaky: float | None = None, sink: Any = None, limit: float | None = None, threads: int = 0) -> dict[str, Any]:
    """The cheapest settings of each variant, or of specs, within a relative Frobenius error on these tensors, measured.

    Tensors, masks and so on as in `attention`; limit: seconds after which the search of a variant ends. The dict of
    `attnlab advise --json`: "best" is the spec of the cheapest setting within the error that is faster than exact
    attention, or None; "settings" has a dict for each, with "spec", "error", "certain" (a bound, or None), "time_s",
    "memory_bytes", "within" and more. pandas.DataFrame(advice["settings"]) is a table."""
    import numpy

    given: dict[str, Any] = {"error": float(error), "softcap": softcap, "leaky": leaky, "limit": limit, "threads": threads or None}
    with tempfile.TemporaryDirectory(prefix="attnlab-") as folder:
        arguments = ["--json"]
        arrays = _arrays(q, k, v, layout)
        for name, x in ("mask", mask), ("bias", bias), ("sink", sink):
            if isinstance(x, (str, int, float)):
                given[name] = x
            elif x is not None:
                arrays[name] = numpy.asarray(tensors.to_numpy(x), None if name == "mask" else "f8")
        for name, array in arrays.items():
            given[name] = str(pathlib.Path(folder, f"{name}.npy"))
            numpy.save(given[name], numpy.ascontiguousarray(array))
        for name, value in given.items():
            arguments += [] if value is None else [f"--{name}", str(value)]
        arguments += [option for option, wanted in (("--causal", causal), ("--alibi", alibi)) if wanted]
        return json.loads(run("advise", *specs, options=arguments))
