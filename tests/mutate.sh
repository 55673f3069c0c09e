#!/bin/sh
# mutate.sh [OPTION...] - random mutants of the code that ships, and which tests notice them (tests/mutants/chance.py --help). The first
# run measures what every test executes, about half an hour; 300 mutants take some three hours on two cores, and go on where they stopped.
set -eu
cd "$(dirname "$0")/.."
./cmake/bootstrap.sh build tests clang tools python mutate
python=build/mutate/venv/bin/python
[ -x "$python" ] || python3 -m venv build/mutate/venv
"$python" -m pip install --quiet universalmutator==1.14.1 scipy==1.17.1
exec nice "$python" tests/mutants/chance.py "$@"
