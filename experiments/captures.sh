# shellcheck shell=sh
# captures.sh - for scripts in the root of the tree: $attnlab, installed and built if need be, and queries, keys and values of
# two layers of the bundled model in build/captures.
./cmake/bootstrap.sh build
./cmake/build.sh release
attnlab=build/release/experiments/attnlab

# The first layer of 4, and the last: of that one head looks far (data/bytelm/README.md).
mkdir -p build/captures results
for layer in 0 3; do
  capture=build/captures/bytelm-layer$layer.h5
  if [ -z "$(find "$capture" -newer "$attnlab" 2>/dev/null)" ]; then
    "$attnlab" capture data/bytelm --text LICENSE --layer $layer --n 4096 -o "$capture"
  fi
done
