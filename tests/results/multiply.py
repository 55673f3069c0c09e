#!/usr/bin/python3
"""multiply.py JOURNAL COUNT - a journal of COUNT rows on stdout: those of JOURNAL, again and again with other data seeds, so that
keys, times and errors differ as those of a large sweep do. Only the first have maps. Checksums are right."""
import json
import re
import sys
import zlib


def write(out, text):
    body = re.sub(r',"check":"[0-9a-f]{8}"\}$', "", text).encode()
    out.write(b'%s,"check":"%08x"}\n' % (body, zlib.crc32(body)))


def changed(text, seed):
    return re.sub(r'"(err_[a-z0-9_]+|time_[a-z_]+|measured|margin)":([0-9.e-]+)',
                  lambda m: f'"{m[1]}":{float(m[2]) * (1 + 1e-3 * (seed % 997) / 997)!r}', text)


def main(path, count):
    lines = open(path, encoding="utf-8").read().splitlines()
    headers = [line for line in lines if line.startswith('{"schema"')]
    rows = [line for line in lines if not line.startswith('{"schema"')]
    write(sys.stdout.buffer, headers[0])
    for i in range(count):
        row, turn = rows[i % len(rows)], i // len(rows)
        if turn:
            seed = int(re.search(r'"data_seed":(\d+)', row)[1]) + 1000 * turn
            row = re.sub(r'"map":\{[^}]*\},', "", row)
            row = re.sub(r' data_seed=\d+', f" data_seed={seed}", row, count=1)
            row = re.sub(r'"data_seed":\d+', f'"data_seed":{seed}', row, count=1)
            before, after = row.split('"bounds":[', 1)
            bounds = re.sub(r'"kind":"(?!property)[^}]*', lambda m: changed(m[0], seed), after)
            row = changed(before, seed) + '"bounds":[' + bounds
        write(sys.stdout.buffer, row)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
