#!/usr/bin/python3
"""memory.py BUILD [COUNT [COMMAND]] - commands of attnlab, each with one of its allocations refused, or all from there on.

Whatever is refused, a command prints the same and ends the same, or it tells of an error and ends with another code; it
never crashes, hangs, or prints (null), and a file that it was to write is whole or absent. COUNT allocations (40) of each,
evenly. Not of commands that use HDF5, which crashes itself, nor of --help, at which glibc aborts."""
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 40
PROGRAM = BUILD / "experiments/attnlab"
COMMANDS = """
list variants
list variants --json
list checks
describe topk
describe performer --json
describe FP-1
describe gaussian --json
help config
pattern longformer:window=8 --n 64 -o out.npy
matrix performer:features=16 --q in.npy --k in.npy -o out.npy
theory order
claims store-uniform
apply topk:k=4 --q in.npy --k in.npy --v in.npy -o out.npy
"""


def npy(rows, columns):
    """Numbers in [-1, 1) as f8 of [rows, columns]."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".ljust(117) + "\n"
    numbers = (k * 37 % 101 / 50.5 - 1 for k in range(rows * columns))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{rows * columns}d", *numbers)


def run(place, command, **refuse):
    """Exit code, output without times, errors, and the file that it writes."""
    word = command.split()
    out = pathlib.Path(place, word[word.index("-o") + 1]) if "-o" in word else None
    if out:
        out.unlink(missing_ok=True)
    done = subprocess.run([PROGRAM, *word], cwd=place, capture_output=True, text=True, errors="backslashreplace", timeout=120,
                          stdin=subprocess.DEVNULL, env=os.environ | {"LD_PRELOAD": str(BUILD / "tests/refuse.so"),
                                                                      "OMP_NUM_THREADS": "1"} | refuse)
    return done.returncode, re.sub(r"[0-9.]+ s\b", "", done.stdout), done.stderr, out and out.exists()


def wrong(usual, found):
    """A sentence, or None."""
    code, printed, errors, written = found
    if code < 0:
        return f"signal {-code}"
    if "(null)" in printed or ("(null)" in errors and code != 2):  # argp_error prints it
        return "(null)"
    if code == usual[0]:
        return "another output without an error" if found[1] != usual[1] or written != usual[3] else None
    if not errors.strip():
        return f"exit {code} without a message"
    return "an error, and a file" if written else None


def tried(command):
    """What was wrong, by allocation."""
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "in.npy").write_bytes(npy(64, 8))
        usual = run(place, command, REFUSE_COUNT=f"{place}/count")
        total = int(pathlib.Path(place, "count").read_text())
        bad = [f"without a refusal: {usual[2]}"] if usual[0] else []
        places = range(total) if total <= COUNT else sorted({k * total // COUNT for k in range(COUNT)})
        for k in places:
            for all_after in ({}, {"REFUSE_AFTER": "1"}):
                try:
                    found = run(place, command, REFUSE_AT=str(k), **all_after)
                    why = wrong(usual, found)
                except subprocess.TimeoutExpired:
                    why, found = "hangs", (0, "", "", 0)
                if why:
                    bad.append(f"allocation {k} of {total}{', all after' if all_after else ''}: {why} {found[2][-200:]!r}")
        return bad


def main():
    commands = sys.argv[3:] or [line for line in COMMANDS.splitlines() if line]
    failed = False
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for command, bad in zip(commands, pool.map(tried, commands)):
            print(f"{command}: {'ok' if not bad else ''}", *bad[:12], sep="\n  ", flush=True)
            failed |= bool(bad)
    sys.exit(failed)


main()
