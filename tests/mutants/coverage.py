"""coverage.py - which tests execute which line of the code that ships, and how long each takes.

A build by clang with counters in the files of a process (%c: also of one that is killed or ends by _exit) runs every test alone, and
`attnlab test VARIANT --problems fixed` for every variant: the witnesses, what users run. Kept in build/mutate/coverage.json; a test that fails or
is skipped here is no test of mutants."""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import time

SHIPPED = ("core/", "variants/", "experiments/", "data/")
FLAGS = "-fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation"
LIMIT = 300  # seconds of a test whose build counts
WITNESS = "attnlab test "


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


def text_lines(path):
    return path.read_text().splitlines(True) if path.is_file() else []


def copy(source, tree):
    """The files that git tracks or would, as they are now; only what differs is written, so that a build goes on."""
    names = run("git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    names = {name for name in names if name and (source / name).is_file()}
    for name in names:
        text, to = (source / name).read_bytes(), tree / name
        if not to.is_file() or to.read_bytes() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(text)
            shutil.copymode(source / name, to)
    for path in [path for path in tree.rglob("*") if path.is_file()]:
        name = path.relative_to(tree)
        if name.parts[0] != "build" and str(name) not in names:
            path.unlink()


def configure(tree, *flags, preset="dev"):
    run("cmake", "--preset", preset, *flags, cwd=tree, env=os.environ | {"CCACHE_BASEDIR": str(tree)})


def build(tree, *targets, preset="dev"):
    """Whether they could be built."""
    return subprocess.run(["cmake", "--build", f"build/{preset}", "--target", *targets], cwd=tree, capture_output=True,
                          env=os.environ | {"CCACHE_BASEDIR": str(tree)}).returncode == 0


def command(tree, test, preset="dev"):
    """That runs a test, or a witness."""
    if test.startswith(WITNESS):
        return ["build/dev/experiments/attnlab", "test", test.removeprefix(WITNESS), "--problems", "fixed"]
    return ["ctest", "--test-dir", f"build/{preset}", "--no-tests=error", "-R", f"^{test}$"]


def executed(tree, profiles, objects):
    """{file: [lines]} of what ships."""
    merged = profiles / "merged"
    raw = [str(path) for path in profiles.glob("*.profraw")]
    if not raw:
        return {}
    run("llvm-profdata", "merge", "--failure-mode=all", *raw, "-o", merged)
    text = run("llvm-cov", "export", "--format=lcov", "--skip-functions", f"--instr-profile={merged}", objects[0],
               *(f"--object={path}" for path in objects[1:]), *(str(tree / folder) for folder in SHIPPED))
    lines, name = {}, ""
    for line in text.splitlines():
        if line.startswith("SF:"):
            name = os.path.relpath(line[3:], tree)
        elif line.startswith("DA:"):
            at, count = line[3:].split(",")[:2]
            if int(count):
                lines.setdefault(name, []).append(int(at))
    return {name: found for name, found in lines.items() if name.startswith(SHIPPED)}


def measure(source, room, jobs):
    """The record, as in coverage.json: {"tests": {name: {"seconds", "lines": {file: [line]}}}, "left_out": [name]}."""
    tree = room / "coverage"
    copy(source, tree)
    configure(tree, "-DATTN_WERROR=OFF", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG", f"-DCMAKE_C_FLAGS={FLAGS}",
              f"-DCMAKE_EXE_LINKER_FLAGS={FLAGS}", f"-DCMAKE_SHARED_LINKER_FLAGS={FLAGS}", f"-DCMAKE_MODULE_LINKER_FLAGS={FLAGS}")
    if not build(tree, "all"):
        raise SystemExit("mutate.sh: the build for coverage failed: cmake --build build/mutate/coverage/build/dev")
    program = tree / "build/dev/experiments/attnlab"
    variants = [one["name"] for one in json.loads(run(program, "list", "variants", "--json"))["variants"]]
    listed = json.loads(run("ctest", "--test-dir", tree / "build/dev", "--show-only=json-v1"))["tests"]
    tests = [WITNESS + name for name in variants] + [test["name"] for test in listed]
    shared = [program, tree / "build/dev/core/libattn.so", *tree.glob("build/dev/**/plugins/*.so")]
    record = {"tests": {}, "left_out": []}

    def one(test):
        profiles = room / "profiles" / re.sub(r"\W", "_", test)
        shutil.rmtree(profiles, ignore_errors=True)
        profiles.mkdir(parents=True)
        begin = time.monotonic()
        try:
            done = subprocess.run(command(tree, test), cwd=tree, capture_output=True, text=True, timeout=LIMIT,
                                  env=os.environ | {"OMP_NUM_THREADS": "1", "LLVM_PROFILE_FILE": f"{profiles}/%c%m.profraw"})
            passed = not done.returncode and "***Skipped" not in done.stdout
        except subprocess.TimeoutExpired:
            passed = False
        seconds = time.monotonic() - begin
        own = next(tree.glob(f"build/dev/tests/{test}"), None)
        lines = executed(tree, profiles, [path for path in (*shared, own) if path]) if passed else {}
        shutil.rmtree(profiles)
        return test, round(seconds, 1), lines

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for test, seconds, lines in pool.map(one, tests):
            print(f"coverage: {test}: {seconds} s, {sum(map(len, lines.values()))} lines", flush=True)
            if lines:
                record["tests"][test] = {"seconds": seconds, "lines": lines}
            else:
                record["left_out"].append(test)
    return record
