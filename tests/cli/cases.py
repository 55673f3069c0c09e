#!/usr/bin/python3
"""cases.py [--update] BUILD SOURCE FILE[:BEGINNING]... - runs the commands of files of tests/cli/cases/ and compares what they print.

Lines that are not indented are remarks. The others are commands, each with all that it prints:

      $ attnlab claims linformer-lemma | head -1
      linformer-lemma: refuted as printed
      2$ attnlab raport x.h5
      ! attnlab: unknown command 'raport' (did you mean 'report'?)

A number before $ is the exit code (0); "> " continues a command. Lines of standard error follow, "! " before them, except those
that refer to --help ("Try ..."). An expected line may end in " (glob)", with * and ?, or in " (re)", a regular expression; "..."
is any number of lines. A command that exits 2 or 74 leaves every file as it was. One shell runs a file, in an empty directory,
after files.sh, with attnlab in its path; paths are printed as $SOURCE and $BUILD. --update writes what is printed where that
differs. BEGINNING: only what comes before the second remark of the file, and under remarks that begin so."""
import ctypes.util
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

UPDATE = sys.argv[1] == "--update"
BUILD, SOURCE = (pathlib.Path(name).resolve() for name in sys.argv[1 + UPDATE : 3 + UPDATE])


def pattern(line):
    if line == "  ...":
        return r"(?:.*\n)*?"
    if line.endswith(" (re)"):
        return f"  (?:{line[2:-5]})\n"
    text = re.escape(line.removesuffix(" (glob)"))
    return (text.replace(r"\*", ".*").replace(r"\?", ".") if line.endswith(" (glob)") else text) + r"\n"


def matches(expected, printed):
    return re.fullmatch("".join(map(pattern, expected)), "".join(line + "\n" for line in printed))


def files():
    every = [os.path.join(at, name) for at, _, names in os.walk(".") for name in names]
    return {path: (about.st_ino, about.st_size, about.st_mtime_ns) for path in every for about in [os.lstat(path)]}


def run(shell, command):
    """Exit code, and what it printed."""
    before, printed = files(), []
    shell.stdin.write(f"{{ {command}\n}} </dev/null >$LOG/out 2>$LOG/err\necho $?\n")
    shell.stdin.flush()
    code = int(shell.stdout.readline())
    for name, mark in ("out", "  "), ("err", "  ! "):
        text = pathlib.Path(os.environ["LOG"], name).read_text(errors="backslashreplace")
        text = text.replace(str(BUILD), "$BUILD").replace(str(SOURCE), "$SOURCE")
        printed += [mark + line for line in text.splitlines() if not line.startswith("Try `attnlab ")]
    return code, printed + (["  ! FILES CHANGED"] if code in (2, 74) and files() != before else [])


def actual(shell, text, beginning):
    """The text of a file of cases, with what is printed where that is not what is expected."""
    remarks, before, wanted = 0, "\n", True
    for found in re.finditer(r"^  (\d*)\$ (.*\n(?:  > .*\n)*)((?:  .*\n)*?)(?=  \d*\$ |\S|\n|\Z)|^.*\n", text, re.M):
        if not found[2] and found[0].strip() and not before.strip():
            remarks += 1
            wanted = remarks == 1 or found[0].startswith(beginning)
        before = "\n" if found[2] else found[0]
        if not (found[2] and wanted):
            yield found[0]
            continue
        expected = found[3].splitlines()
        code, printed = run(shell, found[2].replace("\n  > ", "\n"))
        if not matches(expected, printed):
            wild = [line for line in expected if line.endswith((" (glob)", " (re)"))]
            expected = [next((line for line in wild if matches([line], [p])), p) for p in printed]
        yield f"  {code or ''}$ {found[2]}" + "".join(line + "\n" for line in expected)


def main():
    began_in = pathlib.Path.cwd()
    os.environ |= {"PATH": f"{BUILD / 'experiments'}:{os.environ['PATH']}", "BUILD": str(BUILD), "SOURCE": str(SOURCE)}
    leaks = ctypes.util.find_library("lsan") or ""
    if b"__asan_" in (BUILD / "experiments/attnlab").read_bytes() or subprocess.run(["true"], env={"LD_PRELOAD": leaks}).returncode:
        leaks = ""  # a sanitizer is there already; or nothing may look into a process here
    os.environ |= {"LC_ALL": "C", "ATTNLAB_CALIBRATION": "", "LEAKS": leaks}
    differ = False
    for name in sys.argv[3 + UPDATE :]:
        path, _, beginning = name.partition(":")
        path = began_in / path
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as os.environ["LOG"]:
            os.chdir(here)
            with subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
                shell.stdin.write(f". {SOURCE}/tests/cli/files.sh\n")
                expected = path.read_text()
                printed = "".join(actual(shell, expected, beginning))
            os.chdir("/")
        lines = expected.splitlines(), printed.splitlines()
        sys.stdout.writelines(line + "\n" for line in difflib.unified_diff(*lines, path.name, "printed", lineterm="", n=2))
        differ |= expected != printed
        if UPDATE:
            path.write_text(printed)
    sys.exit(differ and not UPDATE)


main()
