#!/usr/bin/env bash
# A run with Megatron-Core on two ranks of CPUs that saves itself and exports, is killed while it saves, and goes on.
#
#   examples/megatron_training.sh OUT
#
# Needs torch, megatron-core and the package (`pip install .`). PYTHON names the interpreter. What is left in OUT: the run, exports in
# BF16 and FP8 (examples/megatron_training.py says where), and OUT/whole, a run that nobody killed, which ends with the same losses.
set -euo pipefail
[[ $# -eq 1 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
out=$1 python=${PYTHON:-python3} here=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=1 CUDA_DEVICE_MAX_CONNECTIONS=1

mkdir -p "$out"
[[ -d $out/small ]] || "$python" -c 'import crossdock, sys; crossdock.demo(sys.argv[1])' "$out/small"
train() {
  "$python" -m torch.distributed.run --nproc-per-node 2 --master-port "${PORT:-29533}" "$here/megatron_training.py" --hf "$out/small/hf" --steps 6 --save-every 2 "$@"
}
train --out "$out" --die-at 4 > "$out/killed.log" 2>&1 && { echo "the run was not killed" >&2; exit 1; }
grep -E '^(from|step|hook)' "$out/killed.log"
echo "killed in the save of step 4; the same command again:"
train --out "$out" | tee "$out/resumed.log"
train --out "$out/whole" > "$out/whole.log"
diff <(grep -h '^step [3-6]' "$out/resumed.log") <(grep '^step [3-6]' "$out/whole.log") && echo "the losses are those of a run that was not killed"
