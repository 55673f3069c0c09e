#!/usr/bin/python3
"""many_rows.py ATTNLAB - what a row of a large sweep costs in memory, as the difference between journals of many rows and of a
tenth of them, where a file is made, checked, exported and shown. A sweep of a few runs is multiplied: its rows again and again
with other data seeds, so that keys, times and errors differ as those of a large sweep do; checksums are right."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

FEW, MANY = 500, 5000
# Bytes a row of resident memory: a tenth above what was measured.
COMMANDS = {
    "merge": (["merge", "x.jsonl", "-o", "x.h5"], 10600),
    "check": (["check", "x.h5"], 6100),
    "export": (["export", "--csv", "x.h5"], 6100),
    "report": (["report", "x.h5", "-o", "x.html"], 7300),
}
CONFIG = """schema: 1
datasets: [gaussian]
grid: {n: [64], d: [16], heads: [1], causal: [no, yes]}
variants: [tiled, {topk: {k: [4, 8]}}, {performer: {features: [16, 32]}}]
timing: {min_time: 0.001, warmup: 0}
"""


def write(out, text):
    body = re.sub(r',"check":"[0-9a-f]{8}"\}$', "", text).encode()
    out.write(b'%s,"check":"%08x"}\n' % (body, zlib.crc32(body)))


def changed(text, seed):
    return re.sub(r'"(err_[a-z0-9_]+|time_[a-z_]+|measured|margin)":([0-9.e-]+)',
                  lambda m: f'"{m[1]}":{float(m[2]) * (1 + 1e-3 * (seed % 997) / 997)!r}', text)


def again(row, turn):
    """The row with another seed; maps are of the first rows alone."""
    seed = int(re.search(r'"data_seed":(\d+)', row)[1]) + 1000 * turn
    row = re.sub(r'"map":\{[^}]*\},', "", row)
    row = re.sub(r" data_seed=\d+", f" data_seed={seed}", row, count=1)
    row = re.sub(r'"data_seed":\d+', f'"data_seed":{seed}', row, count=1)
    before, after = row.split('"bounds":[', 1)
    bounds = re.sub(r'"kind":"(?!property)[^}]*', lambda m: changed(m[0], seed), after)
    return changed(before, seed) + '"bounds":[' + bounds


def multiply(lines, count, path):
    rows = [line for line in lines if not line.startswith('{"schema"')]
    with open(path, "wb") as out:
        write(out, lines[0])
        for i in range(count):
            turn = i // len(rows)
            write(out, again(rows[i % len(rows)], turn) if turn else rows[i])


def resident(program, arguments):
    """Bytes at most; the command ends well."""
    child = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in (0, 1), f"{arguments}: exit {child.returncode}"
    return usage.ru_maxrss * 1024


def compare(program):
    pathlib.Path("few.yaml").write_text(CONFIG)
    subprocess.run([program, "run", "few.yaml", "-o", "few.h5"], check=True, capture_output=True)
    lines = pathlib.Path("few.jsonl").read_text(encoding="utf-8").splitlines()
    peaks = {}
    for count in FEW, MANY:
        multiply(lines, count, "x.jsonl")
        for name, (arguments, _) in COMMANDS.items():
            peaks[name, count] = resident(program, arguments)
    for name, (_, most) in COMMANDS.items():
        row = (peaks[name, MANY] - peaks[name, FEW]) / (MANY - FEW)
        print(f"{name}: {row:.0f} bytes a row, {peaks[name, MANY] / 2**20:.0f} MiB of {MANY} rows")
        assert row <= most, f"{name}: {row:.0f} bytes a row, expected at most {most}"


def main(program):
    directory = tempfile.mkdtemp(prefix="attnlab-rows-")
    os.chdir(directory)
    try:
        compare(program)
    finally:
        os.chdir("/")
        shutil.rmtree(directory)


main(pathlib.Path(sys.argv[1]).resolve())
