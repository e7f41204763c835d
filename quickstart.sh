#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a converted checkpoint: packages, build, a small model, Megatron and back.
#   ./quickstart.sh [DIR]      DIR: where the demonstration is written; default: build/quickstart, made anew each time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

demo=${1:-build/quickstart}
if [[ -e "$demo" && $# -gt 0 ]]; then
  echo "error: \`$demo\` exists already." >&2
  echo "hint: name a directory that does not, or run without one." >&2
  exit 2
fi

./scripts/packages.sh
log=build/quickstart-build.log
mkdir -p build
echo "Building crossdock (some minutes the first time; log: $log)"
if ! { cmake --preset release -DCROSSDOCK_BUILD_TESTS=OFF -B build/quickstart-build &&
       cmake --build build/quickstart-build --target crossdock; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "error: the build failed." >&2
  exit 1
fi
crossdock=build/quickstart-build/crossdock
[[ $# -eq 0 ]] && rm -rf "$demo"

step() { printf '\n\033[1m$ crossdock %s\033[0m\n' "$*"; "$crossdock" "$@"; }
[[ -t 1 ]] || step() { printf '\n$ crossdock %s\n' "$*"; "$crossdock" "$@"; }

step demo "$demo"
step convert "$demo/full-state" "$demo/megatron" --to megatron --tp 2 --pp 2 --quiet
step convert "$demo/megatron" "$demo/back" --to full-state --quiet
step verify "$demo/full-state" "$demo/back"
step convert "$demo/megatron" "$demo/hf-back" --to hf

cat <<TXT

What happened: a small Qwen3 with its Adam state went to a Megatron-Core checkpoint for TP 2 x PP 2 and back; every
tensor came back bit for bit. The last command wrote a directory that \`from_pretrained\` opens.
Try next:
  $crossdock inspect $demo/megatron                 what is in a checkpoint
  $crossdock convert YOUR_HF_DIR OUT --to megatron --tp 4 --pp 2 --dry-run
  $crossdock --help
TXT
