#!/usr/bin/env bash
# llama3-70b on 128 GPUs of h100-sxm, bf16, Megatron-LM core 0.19; by ppplan
# 128 GPUs = tp 8 x pp 1 x dp 2 x cp 8, v 1
# 32 sequences of 131,072 tokens = dp 2 x mbs 1 x m 16
# expected: 71.906 s a step (62.244 to 77.166), 425 TFLOP/s/GPU, 456 tokens/s/GPU
# expected: 71.4 of 79.1 GiB a GPU, out of memory with probability 0%
#
# Run this on every node; with several nodes set NODE_RANK (0, 1, ...) and MASTER_ADDR (the first node). Flags added to the
# call come last and win. Variables:
#   MEGATRON_PATH  checkout of Megatron-LM
#   MOCK           1: 20 steps on synthetic data, as without DATA
#   DATA           prefix of a dataset in Megatron's format, or weights and prefixes
#   TOKENIZER      Hugging Face tokenizer, name or folder
#   TRAIN_ITERS    steps
#   SAVE           folder of checkpoints; empty keeps none
set -euo pipefail

NNODES=${NNODES:-16}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-29500}
MEGATRON_PATH=${MEGATRON_PATH:-Megatron-LM}
MOCK=${MOCK:-0}
DATA=${DATA:-}
TOKENIZER=${TOKENIZER:-}
TRAIN_ITERS=${TRAIN_ITERS:-1000}
SAVE=${SAVE:-}

export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export CUDA_DEVICE_MAX_CONNECTIONS=8

# Versions that the plan was computed for: what is installed in another one is said.
python3 - "${MEGATRON_PATH:-}" \
  megatron-core=0.19 \
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
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --kv-channels 128
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope
  --max-position-embeddings 131072 --rotary-base 500000 --disable-bias-linear --untie-embeddings-and-output-weights
  --padded-vocab-size 129024 --attention-dropout 0.0 --hidden-dropout 0.0 --seq-length 131072
)
PARALLEL_FLAGS=(
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --context-parallel-size 8 --sequence-parallel
  --use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads
  --ckpt-format fsdp_dtensor
)
BATCH_FLAGS=(
  --micro-batch-size 1 --global-batch-size 32
)
PRECISION_FLAGS=(
  --bf16 --attention-backend flash
)
SWITCHES_FLAGS=(
  --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --cross-entropy-loss-fusion
  --cross-entropy-fusion-impl native --accumulate-allreduce-grads-in-fp32 --megatron-fsdp-main-grads-dtype fp32
  --cp-comm-type p2p
)
OPTIMIZER_FLAGS=(
  --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine
  --lr-warmup-fraction 0.01 --weight-decay 0.1 --clip-grad 1.0 --init-method-std 0.02
)
LOGGING_FLAGS=(
  --log-interval 1 --log-throughput --distributed-timeout-minutes 30
)
if [[ $MOCK == 1 || -z $DATA ]]; then
  echo "synthetic data, 20 steps; set DATA and TOKENIZER to train" >&2
  DATA_FLAGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --train-iters 20 --eval-iters 0 --eval-interval 1000)
else
  read -r -a DATA_PATHS <<<"$DATA"
  DATA_FLAGS=(
    --data-path "${DATA_PATHS[@]}" --split '99,1,0'
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model "${TOKENIZER:?the tokenizer that DATA was made with}"
    --train-iters "$TRAIN_ITERS" --eval-interval 1000 --eval-iters 10
  )
fi
if [[ -n $SAVE ]]; then
  DATA_FLAGS+=(--save "$SAVE" --load "$SAVE" --save-interval 1000)
fi

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
  "$MEGATRON_PATH/pretrain_gpt.py" \
  "${MODEL_FLAGS[@]}" \
  "${PARALLEL_FLAGS[@]}" \
  "${BATCH_FLAGS[@]}" \
  "${PRECISION_FLAGS[@]}" \
  "${SWITCHES_FLAGS[@]}" \
  "${OPTIMIZER_FLAGS[@]}" \
  "${LOGGING_FLAGS[@]}" \
  "${DATA_FLAGS[@]}" \
  "$@"
