#!/usr/bin/python3
"""quotes.py [--write] PROGRAM SOURCE - what these pages quote of results/default.h5 and results/eval.h5.

A quotation begins with a line <!-- quote KIND ... -->:

    counts         one sentence: the runs, checks and verdicts of the default sweep
    errors TITLE   a table of `attnlab check --markdown`, under the heading that has every part of TITLE (joined by " + "), and of
                   it the rows that are quoted. Errors are compared; times and memory are the machine's
    model          rows of the evaluation, the setting first; every cell is compared

Numbers are alike if they differ by at most one in the last digit that either shows, or are both errors of rounding, below 1e-5: other
instruction sets round otherwise.
--write puts what the files say in place of what is quoted. Continuous integration compares after the sweep. Exit code 77: there is no such file here to compare with."""
import json
import pathlib
import re
import subprocess
import sys

PAGES = ("README.md", "experiments/README.md", "experiments/docs/models.md")


def program(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 3), f"{arguments}: exit {done.returncode}: {done.stderr}"
    return done.stdout


def counts(quoted, results):
    about = json.loads(program("check", "--json", results))
    verdicts = dict(about["verdicts"])
    violated = verdicts.pop("violated", 0)
    words = [f"{n} {name.replace('_', ' ')}" for name, n in verdicts.items() if n]
    return [f"{about['runs']} runs, {sum(verdicts.values()) + violated} verdicts ({about['bounds']} bounds of runs, {about['properties']} "
            f"properties of {about['settings']} settings): {', '.join(words)}, {violated or 'none'} violated."]


def rows(lines):
    return [line for line in lines if line.startswith("|")]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def label_of(line):
    return cells(line)[0].split(" ")[0]


def errors(quoted, results, *title):
    tables = re.split(r"^### (.*)$", program("check", "--markdown", results), flags=re.M)
    found = [body for head, body in zip(tables[1::2], tables[2::2]) if all(word in head for word in title)]
    assert len(found) == 1, f"{len(found)} tables have {' '.join(title)} in their heading"
    table = rows(found[0].splitlines())
    by_label = {label_of(line): line for line in table}
    wanted = [label_of(line) for line in rows(quoted)[2:]]
    return table[:2] + [by_label.get(label, f"| {label} | is no row of {results} |") for label in wanted]


def short(value):
    """Two significant digits."""
    return f"{value:.2g}" if abs(value) < 100 else f"{float(f'{value:.2g}'):.0f}"


def model(quoted, results):
    import attnlab

    runs = attnlab.load(results)
    runs = runs[(runs["n"] == 1024) & (runs["status"] == "ok")]
    head, made = [cells(line) for line in rows(quoted)[:2]], []
    for line in rows(quoted)[2:]:
        label = cells(line)[0]
        name = label.split(" ")[0]
        found = {task: runs[(runs["label"] == name) & runs["task"].str.startswith(task)] for task in ("text", "copy", "recall")}
        assert all(len(f) == 1 for f in found.values()), f"{name}: {[len(f) for f in found.values()]} runs of the tasks"
        text, copy, recall = (f.iloc[0] for f in found.values())
        interval = f" [{short(text['kl_lo'])}, {short(text['kl_hi'])}]" if text["kl"] > 1e-6 else ""
        density = "-" if text["density"] != text["density"] else f"{100 * text['density']:.0f} %"
        ratio = text["ppl_ratio"]
        made.append([label, density, f"x {ratio:.3f}" if abs(ratio - 1) < 5e-4 else f"x {ratio:.3g}", short(text["kl"]) + interval,
                     f"{100 * text['top1']:.0f} %", f"{100 * copy['right']:.0f} %", f"{100 * recall['right']:.0f} %"])
    widths = [max(len(row[c]) for row in [head[0], *made]) for c in range(len(head[0]))]
    lines = ["| " + " | ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(zip(row, widths))) + " |"
             for row in [head[0], *made]]
    return [lines[0], "|:" + "|".join("-" * (w + 1) + (":" if c else "-") for c, w in enumerate(widths)) + "|", *lines[1:]]


def alike(quoted, real):
    """The numbers of two texts agree to the digits shown, and their words wholly."""
    number = r"\d*\.?\d+(?:e[-+]?\d+)?"
    if re.sub(number, "#", quoted) != re.sub(number, "#", real):
        return False

    def unit(text):
        mantissa, _, power = text.partition("e")
        return 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))

    return all(0 < max(float(a), float(b)) < 1e-5 or abs(float(a) - float(b)) <= 1.001 * max(unit(a), unit(b))
               for a, b in zip(re.findall(number, quoted), re.findall(number, real)))


def differences(kind, quoted, real):
    if kind == "counts":
        # How many checks can speak is decided by roundings, too; how many there are is not.
        pattern = r"(\d+ runs, \d+ verdicts \([^)]*\)).*(, \S+ violated\.)"
        joined = re.search(pattern, " ".join(quoted)), re.search(pattern, " ".join(real))
        return [] if joined[0] and joined[0].groups() == joined[1].groups() else [(" ".join(quoted), real[0])]
    if kind == "errors":
        def error(line):
            return [label_of(line)] + [cell.split(" ")[0].rstrip("*^!?") for cell in cells(line)[1:] if cell]

        columns = sum("=" in cell or cell.isdigit() for cell in cells(rows(quoted)[0])[1:])
        return [(a, b) for a, b in zip(rows(quoted)[2:], rows(real)[2:])
                if label_of(a) != "process" and not alike(" ".join(error(a)[:columns + 1]), " ".join(error(b)[:columns + 1]))]
    return [(a, b) for a, b in zip(rows(quoted)[2:], rows(real)[2:]) if not all(map(alike, cells(a)[1:], cells(b)[1:]))]


def main():
    compared, wrong = 0, []
    for name in PAGES:
        lines, made = (SOURCE / name).read_text().splitlines(), []
        while lines:
            line = lines.pop(0)
            made.append(line)
            marker = re.fullmatch(r"<!-- quote (\w+) ?(.*) -->", line)
            if not marker:
                continue
            while not lines[0]:
                made.append(lines.pop(0))
            quoted = []
            while lines and lines[0]:
                quoted.append(lines.pop(0))
            kind, about = marker.groups()
            results = SOURCE / "results" / ("eval.h5" if kind == "model" else "default.h5")
            real = KINDS[kind](quoted, results, *filter(None, about.split(" + "))) if results.exists() else quoted
            if results.exists():
                compared += 1
                wrong += [(name, *pair) for pair in differences(kind, quoted, real)]
            made += real if WRITE else quoted
        if WRITE:
            (SOURCE / name).write_text("\n".join(made) + "\n")
    for name, quoted, real in [] if WRITE else wrong:
        print(f"{name} quotes\n  {quoted}\nand the results say\n  {real}")
    print(f"quotes.py: {compared} quotations {'written' if WRITE else f'compared, {len(wrong)} differences'}")
    return 77 if not compared else int(bool(wrong) and not WRITE)


KINDS = {"counts": counts, "errors": errors, "model": model}
WRITE = sys.argv[1] == "--write"
PROGRAM, SOURCE = sys.argv[-2], pathlib.Path(sys.argv[-1]).resolve()
sys.path.insert(0, str(SOURCE / "core" / "python"))
sys.exit(main())
