"""What Megatron-LM's parser and TransformerConfig refuse of switches that no layout tells: a flag
without the one that it needs, or beside one that it excludes.

Source: [megatron-core] training/arguments.py validate_args, training/determinism.py,
core/transformer/transformer_config.py; the same from 0.17 to 0.19 where both flags are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.errors import InputError
from planner.interpret.numbers import whole_number
from planner.specs import megatron_letters
from planner.specs.megatron_letters import Pattern

Plain = dict[str, Any]
Refusal = tuple[str, Callable[[Plain], bool], str, dict[str, Any]]
"""Name, whether it is broken, the sentence, and what to change."""
GRAPH_WORDS = ("cuda_graph_modules", "cuda_graph_scope")
EIGHT, FOUR = ("fp8_format", "fp8"), ("fp4_format", "fp4")
IN_EXPERTS = {"expert_fc1", "moe_act"}
BALANCES = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
"""Ways to balance a router with which experts have a capacity."""
SIGMOIDS = ("sigmoid", "sqrtsoftplus")


def _any(plain: Plain, names: tuple[str, ...]) -> bool:
    return any(plain.get(name) for name in names)


def _needs(flag: str, *others: str) -> Callable[[Plain], bool]:
    """A flag that is given without any of the others."""
    return lambda plain: bool(plain.get(flag)) and not _any(plain, others)


def _words(plain: Plain, *names: str) -> set[str]:
    """The words of flags that take several."""
    words: set[str] = set()
    for name in names:
        stated = plain.get(name) or ()
        listed = stated if isinstance(stated, list) else str(stated).replace(",", " ").split()
        words |= {str(word).strip("[]'\"") for word in listed} if stated else set()
    return words


def _graphed(plain: Plain) -> set[str]:
    return _words(plain, *GRAPH_WORDS)


def _repeats(plain: Plain) -> set[str]:
    """Modules of selective recomputation."""
    selective = plain.get("recompute_granularity") == "selective"
    return _words(plain, "recompute_modules") if selective else set()


def _whole_graph(plain: Plain) -> bool:
    whole = plain.get("cuda_graph_impl") == "full_iteration"
    return whole or (
        plain.get("cuda_graph_impl") == "local" and "full_iteration" in _graphed(plain)
    )


def _by_layer(plain: Plain) -> bool:
    return plain.get("cuda_graph_impl") in ("local", "transformer_engine")


def _delayed(plain: Plain) -> bool:
    return _any(plain, EIGHT) and plain.get("fp8_recipe") in (None, "delayed")


def _padded(plain: Plain) -> bool:
    return bool(plain.get("moe_expert_capacity_factor")) and bool(
        plain.get("moe_pad_expert_input_to_capacity")
    )


def _deepep(plain: Plain) -> bool:
    flex = plain.get("moe_token_dispatcher_type") == "flex"
    return flex and plain.get("moe_flex_dispatcher_backend") in (None, "deepep")


GRAPHS: tuple[Refusal, ...] = (
    (
        "a graph of all checks no numbers",
        lambda plain: (
            _whole_graph(plain)
            and plain.get("check_for_nan_in_loss_and_grad") is not False
            and not (plain.get("fp16") and not plain.get("loss_scale"))
        ),
        "a CUDA graph of the whole iteration needs --no-check-for-nan-in-loss-and-grad",
        {"check_for_nan_in_loss_and_grad": False},
    ),
    (
        "a graph of all names no modules",
        lambda plain: (
            plain.get("cuda_graph_impl") == "full_iteration"
            and bool(_graphed(plain) - {"full_iteration"})
        ),
        "--cuda-graph-impl full_iteration excludes --cuda-graph-modules",
        {"cuda_graph_modules": None, "cuda_graph_scope": None},
    ),
    (
        "captured modules are told in one way",
        lambda plain: all(plain.get(name) for name in GRAPH_WORDS),
        "--cuda-graph-modules and --cuda-graph-scope, its old name, exclude each other",
        {"cuda_graph_scope": None},
    ),
    (
        "graphs are turned on in one way",
        lambda plain: (
            sum(
                (
                    bool(plain.get("enable_cuda_graph")),
                    bool(plain.get("external_cuda_graph")),
                    plain.get("cuda_graph_impl") not in (None, "none"),
                )
            )
            > 1
        ),
        "--cuda-graph-impl, --enable-cuda-graph and --external-cuda-graph exclude one another",
        {"enable_cuda_graph": None, "external_cuda_graph": None},
    ),
    (
        "what prepares experts is captured with the router",
        lambda plain: (
            plain.get("cuda_graph_impl") == "transformer_engine"
            and "moe_preprocess" in _graphed(plain)
            and "moe_router" not in _graphed(plain)
        ),
        "moe_preprocess is captured with moe_router, but --cuda-graph-modules has it alone",
        {},
    ),
    (
        "captured experts are padded",
        lambda plain: _by_layer(plain) and "moe" in _graphed(plain) and not _padded(plain),
        "experts are captured (moe) where each gets as many tokens: with"
        " --moe-expert-capacity-factor and --moe-pad-expert-input-to-capacity, which drop tokens."
        " moe_router and moe_preprocess can be captured without",
        {},
    ),
    (
        "captured experts hold their router",
        lambda plain: _by_layer(plain) and {"moe", "moe_router"} <= _graphed(plain),
        "moe and moe_router exclude each other in --cuda-graph-modules",
        {},
    ),
    (
        "a captured MLP is of dense layers",
        lambda plain: (
            _by_layer(plain)
            and "mlp" in _graphed(plain)
            and bool(plain.get("num_experts"))
            and plain.get("moe_layer_freq") in (None, 1)
        ),
        "mlp in --cuda-graph-modules is of dense layers, but every layer has experts",
        {},
    ),
    (
        "offloaded modules lie outside local graphs",
        lambda plain: (
            bool(plain.get("fine_grained_activation_offloading"))
            and plain.get("cuda_graph_impl") == "local"
            and not (_graphed(plain) and _words(plain, "offload_modules") <= IN_EXPERTS)
        ),
        "beside --cuda-graph-impl local --offload-modules may name expert_fc1 and moe_act alone,"
        " and --cuda-graph-modules must name what is captured; transformer_engine takes all",
        {"cuda_graph_impl": "transformer_engine"},
    ),
)
NUMBERS: tuple[Refusal, ...] = (
    (
        "8-bit weights are of 8-bit products",
        _needs("fp8_param_gather", *EIGHT),
        "--fp8-param-gather needs --fp8-format",
        {"fp8_param_gather": None},
    ),
    (
        "4-bit weights are of 4-bit products",
        _needs("fp4_param_gather", *FOUR),
        "--fp4-param-gather needs --fp4-format",
        {"fp4_param_gather": None},
    ),
    (
        "delayed scaling covers every layer",
        lambda plain: _delayed(plain) and bool(plain.get("first_last_layers_bf16")),
        "--first-last-layers-bf16 works under another --fp8-recipe than delayed, the default",
        {"first_last_layers_bf16": None},
    ),
    (
        "delayed scaling repeats no norms",
        lambda plain: _delayed(plain) and bool(_repeats(plain) & {"layernorm", "moe_act"}),
        "layernorm and moe_act are recomputed under another --fp8-recipe than delayed, the default",
        {},
    ),
    (
        "an 8-bit head is in mxfp8",
        lambda plain: (
            bool(plain.get("fp8_output_proj"))
            and not (_any(plain, EIGHT) and plain.get("fp8_recipe") == "mxfp8")
        ),
        "--fp8-output-proj needs --fp8-format with --fp8-recipe mxfp8",
        {"fp8_output_proj": None},
    ),
    (
        "gradients have one type",
        lambda plain: (
            plain.get("main_grads_dtype", "fp32") != "fp32"
            and bool(plain.get("accumulate_allreduce_grads_in_fp32"))
        ),
        "--accumulate-allreduce-grads-in-fp32 excludes a --main-grads-dtype other than fp32",
        {"accumulate_allreduce_grads_in_fp32": None},
    ),
    (
        "deterministic runs fuse no loss",
        lambda plain: (
            bool(plain.get("deterministic_mode")) and bool(plain.get("cross_entropy_loss_fusion"))
        ),
        "--deterministic-mode excludes --cross-entropy-loss-fusion",
        {"cross_entropy_loss_fusion": None},
    ),
)
OVERLAPS: tuple[Refusal, ...] = (
    (
        "gathers beside the update are of virtual stages",
        lambda plain: (
            bool(plain.get("overlap_param_gather_with_optimizer_step"))
            and not _any(
                plain,
                (
                    "num_layers_per_virtual_pipeline_stage",
                    "num_virtual_stages_per_pipeline_rank",
                    "pipeline_model_parallel_layout",
                ),
            )
        ),
        "--overlap-param-gather-with-optimizer-step needs virtual stages",
        {"overlap_param_gather_with_optimizer_step": None},
    ),
    (
        "gathers beside the update are checkpointed whole",
        lambda plain: (
            bool(plain.get("overlap_param_gather_with_optimizer_step"))
            and plain.get("ckpt_format", "torch_dist") != "torch"
        ),
        "--overlap-param-gather-with-optimizer-step needs --ckpt-format torch",
        {"overlap_param_gather_with_optimizer_step": None},
    ),
    (
        "delayed weight gradients go with overlapped exchanges",
        _needs("delay_wgrad_compute", "overlap_moe_expert_parallel_comm"),
        "--delay-wgrad-compute needs --overlap-moe-expert-parallel-comm",
        {"delay_wgrad_compute": None},
    ),
    (
        "early release goes with overlapped exchanges",
        _needs("ep_overlap_early_attn_memory_release", "overlap_moe_expert_parallel_comm"),
        "--ep-overlap-early-attn-memory-release needs --overlap-moe-expert-parallel-comm",
        {"ep_overlap_early_attn_memory_release": None},
    ),
    (
        "one overlap of the backward dispatch",
        lambda plain: (
            bool(plain.get("overlap_dispatch_backward_with_experts_wgrad"))
            and _any(plain, ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute"))
        ),
        "--overlap-dispatch-backward-with-experts-wgrad excludes --overlap-moe-expert-parallel-comm"
        " and --delay-wgrad-compute",
        {"overlap_dispatch_backward_with_experts_wgrad": None},
    ),
    (
        "overlapped exchanges are between ranks",
        lambda plain: (
            bool(plain.get("overlap_moe_expert_parallel_comm"))
            and whole_number(plain, "expert_model_parallel_size") == 1
        ),
        "--overlap-moe-expert-parallel-comm needs --expert-model-parallel-size above 1",
        {"overlap_moe_expert_parallel_comm": None},
    ),
    (
        "a deferred head is of a pipeline",
        lambda plain: (
            bool(plain.get("defer_embedding_wgrad_compute"))
            and whole_number(plain, "pipeline_model_parallel_size") == 1
        ),
        "--defer-embedding-wgrad-compute needs --pipeline-model-parallel-size above 1",
        {"defer_embedding_wgrad_compute": None},
    ),
    (
        "offload names its modules",
        _needs("fine_grained_activation_offloading", "offload_modules"),
        "--fine-grained-activation-offloading needs --offload-modules",
        {"fine_grained_activation_offloading": None},
    ),
)
EXPERTS: tuple[Refusal, ...] = (
    (
        "DeepEP is a flexible dispatcher",
        lambda plain: (
            bool(plain.get("moe_enable_deepep"))
            and plain.get("moe_token_dispatcher_type") != "flex"
        ),
        "--moe-enable-deepep needs --moe-token-dispatcher-type flex",
        {"moe_token_dispatcher_type": "flex"},
    ),
    (
        "NCCL's dispatcher is a flexible one",
        lambda plain: (
            plain.get("moe_flex_dispatcher_backend") == "ncclep"
            and plain.get("moe_token_dispatcher_type") != "flex"
        ),
        "--moe-flex-dispatcher-backend ncclep needs --moe-token-dispatcher-type flex",
        {"moe_token_dispatcher_type": "flex"},
    ),
    (
        "one library dispatches",
        lambda plain: (
            bool(plain.get("moe_enable_deepep"))
            and plain.get("moe_flex_dispatcher_backend") == "hybridep"
        ),
        "--moe-enable-deepep excludes --moe-flex-dispatcher-backend hybridep",
        {"moe_enable_deepep": None},
    ),
    (
        "DeepEP sends what is there",
        lambda plain: _deepep(plain) and bool(plain.get("moe_pad_expert_input_to_capacity")),
        "DeepEP excludes --moe-pad-expert-input-to-capacity; hybridep takes it",
        {"moe_pad_expert_input_to_capacity": None},
    ),
    (
        "padded experts have a capacity",
        _needs("moe_pad_expert_input_to_capacity", "moe_expert_capacity_factor"),
        "--moe-pad-expert-input-to-capacity needs --moe-expert-capacity-factor",
        {"moe_pad_expert_input_to_capacity": None},
    ),
    (
        "a capacity goes with a loss of balance",
        lambda plain: (
            whole_number(plain, "num_experts", 0) > 0
            and bool(plain.get("moe_expert_capacity_factor"))
            and not _words(plain, "moe_router_load_balancing_type") <= set(BALANCES)
        ),
        "--moe-expert-capacity-factor needs --moe-router-load-balancing-type aux_loss,"
        " seq_aux_loss, global_aux_loss or none",
        {"moe_router_load_balancing_type": "aux_loss"},
    ),
    (
        "rows are padded for 8 or 4 bits",
        lambda plain: (
            _any(plain, ("moe_router_padding_for_quantization", "moe_router_padding_for_fp8"))
            and not _any(plain, EIGHT + FOUR)
        ),
        "--moe-router-padding-for-quantization needs --fp8-format or --fp4-format",
        {"moe_router_padding_for_quantization": None, "moe_router_padding_for_fp8": None},
    ),
    (
        "padded rows are sent one by one",
        lambda plain: (
            _any(plain, ("moe_router_padding_for_quantization", "moe_router_padding_for_fp8"))
            and plain.get("moe_token_dispatcher_type") == "allgather"
        ),
        "--moe-router-padding-for-quantization excludes the dispatcher allgather",
        {"moe_token_dispatcher_type": "alltoall"},
    ),
    (
        "biased choices are scored by a sigmoid",
        lambda plain: (
            bool(plain.get("moe_router_enable_expert_bias"))
            and plain.get("moe_router_score_function", "softmax") not in SIGMOIDS
        ),
        "--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid",
        {"moe_router_score_function": "sigmoid"},
    ),
    (
        "groups of experts have a number",
        _needs("moe_router_group_topk", "moe_router_num_groups"),
        "--moe-router-group-topk needs --moe-router-num-groups",
        {"moe_router_group_topk": None},
    ),
    (
        "groups divide the experts",
        lambda plain: (
            bool(plain.get("moe_router_group_topk"))
            and bool(plain.get("num_experts"))
            and bool(plain.get("moe_router_num_groups"))
            and whole_number(plain, "num_experts") % whole_number(plain, "moe_router_num_groups")
            > 0
        ),
        "--moe-router-num-groups must divide --num-experts",
        {},
    ),
    (
        "a capacity of ranks is HybridEP's",
        lambda plain: (
            bool(plain.get("moe_expert_rank_capacity_factor"))
            and plain.get("moe_flex_dispatcher_backend") not in ("hybridep", "ncclep")
        ),
        "--moe-expert-rank-capacity-factor needs --moe-flex-dispatcher-backend hybridep or ncclep",
        {"moe_expert_rank_capacity_factor": None},
    ),
    (
        "a stash has a capacity of ranks",
        _needs("moe_paged_stash", "moe_expert_rank_capacity_factor"),
        "--moe-paged-stash needs --moe-expert-rank-capacity-factor",
        {"moe_paged_stash": None},
    ),
    (
        "repeated activations are of grouped products",
        lambda plain: (
            "moe_act" in _repeats(plain)
            and bool(plain.get("num_experts"))
            and not plain.get("moe_grouped_gemm")
        ),
        "moe_act in --recompute-modules needs --moe-grouped-gemm",
        {"moe_grouped_gemm": True},
    ),
    (
        "experts are not recomputed twice",
        lambda plain: (
            bool(plain.get("moe_layer_recompute")) and plain.get("recompute_granularity") == "full"
        ),
        "--moe-layer-recompute excludes full recomputation",
        {"moe_layer_recompute": None},
    ),
    (
        "weights in one tensor are of fused operations",
        _needs("moe_single_grouped_weight", "use_transformer_engine_op_fuser"),
        "--moe-single-grouped-weight needs --use-transformer-engine-op-fuser",
        {"moe_single_grouped_weight": None},
    ),
    (
        "experts have their own width",
        lambda plain: (
            bool(plain.get("moe_ffn_hidden_size"))
            and not plain.get("num_experts")
            and bool(plain.get("num_layers"))
        ),
        "--moe-ffn-hidden-size needs --num-experts",
        {"moe_ffn_hidden_size": None},
    ),
)
SHARDS: tuple[Refusal, ...] = (
    (
        "torch's FSDP shards the optimizer itself",
        lambda plain: (
            bool(plain.get("use_torch_fsdp2")) and bool(plain.get("use_distributed_optimizer"))
        ),
        "--use-torch-fsdp2 excludes --use-distributed-optimizer",
        {"use_distributed_optimizer": None},
    ),
    (
        "torch's FSDP adds gradients itself",
        lambda plain: (
            bool(plain.get("use_torch_fsdp2"))
            and plain.get("gradient_accumulation_fusion") is not False
        ),
        "--use-torch-fsdp2 needs --no-gradient-accumulation-fusion",
        {"gradient_accumulation_fusion": False},
    ),
    (
        "samples share ranks without a pipeline",
        lambda plain: (
            bool(plain.get("hybrid_context_parallel"))
            and whole_number(plain, "pipeline_model_parallel_size") > 1
        ),
        "--hybrid-context-parallel works without a pipeline",
        {"hybrid_context_parallel": None},
    ),
    (
        "local attention has a local spec",
        lambda plain: (
            str(plain.get("attention_backend") or "").rsplit(".", 1)[-1] == "local"
            and "local" not in _words(plain, "spec")
        ),
        "--attention-backend local needs --spec local",
        {"attention_backend": None},
    ),
)


def _pattern(plain: Plain) -> Pattern | None:
    """The letters of --hybrid-layer-pattern; None where they cannot be read."""
    try:
        return megatron_letters.parsed(str(plain["hybrid_layer_pattern"]))
    except (InputError, KeyError):
        return None


def _odd_stages(plain: Plain) -> bool:
    found = _pattern(plain)
    bounds = len(found.stages) if found else 1
    return bounds > 1 and bounds % max(whole_number(plain, "pipeline_model_parallel_size"), 1) != 0


def _bounded_twice(plain: Plain) -> bool:
    found = _pattern(plain)
    return found is not None and len(found.stages) > 1 and _any(plain, END_STAGES)


END_STAGES = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
STAGES = (
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
"""Ways to split layers over stages that no hybrid has beside its letters."""
HYBRIDS: tuple[Refusal, ...] = (
    (
        "a pattern is of letters",
        lambda plain: bool(plain.get("hybrid_layer_pattern")) and _pattern(plain) is None,
        "--hybrid-layer-pattern has letters of layers, | between stages, and after each / the same"
        " layers of prediction; plain attention (*) is not beside a latent one (+, D)",
        {},
    ),
    (
        "a pattern has one name",
        lambda plain: bool(
            plain.get("hybrid_layer_pattern") and plain.get("hybrid_override_pattern")
        ),
        "--hybrid-layer-pattern and --hybrid-override-pattern, its old name, exclude each other",
        {"hybrid_override_pattern": None},
    ),
    (
        "a pattern's stages are of all ranks",
        _odd_stages,
        "--hybrid-layer-pattern has a multiple of --pipeline-model-parallel-size stages between |",
        {},
    ),
    (
        "a pattern says its stages",
        lambda plain: bool(plain.get("hybrid_layer_pattern")) and _any(plain, STAGES),
        "--hybrid-layer-pattern excludes other ways to split layers over stages: | bounds them",
        dict.fromkeys(STAGES),
    ),
    (
        "a pattern says its ends",
        _bounded_twice,
        "--hybrid-layer-pattern with | excludes --decoder-first-pipeline-num-layers and the last's",
        dict.fromkeys(END_STAGES),
    ),
    (
        "linear attention says where",
        lambda plain: (
            plain.get("experimental_attention_variant") == "gated_delta_net"
            and not plain.get("linear_attention_freq")
        ),
        "--experimental-attention-variant gated_delta_net needs --linear-attention-freq",
        {},
    ),
    (
        "sparse attention rotates unfused",
        lambda plain: (
            plain.get("experimental_attention_variant") == "dsa"
            and plain.get("apply_rope_fusion") is not False
        ),
        "--experimental-attention-variant dsa needs --no-rope-fusion",
        {"apply_rope_fusion": False},
    ),
)
REFUSALS = (*HYBRIDS, *SHARDS, *GRAPHS, *NUMBERS, *OVERLAPS, *EXPERTS)
