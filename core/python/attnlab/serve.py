"""A function of Python, called by the program attnlab: `main` speaks the protocol of experiments/functions/README.md on
standard input and output, for `attnlab test python:MODULE.FUNCTION`. `attnlab.judge` serves one from the running process."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import mmap
import os
import re
import signal
import socket
import sys
import threading
import time
import types
import warnings
from typing import Any, Callable, Iterator

import numpy

from .claims import Claims
from .pace import Pace
from .trials import SHORT, Broken, Refused, drawn_arrays, find_taken

NAMES = {"causal": ("causal", "is_causal"), "scale": ("scale", "sm_scale", "softmax_scale"), "kv_len": ("kv_len",)}
BUGS = (ArithmeticError, AttributeError, LookupError, MemoryError, NameError, SystemExit)  # of a function: others are refusals
DTYPES = {"f32": numpy.float32, "f64": numpy.float64}
LOADING = 100.0  # seconds that a module may take to load; the program waits for 120


class Function:
    """A function o = function(q, k, v, causal=...) behind one form: NumPy arrays [batch, heads, n, d] in and out.

    Keyword arguments that it lacks are not passed. arrays: "numpy", "torch" or "jax", what it is called with; by default
    the library that its module has. causal: True or False, what a function without such an argument computes. limit:
    seconds of each first trial. seed: the name of the argument that seeds its draws; state: of the one that takes what a
    call before returned last. A function of a state is causal, and computes a sequence in parts."""

    def __init__(self, function: Callable[..., Any], *, layout: str = "bhnd", arrays: str | None = None,
                 causal: bool | None = None, name: str | None = None, limit: float = 0, seed: str | None = None,
                 state: str | None = None):
        if layout not in ("bhnd", "bnhd"):
            raise ValueError(f"layout={layout!r}; expected \"bhnd\" or \"bnhd\"")
        if not callable(function):
            raise TypeError(f"expected a function of q, k and v, got a value of the type {type(function).__name__}")
        if arrays not in (None, "numpy", "torch", "jax"):
            raise ValueError(f"arrays={arrays!r}; expected \"numpy\", \"torch\" or \"jax\"")
        self.function, self.layout, self.causal, self.limit = function, layout, True if state else causal, limit
        self._own = {what: name for what, name in (("seed", seed), ("state", state)) if name}
        self.arrays = arrays or _library_of(function)
        self.name = re.sub("[^a-z0-9_]", "_", (name or getattr(function, "__name__", type(function).__name__)).lower())[:40]
        self.notes: list[str] = []
        self._pace = Pace()
        self._takes: list[str] | None = None
        self.short: str | None = None
        self.broken: str | None = None  # what a first trial showed: no output can be relied on
        self.strided = False  # are arrays given as transposed views?
        self.above_0 = False  # does it need a scale above 0?
        self.ends_at_length = False  # does its causal mask end at kv_len? attnlab's does at n_kv
        self.rest: tuple[Any, ...] = ()  # what the last call returned besides the output

    @functools.cached_property
    def keywords(self) -> dict[str, str]:
        """Of causal, scale, kv_len, the seed and the state the names that the function has for them."""
        found = {**self._find_keywords(), **self._own}
        if "state" in found:  # of which parts of a sequence have nothing
            found.pop("kv_len", None)
        return found

    def _find_keywords(self) -> dict[str, str]:
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except ValueError:  # of C
            return self._try_keywords({})
        named = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        found = {what: name for what, names in NAMES.items() for name in names if name in named}
        if "enable_gqa" in named:
            found["enable_gqa"] = "enable_gqa"
        others = [p.name for p in list(parameters)[3:] if p.name in named - {*found.values(), *self._own.values()}]
        if others:
            self.note(f"never passed: {', '.join(others)}")
        return self._try_keywords(found) if any(p.kind == p.VAR_KEYWORD for p in parameters) else found

    def _try_keywords(self, found: dict[str, str]) -> dict[str, str]:
        """Those found, and what a signature does not tell, as that of a module of PyTorch: what changes the output."""
        plain = self._tried()
        for what, value in {"causal": True, "scale": 0.5, "kv_len": numpy.full(1, 5)}.items():
            for name in () if what in found else NAMES[what]:
                o = self._tried(**{name: value})
                if o is not None and (plain is None or not numpy.array_equal(o, plain, equal_nan=True)):
                    found[what] = name
                    break
        return found

    def _tried(self, **keywords: Any) -> numpy.ndarray | None:
        q, k, v = drawn_arrays()
        given = {name: self.given(x) if isinstance(x, numpy.ndarray) else x for name, x in keywords.items()}
        try:
            with _limited(self.limit):
                return None if self.broken else self._taken(
                    self.function(*(self.given(x) for x in (q, k, v)), **given), q.shape, q.dtype)
        except Exception as error:  # pylint: disable=broad-except
            self.broken = str(error) if isinstance(error, TimeoutError) else self.broken
            return None

    def given(self, x: numpy.ndarray) -> Any:
        """A copy in the function's layout and library, contiguous if it is not to be strided."""
        x = x.transpose(0, 2, 1, 3) if self.layout == "bnhd" and x.ndim == 4 else x
        x = numpy.array(x.swapaxes(1, 2), order="C").swapaxes(1, 2) if self.strided and x.ndim == 4 else numpy.array(x, order="C")
        if self.arrays == "torch":
            return sys.modules["torch"].from_numpy(x)
        return sys.modules["jax"].numpy.asarray(x) if self.arrays == "jax" else x

    def _taken(self, o: Any, shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> numpy.ndarray:
        self.rest = tuple(o[1:]) if isinstance(o, (tuple, list)) else ()
        o = o[0] if isinstance(o, (tuple, list)) and o else o
        if o is None:
            raise Broken("it returns None")
        short = str(getattr(o, "dtype", "")).rpartition(".")[2]
        if hasattr(o, "detach"):
            o = o.detach().cpu()
            o = (o.float() if short in SHORT else o).numpy()
        o = numpy.asarray(o)
        if short in SHORT:
            self.short, o = short, o.astype("f4")
        if o.dtype.kind != "f":
            raise Broken(f"it returns {o.dtype}, not {dtype}")
        if o.dtype != dtype:
            self.note(f"it returns {o.dtype} for {dtype}")
        o = o.transpose(0, 2, 1, 3) if self.layout == "bnhd" and o.ndim == 4 else o
        if o.shape != shape:
            raise Broken(f"it returns the shape {list(o.shape)}, not {list(shape)}")
        return o

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def __call__(self, q: numpy.ndarray, k: numpy.ndarray, v: numpy.ndarray, *, causal: bool = False,
                 scale: float | None = None, kv_len: Any = None, limit: float = 0, seed: int = 0) -> numpy.ndarray:
        """The output. Refused, Broken, TimeoutError after `limit` seconds, where the main thread calls."""
        if "state" in self.keywords:
            n = k.shape[2]  # the last row is a part, as in decoding
            cuts = sorted({*numpy.random.default_rng(n).integers(1, n, 4).tolist(), n - 1}) if n > 1 else []
            return self.in_parts(q, k, v, cuts, scale=scale, limit=limit, seed=seed)

        def call(q: numpy.ndarray, causal: bool) -> numpy.ndarray:
            return self._call(q, k, v, causal=causal, scale=scale, kv_len=kv_len, limit=limit, seed=seed)

        if not (causal and kv_len is not None and self.ends_at_length):
            return call(q, causal)
        if "causal" not in self.keywords:
            raise Refused("queries behind kv_len under its causal mask")
        # Each query moves to the row that stands at its position there; those behind kv_len see all keys.
        rows, later = numpy.arange(q.shape[2]), k.shape[2] - numpy.asarray(kv_len)[:, None]
        moved, back = (numpy.clip(x, 0, len(rows) - 1)[:, None, :, None] for x in (rows - later, rows + later))
        o = numpy.take_along_axis(call(numpy.take_along_axis(q, moved, 2), True), back, 2)
        return numpy.where((rows + later < len(rows))[:, None, :, None], o, call(q, False))

    def in_parts(self, q: numpy.ndarray, k: numpy.ndarray, v: numpy.ndarray, cuts: list[int], **options: Any) -> numpy.ndarray:
        """The output of a sequence whose parts, which begin at 0 and the cuts, are computed in turn from the state before."""
        earlier, n, outputs, state = k.shape[2] - q.shape[2], k.shape[2], [], None
        if earlier > 1024:  # for which there are rows, too
            raise Refused("it would take too long")
        q = numpy.pad(q, ((0, 0), (0, 0), (earlier, 0), (0, 0)))
        for part in (slice(*ends) for ends in zip([0, *cuts], [*cuts, n])):
            outputs.append(self._call(*(x[:, :, part] for x in (q, k, v)), causal=True, state=state, **options))
            if not self.rest or self.rest[-1] is None:
                raise Broken("it returns no state behind the output")
            state = self.rest[-1]
        return numpy.concatenate(outputs, 2)[:, :, earlier:]

    def _call(self, q: numpy.ndarray, k: numpy.ndarray, v: numpy.ndarray, *, causal: bool, scale: float | None = None,
              kv_len: Any = None, limit: float = 0, seed: int = 0, state: Any = None) -> numpy.ndarray:
        if self.broken:
            raise Broken(self.broken)
        if scale is not None and ("scale" not in self.keywords or (self.above_0 and not scale > 0)):
            q, scale = q * q.dtype.type(scale * q.shape[3] ** 0.5), None  # at its usual scale queries take what is missing
        given = {"causal": causal, "scale": scale, "kv_len": None if kv_len is None else self.given(kv_len),
                 "enable_gqa": q.shape[1] != k.shape[1], "seed": seed, "state": state}
        keywords = {self.keywords[what]: x for what, x in given.items() if x is not None and what in self.keywords}
        operands = {"q": self.given(q), "k": self.given(k), "v": self.given(v)}
        shape = (*q.shape[:3], v.shape[3])
        rows = int(numpy.prod(shape[:3]))
        products = rows * k.shape[2] * (k.shape[3] + v.shape[3])
        if not self._pace.allows(rows, products):
            self.note("not judged: problems that it would take too long for")
            raise Refused("it would take too long")
        begin = time.process_time()
        # An output that is allocated and not written is not likely to be anything but this.
        numpy.full(shape, numpy.nan, q.dtype)
        try:
            with _limited(limit or self.limit), warnings.catch_warnings(), numpy.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                returned = self.function(*operands.values(), **keywords)
        except (Broken, TimeoutError):
            raise
        except BUGS as error:
            raise Broken(f"it raised {_words(error)}") from error
        except Exception as error:  # pylint: disable=broad-except
            raise Refused(_words(error)) from error
        self._pace.note(rows, products, begin)
        o = self._taken(returned, shape, q.dtype)
        if kv_len is not None:
            operands["kv_len"] = given["kv_len"]
        for name, x in operands.items():
            now, before = numpy.asarray(x.detach() if hasattr(x, "detach") else x), {"q": q, "k": k, "v": v, "kv_len": kv_len}[name]
            if not numpy.array_equal(now.transpose(0, 2, 1, 3) if self.layout == "bnhd" and now.ndim == 4 else now, before,
                                     equal_nan=True):
                raise Broken(f"it changes {name} in place")
            if numpy.may_share_memory(now, o):
                raise Broken(f"its output lies in the memory of {name}")
        return o

    def takes(self) -> list[str]:
        """What it computes without an exception, tried once with arrays of 64 keys. ValueError: not even the plainest."""
        if self._takes is None:
            self._takes = find_taken(self)
        return self._takes


def _library_of(function: Callable[..., Any]) -> str:
    """The library that a function's module, or what it is a method or closure of, speaks of."""
    inner = inspect.unwrap(getattr(function, "__func__", function))
    inner = getattr(type(inner), "forward", None) or getattr(inner, "func", inner)
    names = {str(getattr(x, "__module__", "")).split(".", maxsplit=1)[0] for x in (function, inner)}
    for x in (*getattr(inner, "__globals__", {}).values(), *(c.cell_contents for c in getattr(inner, "__closure__", None) or ())):
        names.add((x.__name__ if isinstance(x, types.ModuleType) else str(getattr(x, "__module__", ""))).split(".")[0])
    return next((library for library in ("torch", "jax") if library in names and library in sys.modules), "numpy")


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise TimeoutError(f"it did not return within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Memory:
    """The file that is shared with the program."""

    def __init__(self, path: str):
        self._file = os.open(path, os.O_RDWR)
        self._map: Any = b""

    def array(self, at: int, shape: tuple[int, ...], dtype: Any, end: int) -> numpy.ndarray:
        if len(self._map) < end:
            self._map = mmap.mmap(self._file, end)
        return numpy.ndarray(shape, dtype, self._map, at)


def serve(function: Function, channel: socket.socket, claims: Claims) -> None:
    """Answers until the other end is closed."""
    memory: _Memory | None = None
    limit = 0.0
    with channel.makefile("r", encoding="utf-8", newline="\n") as lines:  # one for both would lose what it has read when it writes
        for line in lines:
            words = line.split()
            if not words:
                continue
            said = dict(word.split("=", 1) for word in words if "=" in word)
            if words[0] == "hello":
                memory, limit = _Memory(said["memory"]), float(said["limit"])
                function.limit = limit
                answer = _declaration(function, claims)
            elif words[0] == "sync":
                answer = f"done {words[1]}"
            elif words[0] == "sees" and "bytes" in said:
                assert memory is not None
                answer = _law(claims, memory, words[1], said)
            elif "bytes" not in said:  # the last word: who asked was killed meanwhile
                answer = "failed 0 the question was cut off"
            else:
                assert memory is not None
                answer = _answer(function, memory, words[1], said, limit)
            channel.sendall(answer.replace("\n", " ").encode()[:4000].decode(errors="ignore").encode() + b"\n")


def _declaration(function: Function, claims: Claims) -> str:
    try:
        takes = list(function.takes())
    except ValueError as error:
        return f"failed {error}"
    if claims.sees:
        takes += ["sees", "sees_heads"] if getattr(claims.sees, "heads", False) else ["sees"]
    takes += ["drawn"] if claims.unbiased else []
    places = ("prefix", "rows", "batch", "length", "groups", "heads") if claims.unbiased else ()
    exempt = {**dict.fromkeys(places, "outputs are draws"), **claims.exempt}
    said = {"name": function.name, "takes": ",".join(takes), "digest": _digest(function.function), "exempt": ",".join(exempt),
            "spec": claims.spec}
    return "\t".join([" ".join(["function", *(f"{name}={x}" for name, x in said.items() if x)]), *exempt.values()])


def _digest(function: Callable[..., Any]) -> str:
    """Of the file that the function is from, where it is from one."""
    try:
        with open(inspect.getsourcefile(inspect.unwrap(function)) or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, TypeError):
        return ""


def _law(claims: Claims, memory: _Memory, number: str, said: dict[str, str]) -> str:
    n = int(said["n"])
    try:
        memory.array(int(said["at"]), (n, n), numpy.uint8, int(said["bytes"]))[...] = claims.seen(int(said["head"]), n)
    except Exception as error:  # pylint: disable=broad-except
        return f"failed {number} what it declares in sees raised {_words(error)}"
    return f"done {number}"


def _answer(function: Function, memory: _Memory, number: str, said: dict[str, str], limit: float) -> str:
    batch, heads, kv_heads, n_q, n_kv, d_qk, d_v, end = (
        int(said[name]) for name in ("batch", "heads", "kv_heads", "n_q", "n_kv", "d_qk", "d_v", "bytes"))
    dtype = DTYPES[said["dtype"]]
    q, k, v, o = (memory.array(int(said[name]), shape, dtype, end) for name, shape in (
        ("q", (batch, heads, n_q, d_qk)), ("k", (batch, kv_heads, n_kv, d_qk)), ("v", (batch, kv_heads, n_kv, d_v)),
        ("o", (batch, heads, n_q, d_v))))
    kv_len = memory.array(int(said["kv_len"]), (batch,), numpy.int64, end) if said["padded"] == "1" else None
    scale = float(said["scale"])
    usual = d_qk ** -0.5
    try:
        o[...] = function(q, k, v, causal=said["causal"] == "1", scale=None if abs(scale - usual) <= 1e-12 * usual else scale,
                          kv_len=kv_len, limit=limit)
    except Refused as error:
        return f"refused {number} {error}"
    except TimeoutError as error:
        return f"endless {number} {error}"
    except Broken as error:
        return f"failed {number} {error}"
    return f"done {number}"


def main() -> None:
    """Serves the function that the program names."""
    sys.path.insert(0, "")  # modules beside the caller
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)  # what the function prints is no answer
    module, _, name = sys.argv[1].rpartition(".")
    try:
        if not module:
            raise ImportError("expected python:MODULE.FUNCTION")
        with _limited(LOADING):
            found = getattr(importlib.import_module(module), name)
        claims = getattr(found, "attnlab", Claims())
        function = Function(found, causal=claims.causal, seed=claims.seed, state=claims.state)
    except (Exception, SystemExit) as error:  # pylint: disable=broad-except
        with channel.makefile("r") as lines:
            lines.readline()
        channel.sendall(f"failed it does not load: {_words(error)}\n".encode())
        return
    serve(function, channel, claims)
