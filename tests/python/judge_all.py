#!/usr/bin/python3
"""judge_all.py [NAME ...] - every wrong and right function of this folder before the judge, a line for each: what was
found, the length of the smallest input that shows it, seconds. Exit code 1: one was missed, or a right one was accused.
ATTNLAB_PROGRAM, ATTNLAB_LIBRARY and PYTHONPATH name the build."""
import importlib
import importlib.util
import sys
import time

import attnlab

from right_functions import RIGHT
from stateful_functions import RIGHT_STATES, WRONG_STATES
from wrong_calls import CALLS
from wrong_claims import CLAIMS
from wrong_functions import WRONG

LISTS = {"wrong": WRONG | CALLS, "claim": CLAIMS, "right": RIGHT, "wrong state": WRONG_STATES, "right state": RIGHT_STATES}
for library in ("torch", "jax"):
    if importlib.util.find_spec(library):
        functions = importlib.import_module(f"{library}_functions")
        LISTS |= {f"wrong {library}": getattr(functions, f"WRONG_{library.upper()}"),
                  f"right {library}": getattr(functions, f"RIGHT_{library.upper()}")}
    else:
        print(f"no functions of {library}: {sys.executable} has it not")
SHORT = 8


def length(verdict):
    """Of the witness, or None."""
    witness = verdict.violations[0].witness
    return max(witness["q"].shape[2], witness["k"].shape[2]) if witness else None


def judged(one, wrong):
    """A word on the verdict, whether it is the right one, and what it says."""
    try:
        verdict = attnlab.judge(one.function, limit=200, **one.options)  # whatever else the machine does
    except (attnlab.Error, ValueError) as error:
        return "refused", False, str(error)
    if not verdict.violations:
        return ("MISSED" if wrong else "passed"), not wrong, "; ".join(verdict.notes)
    found = verdict.violations[0]
    n = length(verdict)
    if not wrong:
        return "ACCUSED", False, f"{found.property}: {found.sentence}"
    if one.witness and (n is None or n > SHORT):
        return f"LONG {n}", False, f"{found.property}: {found.sentence}"
    return f"caught {n}", True, f"{found.property}: {found.sentence}"


def main():
    names, faults = sys.argv[1:], 0
    for kind, candidates in LISTS.items():
        for name, one in candidates.items():
            if names and name not in names and kind not in names:
                continue
            begin = time.monotonic()
            word, good, said = judged(one, not kind.startswith("right"))
            faults += not good
            print(f"{kind:11} {name:28} {word:10} {time.monotonic() - begin:5.1f} s  {one.kind}: {said}", flush=True)
    print(f"{faults} not as they should be")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
