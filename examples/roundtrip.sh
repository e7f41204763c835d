#!/usr/bin/env bash
# Loads a Hugging Face checkpoint of a family into the ranks of a layout and saves it back, bit for bit: the layout in which the family is
# usually trained, cut down to what eight processes of one machine hold.
#
#   examples/roundtrip.sh FAMILY HF_DIR [options of python -m crossdock.roundtrip]
#
# Needs the package (`pip install .`), neither torch nor a GPU. PYTHON names the interpreter; under torchrun or srun start
# `-m crossdock.roundtrip` itself. `crossdock families` lists the families. Those with a vision
# tower are refused.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
family=$1 hf_dir=$2; shift 2

case $family in
  llama | mistral | qwen2 | qwen3 | olmo3 | phi3 | gemma2 | gemma3 | internlm2)     layout=(--tp 4 --pp 2) ;;
  mixtral | qwen2_moe | qwen3_moe | minimax_m2 | llama4 | gpt_oss | glm4_moe)      layout=(--tp 2 --pp 2 --ep 2) ;;
  deepseek_v2 | deepseek_v3 | ling2)                                              layout=(--ep 8) ;;
  qwen3_next | qwen3_5 | qwen3_5_moe)                                             layout=(--tp 2 --pp 2) ;;
  *) layout=(--tp 2) ;;
esac
exec "${PYTHON:-python3}" -m crossdock.roundtrip "$hf_dir" --family "$family" "${layout[@]}" "$@"
