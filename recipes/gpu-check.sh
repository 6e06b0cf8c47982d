#!/usr/bin/env bash
# What ppplan measures on one NVIDIA GPU, as one command of under 5 minutes; not yet verified on a GPU.
#
#   bash recipes/gpu-check.sh [FOLDER]        PPPLAN="python -m planner" says how to call it, should `ppplan` not be on the path
#
# doctor; calibrate; a model that one GPU trains, predicted beside measured; a plan for 8 GPUs refined by layers on this one. Each part has
# its time limit, one that fails does not stop the next, and the last line says which did. Needs `pip install '.[tune]'` and torch for CUDA.
set -u
folder=${1:-gpu-check}
read -r -a ppplan <<< "${PPPLAN:-ppplan}"
failed=()

if ! gpus=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2> /dev/null) || [[ -z $gpus ]]; then
  echo "gpu-check must run where an NVIDIA GPU answers nvidia-smi, but none does; python recipes/closed-loop.py runs the loop on processors" >&2
  exit 2
fi
if ! command -v "${ppplan[0]}" > /dev/null; then
  echo "gpu-check must find ${ppplan[0]}, but it is not on the path; pip install '.[tune]', or set PPPLAN=\"python -m planner\"" >&2
  exit 2
fi
mkdir -p "$folder" || exit 2
log=$folder/gpu-check.log
: > "$log"

part() {  # NAME SECONDS COMMAND ...
  local name=$1 seconds=$2
  shift 2
  printf '\n== %s: %s\n' "$name" "$*" | tee -a "$log"
  if timeout --signal=INT --kill-after=20 "$seconds" "$@" < /dev/null 2>&1 | tee -a "$log"; [[ ${PIPESTATUS[0]} -ne 0 ]]; then
    failed+=("$name")
    return 1
  fi
}

# A profile of a GPU that no shipped one knows is of this machine alone: the plan for 8 is then that of the H100.
cluster_of_eight() {
  if grep -q '^extends:' "$folder/here.yaml" 2> /dev/null; then echo "$folder/here.yaml"; else echo h100-sxm; fi
}

tuned() {  # NAME TRIALS: the plan in FOLDER/NAME, on one GPU; a study of its own each time
  part "$1 measured" 60 "${ppplan[@]}" tune "$folder/$1/plan.yaml" --devices 1 --trials "$2" --repeats 0 --switches 0 --limit-s 30 \
    --storage "journal:$folder/study.journal" --study "$1-$(date +%s)"
}

began=$SECONDS
echo "$gpus" | tee -a "$log"
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
part doctor 20 "${ppplan[@]}" doctor
part calibrate 90 "${ppplan[@]}" calibrate --device cuda --devices 1 --limit-s 80 --out "$folder/here.yaml"
here=$folder/here.yaml
[[ -f $here ]] || here=h100-sxm
part small 15 "${ppplan[@]}" recommend --model llama3.2-1b --gpus 1 --cluster "$here" --framework torch --seq-length 2048 --gbs 8 \
  --top 3 --out "$folder/small" && tuned small 2
part eight 15 "${ppplan[@]}" recommend --model llama3-8b --gpus 8 --cluster "$(cluster_of_eight)" --top 3 --out "$folder/eight" \
  && tuned eight 2 && part "eight refined" 15 "${ppplan[@]}" explain "$folder/eight/plan-tuned/plan.yaml" --no-formulas

printf '\n%d s; all of it is in %s\n' $((SECONDS - began)) "$log" | tee -a "$log"
if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'failed: %s\n' "$(IFS=,; echo "${failed[*]}")" | tee -a "$log"
  exit 1
fi
