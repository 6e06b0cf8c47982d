#!/usr/bin/env bash
# llama3-8b on 8 GPUs of rtx4090-pcie, bf16, DeepSpeed 0.19; by ppplan
# 8 GPUs = tp 1 x pp 1 x dp 8 x cp 1, v 1
# 128 sequences of 4,096 tokens = dp 8 x mbs 8 x m 2
# zero 3, ds_config.json beside this file
# changes the numbers: gradients 16 bits
# expected: 57.462 s a step (42.992 to 68.444), 55 TFLOP/s/GPU, 1,141 tokens/s/GPU
# expected: 22.6 of 23.6 GiB a GPU, out of memory with probability 5%
#
# Run this on every node; with several nodes set NODE_RANK (0, 1, ...) and MASTER_ADDR (the first node). Flags added to the
# call come last and win. Variables:
#   STEPS          steps on random tokens
set -euo pipefail

NNODES=${NNODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-29500}
FILES=${FILES:-$(dirname "$0")}
STEPS=${STEPS:-20}

export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1

# Versions that the plan was computed for: what is installed in another one is said.
python3 - "${MEGATRON_PATH:-}" \
  deepspeed=0.19 \
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

MODEL_FLAGS=(
  --num-layers 32 --hidden-size 4096 --ffn-size 14336 --num-heads 32 --num-kv-heads 8 --head-dim 128
  --vocab-size 128256 --seq-length 4096 --activation silu --norm rmsnorm --position rope --attention-bias none
  --rope-theta 500000.0 --gated-mlp
)
RUN_FLAGS=(
  --recompute-layers 32 --liger-loss
)
DEEPSPEED_FLAGS=(
  --deepspeed
)
DATA_FLAGS=(--steps "$STEPS")
DEEPSPEED_FLAGS+=(--deepspeed_config "$FILES/ds_config.json")

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
  "$FILES/train.py" \
  "${MODEL_FLAGS[@]}" \
  "${RUN_FLAGS[@]}" \
  "${DEEPSPEED_FLAGS[@]}" \
  "${DATA_FLAGS[@]}" \
  "$@"
