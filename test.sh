#!/usr/bin/env bash
# Sets up what the tests need and runs all of them. The last line is `N passed, N failed, N skipped` over all layers.
#   ./test.sh            everything: C++, sanitizers, limits, kill loops, and the real consumers in Python
#   ./test.sh --quick    structure and C++ tests only, under a minute once built
# CROSSDOCK_BUILD_JOBS sets the number of compilers at once (default: all cores).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

quick=false
for word in "$@"; do
  case "$word" in
    --quick) quick=true ;;
    -h|--help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: unknown option \`$word\`." >&2; exit 2 ;;
  esac
done

passed=0 failed=0 skipped=0
out=build/test-results
mkdir -p "$out"

heading() { printf '\n== %s\n' "$*"; }
add() { passed=$((passed + $1)); failed=$((failed + $2)); skipped=$((skipped + $3)); }
finish() { printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"; [[ $failed -eq 0 ]]; exit; }

# check NAME COMMAND...: one test that passes when the command does.
check() {
  local name=$1; shift
  if "$@" >"$out/$name.log" 2>&1; then add 1 0 0; echo "ok      $name"
  else add 0 1 0; echo "FAILED  $name"; tail -n 30 "$out/$name.log"; fi
}

# ctest_layer PRESET [PROGRAM...]: builds a preset (or some of its test programs) and counts each of their test cases.
ctest_layer() {
  local preset=$1 jobs=${CROSSDOCK_BUILD_JOBS:-$(nproc)}; shift
  local only=() targets=()
  if [[ $# -gt 0 ]]; then only=(-R "^($(IFS='|'; echo "$*"))\$"); targets=(--target "$@"); fi
  # A first build takes several files at once, in half the time; not with sanitizers, which then take longer. Whoever has set up
  # their own build keeps it as it is.
  local first=()
  [[ "$preset" != release || -f "build/$preset/CMakeCache.txt" ]] || first=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8)
  [[ "$preset" != release ]] || first+=("${python_module[@]}")
  if ! { cmake --preset "$preset" "${first[@]}" && cmake --build --preset "$preset" -j "$jobs" "${targets[@]}"; } >"$out/$preset-build.log" 2>&1; then
    grep -E 'error|FAILED' "$out/$preset-build.log" | head -n 30
    echo "FAILED  build of preset $preset, see $out/$preset-build.log"; add 0 1 0; return 1
  fi
  rm -rf "$out/$preset"; mkdir -p "$out/$preset"
  GTEST_OUTPUT="json:$PWD/$out/$preset/" ctest --test-dir "build/$preset" -j "$jobs" "${only[@]}" --output-on-failure \
    --output-junit "$PWD/$out/$preset/ctest.xml" >"$out/$preset-ctest.log" 2>&1
  local counts; counts=$(python3 scripts/count_tests.py "$out/$preset")
  read -r p f s <<<"$counts"
  add "$p" "$f" "$s"
  echo "$preset: $p passed, $f failed, $s skipped"
  [[ $f -eq 0 ]] || grep -vE '^ +Start|Passed' "$out/$preset-ctest.log" | tail -n 60
}

# python_layer NAME COMMAND...: a program whose output ends with `N passed, N failed, N skipped` in any order.
python_layer() {
  local name=$1; shift
  "$@" 2>&1 | tee "$out/$name.log"
  local status=${PIPESTATUS[0]} line p f s e
  line=$(grep -E '[0-9]+ (passed|failed|skipped|error)' "$out/$name.log" | tail -n 1)
  number() { grep -oE "[0-9]+ $1" <<<"$line" | grep -oE '[0-9]+' | head -n 1; }
  p=$(number passed) f=$(number failed) s=$(number skipped) e=$(number error)
  f=$((${f:-0} + ${e:-0}))
  if [[ $status -ne 0 && $f -eq 0 ]]; then f=1; echo "FAILED  $name ended with status $status"; fi
  add "${p:-0}" "$f" "${s:-0}"
}

# aside LAYERS: runs a function of layers beside those that follow. `join` waits for it, prints what it said and counts it.
aside() {
  rm -f "$out/aside.counts"
  ( passed=0 failed=0 skipped=0
    "$1"
    echo "$passed $failed $skipped" >"$out/aside.counts" ) >"$out/aside.log" 2>&1 &
}
join() {
  wait
  cat "$out/aside.log"
  local p=0 f=1 s=0
  if [[ -f "$out/aside.counts" ]]; then read -r p f s <"$out/aside.counts"; else echo "FAILED  the layers aside ended early"; fi
  add "$p" "$f" "$s"
}

heading "Packages"
if ! ./scripts/packages.sh --tests; then echo "FAILED  packages"; add 0 1 0; finish; fi

heading "Structure"
check includes python3 scripts/check_includes.py
check test-mirror python3 scripts/check_test_mirror.py
check golden-manifests python3 scripts/check_golden.py

# with_headers PYTHON: whether it runs and extensions can be compiled for it.
with_headers() { "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null; }

# The Python module is built with the rest, if it can be built at all.
no_module='no Python 3.12 or newer, or what builds it could not be installed'
if wheel_python=$(./scripts/setup_test_env.sh wheel --print-python 2>"$out/wheel-env.log" | tail -n 1) && [[ -x "$wheel_python" ]] && ! with_headers "$wheel_python"; then
  no_module="$wheel_python has no headers (Python.h), which python3-dev brings"
  wheel_python=''
fi
if [[ -x "$wheel_python" ]]; then
  # What was found for another Python, of which a wheel was made in between, is forgotten.
  python_module=(-U 'Python_*' -U '_Python_*' -DCROSSDOCK_PYTHON=ON -DPython_EXECUTABLE="$wheel_python")
else
  wheel_python='' python_module=(-DCROSSDOCK_PYTHON=OFF)
fi

heading "C++ tests (release)"
ctest_layer release || finish
export CROSSDOCK="$PWD/build/release/crossdock"
check families-table python3 scripts/families_table.py "$CROSSDOCK" --check

if $quick; then finish; fi

# A Python older than the stable ABI, with its headers; the first that runs.
older_python() {
  local one
  for one in python3.11 /usr/bin/python3.11 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.11.*/bin/python; do
    with_headers "$one" || continue
    "$one" -c 'import sys; print(sys.executable)'; return
  done
  return 1
}

heading "The Python package"
older=''
if [[ -n "$wheel_python" ]]; then
  wheel_packages=$("$wheel_python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # The tools are of no version of Python; numpy, which some tests compare with, is.
  older=$(older_python) && check wheel-3.11 env PYTHONPATH="$wheel_packages" ./scripts/python_wheel.sh "$older" build/release build/wheel311
  check wheel ./scripts/python_wheel.sh "$wheel_python" build/release build/wheel
  tail -n 1 "$out/wheel.log"
  CROSSDOCK_SITE=$(echo "$PWD"/build/wheel/venv/lib/python*/site-packages)
  export CROSSDOCK_SITE
else
  tail -n 5 "$out/wheel-env.log"
  echo "SKIPPED the Python package: $no_module; details in $out/wheel-env.log"
  add 0 0 "$(grep -rhoE '^ *def test_' tests/python | wc -l)"
fi

# With the real consumers a test waits for one process most of the time, and so do the layers below: both run at once.
consumers() {
  heading "Real producers and consumers"
  local python n
  if python=$(./scripts/setup_test_env.sh --print-python 2>"$out/oracle-env.log" | tail -n 1) && [[ -x "$python" ]]; then
    python_layer oracle "$python" -m pytest -q -p no:cacheprovider --durations=25 tests/oracle --ignore tests/oracle/test_orbax.py
  else
    tail -n 5 "$out/oracle-env.log"
    n=$(grep -rhoE '^ *def test_' tests/oracle --exclude test_orbax.py | wc -l)
    echo "SKIPPED the tests with the real consumers: no Python 3.12 or newer, or its packages could not be installed."
    echo "        hint: install Python 3.12 (pyenv or uv) and run ./test.sh again; details in $out/oracle-env.log"
    add 0 0 "$n"
  fi

  heading "Real Orbax and TensorStore"
  if python=$(./scripts/setup_test_env.sh jax --print-python 2>"$out/orbax-env.log" | tail -n 1) && [[ -x "$python" ]]; then
    python_layer orbax "$python" -m pytest -q -p no:cacheprovider tests/oracle/test_orbax.py
  else
    tail -n 5 "$out/orbax-env.log"
    echo "SKIPPED the tests with the real Orbax: its environment cannot be made here; details in $out/orbax-env.log"
    add 0 0 "$(grep -hoE '^ *def test_' tests/oracle/test_orbax.py | wc -l)"
  fi

  heading "Post-training with the real Tunix"
  if [[ -n "$wheel_python" ]] && python=$(./scripts/setup_test_env.sh maxtext --print-python 2>"$out/maxtext-env.log" | tail -n 1) && [[ -x "$python" ]]; then
    python_layer post-training "$python" -m pytest -q -p no:cacheprovider tests/post_training
  else
    echo "SKIPPED the tests with the real Tunix: its environment, or the Python package, cannot be made here; details in $out/maxtext-env.log"
    add 0 0 "$(grep -rhoE '^ *def test_' tests/post_training | wc -l)"
  fi
}
aside consumers

if [[ -n "$wheel_python" ]]; then
  heading "The Python package, installed"
  without_numpy=$(grep -L '^import numpy' tests/python/test_*.py)
  if [[ -n "$older" ]]; then
    python_layer python-3.11 env CROSSDOCK_PREFIX="$PWD/build/wheel311/venv" PYTHONPATH="$(echo "$PWD"/build/wheel311/venv/lib/python*/site-packages):$wheel_packages" \
      "$older" -m pytest -q -p no:cacheprovider $without_numpy
  else
    echo "SKIPPED the Python package on 3.11: there is no such Python with its headers here"
    add 0 0 "$(grep -hoE '^ *def test_' $without_numpy | wc -l)"
  fi
  python_layer python env CROSSDOCK_PREFIX="$PWD/build/wheel/venv" PYTHONPATH="$CROSSDOCK_SITE" "$wheel_python" -m pytest -q -p no:cacheprovider tests/python
fi

heading "Parsers and the engine under AddressSanitizer and UBSan"
ctest_layer asan replay_pickle replay_torch_zip replay_dcp_metadata replay_safetensors_header replay_hf_index \
  corrupt_torch_zip_test corrupt_dcp_test corrupt_safetensors_test formats_pickle_test formats_torch_zip_test \
  replay_zarr formats_torch_bin_test formats_dcp_test formats_mp_rank_test formats_safetensors_test formats_zarr_test formats_test \
  replay_zarr_json replay_ocdbt corrupt_orbax_test formats_ocdbt_test formats_orbax_test format_conformance_test \
  dialects_mcore_buckets_test dialects_mcore_legacy_test layout_test layout_bucket_test io_test execute_test expr_test verify_test quantize_test

heading "Limits: bytes, system calls, memory"
python_layer limits python3 tests/limits/limits_test.py

heading "Cases from users' daily life"
python_layer cases python3 tests/cases/cases_test.py
python_layer cases-work python3 tests/cases/work_cases_test.py
python_layer cases-moe python3 tests/cases/moe_cases_test.py
python_layer cases-state python3 tests/cases/state_cases_test.py
python_layer cases-muon python3 tests/cases/muon_cases_test.py
python_layer cases-maxtext python3 tests/cases/maxtext_cases_test.py
python_layer cases-tunix python3 tests/cases/tunix_cases_test.py
python_layer cases-fp8 python3 tests/cases/fp8_cases_test.py
python_layer cases-watch python3 tests/cases/watch_cases_test.py

heading "Hostile indexes and torch files"
python_layer hostile python3 tests/corrupt/hostile/hostile_test.py

heading "Killed at random moments"
python_layer kill python3 tests/fault/kill_test.py

join
finish
