#!/usr/bin/env bash
# Makes (once) a pinned Python environment in which oracle tests run the real libraries:
#   torch (the default)  torch, Megatron-Core, transformers, safetensors; about 6 GB; beside it folders with emerging-optimizers and
#                        compressed-tensors
#   jax                  jax, Orbax, TensorStore, flax, optax, zarr; about 0.8 GB
#   wheel                scikit-build-core, nanobind, pytest, numpy: what builds the Python package and tests it; about 80 MB
#   maxtext              MaxText and Tunix over the other two, which are made first; about 1.1 GB more
# The last line of standard output is the path of its python; everything else goes to standard error.
#
#   scripts/setup_test_env.sh [torch|jax|maxtext|wheel] [--print-python] [--offline]
#
#   --print-python  only the path on standard output, progress kept quiet (errors still go to standard error)
#   --offline       use an environment that is complete already, never install
#
# Exit 0: environment ready. Exit 3: it cannot be had here (no Python >= 3.12, no network); callers then skip the oracle
# tests, say so loudly and count them. Anything else is a failure of the script itself.
#
# CROSSDOCK_ENV_DIR  where environments live (default ~/.cache/crossdock/envs).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
env_root=${CROSSDOCK_ENV_DIR:-$HOME/.cache/crossdock/envs}
name=torch quiet=0 offline=0
for word in "$@"; do
  case $word in
    torch|jax|maxtext|wheel) name=$word ;;
    --print-python) quiet=1 ;;
    --offline) offline=1 ;;
    -h|--help) sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup_test_env.sh: unknown option $word" >&2; exit 2 ;;
  esac
done

say() { [ "$quiet" = 1 ] || echo "setup_test_env: $*" >&2; }
unavailable() {
  {
    echo "################################################################################"
    echo "## The oracle environment '$name' cannot be made: $1"
    echo "## Oracle tests that run in it must be SKIPPED and counted."
    echo "################################################################################"
  } >&2
  exit 3
}

# What an environment consists of, and what must import when it is complete.
requirements=$here/tests/oracle/requirements-$name.txt
if [ "$name" = wheel ]; then requirements=$here/tests/python/requirements-wheel.txt; fi
old_requirements=
imports='jax, orbax.checkpoint, tensorstore, flax, optax, zarr'
if [ "$name" = wheel ]; then imports='scikit_build_core, nanobind, pytest, numpy'; fi
if [ "$name" = maxtext ]; then imports='maxtext.configs.pyconfig, maxtext.common.train_state_nnx, tunix, transformers'; fi
if [ "$name" = torch ]; then
  old_requirements=$here/tests/oracle/requirements-mcore-old.txt
  imports='torch, safetensors, transformers, megatron.core, megatron.training'
fi

hash=$(cat "$requirements" ${old_requirements:+"$old_requirements"} | sha256sum | cut -c1-12)
env=$env_root/$name-$hash
python=$env/bin/python

# Small packages that the torch environment does not hold: folders of their own, which tests put on their path. Without one of them
# its tests alone are skipped.
beside() {
  [ "$name" = torch ] || return 0
  local one list folder
  for one in emerging compressed; do
    list=$here/tests/oracle/requirements-$one.txt
    folder=$env_root/$one-$(sha256sum "$list" | cut -c1-12)
    [ ! -d "$folder" ] && [ "$offline" = 0 ] || continue
    rm -rf "$folder.part"
    if "$python" -m pip install -q --no-deps --target "$folder.part" -r "$list" >>"$env_root/$name-$hash.log" 2>&1; then
      mv -T "$folder.part" "$folder" 2>/dev/null || rm -rf "$folder.part"   # another caller was faster
    else
      say "$(tail -n 1 "$list") could not be installed: its tests will be skipped (log: $env_root/$name-$hash.log)"
    fi
  done
}

if [ -f "$env/COMPLETE" ] && "$python" -c '' 2>/dev/null; then
  say "using $env"
  beside
  echo "$python"
  exit 0
fi
[ "$offline" = 0 ] || unavailable "it is not at $env and --offline was given"

mkdir -p "$env_root"
# Two callers may arrive together: the second waits and finds the work done.
exec 9>"$env_root/.lock-$hash"
if command -v flock >/dev/null; then flock 9; fi
if [ -f "$env/COMPLETE" ] && "$python" -c '' 2>/dev/null; then beside; echo "$python"; exit 0; fi

# MaxText stands on the packages of the other two: .pth files name them, so that nothing is installed twice.
below=()
if [ "$name" = maxtext ]; then
  for one in jax torch; do
    python_below=$("${BASH_SOURCE[0]}" "$one" --print-python) || exit $?
    below+=("$python_below")
  done
fi

log=$env_root/$name-$hash.log
: >"$log"

# A candidate counts only when it runs (pyenv's shims exist for versions that are not selected) and is new enough.
good() { "$1" -c 'import sys, venv; sys.exit(not ((3, 12) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1; }
find_python() {
  local candidate
  for candidate in python3.12 python3.13 python3 python; do
    command -v "$candidate" >/dev/null || continue
    if good "$candidate"; then "$candidate" -c 'import sys; print(sys.executable)'; return 0; fi
  done
  if command -v uv >/dev/null && candidate=$(uv python find '>=3.12,<3.14' 2>/dev/null) && good "$candidate"; then
    echo "$candidate"; return 0
  fi
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[23].*/bin/python \
                   "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/*3.1[23].*/bin/python3; do
    if [ -x "$candidate" ] && good "$candidate"; then echo "$candidate"; return 0; fi
  done
  return 1
}

# uv: from PATH, else our own copy by pip from whatever Python there is (uv itself runs on old ones).
find_uv() {
  local any own=$env_root/uv
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then command -v uv; return 0; fi
  if [ -x "$own/bin/uv" ]; then echo "$own/bin/uv"; return 0; fi
  for any in ${1:+"$1"} python3 python; do
    command -v "$any" >/dev/null || continue
    rm -rf "$own"
    if "$any" -m venv "$own" >>"$log" 2>&1 && "$own/bin/python" -m pip install -q 'uv==0.13.9' >>"$log" 2>&1 \
        && [ -x "$own/bin/uv" ]; then echo "$own/bin/uv"; return 0; fi
    rm -rf "$own"
    if "$any" -m pip install -q --target "$own" 'uv==0.13.9' >>"$log" 2>&1 && [ -x "$own/bin/uv" ]; then
      echo "$own/bin/uv"; return 0
    fi
  done
  rm -rf "$own"
  return 1
}

base=$(find_python) || base=
uv=$(find_uv "$base") || uv=
if [ -z "$base" ]; then
  [ -n "$uv" ] || unavailable "no Python 3.12 or 3.13 found on PATH, under pyenv or uv, and uv could not be installed (log: $log)"
  say "no Python 3.12 found, letting uv fetch one"
  "$uv" python install 3.12 >>"$log" 2>&1 || unavailable "no Python 3.12 or 3.13, and uv could not fetch one (log: $log)"
  base=$("$uv" python find 3.12 2>>"$log") && good "$base" || unavailable "uv fetched no usable Python (log: $log)"
fi

say "making $env with $base (log: $log)"
rm -rf "$env"
if [ -n "$uv" ]; then
  "$uv" venv --python "$base" "$env" >>"$log" 2>&1 || unavailable "uv venv failed (log: $log)"
  install() { UV_HTTP_TIMEOUT=300 "$uv" pip install --python "$python" --no-deps "$@" >>"$log" 2>&1; }
else
  "$base" -m venv "$env" >>"$log" 2>&1 || unavailable "python -m venv failed: is python3-venv installed? (log: $log)"
  install() { "$python" -m pip install -q --no-deps "$@" >>"$log" 2>&1; }
fi
# One retry: registries and proxies hiccup.
install -r "$requirements" || install -r "$requirements" || unavailable "packages could not be installed (log: $log)"
if [ -n "$old_requirements" ]; then
  install --target "$env/mcore-old" -r "$old_requirements" || unavailable "the old megatron-core could not be installed (log: $log)"
fi
packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
for one in ${below[@]+"${below[@]}"}; do
  packages "$one" >"$(packages "$python")/below_$(basename "$(dirname "$(dirname "$one")")").pth"
done
DECOUPLE_GCLOUD=TRUE JAX_PLATFORMS=cpu "$python" -c "import $imports" >>"$log" 2>&1 || unavailable "the environment does not import (log: $log)"
date -u +%FT%TZ >"$env/COMPLETE"
beside
say "complete"
echo "$python"
