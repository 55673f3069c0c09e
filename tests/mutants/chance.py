#!/usr/bin/env python3
"""chance.py [--count N] [--seed S] [--under FOLDER] [--since COMMIT] [--limit SECONDS] [--jobs J] - random mutants: `tests/mutate.sh'.

A mutant is one executed line of the code that ships, drawn uniformly, changed by one of universalmutator's rules for C, drawn uniformly
among those that compile and change what is built; texts of messages stay. It meets the tests that execute the line, first those that
are quick and execute little but its file, until one fails or SECONDS of tests are over; then those of them that `.ci/run' runs
under the sanitizers; and, in what judges, the planted mutants. What survives is left as a patch in build/mutate/SEED/, unless
tests/mutants/equivalent.txt says in a line why nobody can notice it. One of core/ or variants/ also meets `attnlab test' for the
variants that execute the line: would a user have seen it?"""
import argparse
import collections
import concurrent.futures
import contextlib
import difflib
import hashlib
import io
import json
import os
import pathlib
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import time

from scipy.stats import beta
from universalmutator import mutator

import coverage

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROOM = SOURCE / "build" / "mutate"
EQUIVALENT = SOURCE / "tests" / "mutants" / "equivalent.txt"
MEMORY = 12 << 30  # bytes of a process
FILES = 2 << 30  # bytes of a file
SANITIZED = "asan-ubsan"
JUDGES = tuple(f"experiments/{room}/" for room in
               ("checks", "claims", "evidence", "mathematics", "properties", "reference", "verification"))


def lines_since(commit):
    """{(file, line)} that differ from it."""
    found, name = set(), ""
    for line in coverage.run("git", "-C", SOURCE, "diff", "-U0", commit).splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif at := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))?", line):
            found |= {(name, int(at[1]) + k) for k in range(int(at[2] or 1))}
    return found


def moved(file):
    """{line when the coverage was measured: the same line now}."""
    before, now = (coverage.text_lines(root / file) for root in (ROOM / "coverage", SOURCE))
    blocks = difflib.SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks() if before != now else [(0, 0, len(now))]
    return {a + k + 1: b + k + 1 for a, b, size in blocks for k in range(size)}


def ends_loop(text, line):
    """Whether the line after it closes a loop: a `continue' between them changes nothing."""
    close = re.match(" *}", text[line]) if line < len(text) else None
    opens = close and next((one for one in reversed(text[:line]) if re.match(close[0][:-1] + r"\S", one)), "")
    return bool(opens) and bool(re.match(r" *(for|while|do|\w+_foreach)\b", opens))


def changes(text, at):
    """What universalmutator makes of a line, and what stays the same without its strings."""
    line = text[at - 1]
    bare = re.sub(r'"[^"]*"', '""', line)
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp([line], ["universal.rules", "c_like.rules"], ignorePatterns=[], ignoreStringOnly=True)
    found = [new for _, new, *_ in found if re.sub(r'"[^"]*"', '""', new) != bare and "//" not in new.replace("://", "")]
    counted = re.sub(r"(\bfor \([^;]* = 0; (?:!\w+ && )?\w+) < ([^;&|]+( && !\w+)?;)", r"\1 != \2", line)  # counts are 0 at least
    return [new for new in found if new != counted and not (re.search(r"\n *continue;$", new.rstrip()) and ends_loop(text, at))]


def limits():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # the leak sanitizer reserves more addresses
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))


class Tree:
    """A copy of the sources and its build, for one mutant at a time."""
    def __init__(self, index):
        self.path = ROOM / f"tree{index}"
        coverage.copy(SOURCE, self.path)
        coverage.configure(self.path)
        self.tests = self.targets("dev", r"test_\w+")
        self.shipped = {"attnlab", "attn"} | self.targets("dev", r"attn_\w+")
        self.right = self.built()
        if not self.right:
            raise SystemExit(f"mutate.sh: {self.path} cannot be built")

    def targets(self, preset, names):
        told = coverage.run("cmake", "--build", f"build/{preset}", "--target", "help", cwd=self.path)
        return set(re.findall(rf"^({names}): phony", told, re.M))

    def built(self):
        """A digest of the program, the library and the plug-ins, or None."""
        if not coverage.build(self.path, *self.shipped):
            return None
        digest = hashlib.sha256()
        for path in sorted(self.path.glob("build/dev/**/*.so")) + [self.path / "build/dev/experiments/attnlab"]:
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def fails(self, test, seconds, preset="dev"):
        if test in self.tests and not coverage.build(self.path, test, preset=preset):
            return True
        plain = preset == "dev"  # sanitizers take address space without limit, and time
        process = subprocess.Popen(coverage.command(self.path, test, preset), cwd=self.path, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limits if plain else None)
        try:
            return process.wait(20 + (8 if plain else 40) * seconds) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            self.end()
            process.wait()

    def sanitized(self, tests, seconds):
        """The first of the tests that sanitizers let fail: of leaks, and of what is written beside its array."""
        coverage.configure(self.path, preset=SANITIZED)
        if not coverage.build(self.path, "attnlab", preset=SANITIZED):
            return "the build with sanitizers"
        there = self.targets(SANITIZED, r"test_\w+")
        return next((f"{test}, sanitized" for test in tests if test in there and self.fails(test, seconds[test], SANITIZED)), None)

    def spares(self, path):
        """A planted mutant that survives while what judges is changed, or None: of the checks that its file names, else its
        folder, else of each check one."""
        coverage.configure(self.path, preset="mutants")
        if not coverage.build(self.path, "attn_mutants", preset="mutants"):
            return "the build of planted mutants"
        listed = (self.path / "build/mutants/mutants/mutants.inc").read_text()
        listed = re.findall(r'^MUTANT\("([^"]*)", "([^"]*)", "([^"]*)"', listed, re.M)
        each = {one[1]: one for one in listed if "/" not in one[1]}
        texts = path.read_text(), "".join(one.read_text() for one in path.parent.glob("*.c"))
        named = ([one for one in listed if f'"{one[1]}"' in text] for text in texts)
        for planted in next(filter(None, named), each.values()):
            if subprocess.run(["build/mutants/tests/attn_mutants", *planted], cwd=self.path, capture_output=True).returncode:
                return f"mutants: {planted[0]}"
        return None

    def end(self):
        """Kills what runs a program of this tree: Criterion's tests have groups of their own, and may loop for ever."""
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            with contextlib.suppress(OSError):
                if link.readlink().is_relative_to(self.path):
                    os.kill(int(link.parent.name), 9)


class Mutants:
    """The mutants of a seed: each is a line of build/mutate/SEED.jsonl, by which a run goes on."""
    def __init__(self, options, record):
        self.options, self.seconds = options, {name: test["seconds"] for name, test in record["tests"].items()}
        files = {file for test in record["tests"].values() for file in test["lines"] if file.startswith(options.under)}
        self.texts = {file: coverage.text_lines(SOURCE / file) for file in files}
        places = {file: moved(file) for file in files}
        over, cost = collections.defaultdict(list), {}
        for name, test in record["tests"].items():
            total = sum(map(len, test["lines"].values()))
            for file in files & test["lines"].keys():
                cost[file, name] = test["seconds"] * total / len(test["lines"][file])
                for line in test["lines"][file]:
                    if line in places[file]:
                        over[file, places[file][line]].append(name)
        only = lines_since(options.since) if options.since else None
        self.over = {place: sorted(names, key=lambda name: cost[place[0], name]) for place, names in sorted(over.items())
                     if only is None or place in only}
        self.equivalent = dict(line.split("\t")[:2] for line in EQUIVALENT.read_text().splitlines() if line[:1] != "#")
        parts = (SOURCE / "tests" / "parts.sh").read_text()
        names = re.findall(r"\$(\w+)", re.search(r"^part asan .*", parts, re.M)[0])
        areas, *slow = (re.search(rf"^{name}='(.*)'$", parts, re.M)[1] for name in names)
        self.areas, self.slow = areas.split(), "|".join(slow) + ")$"
        self.places = random.Random(options.seed).sample(sorted(self.over), len(self.over))

    def meet(self, tree, tests):
        """The first of them that fails, or None, and how many were left out for the time."""
        begin = time.monotonic()
        for k, test in enumerate(tests):
            if time.monotonic() - begin > self.options.limit:
                return None, len(tests) - k
            if tree.fails(test, self.seconds[test]):
                return test, 0
        return None, 0

    def is_sanitized(self, test):
        """Whether `.ci/run' runs it under the sanitizers."""
        return test.startswith(tuple(f"test_{area}_" for area in self.areas)) and not re.match(self.slow, test)

    def one(self, tree, place, candidates):
        """What became of the mutant of a place, or of none where no change of the line is one."""
        file, line = place
        text, path = self.texts[file], tree.path / file
        old = text[line - 1]
        found = {"file": file, "line": line, "old": old.strip(), "same": 0, "broken": 0}
        try:
            for new in candidates:
                path.write_text("".join(text[:line - 1] + [new] + text[line:]))
                digest = tree.built()
                if digest in (None, tree.right):
                    found["broken" if digest is None else "same"] += 1
                    continue
                found["new"] = new.strip()
                tests = [name for name in self.over[place] if not name.startswith(coverage.WITNESS)]
                found["by"], found["left_out"] = self.meet(tree, tests)
                if not found["by"]:
                    found["by"] = tree.sanitized([name for name in tests if self.is_sanitized(name)], self.seconds)
                if not found["by"] and file.startswith(JUDGES):
                    found["by"] = tree.spares(path)
                if self.options.witness and file.startswith(("core/", "variants/")):
                    found["seen"], _ = self.meet(tree, [name for name in self.over[place] if name not in tests])
                found["argued"] = self.equivalent.get(f"{file}: {old.strip()} => {new.strip()}")
                return found
            return found
        finally:
            path.write_text("".join(text))

    def patch(self, k, found):
        file, line = found["file"], found["line"]
        text = self.texts[file]
        old = text[line - 1]
        new = text[:line - 1] + [old.replace(old.strip(), found["new"])] + text[line:]
        tests = [name for name in self.over[file, line] if not name.startswith(coverage.WITNESS)]
        folder = ROOM / str(self.options.seed)
        folder.mkdir(exist_ok=True)
        (folder / f"{k:03}.patch").write_text(
            f"Executed by {len(tests)} tests, {found['left_out']} of them left out: {' '.join(tests)}\n"
            + "".join(difflib.unified_diff(text, new, f"a/{file}", f"b/{file}")))

    def run(self):
        kept = ROOM / f"{self.options.seed}.jsonl"
        done = {}
        if kept.exists():
            for one in map(json.loads, kept.read_text().splitlines()):
                done[one["file"], one["line"]] = one
        trees = queue.SimpleQueue()
        for k in range(self.options.jobs):
            trees.put(Tree(k))
        results = [done[place] for place in self.places if place in done and "new" in done[place]]
        waiting = [place for place in reversed(self.places) if place not in done]

        def in_a_tree(place, candidates):
            tree = trees.get()
            try:
                return self.one(tree, place, candidates)
            finally:
                trees.put(tree)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool, kept.open("a") as out:
            running = set()
            while running or (waiting and len(results) < self.options.count):
                while waiting and len(running) < self.options.jobs and len(results) + len(running) < self.options.count:
                    file, line = place = waiting.pop()
                    candidates = changes(self.texts[file], line)  # not in a thread: they share the output that is redirected
                    random.Random(f"{self.options.seed} {file} {line}").shuffle(candidates)
                    running.add(pool.submit(in_a_tree, place, candidates))
                ended, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for found in [future.result() for future in ended]:
                    out.write(json.dumps(found) + "\n")
                    out.flush()
                    if "new" in found:
                        results.append(found)
                        if not found["by"]:
                            self.patch(len(results), found)
                        print(f"{len(results):4} {found['by'] or 'SURVIVES':32} {found['file']}:{found['line']}: "
                              f"{found['old']}  =>  {found['new']}", flush=True)
        return results


def interval(killed, count):
    """Clopper and Pearson's, 95 %."""
    low = beta.ppf(0.025, killed, count - killed + 1) if killed else 0.0
    high = beta.ppf(0.975, killed + 1, count - killed) if killed < count else 1.0
    return f"{killed} of {count} = {killed / count:.3f} [{low:.3f}, {high:.3f}]"


def report(results):
    counted = [one for one in results if one["by"] or not one.get("argued")]
    print(f"\n{'folder':28} killed")
    folders = collections.defaultdict(list)
    for one in counted:
        parts = one["file"].split("/")
        folders[parts[0]].append(one)
        if len(parts) > 2:
            folders["/".join(parts[:2])].append(one)
    folders["all"] = counted
    for folder, some in sorted(folders.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        print(f"{folder:28} {interval(sum(bool(one['by']) for one in some), len(some))}")
    asked = [one for one in counted if "seen" in one]
    if asked:
        print(f"\ncore and variants: `attnlab test' sees {interval(sum(bool(one['seen']) for one in asked), len(asked))}")
    killers = collections.Counter(one["by"] for one in counted if one["by"])
    print("by", ", ".join(f"{name} {count}" for name, count in killers.most_common(12)))
    print(f"{len(results) - len(counted)} argued to be equivalent, {sum(one['same'] for one in results)} that change nothing that is built, "
          f"{sum(bool(one['left_out']) for one in counted)} survivors that did not meet every test")
    return killers


def main():
    parser = argparse.ArgumentParser(prog="mutate.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under", default="", metavar="FOLDER")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="of tests that one mutant meets")
    parser.add_argument("--measure", action="store_true", help="anew, what every test executes")
    parser.add_argument("--no-witness", dest="witness", action="store_false", help="leave out what `attnlab test' sees")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.environ |= {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CCACHE_NOHASHDIR": "1"} if shutil.which("ccache") else {}
    os.environ["GIT_CEILING_DIRECTORIES"] = str(ROOM)  # a build names the commit of its sources, and trees have none
    record = ROOM / "coverage.json"
    if options.measure or not record.exists():
        record.write_text(json.dumps(coverage.measure(SOURCE, ROOM, options.jobs)))
    mutants = Mutants(options, json.loads(record.read_text()))
    results = mutants.run()
    if not results:
        sys.exit("mutate.sh: no executed line to change")
    killers = report(results)
    tree = Tree(0)
    parts = {name: name.partition(", ") for name in killers}
    wrong = [name for name, (test, _, sanitized) in parts.items() if test in mutants.seconds
             and tree.fails(test, mutants.seconds[test], SANITIZED if sanitized else "dev")]
    print("every test that killed one passes without mutants" if not wrong else f"FAIL WITHOUT A MUTANT: {', '.join(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
