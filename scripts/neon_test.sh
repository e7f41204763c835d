#!/usr/bin/env bash
# Builds the FP8 kernels and their tests for 64-bit ARM and runs them in an emulator: the NEON path gives the scalar bytes and torch's.
#   scripts/neon_test.sh        on Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static libgtest-dev libgmock-dev libfmt-dev nlohmann-json3-dev
# Takes about a minute of CPU time to build, half of one to run. Not part of ./test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$tool" >/dev/null || { echo "error: \`$tool\` is not installed." >&2; exit 2; }
done

out=build/neon
gtest=/usr/src/googletest
mkdir -p "$out/include"
# The headers of these two serve every machine; those of the C library beside them do not.
for library in fmt nlohmann; do ln -sfn "/usr/include/$library" "$out/include/$library"; done

compile() {  # compile SOURCE FLAGS...: to an object named after the file
  local source=$1; shift
  local object
  object="$out/$(basename "$source").o"
  objects+=("$object")
  echo "$source"
  aarch64-linux-gnu-g++ -std=gnu++20 -O2 -ffp-contract=off -DCROSSDOCK_FP8_NEON -DFMT_HEADER_ONLY "-DCROSSDOCK_SOURCE_DIR=\"$PWD\"" \
    -Isrc -Iinclude -Itests -I"$out/include" -I$gtest/googletest/include -I$gtest/googlemock/include "$@" -c "$source" -o "$object"
}

objects=()
for source in src/quantize/{block,simd/neon,simd/path,simd/scalar}.cc; do compile "$source" -O3 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror; done
for source in src/kernels/{cast,small_float}.cc src/tensor/{dims,dtype,json,value}.cc src/base/{error,sha256}.cc \
  tests/unit/quantize/{block_test,block_paths_test,simd/path_test}.cc; do compile "$source"; done
for source in $gtest/{googletest/src/gtest-all,googletest/src/gtest_main,googlemock/src/gmock-all}.cc; do
  compile "$source" -I$gtest/googletest -I$gtest/googlemock
done
aarch64-linux-gnu-g++ -static -o "$out/quantize_test" "${objects[@]}" 2>"$out/link.log" || { cat "$out/link.log" >&2; exit 1; }
qemu-aarch64-static "$out/quantize_test" --gtest_brief=1
