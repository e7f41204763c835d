#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a converted checkpoint: packages, build, a small model, Megatron and back.
#   ./quickstart.sh [DIR]      DIR: where the demonstration is written; default: build/quickstart, made anew each time
#   ./quickstart.sh --help     this text
# DIR is taken from where you stand. CROSSDOCK_BUILD_JOBS sets the number of compilers at once (default: all cores).
set -euo pipefail
here=$PWD
script=${BASH_SOURCE[0]}
root=$(cd "$(dirname "$script")" && pwd)

usage() { sed -n '2,5s/^# \{0,1\}//p' "$root/quickstart.sh"; }
demo=
for word in "$@"; do
  case "$word" in
    -h|--help) usage; exit 0 ;;
    -*) echo "error: unknown option \`$word\`." >&2; usage >&2; exit 2 ;;
    '') echo "error: the directory's name is empty." >&2; exit 2 ;;
    *) if [[ -n "$demo" ]]; then echo "error: one directory is taken, found \`$demo\` and \`$word\`." >&2; exit 2; fi
       demo=$word ;;
  esac
done
own=false
if [[ -z "$demo" ]]; then own=true; demo=build/quickstart
elif [[ "$demo" != /* ]]; then demo=$here/$demo; fi
cd "$root"
if ! $own && [[ -e "$demo" ]]; then
  echo "error: \`$demo\` exists already." >&2
  echo "hint: name a directory that does not, or run without one." >&2
  exit 2
fi

# Shows one line of a build that is redrawn on a terminal, and a line for each tenth elsewhere.
show_build() {
  local line done=0 all=0 tenth last=-1
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    [[ "$line" =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    tenth=$((10 * done / all))
    if [[ -t 1 ]]; then printf '\r  %d of %d files' "$done" "$all"
    elif [[ $tenth -ne $last ]]; then echo "  $done of $all files"; last=$tenth; fi
  done
  [[ -t 1 && $all -gt 0 ]] && printf '\n'
  return 0
}

./scripts/packages.sh
log=build/quickstart-build.log
mkdir -p build
: >"$log"
jobs=${CROSSDOCK_BUILD_JOBS:-$(nproc)}
echo "Building crossdock with $jobs compilers (some minutes the first time; log: $log)"
if ! { cmake --preset release -DCROSSDOCK_BUILD_TESTS=OFF -DCMAKE_UNITY_BUILD=ON -B build/quickstart-build >>"$log" 2>&1 &&
       cmake --build build/quickstart-build --target crossdock -j "$jobs" 2>&1 | show_build; }; then
  tail -n 40 "$log" >&2
  echo "error: the build failed." >&2
  exit 1
fi
crossdock=build/quickstart-build/crossdock
if $own; then rm -rf "$demo"; fi

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
Try next, from $root:
  $crossdock inspect $demo/megatron                 what is in a checkpoint
  $crossdock convert YOUR_HF_DIR OUT --to megatron --tp 4 --pp 2 --dry-run
  $crossdock --help
TXT
