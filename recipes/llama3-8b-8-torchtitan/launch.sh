#!/usr/bin/env bash
# llama3-8b on 8 GPUs of h100-sxm, bf16, torch 2.13; by ppplan
# 8 GPUs = tp 1 x pp 1 x dp 8 x cp 1, v 1
# 512 sequences of 8,192 tokens = dp 8 x mbs 1 x m 64
# torchtitan 0.3: torchtitan_plan.py beside this file
# expected: 59.886 s a step (51.801 to 75.097), 451 TFLOP/s/GPU, 8,755 tokens/s/GPU
# expected: 68.3 of 79.1 GiB a GPU, out of memory with probability 0%
#
# Run this on every node; with several nodes set NODE_RANK (0, 1, ...) and MASTER_ADDR (the first node). Flags added to the
# call come last and win. Variables:
#   ASSETS         folder of the tokenizer
#   DATASET        dataset that torchtitan knows
#   STEPS          steps
set -euo pipefail

NNODES=${NNODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-29500}
FILES=${FILES:-$(dirname "$0")}
ASSETS=${ASSETS:-assets/hf}
DATASET=${DATASET:-c4}
STEPS=${STEPS:-1000}

export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1

# Versions that the plan was computed for: what is installed in another one is said.
python3 - "${MEGATRON_PATH:-}" \
  torchtitan=0.3 torch=2.13 \
  >&2 <<'PYTHON' || true
import re
import sys
from importlib import metadata
from pathlib import Path

core = Path(sys.argv[1], "megatron/core/package_info.py")
for word in sys.argv[2:]:
    name, planned = word.split("=")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = ""
    if name == "megatron-core" and core.is_file():
        numbers = re.findall(r"^(?:MAJOR|MINOR|PATCH) = (\d+)", core.read_text(), re.MULTILINE)
        found = ".".join(numbers)
    if found and not f"{found.partition('+')[0]}.".startswith(f"{planned}."):
        print(f"warning: the plan is for {name} {planned}, but {found} is installed")
PYTHON

TITAN_FLAGS=(
  --module torchtitan_plan --config plan
)
DATA_FLAGS=(--hf_assets_path "$ASSETS" --dataloader.dataset "$DATASET" --training.steps "$STEPS")

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
  "$FILES/torchtitan_plan.py" \
  "${TITAN_FLAGS[@]}" \
  "${DATA_FLAGS[@]}" \
  "$@"
