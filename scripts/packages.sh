#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build needs, and nothing when they are all there.
#   scripts/packages.sh [--tests]     --tests adds what only the test suite needs
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev
       libtomlplusplus-dev libyaml-cpp-dev libisal-dev libxxhash-dev zlib1g-dev libzstd-dev libblosc-dev)
tests=(libgtest-dev libgmock-dev librapidcheck-dev python3 python3-venv python3-dev ccache)

wanted=("${build[@]}")
[[ "${1:-}" == "--tests" ]] && wanted+=("${tests[@]}")

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "Installing packages: ${missing[*]}"
as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "error: these packages are missing and neither root nor sudo is at hand." >&2
    echo "hint: as root, run: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -q &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
         apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "error: the packages could not be installed." >&2
  exit 1
fi
