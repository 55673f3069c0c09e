#!/bin/sh
# real.sh - the tests of build/dev against PyTorch, JAX, transformers, tokenizers and gguf of today, in the virtual environment
# build/real: about 7 GiB, most of it PyTorch's. Some twenty minutes, most of them for the functions that are judged.
set -eu

cd "$(dirname "$0")/.."
python=build/real/bin/python
[ -x "$python" ] || python3 -m venv build/real
"$python" -m pip install --quiet torch==2.15.0 jax==0.10.2 numpy==2.4.6 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 \
  safetensors==0.8.0 accelerate sentencepiece protobuf h5py pandas matplotlib
for part in real tokens models architectures torch training attention gradients; do "$python" tests/python/run.py "$part" build/dev; done
PYTHONPATH=core/python ATTNLAB_PROGRAM=build/dev/experiments/attnlab ATTNLAB_LIBRARY=build/dev/core/libattn.so \
  exec "$python" tests/python/judge_all.py
