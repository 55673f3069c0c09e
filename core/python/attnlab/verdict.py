"""Whether a function of Python computes attention: `judge` holds it against the definition and every property that
`attnlab test` knows, in another process than the function's."""
from __future__ import annotations

import json
import pathlib
import secrets
import socket
import subprocess
import tempfile
import time
from typing import Any, Callable, NamedTuple

import numpy

from . import compute, diagnosis, judged_draws, judged_gradients, judged_splits, judged_sums, library, others, program
from .claims import Claims
from .serve import Broken, Function, Refused, serve

LENGTHS = (16, 64, 256, 1024)


class Violation(NamedTuple):
    """property: its name, as `attnlab describe` explains it, or "drawn", of problems drawn at random. sentence: what is
    wrong, where. witness: q, k, v, o of the function and `expected`, NumPy arrays [batch, heads, n, d], and causal, scale
    and kv_len; or None. off: the largest distance from what is allowed, in the property's unit; None where it has none."""
    property: str
    sentence: str
    witness: dict[str, Any] | None
    off: float | None


class Verdict:
    """What `judge` found: true if nothing is violated.

    violations  list of Violation, the most telling first
    checked     names of the properties and bounds that hold
    skipped     {name: why it does not apply}
    notes       what the function does not take, and the like: no faults
    errors      a dict for each length and type: n, dtype, causal, seconds of one call, max, the largest distance from the
                definition in float64, relative, the Frobenius norm of the distances over that of the outputs, and whether it passes
                as the tests of others judge: flash_attention, fla, fla_ci, attention_gym (others.py has the rules)
    report      the dict of `attnlab test --json`"""

    def __init__(self, name: str, report: dict[str, Any], notes: list[str]):
        self.name, self.report, self.notes = name, report, notes
        self.errors: list[dict[str, Any]] = []
        results = report["results"]
        good = ("pass", "consistent")
        self.checked: list[str] = [r["name"] for r in results if r["verdict"] in good]
        self.skipped: dict[str, str] = {r["name"]: r["message"] for r in results if not r["failed"] and r["verdict"] not in good}
        self.violations = [_violation(r) for r in results if r["failed"]]
        if report.get("drawn", {}).get("failed") is False:
            self.checked.append("drawn")

    def add(self, name: str, wrong: list[str], reason: str | None) -> None:
        """Sentences on what is wrong, or why nothing was judged."""
        self.violations += [Violation(name, sentence, None, None) for sentence in wrong]
        if reason is not None:
            self.skipped[name] = reason
        elif not wrong:
            self.checked.append(name)

    def __bool__(self) -> bool:
        return not self.violations

    def __repr__(self) -> str:
        return f"<attnlab.Verdict of {self.name}: {len(self.violations)} violated, {len(self.checked)} hold>"

    def __str__(self) -> str:
        lines = [f"{self.name}: " + (f"{len(self.violations)} violated, {len(self.checked)} hold" if self.violations else
                                     f"nothing violated, {len(self.checked)} hold")]
        for v in self.violations:
            lines.append(f"  {v.property}: {v.sentence}")
        lines += [f"  note: {note}" for note in self.notes]
        kinds = dict.fromkeys((e["dtype"], e["causal"]) for e in self.errors)
        for kind in kinds:
            errors = [f"{e['relative']:.2g} (n = {e['n']})" for e in self.errors if (e["dtype"], e["causal"]) == kind]
            lines.append(f"  relative error, {kind[0]}{', causal' if kind[1] else ''}: {', '.join(errors)}")
        if self.violations and self.errors:
            passed = [rule for rule in others.RULES if all(e[rule] for e in self.errors)]
            lines.append(f"  passes as others judge: {', '.join(passed) or 'nowhere'}")
        return "\n".join(lines)


def judge(function: Callable[..., Any], spec: str | None = None, *, causal: bool | None = None, layout: str = "bhnd",
          arrays: str | None = None, seed: int | None = None, limit: float = 30) -> Verdict:
    """Holds o = function(q, k, v, causal=...) against exact attention in float64, or against `spec` where it claims to be
    that: the same keys and the same output within rounding, and against the properties of `attnlab test`.

    function   of arrays [batch, heads, n, d] of NumPy, PyTorch or JAX. It may have the keyword arguments causal (or
               is_causal), scale and kv_len (keys that exist, an integer for each batch entry): what it lacks is not
               passed, and what it then cannot do is not judged. An exception is a refusal, and named in `notes`.
               Outputs in float16 or bfloat16 are judged by their rounding; a slow function is asked for less
    spec       "longformer:window=256"; None: what the function declares (`attnlab.variant`), or else exact attention
    causal     what a function without such an argument computes; of others True or False judges this alone
    layout     "bnhd" for arrays [batch, n, heads, d]
    arrays     "numpy", "torch" or "jax": what the function is called with; by default what its module imports
    seed       of the drawn problems; by default another in each call
    limit      seconds of one call, after which it counts as endless

    Gradients that PyTorch derives of the function are held against those of the definition (`gradient`).

    The function runs in this process, and the program that judges it in another one, which alone knows what it expects.

    Error: the function does not take the plainest arrays, or the spec is wrong."""
    claims = getattr(function, "attnlab", Claims())
    if spec is not None:
        claims = Claims(spec, exempt=claims.exempt, seed=claims.seed, state=claims.state)
    served = Function(function, layout=layout, arrays=arrays, causal=claims.causal if causal is None else causal, limit=limit,
                      seed=claims.seed, state=claims.state)
    seed = secrets.randbelow(10**6) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="attnlab-") as folder:
        report = _run(served, claims, ["--json", "--seed", str(seed), "--limit", str(2 * limit), "--witness", folder])
        verdict = Verdict(served.name, report, served.notes)
        if report.get("drawn", {}).get("failed"):
            verdict.violations.insert(0, _least(served, claims, report["drawn"], pathlib.Path(folder)))
    if report.get("drawn", {}).get("refused"):
        verdict.notes.append("refused {refused} of {problems} drawn problems: {reasons}".format(**report["drawn"]))
    verdict.notes += [f"exempt from {name}: {why}" for name, why in claims.exempt.items()]
    if not report["ended"]:
        return verdict
    if claims.unbiased:
        verdict.add("unbiased", *judged_draws.judge(served, claims))
    else:
        verdict.errors = _errors(served, claims)
        verdict.add("log-sum-exp", *judged_sums.judge(served, claims))
        verdict.add("gradient", *judged_gradients.judge(served, claims))
        verdict.add("split", *judged_splits.judge(served, claims))
    return verdict


def _run(served: Function, claims: Claims, options: list[str]) -> dict[str, Any]:
    """The report of the program, whose calls are answered here meanwhile."""
    here, there = socket.socketpair()
    with here, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with there:
            plugins = [option for path in library.plugins for option in ("--plugin", path)]
            running = subprocess.Popen([program.program_path(), "test", f"socket:{there.fileno()}", *options, *plugins],
                                       pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            serve(served, here, claims)
            code = running.wait()
        finally:
            running.kill()
            running.wait()
        out.seek(0)
        err.seek(0)
        if code not in (0, 1):
            said = err.read().decode(errors="replace").strip().splitlines() or [f"exit {code}"]
            raise library.Error(said[-1].partition(": ")[2].replace(f"socket:{there.fileno()}: ", "") or said[-1], f"exit {code}")
        return json.loads(out.read())


def _violation(result: dict[str, Any]) -> Violation:
    sentence = result["statement"] + (f": {result['message']}" if result["message"] else "") + f" ({result['where']})"
    return Violation(result["name"], sentence, None, result["measured"])


def expected(q: Any, k: Any, v: Any, claims: Claims, causal: bool, scale: float, kv_len: Any, dtype: str = "f8") -> Any:
    """What the definition gives, in float64, or this type."""
    wide = [numpy.nan_to_num(numpy.asarray(x, dtype)) for x in (q, k, v)]
    mask = claims.mask(q.shape[1], q.shape[2], k.shape[2])
    return compute.attention(*wide, claims.spec or "tiled", causal=causal, scale=scale, kv_len=kv_len, mask=mask)


def _least(served: Function, claims: Claims, drawn: dict[str, Any], folder: pathlib.Path) -> Violation:
    """The smallest problem that was found, and in words what is wrong with it."""
    said = drawn["witness"]
    witness: dict[str, Any] = {name: numpy.load(folder / f"{name}.npy") for name in "qkv"}
    if (folder / "o.npy").exists():
        witness["o"] = numpy.load(folder / "o.npy")
    lengths = said["kv_len"]
    witness |= {"causal": said["causal"], "scale": said["scale"], "kv_len": lengths}

    def exact(q: Any, k: Any, v: Any) -> Any:
        return expected(q, k, v, claims, said["causal"], said["scale"], None if lengths is None else numpy.array(lengths))

    try:
        witness["expected"] = exact(witness["q"], witness["k"], witness["v"])
    except library.Error:
        return Violation("drawn", f"{drawn['least']}: {drawn['message']}", witness, None)
    off = None
    if "o" in witness:
        off = float(numpy.abs(witness["o"] - witness["expected"]).max())
    why = diagnosis.explain(served, exact, witness) or drawn["message"]
    return Violation("drawn", f"{drawn['least']}: {why}", witness, off)


def _errors(served: Function, claims: Claims) -> list[dict[str, Any]]:
    found = []
    takes = served.takes()
    for n in LENGTHS:
        rng = numpy.random.default_rng(n)
        wide = [rng.standard_normal((1, 2, n, 32)).astype("f4") for _ in range(3)]
        for causal in (mask for mask, name in ((False, "full"), (True, "causal")) if name in takes):
            try:
                right = expected(*wide, claims, causal, 32 ** -0.5, None)
            except library.Error:
                continue
            for dtype in ("f4", "f8") if "f64" in takes else ("f4",):
                begin = time.perf_counter()
                try:
                    o = served(*(x.astype(dtype) for x in wide), causal=causal)
                except (Broken, Refused):
                    continue
                seconds = time.perf_counter() - begin
                off = o.astype("f8") - right
                narrow = [x.astype(dtype) for x in wide]
                plain = expected(*narrow, claims, causal, 32 ** -0.5, None, dtype) if claims.spec or claims.sees else \
                    others.textbook(*narrow, causal)
                found.append({"n": n, "dtype": numpy.dtype(dtype).name, "causal": causal, "max": float(numpy.abs(off).max()),
                              "relative": float(numpy.linalg.norm(off) / numpy.linalg.norm(right)),
                              "seconds": seconds, **others.passes(o, right, plain)})
    return found
