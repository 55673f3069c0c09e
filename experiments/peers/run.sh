#!/bin/sh
# run.sh - compares attnlab with other implementations of exact attention on this machine.
set -eu

usage() {
  cat <<'TXT'
Usage: experiments/peers/run.sh [OPTION...]
Installs what is missing (Debian: OpenBLAS, NumPy, node, npm; from npm: ONNX Runtime), builds, and compares attnlab's exact
attention with other implementations on the same tensors, in turn: a table in Markdown. PyTorch takes part where
python3 has it. About half an hour and 12 GiB of memory for everything.

  --quick              n = 4096 and d = 64 alone, 5 rounds: under a minute
  --only CONDITIONS    some cases, e.g. n=4096,d=64+128,causal=no,computation=attention
  --rounds N           rounds of a case (10)
  --seconds S          begin no round of a case later than this
  --continue           add to the rounds of the last run, which may have been of other cases
  --without WHO        leave one out, by its name in the table; may be repeated
  --ours SPEC          what takes part for attnlab (tiled); several: the others are compared with the first
  --threads N          (2)
  --heads N            (8)
  --help               this text

Every round is kept in build/peers/journal.json. Exit code 2: wrong arguments.
TXT
}

case "${1-}" in --help | -h) usage; exit 0 ;; esac

cd "$(dirname "$0")/../.."
./cmake/bootstrap.sh build peers
./cmake/build.sh release
cmake --build build/release --target peers >/dev/null

# ONNX Runtime goes beside the build; its install script would fetch what a graphics card needs.
mkdir -p build/peers
if ! cmp -s experiments/peers/package-lock.json build/peers/package-lock.json ||
  [ ! -d build/peers/node_modules/onnxruntime-node ]; then
  cp experiments/peers/package.json experiments/peers/package-lock.json build/peers
  (cd build/peers && npm ci --ignore-scripts --no-audit --no-fund --silent >&2) ||
    echo "attnlab: npm could not install ONNX Runtime; going on without it" >&2
fi

# OpenBLAS runs its oldest kernels on a processor newer than itself, unless it is told what the processor can do.
if [ -z "${OPENBLAS_CORETYPE-}" ]; then
  case "$(grep -m1 '^flags' /proc/cpuinfo 2>/dev/null)" in
    *avx512bw*) export OPENBLAS_CORETYPE=SkylakeX ;;
    *avx2*) export OPENBLAS_CORETYPE=Haswell ;;
  esac
fi

# The first Python that has torch: another than the first of PATH may be the distribution's, which has NumPy.
for python in "${PEERS_PYTHON:-python3}" python3 /usr/bin/python3; do
  if "$python" -c 'import torch' 2>/dev/null; then break; fi
done
export PEERS_PYTHON="$python" NODE_PATH="$PWD/build/peers/node_modules"
for python in python3 /usr/bin/python3; do
  if "$python" -c 'import numpy' 2>/dev/null; then break; fi
done
exec "$python" experiments/peers/compare.py "$@"
