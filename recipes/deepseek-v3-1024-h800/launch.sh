#!/usr/bin/env bash
# deepseek-v3 on 1,024 GPUs of h800-sxm, fp8-blockwise, Megatron-LM core 0.19; by ppplan
# 1,024 GPUs = tp 2 x pp 16 x dp 32 x cp 1, v 1
# 15,360 sequences of 4,096 tokens = dp 32 x mbs 1 x m 480
# expected: 43.822 s a step (36.850 to 47.684), 365 TFLOP/s/GPU, 1,402 tokens/s/GPU
# expected: 74.6 of 79.1 GiB a GPU, out of memory with probability 2%
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

NNODES=${NNODES:-128}
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
export CUDA_DEVICE_MAX_CONNECTIONS=1

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
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --multi-latent-attention
  --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --kv-channels 128
  --qk-layernorm --rope-type yarn --rotary-scaling-factor 1.0 --swiglu --normalization RMSNorm
  --position-embedding-type rope --max-position-embeddings 163840 --rotary-base 10000 --disable-bias-linear
  --untie-embeddings-and-output-weights --mtp-num-layers 1 --padded-vocab-size 129280 --attention-dropout 0.0
  --hidden-dropout 0.0 --seq-length 4096
)
EXPERTS_FLAGS=(
  --num-experts 256 --moe-ffn-hidden-size 2048 --moe-layer-freq '([0]*3+[1]*58)'
  --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8 --moe-router-dtype fp32
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-num-groups 8
  --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 --moe-router-load-balancing-type seq_aux_loss
  --moe-aux-loss-coeff 1e-4 --moe-grouped-gemm
)
PARALLEL_FLAGS=(
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 16 --context-parallel-size 1
  --pipeline-model-parallel-layout 'Ettttt|(tttt|)*14mL' --expert-model-parallel-size 16
  --expert-tensor-parallel-size 1 --sequence-parallel --use-distributed-optimizer
)
BATCH_FLAGS=(
  --micro-batch-size 1 --global-batch-size 15360
)
RECOMPUTE_FLAGS=(
  --recompute-granularity selective --recompute-modules moe_act mlp
)
PRECISION_FLAGS=(
  --bf16 --fp8-format e4m3 --fp8-recipe blockwise --attention-backend flash
)
SWITCHES_FLAGS=(
  --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --cross-entropy-loss-fusion
  --cross-entropy-fusion-impl native --accumulate-allreduce-grads-in-fp32 --moe-token-dispatcher-type flex
  --moe-flex-dispatcher-backend deepep --moe-permute-fusion --moe-router-fusion --moe-shared-expert-overlap
  --fp8-param-gather
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
  DATA_FLAGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 129280 --train-iters 20 --eval-iters 0 --eval-interval 1000)
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
  "${EXPERTS_FLAGS[@]}" \
  "${PARALLEL_FLAGS[@]}" \
  "${BATCH_FLAGS[@]}" \
  "${RECOMPUTE_FLAGS[@]}" \
  "${PRECISION_FLAGS[@]}" \
  "${SWITCHES_FLAGS[@]}" \
  "${OPTIMIZER_FLAGS[@]}" \
  "${LOGGING_FLAGS[@]}" \
  "${DATA_FLAGS[@]}" \
  "$@"
