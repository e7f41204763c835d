#!/usr/bin/env bash
# Builds the wheel out of a tree that is built already, and installs it alone into a fresh environment.
#
#   scripts/python_wheel.sh BUILDER BUILD_DIR OUT [PYTHON]
#
#   BUILDER    a python with scikit-build-core and nanobind (scripts/setup_test_env.sh wheel)
#   BUILD_DIR  a CMake build of this tree; only the Python module is compiled where the rest is up to date. Another version of Python
#              below 3.12 wants a directory of its own
#   OUT        made anew: OUT/*.whl, and OUT/venv with nothing but the wheel
#   PYTHON     the python of OUT/venv; default BUILDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
builder=$1 build_dir=$2 out=$3 python=${4:-$1}

rm -rf "$out"
mkdir -p "$out"
# The tree keeps what it was configured with; without a word of it pip's own default would compile everything again.
unity=
if [[ -f "$build_dir/CMakeCache.txt" ]]; then
  unity=$(sed -n 's/^CMAKE_UNITY_BUILD:[A-Z]*=//p' "$build_dir/CMakeCache.txt")
  unity=${unity:-OFF}
fi
"$builder" - "$build_dir" "$out" "$unity" <<'PY'
import sys
from scikit_build_core.build import build_wheel
build_dir, out, unity = sys.argv[1:]
build_wheel(out, {"build-dir": build_dir} | ({"cmake.define.CMAKE_UNITY_BUILD": unity} if unity else {}))
PY
"$python" -m venv --without-pip "$out/venv"
# Installed by its own rules, with no installer in the environment: the package, its metadata, the command.
"$builder" - "$out" <<'PY'
import glob, os, pathlib, stat, subprocess, sys, zipfile
out = pathlib.Path(sys.argv[1])
wheel, = glob.glob(str(out / "*.whl"))
python = out / "venv" / "bin" / "python"
site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True).stdout.strip()
with zipfile.ZipFile(wheel) as file:
    for info in file.infolist():
        folder, _, rest = info.filename.partition(".data/scripts/")
        target = out / "venv" / "bin" / rest if rest else pathlib.Path(site) / info.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read(info))
        if rest:
            target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
print(f"{os.path.basename(wheel)}: {os.path.getsize(wheel) / 1e6:.1f} MB")
PY
