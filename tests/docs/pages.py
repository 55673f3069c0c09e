#!/usr/bin/python3
"""pages.py BUILD SOURCE - the commands and programs of experiments/docs/*.md, as they stand there.

Each page is tried in a separate directory, in the order of its blocks: ```sh by a shell that stops at the first failure, with
the built program in its path; ```python in one interpreter, with core/python in its path. `attnlab test` draws problems for
SECONDS alone, and has the fixed ones for plug-ins only: the library's settings are judged in tests/checks/; `attnlab advise`
without a SPEC searches SEARCHED. A block ```text is what a reader may compare; indented blocks install or fetch something,
and are not tried. What a page reads of the tree (data, experiments, core, variants, LICENSE, README.md) is there by link. A
page without a block that can be tried fails, unless it is listed below."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

UNTRIED = {"install.md", "models.md", "masks.md"}  # packages; a fetched model; tests/cli/masks.c tries the commands of its table
OPTIONAL = {"numpy", "pandas", "h5py", "matplotlib", "torch"}
SECONDS = 1
SEARCHED = "longformer pages linear"
LINKS = ("data", "experiments", "core", "variants", "LICENSE", "README.md")


def blocks(page):
    """(language, line, text) of the fenced blocks."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M):
        yield found[1], text[: found.start()].count("\n") + 2, found[2]


def try_page(page, source):
    names, tried = {"__name__": "__main__"}, 0
    for name in LINKS:
        os.symlink(source / name, name)
    for language, line, text in blocks(page):
        place = f"{page.name}:{line}"
        if language == "sh":
            done = subprocess.run(["sh", "-euc", text], capture_output=True, text=True)
            assert done.returncode == 0, f"{place}: exit {done.returncode}\n{text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        elif language == "python":
            try:
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)
            except ModuleNotFoundError as missing:
                if missing.name not in OPTIONAL or os.environ.get("ATTN_TESTS_PYTHON") == "required":
                    raise
                print(f"{place}: NOT TRIED, there is no {missing.name}")
                continue
        else:
            continue
        tried += 1
    return tried


def main():
    build, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    program = build / "experiments" / "attnlab"
    wrapper = tempfile.TemporaryDirectory(prefix="attnlab-program-")  # removed when the process ends
    first = pathlib.Path(wrapper.name)
    (first / "attnlab").write_text(f'''#!/bin/sh
case "$*" in
  test*--problems*) ;;
  test*--plugin*) set -- "$@" --time {SECONDS} ;;
  test*) set -- "$@" --problems drawn --time {SECONDS} ;;
  "advise "*"--error 5%") set -- "$@" {SEARCHED} ;;
esac
exec {shlex.quote(str(program))} "$@"
''')
    (first / "attnlab").chmod(0o755)
    os.environ["PATH"] = f"{first}:{os.environ['PATH']}"
    os.environ["ATTNLAB_SOURCE"] = str(source)
    os.environ["ATTNLAB_PROGRAM"] = str(program)
    os.environ["ATTNLAB_LIBRARY"] = str(build / "core" / "libattn.so")
    os.environ["MPLBACKEND"] = "Agg"
    sys.path.insert(0, str(source / "core" / "python"))
    os.environ["PYTHONPATH"] = sys.path[0]
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    pages = sorted((source / "experiments" / "docs").glob("*.md"))
    for page in pages:
        if page.name in UNTRIED:
            continue
        directory = tempfile.mkdtemp(prefix="attnlab-docs-")
        os.chdir(directory)
        try:
            tried = try_page(page, source)
        finally:
            os.chdir("/")
            shutil.rmtree(directory)
        assert tried, f"{page.name}: no block could be tried"
        print(f"{page.name}: {tried} blocks")


main()
