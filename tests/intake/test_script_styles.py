"""Launch scripts in the styles in which people write them: small ones of our own, every value
found.

Styles after NVIDIA/Megatron-LM examples (llama, mixtral, megatron_fsdp,
academic_paper_scripts/sc21), bigscience tr11, Megatron-DeepSpeed examples_deepspeed (azure,
rebase), Pai-Megatron-Patch, slime, zero-bubble.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.intake.read import read
from planner.intake.reading import Reading


def reading(folder: Path, body: str, others: dict[str, str] | None = None, **sets: str) -> Reading:
    for name, text in (others or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "run.sh").write_text("#!/bin/bash\n" + body)
    return read(folder / "run.sh", {name.removeprefix("_"): value for name, value in sets.items()})


def values(found: Reading) -> dict[str, Any]:
    return {name: one.value for name, one in found.values.items()}


def same(found: Reading, expected: dict[str, Any], *absent: str) -> None:
    stated = values(found)
    assert {name: stated.get(name) for name in expected} == expected
    assert not set(absent) & stated.keys()


def open_names(found: Reading) -> list[str]:
    return [one.name for one in found.unresolved]


LLAMA = """\
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
SAVE=${1:-"ckpt/llama"}
TOKENIZER=${2:-"MOCK"}
mkdir -p "$(dirname "$SAVE")"
GPUS=8
NODES=2
WORLD=$(($GPUS*$NODES))
SCRIPT="pretrain_gpt.py"
TP=2
DTYPE="fp8"
DIST=(
    --nproc_per_node $GPUS
    --nnodes $NODES
    --master_addr ${MASTER_ADDR:-localhost}
)
MODEL=(
    --num-layers 32
    --hidden-size 4096
    --rotary-base 1000000   # a comment
    --lr 5.0e-4
)
TRAIN=(--micro-batch-size 1 --global-batch-size $((WORLD*8)) --bf16)
FP8=()
if [[ "$DTYPE" == "fp8" ]]; then
    FP8+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
fi
PARALLEL=(
    --tensor-model-parallel-size $TP
    # --pipeline-model-parallel-size $PP
    --sequence-parallel  # always
)
TRAIN+=("${PARALLEL[@]}")
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--vocab-size 128256" "--split '99,1,0'")
else
    DATA+=("--data-path $TOKENIZER")
fi
if [ ! -f "$SCRIPT" ]; then
    echo "not found"
    exit 1
fi
torchrun ${DIST[@]} \\
    "$SCRIPT" \\
    ${MODEL[@]} ${TRAIN[@]} ${FP8[@]} ${DATA[@]} --save "$SAVE"
set +x
"""


def test_style_1_arrays_with_flag_and_value_in_one_element(tmp_path: Path) -> None:
    found = reading(tmp_path, LLAMA)
    same(
        found,
        {
            "num_layers": 32,
            "hidden_size": 4096,
            "rotary_base": 1000000,
            "lr": 5e-4,
            "micro_batch_size": 1,
            "global_batch_size": 128,
            "bf16": True,
            "fp8_format": "hybrid",
            "fp8_amax_history_len": 1024,
            "fp8_param_gather": True,
            "tensor_model_parallel_size": 2,
            "sequence_parallel": True,
            "mock_data": True,
            "vocab_size": 128256,
            "save": "ckpt/llama",
            "launch.nodes": 2,
            "launch.gpus_per_node": 8,
            "launch.gpus": 16,
            "env.CUDA_DEVICE_MAX_CONNECTIONS": "1",
        },
        "pipeline_model_parallel_size",
        "data_path",
    )
    assert (found.kind, found.framework, found.unresolved, found.unknown) == (
        "megatron",
        "megatron",
        (),
        (),
    )


def test_style_1_with_parameters_and_variables_set(tmp_path: Path) -> None:
    found = reading(tmp_path, LLAMA, _1="elsewhere", _2="tok.model", TP="4", DTYPE="bf16")
    same(
        found,
        {"save": "elsewhere", "data_path": ["tok.model"], "tensor_model_parallel_size": 4},
        "fp8_format",
        "mock_data",
    )
    assert found.values["tensor_model_parallel_size"].origin == "option"


def test_style_2_backslashes_in_arrays_and_arrays_that_grow(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
NNODES=${SLURM_NNODES:-"1"}
CHECKPOINT=$1
DIST=( --nproc_per_node 8 --nnodes $NNODES --node_rank ${RANK:-"0"} )
MOE=(
    --num-experts 8
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2
)
PARALLEL=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 \
--expert-model-parallel-size 8 --sequence-parallel)
LOG=(
    --log-interval 1 \\
    --save $CHECKPOINT \\
    --no-load-optim
)
if [ -n "${WANDB_API_KEY}" ]; then
    LOG+=(--wandb-project ${WANDB_PROJECT:-"Mixtral"})
fi
torchrun ${DIST[@]} pretrain_gpt.py \\
    --disable-bias-linear --no-position-embedding --num-layers 32 ${MOE[@]} ${PARALLEL[@]} ${LOG[@]}
""",
    )
    same(
        found,
        {
            "num_experts": 8,
            "moe_router_topk": 2,
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": 0.01,
            "tensor_model_parallel_size": 1,
            "pipeline_model_parallel_size": 4,
            "expert_model_parallel_size": 8,
            "sequence_parallel": True,
            "log_interval": 1,
            "save": "$1",
            "no_load_optim": True,
            "add_bias_linear": False,
            "add_position_embedding": False,
            "launch.gpus": 8,
        },
        "wandb_project",
    )
    assert found.unresolved == ()


FSDP = """\
TP=${TP:-1}
MBS=${MBS:-4}
USE_FSDP=${USE_FSDP:-1}
OUT=${OUT:-"your_output"}
export NCCL_IB_SL=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
ARGS=(
    --tensor-model-parallel-size ${TP}
    --micro-batch-size ${MBS}
    --recompute-granularity selective
    --recompute-modules mlp moe mla_up_proj
    --moe-layer-freq [0]*3+[1]*58
    --num-layers 61
)
if [ "${USE_FSDP}" = 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    ARGS=(
        "${ARGS[@]}"
        --use-megatron-fsdp
        --no-gradient-accumulation-fusion
    )
fi
CMD="
cd ${MEGATRON_PATH};
export PYTHONPATH=${MEGATRON_PATH}:${PYTHONPATH};
python ${MEGATRON_PATH}/pretrain_gpt.py ${ARGS[@]}"
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=NODES
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:your_gpus
srun \\
    --mpi=pmix -l \\
    --container-image=${IMAGE} \\
    bash -x -c "${CMD}" 2>&1 | tee ${OUT}/\\${SLURM_JOB_ID}.log
EOF
"""


def test_style_3_a_command_in_a_string_in_a_heredoc_for_sbatch(tmp_path: Path) -> None:
    found = reading(tmp_path, FSDP)
    same(
        found,
        {
            "tensor_model_parallel_size": 1,
            "micro_batch_size": 4,
            "recompute_granularity": "selective",
            "recompute_modules": ["mlp", "moe", "mla_up_proj"],
            "moe_layer_freq": "[0]*3+[1]*58",
            "num_layers": 61,
            "use_megatron_fsdp": True,
            "gradient_accumulation_fusion": False,
            "launch.gpus_per_node": 8,
            "env.NCCL_IB_SL": "1",
        },
        "env.CUDA_DEVICE_MAX_CONNECTIONS",
        "launch.nodes",
        "launch.gpus",
        "launch.hardware",
    )
    assert open_names(found) == ["launch.nodes"]
    same(
        reading(tmp_path, FSDP.replace("=NODES", "=32"), USE_FSDP="0"),
        {"launch.gpus": 256, "env.CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        "use_megatron_fsdp",
    )


def test_style_4_a_configuration_in_sourced_files_and_a_job_of_its_own(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
PP=2
TP=$((64/PP))
EXTRA="--activations-checkpoint-method uniform "
NNODES=8
. `pwd`/CONFIG.sh
. `pwd`/SBATCH.sh
exit 0
""",
        {
            "CONFIG.sh": (
                'export CODE=<the source folder>\nexport PARAMS=" ${EXTRA}'
                " \\\n\t--tensor-model-parallel-size ${TP} \\\n  --pipeline-model-parallel-size"
                ' ${PP} --num-layers 32 --fp16 --DDP-impl local "\n'
            ),
            "SBATCH.sh": (
                "sbatch -p ${PARTITION} \\\n  --nodes=${NNODES} --export=CODE,PARAMS"
                " SRUN.sh\nexit 0\n"
            ),
            "SRUN.sh": (
                '#!/bin/bash\n#SBATCH -t 0:30:00 --exclusive --ntasks-per-node=8\nCMD="python -u'
                ' ${CODE}/pretrain_gpt.py ${PARAMS}"\nsrun -l --output=logs/%x.log sh -c "${CMD}"\n'
            ),
        },
    )
    same(
        found,
        {
            "activations_checkpoint_method": "uniform",
            "tensor_model_parallel_size": 32,
            "pipeline_model_parallel_size": 2,
            "num_layers": 32,
            "fp16": True,
            "DDP_impl": "local",
            "launch.nodes": 8,
            "launch.gpus_per_node": 8,
            "launch.gpus": 64,
        },
    )
    assert found.framework_version == "0.9"


TR11 = """\
#SBATCH --constraint=a100
#SBATCH --nodes=48
#SBATCH --ntasks-per-node=1          # one task a node
#SBATCH --gres=gpu:8                 # number of gpus
source $WORK/start
cd $REPO
python $LOAD --split train
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
NNODES=$SLURM_NNODES
PP_SIZE=12
MICRO=2  # was 1
SAMPLES=220_000_000
OPTIM=" \\
    --optimizer adam \\
    --lr 6e-5 \\
    "
GPT=" \\
    --pp-partition-method 'type:transformer|embedding' \\
    --num-layers 70 \\
    --micro-batch-size $MICRO \\
    --rampup-batch-size 192 16 9_765_625 \\
    --train-samples $SAMPLES \\
    --bf16 \\
    $OPTIM \\
    "
config="./ds.$SLURM_JOB_ID.json"
cat <<EOT > $config
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "zero_optimization": { "stage": 0 },
  "bf16": { "enabled": true }
}
EOT
DEEP=" \\
    --deepspeed \\
    --deepspeed_config ${config} \\
    --zero-stage 0 \\
    "
export LAUNCHER="python -u -m torch.distributed.run \\
    --nproc_per_node 8 \\
    --nnodes $NNODES \\
    --rdzv_endpoint $MASTER_ADDR:6000 \\
    --max_restarts 0 \\
    --tee 3 \\
    "
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    --tensor-model-parallel-size 4 \\
    --pipeline-model-parallel-size $PP_SIZE \\
    $GPT \\
    $DEEP \\
    "
echo $CMD
clear; srun --wait=60 --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" \
2>&1 | tee -a $LOGS/main.txt
"""


def test_style_6_a_heredoc_of_json_and_a_command_for_srun_in_strings(tmp_path: Path) -> None:
    found = reading(tmp_path, TR11)
    same(
        found,
        {
            "tensor_model_parallel_size": 4,
            "pipeline_model_parallel_size": 12,
            "num_layers": 70,
            "micro_batch_size": 2,
            "bf16": True,
            "rampup_batch_size": [192, 16, 9765625],
            "train_samples": 220_000_000,
            "optimizer": "adam",
            "lr": 6e-5,
            "zero_stage": 0,
            "pp_partition_method": "type:transformer|embedding",
            "deepspeed": True,
            "deepspeed.train_micro_batch_size_per_gpu": 2,
            "deepspeed.zero_optimization.stage": 0,
            "deepspeed.bf16.enabled": True,
            "launch.nodes": 48,
            "launch.gpus_per_node": 8,
            "launch.gpus": 384,
            "launch.hardware": "a100",
        },
    )
    assert (found.kind, found.framework, found.unknown) == (
        "megatron-deepspeed",
        "deepspeed",
        ("--pp-partition-method",),
    )
    assert found.values[
        "launch.nodes"
    ].origin == "environment" and "start is not beside" in " ".join(found.notes)


def test_style_7_arguments_that_accumulate_and_the_deepspeed_launcher(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
TP=1
STAGE=3
MICRO=4
cat <<EOT > ds_config.json
{ "train_batch_size" : $(( 8 * MICRO )), "zero_optimization": { "stage": $STAGE, \
"reduce_bucket_size": 9e7,
  "offload_optimizer": { "device": "$DEVICE" } } }
EOT
ds_args=" "
ds_args=" --deepspeed ${ds_args}"
ds_args=" --no-pipeline-parallel ${ds_args}"
ds_args=" --deepspeed_config=ds_config.json ${ds_args}"
ds_args=" --zero-stage=$STAGE ${ds_args}"
deepspeed --force_multi --num_nodes=4 --num_gpus 8 --hostfile /job/hostfile pretrain_gpt.py \\
    --tensor-model-parallel-size $TP --micro-batch-size $MICRO --hidden-size=12288 \
--checkpoint-activations $ds_args | tee out.log
""",
    )
    same(
        found,
        {
            "tensor_model_parallel_size": 1,
            "micro_batch_size": 4,
            "hidden_size": 12288,
            "checkpoint_activations": True,
            "deepspeed": True,
            "no_pipeline_parallel": True,
            "zero_stage": 3,
            "deepspeed.train_batch_size": 32,
            "deepspeed.zero_optimization.stage": 3,
            "deepspeed.zero_optimization.reduce_bucket_size": 9e7,
            "launch.nodes": 4,
            "launch.gpus_per_node": 8,
            "launch.gpus": 32,
        },
    )


def test_style_8_a_gpu_count_that_only_a_command_tells_is_asked_for(tmp_path: Path) -> None:
    body = """\
num_gpus=$(($(ds_ssh nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)-2))
per_node=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
num_node=$(( ${num_gpus} / ${per_node} ))
dp=$(( ${num_gpus} / 2 ))
no_pp="true"
name="gpt_g${num_gpus}"
opts=" --tensor-model-parallel-size 2 --micro-batch-size 2 --num-layers 24 --hidden-size 2048"
if [[ "${no_pp}" = "true" ]]; then
opts="${opts} \\
    --no-pipeline-parallel"
fi
deepspeed --num_nodes $num_node --num_gpus $per_node ${dir}/pretrain_gpt.py ${opts} \\
    --deepspeed --zero-stage 0 --data-parallel $dp &>> $name.log
"""
    found = reading(tmp_path, body)
    same(
        found,
        {"tensor_model_parallel_size": 2, "no_pipeline_parallel": True, "zero_stage": 0},
        "launch.gpus",
        "launch.nodes",
    )
    assert open_names(found)[:2] == ["num_gpus", "per_node"]
    assert "ds_ssh nvidia-smi" in found.unresolved[0].why and "--gpus" in found.unresolved[0].why
    same(
        reading(tmp_path, body, num_gpus="32", per_node="8"),
        {"launch.nodes": 4, "launch.gpus_per_node": 8, "launch.gpus": 32, "data_parallel": 16},
    )


PAI = """\
ENV=$1
DIR="$( cd "$( dirname "$0" )" && pwd )"
if [ $ENV = dsw ]; then
    NNODES=1
    GPUS_PER_NODE=`python -c "import torch; print(torch.cuda.device_count())"`
elif [ $ENV = dlc ]; then
    NNODES=${WORLD_SIZE}
    GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi
DIST="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $RANK"
SIZE=$2
TP=${10}
AC=${11}
if [ $SIZE = 8B ]; then
    LAYERS=36
    moe=""
elif [ $SIZE = A3B ]; then
    LAYERS=48
    moe=" \\
        --moe-grouped-gemm \\
        --moe-layer-freq '([1]*48)' \\
        "
fi
if [ -z ${MP_VP} ]; then
    vp=""
else
    vp=" --num-layers-per-virtual-pipeline-stage ${MP_VP}"
fi
OVERLAP=$(( ($TP > 1) ? 1 : 0 ))
if [ $OVERLAP -eq 1 ]; then
    comm="\\
        --tp-comm-overlap \\
        --overlap-grad-reduce"
fi
if [ $AC = full ]; then
    _check=$(( ($LAYERS / 2) % ${MP_AC_LAYERS:-1} ))
    if [ $_check != 0 ]; then
        exit -1
    fi
    ac=" \\
\t\t--recompute-method uniform \\
        --recompute-granularity full"
elif [ $AC = sel ]; then
    ac=" --recompute-activations"
fi
options="  \\
        --num-layers ${LAYERS} \\
        --tensor-model-parallel-size ${TP} \\
        --cuda-graph-scope attn

        "
#        --no-rope-fusion \\
run_cmd="torchrun $DIST pretrain_qwen.py
 ${options} ${ac} ${moe} ${vp} ${comm}"
echo ${run_cmd}
eval ${run_cmd}
"""


def test_style_9_parameters_by_number_and_a_command_that_is_evaluated(tmp_path: Path) -> None:
    platform = {"WORLD_SIZE": "2", "KUBERNETES_CONTAINER_RESOURCE_GPU": "8"}
    found = reading(tmp_path, PAI, _1="dlc", _2="A3B", _10="4", _11="full", MP_VP="6", **platform)
    same(
        found,
        {
            "num_layers": 48,
            "tensor_model_parallel_size": 4,
            "moe_grouped_gemm": True,
            "moe_layer_freq": "([1]*48)",
            "tp_comm_overlap": True,
            "overlap_grad_reduce": True,
            "recompute_method": "uniform",
            "recompute_granularity": "full",
            "num_layers_per_virtual_pipeline_stage": 6,
            "cuda_graph_scope": "attn",
            "launch.nodes": 2,
            "launch.gpus_per_node": 8,
            "launch.gpus": 16,
        },
    )
    assert found.unresolved == ()


def test_style_9_without_parameters_asks_for_them(tmp_path: Path) -> None:
    found = reading(tmp_path, PAI)
    assert open_names(found) == ["NNODES", "GPUS_PER_NODE", "LAYERS", "10"]
    assert any(
        "run.sh:4: none of the branches is taken, as nobody sets $ENV" in one for one in found.notes
    )


def test_style_10_a_ray_job_with_a_sourced_model(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
pkill -9 ray
NVLINK=$(nvidia-smi topo -m 2>/dev/null | grep -o 'NV[0-9]*' | wc -l)
if [ "$NVLINK" -gt 0 ]; then HAS=1; else HAS=0; fi
DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${DIR}/models/q.sh"
CKPT=(
   --hf-checkpoint /models/Qwen3-30B-A3B
   #--hf-checkpoint /models/other
   # --load /models/x
)
PERF=(
   --tensor-model-parallel-size 4

   # --micro-batch-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 20480
   --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 32)
)
ray start --head --num-gpus 8
JSON="{
  \\"env_vars\\": { \\"CUDA_DEVICE_MAX_CONNECTIONS\\": \\"1\\", \\"NVLS\\": \\"${HAS}\\" }
}"
ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json="${JSON}" \\
   -- python3 train.py \\
   --actor-num-nodes 2 \\
   --actor-num-gpus-per-node 8 \\
   ${MODEL_ARGS[@]} ${CKPT[@]} ${PERF[@]}
""",
        {"models/q.sh": "MODEL_ARGS=(\n  --num-layers 48 # c\n  --hidden-size 2048\n)\n"},
    )
    same(
        found,
        {
            "num_layers": 48,
            "hidden_size": 2048,
            "hf_checkpoint": "/models/Qwen3-30B-A3B",
            "model": "/models/Qwen3-30B-A3B",
            "tensor_model_parallel_size": 4,
            "use_dynamic_batch_size": True,
            "max_tokens_per_gpu": 20480,
            "sglang_cuda_graph_bs": [1, 2, 4, 8, 16, 24, 32],
            "launch.nodes": 2,
            "launch.gpus_per_node": 8,
            "launch.gpus": 16,
            "env.CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "env.NVLS": "0",
        },
        "micro_batch_size",
        "load",
    )
    assert "--use-dynamic-batch-size" in found.unknown


def test_style_11_world_size_as_nodes_and_flags_of_a_fork(tmp_path: Path) -> None:
    body = """\
#SBATCH <SLURM OPTIONS> --nodes=128 --exclusive --ntasks-per-node=8
DIR=`pwd`
if [ ! -e "$DATASET"".idx" ]; then
  wget https://example.org/data.tar.gz
fi
if [ -z "$WORLD_SIZE" ]; then
  export WORLD_SIZE=1
fi
if [ -z "$GPUS_PER_NODE" ]; then
  GPUS_PER_NODE=$(nvidia-smi --list-gpus | wc -l)
  # GPUS_PER_NODE=1
fi
if [ -z "$PIPELINE_SIZE" ]; then
  PIPELINE_SIZE=2
  LIMIT=$((2 * $PIPELINE_SIZE))
fi
ranks="0"
for ((i = 1; i < $WORLD_SIZE * $GPUS_PER_NODE; i++)); do
    ranks="$ranks $i"
done
options=" --pipeline-model-parallel-size $PIPELINE_SIZE \\
  --num-layers 8 --num-query-groups $GQA --profile-ranks $ranks --enable-zb-runtime"
if [ -z "$FP32" ]; then
  options="$options --fp16"
fi
if [ ! -z "$ENABLE_ZERO_BUBBLE" ]; then
  options="$options --enable-zero-bubble --zero-bubble-max-pending-backward $LIMIT"
fi
run_cmd="torchrun --nnodes $WORLD_SIZE \\
  --nproc_per_node=$GPUS_PER_NODE ${DIR}/pretrain_gpt.py $@ ${options} ${EXTRA_OPTIONS}"
if [ ! -z "$PROFILED" ]; then
  run_cmd="nsys profile -s none $run_cmd"
fi
echo $run_cmd
eval $run_cmd
"""
    found = reading(tmp_path, body)
    same(
        found,
        {
            "pipeline_model_parallel_size": 2,
            "num_layers": 8,
            "fp16": True,
            "launch.nodes": 1,
            "enable_zb_runtime": True,
        },
        "launch.gpus",
        "num_query_groups",
        "enable_zero_bubble",
    )
    assert open_names(found) == ["GPUS_PER_NODE", "GQA"] and found.unknown == (
        "--enable-zb-runtime",
    )
    given = {
        "GQA": "4",
        "ENABLE_ZERO_BUBBLE": "1",
        "PROFILED": "1",
        "PIPELINE_SIZE": "4",
        "LIMIT": "9",
    }
    set_ = reading(tmp_path, body, WORLD_SIZE="2", GPUS_PER_NODE="2", **given)
    same(
        set_,
        {
            "launch.gpus": 4,
            "num_query_groups": 4,
            "enable_zero_bubble": True,
            "zero_bubble_max_pending_backward": 9,
            "profile_ranks": [0, 1, 2, 3],
            "pipeline_model_parallel_size": 4,
        },
    )


def test_ms_swift_with_variables_before_the_command(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\
NNODES=4 NODE_RANK=$RANK NPROC_PER_NODE=8 \\
megatron sft \\
    --load GLM-mcore \\
    --tensor_model_parallel_size 8 \\
    --moe_grouped_gemm true --sequence_parallel false \\
    --lora_rank 8 --train_type lora \\
    --max_length 4096
""",
    )
    same(
        found,
        {
            "model": "GLM-mcore",
            "tensor_model_parallel_size": 8,
            "moe_grouped_gemm": True,
            "sequence_parallel": False,
            "hf.lora_rank": 8,
            "hf.train_type": "lora",
            "seq_length": 4096,
            "launch.nodes": 4,
            "launch.gpus_per_node": 8,
            "launch.gpus": 32,
            "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    )
    assert (found.kind, found.framework) == ("swift", "megatron")


def test_trainer_arguments_with_a_json_of_autos(tmp_path: Path) -> None:
    json = (
        '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled":'
        ' "auto"}, "zero_optimization": {"stage": 3}}'
    )
    found = reading(
        tmp_path,
        """\
NNODES=${NNODES:-2}
DIST="
    --nproc_per_node 8 \\
    --nnodes $NNODES"
python -m torch.distributed.run $DIST src/train.py --deepspeed ds.json --stage sft \
--model_name_or_path Qwen1.5-72B --cutoff_len 1024 \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --learning_rate 5e-5 --bf16 \
--report_to none
""",
        {"ds.json": json},
    )
    same(
        found,
        {
            "model": "Qwen1.5-72B",
            "hf.per_device_train_batch_size": 2,
            "hf.gradient_accumulation_steps": 4,
            "hf.bf16": True,
            "hf.learning_rate": 5e-5,
            "deepspeed.train_micro_batch_size_per_gpu": 2,
            "deepspeed.train_batch_size": 16 * 2 * 4,
            "deepspeed.bf16.enabled": True,
            "deepspeed.zero_optimization.stage": 3,
            "launch.gpus": 16,
        },
    )
    assert (found.kind, found.framework) == ("huggingface", "deepspeed")


def test_trainer_arguments_with_a_json_that_the_script_writes(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
cat > ds.json <<'EOF'
{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}
EOF
accelerate launch --num_machines 2 --num_processes=16 --use_deepspeed train.py --deepspeed ds.json \
--model_name_or_path m \\
  --per_device_train_batch_size 4
""",
    )
    same(
        found,
        {
            "deepspeed.zero_optimization.stage": 2,
            "deepspeed.train_micro_batch_size_per_gpu": 4,
            "hf.deepspeed": "ds.json",
            "launch.nodes": 2,
            "launch.gpus": 16,
            "launch.gpus_per_node": 8,
        },
    )
    edit = found.edits["deepspeed.zero_optimization.stage"]
    assert Path(edit.file).read_text()[edit.start : edit.end] == "2"


def test_hydra_overrides(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
TP=4
python3 -m verl.trainer.main_ppo --config-path=config \\
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$TP \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 $@
""",
    )
    same(
        found,
        {
            "model": "Qwen/Qwen3-8B",
            "tensor_model_parallel_size": 4,
            "recompute_granularity": "full",
            "launch.gpus": 16,
        },
    )
    assert found.values["tensor_model_parallel_size"].origin == "variable"


def test_overrides_over_a_configuration_beside(tmp_path: Path) -> None:
    command = (
        "torchrun --nproc_per_node=8 train.py --config-path conf --config-name llama"
        " model.tensor_model_parallel_size=8\n"
    )
    found = reading(
        tmp_path,
        command,
        {
            "conf/llama.yaml": (
                "trainer:\n  devices: 8\n  num_nodes: 4\n"
                "model:\n  tensor_model_parallel_size: 4\n  num_layers: 80\n"
            )
        },
    )
    same(found, {"tensor_model_parallel_size": 8, "num_layers": 80, "launch.gpus": 32})


@pytest.mark.parametrize(
    ("command", "nodes", "each", "gpus"),
    [
        ("torchrun --nproc-per-node 8 --nnodes 2 {}", 2, 8, 16),
        ("torchrun --standalone --nproc_per_node=4 {}", 1, 4, 4),
        ("torchrun --nproc 2 --nnodes=1:4 {}", 4, 2, 8),
        ("python -m torch.distributed.launch --nproc_per_node 4 --use_env {}", 1, 4, 4),
        ("srun -N 4 --ntasks-per-node=8 python -u {}", 4, 8, 32),
        ("srun -n16 -N2 python {}", 2, 8, 16),
        (
            "srun --nodes=2 --gpus-per-node=h100:8 torchrun --nnodes 2 --nproc-per-node gpu {}",
            2,
            None,
            None,
        ),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc-per-node=auto {}", 1, 3, 3),
        ("deepspeed --num_gpus 4 {}", 1, 4, 4),
        ("deepspeed --include localhost:0,1,5 {}", 1, 3, 3),
        ("deepspeed --include=a:0,1@b:2,3 {}", 2, 2, 4),
        ("deepspeed --hostfile hosts {}", 3, 8, 24),
        (
            "accelerate launch --num_processes 16 --num-machines 2 --mixed_precision bf16 {}",
            2,
            8,
            16,
        ),
        ("mpirun -np 32 -N 8 --hostfile h -x NCCL_DEBUG=INFO python {}", None, 8, 32),
        ("mpirun -H a:8,b:8 --bind-to none python {}", None, None, 16),
        ("nohup numactl -m 0 torchrun --nproc_per_node 2 {} &", 1, 2, 2),
        ("sudo -E env A=b timeout 3h torchrun --nproc_per_node 2 {}", 1, 2, 2),
        (
            "docker run --gpus all -v /d:/d image:1 bash -lc 'torchrun --nproc_per_node 2 {}'",
            1,
            2,
            2,
        ),
        ('ssh node1 "cd /w && torchrun --nproc_per_node 2 {}"', 1, 2, 2),
        ('sbatch --nodes=2 --ntasks-per-node=4 --wrap "srun python {}"', 2, 4, 8),
        ("nsys profile -o x -t cuda torchrun --nproc_per_node 2 {} 2>&1 | tee log", 1, 2, 2),
        ("python {}", None, None, None),
    ],
)
def test_launchers(
    command: str, nodes: int | None, each: int | None, gpus: int | None, tmp_path: Path
) -> None:
    arguments = "pretrain_gpt.py --num-layers 8 --hidden-size 64 --micro-batch-size 1"
    found = reading(
        tmp_path,
        command.format(arguments) + "\n",
        {"hosts": "a slots=8\nb slots=8\n# x slots=2\nc slots=8\n"},
    )
    same(
        found,
        {
            "num_layers": 8,
            "hidden_size": 64,
            "micro_batch_size": 1,
            "launch.nodes": nodes,
            "launch.gpus_per_node": each,
            "launch.gpus": gpus,
        },
    )
    assert ("gpus" in open_names(found)) == (gpus is None)


def test_the_training_among_several_commands(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """\
python tools/preprocess_data.py --input a --tokenizer-type GPT2BPETokenizer --vocab-file v \
--merge-file m --num-workers 8 --seq-length 9
for PP in 2 4 8; do
  torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size $PP --num-layers 32 \
--hidden-size 64
done
python tools/checkpoint/convert.py --num-layers 4 --hidden-size 2 --tensor-model-parallel-size 1 \
--micro-batch-size 1 --seq-length 1
""",
    )
    same(found, {"pipeline_model_parallel_size": 2, "num_layers": 32})
    assert any("the loop starts 3 runs" in one or "also starts" in one for one in found.notes)


def test_a_script_without_a_training_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"run\.sh must start a training .* among its commands is only ls, make"
    ):
        reading(tmp_path, "ls -l\nmake all\necho done\n")


@pytest.mark.parametrize(
    ("header", "gpu"),
    [
        ("--partition=gpu-h200-141g-short", "h200"),
        ("-p kempner_h100", "h100"),
        ("--partition=batch", None),
        ("--partition=gpu", None),
        ("--partition=h100 --gpus-per-node=a100:4", "a100"),
        ("--partition=h100 --constraint=a100", "a100"),
    ],
)
def test_a_partition_that_is_called_after_its_gpu(
    tmp_path: Path, header: str, gpu: str | None
) -> None:
    """What is asked for by name counts first."""
    found = reading(
        tmp_path,
        f"#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4 {header}\nsrun torchrun pretrain_gpt.py"
        " --num-layers 8\n",
    )
    assert values(found).get("launch.hardware") == gpu
