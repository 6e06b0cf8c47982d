#!/usr/bin/env bash
# deepseek-v3 on 256 GPUs of gb200-nvl72, mxfp8, Megatron-LM core 0.19; by ppplan
# 256 GPUs = tp 2 x pp 1 x dp 128 x cp 1, v 1
# 2,048 sequences of 4,096 tokens = dp 128 x mbs 4 x m 4
# expected: 7.973 s a step (6.967 to 8.515), 1071 TFLOP/s/GPU, 4,110 tokens/s/GPU
# expected: 173.5 of 184.3 GiB a GPU, out of memory with probability 2%
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

NNODES=${NNODES:-64}
GPUS_PER_NODE=${GPUS_PER_NODE:-4}
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
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --context-parallel-size 1
  --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --sequence-parallel --use-distributed-optimizer
  --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor
)
BATCH_FLAGS=(
  --micro-batch-size 4 --global-batch-size 2048
)
RECOMPUTE_FLAGS=(
  --recompute-granularity selective --recompute-modules moe_act mla_up_proj
)
PRECISION_FLAGS=(
  --bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --attention-backend flash
)
SWITCHES_FLAGS=(
  --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --cross-entropy-loss-fusion
  --cross-entropy-fusion-impl native --accumulate-allreduce-grads-in-fp32 --megatron-fsdp-main-grads-dtype fp32
  --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-permute-fusion --moe-router-fusion
  --moe-shared-expert-overlap --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag
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
