"""What Megatron-LM's parser refuses and no layout tells: flags that need or exclude one another."""

from __future__ import annotations

from collections.abc import Callable

from planner.advice.config_refusals import REFUSALS, Plain, Refusal
from planner.advice.findings import Finding, Way
from planner.advice.flag_names import VIRTUAL
from planner.advice.spelling import with_guesses
from planner.intake.frameworks import megatron_flags
from planner.interpret.interpret import Launch
from planner.interpret.numbers import whole_number
from planner.specs.switches.numbers import STATES
from planner.specs.versions import version_of


def _has(*names: str) -> Callable[[Plain], bool]:
    return lambda plain: all(plain.get(name) for name in names)


def _granularity(plain: Plain) -> str:
    return str(
        plain.get("recompute_granularity")
        or ("selective" if plain.get("recompute_activations") else "")
    )


PARSER: tuple[Refusal, ...] = (
    (
        "one 16-bit format",
        _has("bf16", "fp16"),
        "--bf16 and --fp16 exclude each other, but both are given",
        {"fp16": None},
    ),
    (
        "parameters gather with the distributed optimizer",
        lambda plain: (
            bool(plain.get("overlap_param_gather"))
            and not (plain.get("use_distributed_optimizer") or plain.get("use_megatron_fsdp"))
        ),
        "--overlap-param-gather needs --use-distributed-optimizer",
        {"use_distributed_optimizer": True},
    ),
    (
        "parameters gather after gradients overlap",
        lambda plain: (
            bool(plain.get("overlap_param_gather")) and not plain.get("overlap_grad_reduce")
        ),
        "--overlap-param-gather needs --overlap-grad-reduce",
        {"overlap_grad_reduce": True},
    ),
    (
        "full recomputation has a method",
        lambda plain: (
            _granularity(plain) == "full"
            and not (plain.get("recompute_method") and plain.get("recompute_num_layers"))
        ),
        "--recompute-granularity full needs --recompute-method and --recompute-num-layers",
        {"recompute_method": "uniform", "recompute_num_layers": 1},
    ),
    (
        "selective recomputation has no method",
        lambda plain: (
            _granularity(plain) == "selective"
            and bool(plain.get("recompute_method") or plain.get("recompute_num_layers"))
        ),
        (
            "--recompute-method and --recompute-num-layers go with full recomputation, but it is"
            " selective"
        ),
        {"recompute_method": None, "recompute_num_layers": None},
    ),
    (
        "one way to virtual stages",
        lambda plain: (
            sum(bool(plain.get(name)) for name in (*VIRTUAL[:2], "pipeline_model_parallel_layout"))
            > 1
        ),
        (
            "--num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and"
            " --pipeline-model-parallel-layout exclude one another, but several are given"
        ),
        {"num_layers_per_virtual_pipeline_stage": None},
    ),
    (
        "userbuffers need sequence parallelism",
        lambda plain: bool(plain.get("tp_comm_overlap")) and not plain.get("sequence_parallel"),
        "--tp-comm-overlap needs --sequence-parallel",
        {"sequence_parallel": True},
    ),
    (
        "expert parallelism needs experts",
        lambda plain: (
            whole_number(plain, "expert_model_parallel_size") > 1
            and not plain.get("num_experts")
            and bool(plain.get("num_layers"))
        ),
        "--expert-model-parallel-size above 1 needs --num-experts",
        {"expert_model_parallel_size": None},
    ),
    (
        "top-1 routing is scored before the choice",
        lambda plain: (
            bool(plain.get("num_experts"))
            and plain.get("moe_router_topk") == 1
            and not plain.get("moe_router_pre_softmax")
            and plain.get("moe_router_score_function") == "softmax"
        ),
        "--moe-router-topk 1 with softmax needs --moe-router-pre-softmax",
        {"moe_router_pre_softmax": True},
    ),
    (
        "experts split without biases",
        lambda plain: (
            bool(plain.get("num_experts"))
            and bool(plain.get("add_bias_linear"))
            and bool(plain.get("num_layers"))
            and whole_number(
                plain,
                "expert_tensor_parallel_size",
                whole_number(plain, "tensor_model_parallel_size"),
            )
            > 1
        ),
        (
            "biases of linears with experts need --expert-tensor-parallel-size 1 (it defaults to"
            " the tensor-parallel size), or --disable-bias-linear"
        ),
        {"add_bias_linear": False},
    ),
    (
        "saved activations are distributed without sequence parallelism",
        lambda plain: (
            bool(plain.get("distribute_saved_activations"))
            and (
                bool(plain.get("sequence_parallel"))
                or whole_number(plain, "tensor_model_parallel_size") == 1
                or _granularity(plain) != "full"
            )
        ),
        (
            "--distribute-saved-activations needs tensor parallelism and full recomputation,"
            " without sequence parallelism"
        ),
        {"distribute_saved_activations": None},
    ),
    (
        "positions reach the sequence",
        lambda plain: (
            0
            < whole_number(plain, "max_position_embeddings", 0)
            < whole_number(plain, "seq_length", 0)
        ),
        "--max-position-embeddings must be at least --seq-length",
        {"max_position_embeddings": "seq_length"},
    ),
    (
        "heads divide the hidden size",
        lambda plain: (
            not plain.get("kv_channels")
            and whole_number(plain, "hidden_size", 0)
            % max(whole_number(plain, "num_attention_heads", 1), 1)
            != 0
        ),
        "--hidden-size must be a multiple of --num-attention-heads unless --kv-channels is given",
        {},
    ),
    (
        "activations are offloaded without a pipeline",
        lambda plain: (
            whole_number(plain, "cpu_offloading_num_layers", 0) > 0
            and (
                whole_number(plain, "pipeline_model_parallel_size") > 1 or bool(_granularity(plain))
            )
        ),
        "--cpu-offloading-num-layers works without a pipeline and without recomputation",
        {"cpu_offloading_num_layers": None},
    ),
    (
        "offloaded optimizer is precision-aware",
        lambda plain: (
            bool(plain.get("optimizer_cpu_offload"))
            and not plain.get("use_precision_aware_optimizer")
        ),
        "--optimizer-cpu-offload needs --use-precision-aware-optimizer",
        {"use_precision_aware_optimizer": True},
    ),
    (
        "narrow states are precision-aware",
        lambda plain: (
            any(plain.get(name, "fp32") != "fp32" for name in STATES)
            and not plain.get("use_precision_aware_optimizer")
        ),
        "types of the optimizer's states other than fp32 need --use-precision-aware-optimizer",
        {"use_precision_aware_optimizer": True},
    ),
    (
        "mxfp8 gathers through the buffer of gradients",
        lambda plain: (
            bool(plain.get("fp8_param_gather"))
            and plain.get("fp8_recipe") == "mxfp8"
            and not plain.get("reuse_grad_buf_for_mxfp8_param_ag")
            and not plain.get("use_megatron_fsdp")
        ),
        "--fp8-param-gather under mxfp8 needs --reuse-grad-buf-for-mxfp8-param-ag",
        {"reuse_grad_buf_for_mxfp8_param_ag": True},
    ),
    (
        "8-bit gathers are of mxfp8",
        lambda plain: (
            bool(plain.get("reuse_grad_buf_for_mxfp8_param_ag"))
            and not plain.get("fp8_param_gather")
        ),
        "--reuse-grad-buf-for-mxfp8-param-ag needs --fp8-param-gather",
        {"fp8_param_gather": True},
    ),
    (
        "8 or 4 bits",
        _has("fp8_format", "fp4_format"),
        "--fp8-format and --fp4-format exclude each other",
        {"fp4_format": None},
    ),
    (
        "train for iterations or samples",
        _has("train_iters", "train_samples"),
        "--train-iters and --train-samples exclude each other",
        {"train_samples": None},
    ),
    (
        "Megatron-FSDP writes its own checkpoints",
        lambda plain: (
            bool(plain.get("use_megatron_fsdp"))
            and plain.get("ckpt_format", "torch_dist") != "fsdp_dtensor"
        ),
        "--use-megatron-fsdp needs --ckpt-format fsdp_dtensor; torch_dist is the default",
        {"ckpt_format": "fsdp_dtensor"},
    ),
)
"""Source: [megatron-core] training/arguments.py validate_args,
core/transformer/transformer_config.py.
"""
LISTED = 8
CONFIGS = ("nemo", "bridge", "swift")
"""Whose own code fills in what the parser would ask for."""


def findings(launch: Launch) -> list[Finding]:
    if (
        launch.recipe.framework != "megatron"
        or launch.reading.kind in CONFIGS
        or launch.recipe.software.name == "megatron-2021"
    ):
        return []
    refused = [
        _finding(launch, refusal) for refusal in (*PARSER, *REFUSALS) if refusal[1](launch.plain)
    ]
    return [*refused, *_absent(launch), *_fusion(launch), *_never_flags(launch), *_unknown(launch)]


def _finding(launch: Launch, refusal: Refusal) -> Finding:
    name, _, says, change = refusal
    values = {
        key: launch.plain.get(value) if value == "seq_length" else value
        for key, value in change.items()
    }
    return Finding("error", name, says, (Way(values),) if values else ())


def _absent(launch: Launch) -> list[Finding]:
    """Flags that the stated version has not."""
    if not launch.absent:
        return []
    version = launch.recipe.framework_version
    says = [
        f"--{flag.name.replace('_', '-')} ({flag.versions})"
        for flag in list(launch.absent.values())[:LISTED]
    ]
    if len(launch.absent) > LISTED:
        says.append(f"{len(launch.absent) - LISTED} more")
    message = (
        f"Megatron-LM {version} has no {', no '.join(says)}: its parser stops there, and nothing"
        " of it is counted"
    )
    gone = Way(dict.fromkeys(launch.absent))
    return [Finding("error", "flags of other versions", message, (gone,))]


def _fusion(launch: Launch) -> list[Finding]:
    """0.18.0 takes it, 0.18.2 asserts against it."""
    version = version_of("megatron", launch.recipe.framework_version)
    fused = launch.plain.get("cross_entropy_loss_fusion")
    if launch.plain.get("cross_entropy_fusion_impl") != "te" or not fused or version < (0, 18):
        return []
    return [
        Finding(
            "warning" if version == (0, 18) else "error",
            "cross entropy is not fused by TE",
            "--cross-entropy-fusion-impl te is refused since Megatron-LM 0.18.2; native stays",
            (Way({"cross_entropy_fusion_impl": "native"}),),
        )
    ]


NO_SUCH = {
    "num_micro_batches": (
        "micro-batches follow from --global-batch-size, --micro-batch-size and the parallel sizes"
    ),
    "virtual_pipeline_model_parallel_size": (
        "virtual stages are --num-virtual-stages-per-pipeline-rank or "
        "--num-layers-per-virtual-pipeline-stage"
    ),
    "overlap_p2p_communication": (
        "transfers of virtual stages overlap by default; --no-overlap-p2p-communication turns"
        " it off"
    ),
    "align_param_gather": "it is on by default; --no-align-param-gather turns it off",
    "tp_comm_bulk_dgrad": "it is on by default; --disable-tp-comm-bulk-dgrad turns it off",
    "pipeline_num_chunks": "neither Megatron-LM nor DeepSpeed has it",
}
"""Flags that articles name and the parser has never had."""


def _never_flags(launch: Launch) -> list[Finding]:
    stated = [name for name, value in launch.reading.values.items() if value.value is not False]
    names = {
        name.lstrip("-").replace("-", "_"): name for name in (*launch.reading.unknown, *stated)
    }
    return [
        Finding(
            "warning",
            "no such flag",
            f"--{name.replace('_', '-')} is no flag of Megatron-LM, whose parser stops at it:"
            f" {says}",
            (Way({name: None}),),
        )
        for name, says in NO_SUCH.items()
        if name in names
    ]


def _unknown(launch: Launch) -> list[Finding]:
    """Flags that no known version has: the parser stops at them, unless the script adds them
    itself.
    """
    names = [
        name
        for name in launch.reading.unknown
        if not name.startswith(("env.", "hf.", "deepspeed."))
        and name.lstrip("-").replace("-", "_") not in NO_SUCH
    ]
    if not names:
        return []
    listed = with_guesses(names[:8], megatron_flags.flags()) + (
        f" and {len(names) - 8} more" if len(names) > 8 else ""
    )
    return [
        Finding(
            "hint",
            "unknown flags",
            "not known to Megatron-LM, whose parser stops at them unless the script adds them: "
            f"{listed}",
        )
    ]
