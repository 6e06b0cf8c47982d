"""Switches of Megatron-LM: megatron-core 0.14 to 0.19, as its arguments spell them.

Source of flags, defaults, needs and refusals: [megatron-core] training/arguments.py,
core/transformer/transformer_config.py, core/model_parallel_config.py, core/distributed/
distributed_data_parallel_config.py of the releases named.
"""

from __future__ import annotations

import numpy as np

from planner.layout import MODULES, Layouts, Mask
from planner.specs.megatron_letters import by_letters
from planner.specs.recipe import Recipe
from planner.specs.switches import (
    megatron_kernels,
    megatron_offload,
    megatron_parallel,
    precision,
)
from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.libraries import SEND_TOKENS, has_nvlink
from planner.specs.switches.switch import (
    Need,
    Plain,
    Spelling,
    Switch,
    Value,
    sees_no_images,
    setting,
)
from planner.specs.versions import version_of

FLEX_BACKENDS = (0, 16)
"""Version from which a flexible dispatcher names its library."""


def _on(name: str, part: str, flag: str, since: tuple[int, int] = (0, 0)) -> tuple[Spelling, ...]:
    """The spellings of a switch that a flag turns on."""
    return (
        Spelling(False, bridge=((f"{part}.{name}", False),)),
        Spelling(True, ((flag,),), since, bridge=((f"{part}.{name}", True),)),
    )


def _has_experts(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.model.moe is not None)


def _shares_experts(recipe: Recipe, layout: Layouts) -> Mask:
    """Some experts compute every token."""
    moe = recipe.model.moe
    return np.asarray(moe is not None and moe.shared_ffn_size > 0)


def _sends_tokens(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(setting(recipe, "moe_dispatcher", "allgather") != "allgather")


def _exchanges_by_nccl(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(setting(recipe, "moe_dispatcher", "allgather") not in ("deepep", "hybridep"))


def _splits_within_nvlink(recipe: Recipe, layout: Layouts) -> Mask:
    """Tensor-parallel ranks reach each other's buffers."""
    domain = recipe.hardware.node.domain_gpus if has_nvlink(recipe) else 1
    return np.asarray(layout.tp) <= domain


def _exchanges(recipe: Recipe, layout: Layouts) -> Mask:
    """Tokens travel to experts of other ranks."""
    return _has_experts(recipe, layout) & (np.asarray(layout.ep) > 1)


def _dispatches(recipe: Recipe, layout: Layouts) -> Mask:
    """Tokens, or parts of experts, lie on several ranks."""
    ranks: Mask = np.asarray(layout.ep) * np.asarray(layout.etp) > 1
    return _has_experts(recipe, layout) & ranks


def _replicated(recipe: Recipe, layout: Layouts) -> Mask:
    """Gradients are reduced by Megatron's own data parallelism."""
    torch_shards = recipe.software.fsdp == "torch"
    return ~(torch_shards & (np.asarray(layout.zero) >= 2))


def _reduces_beside(recipe: Recipe, layout: Layouts) -> Mask:
    return _replicated(recipe, layout) & bool(setting(recipe, "overlap_grad_reduce", False))


def _gathers_parameters(recipe: Recipe, layout: Layouts) -> Mask:
    return _reduces_beside(recipe, layout) & (np.asarray(layout.zero) >= 1)


def _narrows_gradients(recipe: Recipe, layout: Layouts) -> Mask:
    """fp16 runs keep 16-bit gradients unless told to accumulate in 32 bits."""
    wide = setting(recipe, "grad_reduce_dtype", "fp32") == "fp32"
    return np.asarray(recipe.precision != "fp32" and (wide or recipe.precision != "fp16"))


def _interleaves(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.v) > 1


def _splits_sequence(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.sp, bool) & (np.asarray(layout.tp) > 1)


DENSE_MODULES = ("attn", "mlp")
ROUTER_MODULES = ("moe_router", "moe_preprocess")
EXPERT_MODULES = ("attn", *ROUTER_MODULES)
"""What `layers` captures, as far as it can be captured: routed experts have no fixed shape."""


def _read_graph(plain: Plain) -> Value | None:
    """What is captured, by the flags of any version."""
    impl = str(plain.get("cuda_graph_impl") or "none")
    captured = plain.get("cuda_graph_modules") or plain.get("cuda_graph_scope") or ()
    modules = {captured} if isinstance(captured, str) else set(map(str, captured))
    if plain.get("enable_cuda_graph") or plain.get("external_cuda_graph"):
        impl = "transformer_engine"
    if impl == "full_iteration" or "full_iteration" in modules:
        return "full_iteration"
    if impl == "none":
        return None
    if modules and modules <= set(ROUTER_MODULES):
        return "router"
    if not modules or modules & {"moe_router", "moe", "mlp", "full"}:
        return "layers"
    return "attn" if "attn" in modules else None


_GRAPHED = (("NCCL_GRAPH_REGISTER", "0"),)
"""Graphs of Transformer Engine beside expandable segments. Source: training/arguments.py."""


def _graph(
    value: str, modules: tuple[str, ...], experts: bool | None = None
) -> tuple[Spelling, ...]:
    """The spellings of captured modules: a scope up to 0.17, modules since."""
    bridge = (("model.cuda_graph_impl", "transformer_engine"), ("model.cuda_graph_scope", modules))
    impl = ("--cuda-graph-impl", "transformer_engine")
    return (
        Spelling(
            value,
            (impl, ("--cuda-graph-modules", *modules)),
            (0, 18),
            experts=experts,
            environment=_GRAPHED,
            bridge=bridge,
        ),
        Spelling(
            value,
            (impl, ("--cuda-graph-scope", *modules)),
            (0, 16),
            experts=experts,
            environment=_GRAPHED,
            bridge=bridge,
        ),
    )


_FULL_GRAPH = (("model.cuda_graph_impl", "local"), ("model.cuda_graph_scope", ("full_iteration",)))


def _graph_keeps_layers(recipe: Recipe, layout: Layouts) -> Mask:
    return ~layout.recomputes_all


def _graph_repeats_no_attention_dropout(recipe: Recipe, layout: Layouts) -> Mask:
    modules = np.asarray(layout.recompute_modules)
    attention: Mask = (modules == 0) | ((modules >> MODULES.index("core_attn") & 1) == 1)
    return ~(layout.recomputes_modules & attention & recipe.software.dropout)


def _graph_repeats_no_hidden_dropout(recipe: Recipe, layout: Layouts) -> Mask:
    modules = np.asarray(layout.recompute_modules)
    mlp: Mask = (modules >> MODULES.index("mlp") | modules >> MODULES.index("moe")) & 1 == 1
    return ~(layout.recomputes_modules & mlp & recipe.software.dropout)


def _graph_keeps_router(recipe: Recipe, layout: Layouts) -> Mask:
    repeats: Mask = (np.asarray(layout.recompute_modules) >> MODULES.index("moe") & 1) == 0
    return ~layout.recomputes_modules | repeats


def _dispatcher(library: str) -> tuple[Spelling, ...]:
    flex = ("--moe-token-dispatcher-type", "flex")
    bridge = (
        ("model.moe_token_dispatcher_type", "flex"),
        ("model.moe_flex_dispatcher_backend", library),
        ("model.moe_shared_expert_overlap", False),
    )
    named = Spelling(
        library, (flex, ("--moe-flex-dispatcher-backend", library)), FLEX_BACKENDS, bridge=bridge
    )
    early = Spelling(library, (flex, ("--moe-enable-deepep",)), before=FLEX_BACKENDS)
    return (named, early) if library == "deepep" else (named,)


def _read_dispatcher(plain: Plain) -> Value | None:
    kind = plain.get("moe_token_dispatcher_type")
    if kind != "flex":
        return str(kind) if kind in ("alltoall", "allgather") else "alltoall" if kind else None
    backend = str(plain.get("moe_flex_dispatcher_backend") or "deepep").lower()
    return "hybridep" if backend == "hybridep" else "deepep"


def _read_loss(plain: Plain) -> Value | None:
    if not plain.get("cross_entropy_loss_fusion"):
        return None
    return "te" if plain.get("cross_entropy_fusion_impl") == "te" else "native"


_WIDE_GRADIENTS = (
    ("ddp.grad_reduce_in_fp32", True),
    ("mixed_precision.grad_reduce_in_fp32", True),
)
FSDP_OWN_GRADIENTS = (0, 19)
"""Since then Megatron-FSDP's gradients have the type of its own flag, else that of the weights."""


def _shards(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.zero) >= 2


def _shards_in_bf16(recipe: Recipe, layout: Layouts) -> Mask:
    return _shards(recipe, layout) & (setting(recipe, "grad_reduce_dtype", "fp32") == "bf16")


def _read_fsdp(plain: Plain) -> Value | None:
    return "torch2" if plain.get("use_torch_fsdp2") else None


def _shards_by_own_fsdp(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.software.fsdp == "megatron") & (np.asarray(layout.zero) >= 2)


def _read_gradients(plain: Plain) -> Value | None:
    """Megatron-FSDP's by its own flag, but for Megatron-Bridge, whose core is older: its
    grad_reduce_in_fp32 is read as grad_reduce_in_bf16 false.
    """
    version = version_of("megatron", str(plain.get("framework_version") or "main"))
    own = plain.get("use_megatron_fsdp") and version >= FSDP_OWN_GRADIENTS
    if own and plain.get("bf16") and plain.get("grad_reduce_in_bf16") is not False:
        return "fp32" if plain.get("megatron_fsdp_main_grads_dtype") == "fp32" else "bf16"
    narrow = plain.get("use_precision_aware_optimizer") and plain.get("main_grads_dtype") == "bf16"
    return "bf16" if plain.get("grad_reduce_in_bf16") or narrow else None


def _read_p2p(plain: Plain) -> Value | None:
    off = plain.get("no_overlap_p2p_communication") or plain.get("overlap_p2p_comm") is False
    return False if off else None


SWITCHES = (
    Switch(
        "overlap_grad_reduce",
        "Gradients are reduced bucket by bucket beside the last micro-batch's backward pass.",
        (False, True),
        False,
        "same",
        _on("overlap_grad_reduce", "ddp", "--overlap-grad-reduce"),
        "hides the data-parallel reduction behind the backward pass",
        "[megatron-core] core/distributed/distributed_data_parallel.py",
        acts=_replicated,
    ),
    Switch(
        "overlap_param_gather",
        "Updated parameters are gathered beside the next forward pass.",
        (False, True),
        False,
        "same",
        _on("overlap_param_gather", "ddp", "--overlap-param-gather"),
        "hides the gather of the distributed optimizer; needs overlap_grad_reduce",
        "[megatron-core] training/arguments.py",
        acts=_gathers_parameters,
        requires=(("overlap_grad_reduce", True),),
    ),
    Switch(
        "tp_comm_overlap",
        "Tensor-parallel collectives run beside chunked products (userbuffers).",
        (False, True),
        False,
        "reassociated",
        _on("tp_comm_overlap", "model", "--tp-comm-overlap"),
        "hides tensor-parallel communication; no isolated measurement is published, the share is a"
        " guess within what torchtitan's async tp gains",
        "[megatron-core] core/model_parallel_config.py",
        acts=_splits_sequence,
        needs=(
            Need(
                "user buffers lie within an NVLink domain",
                _splits_within_nvlink,
                "tp_comm_overlap writes to the buffers of other tensor-parallel ranks over NVLink,"
                " but got tp={layout.tp} on {recipe.hardware.name}",
                "turn tp_comm_overlap off",
            ),
        ),
    ),
    Switch(
        "overlap_p2p_comm",
        "Transfers of virtual stages run beside the next chunk.",
        (False, True),
        True,
        "same",
        (
            Spelling(
                False,
                (("--no-overlap-p2p-communication",),),
                bridge=(("model.overlap_p2p_comm", False), ("model.batch_p2p_comm", True)),
            ),
            Spelling(
                True, bridge=(("model.overlap_p2p_comm", True), ("model.batch_p2p_comm", False))
            ),
        ),
        "hides the transfers of an interleaved pipeline in its steady state",
        "[megatron-core] core/pipeline_parallel/schedules.py",
        exists=_interleaves,
        read=_read_p2p,
    ),
    Switch(
        "ddp_bucket_size",
        "Parameters of a bucket of gradients.",
        (),
        0,
        "same",
        (
            Spelling(
                0, (("--ddp-bucket-size", "{value}"),), bridge=(("ddp.bucket_size", "{value}"),)
            ),
        ),
        "smaller buckets cost a latency each; the last one, which nothing hides, is smaller",
        "[megatron-core] core/distributed/distributed_data_parallel.py",
        exists=megatron_parallel.reduces_beside,
        requires=(("overlap_grad_reduce", True),),
    ),
    Switch(
        "cross_entropy_fusion",
        "The loss in few kernels: off, native (torch.compile) or te (Transformer Engine).",
        ("off", "native", "te"),
        "off",
        "reassociated",
        (
            Spelling("off", bridge=(("model.cross_entropy_loss_fusion", False),)),
            Spelling(
                "native",
                (("--cross-entropy-loss-fusion",), ("--cross-entropy-fusion-impl", "native")),
                bridge=(
                    ("model.cross_entropy_loss_fusion", True),
                    ("model.cross_entropy_fusion_impl", "native"),
                ),
            ),
            Spelling(
                "te",
                (("--cross-entropy-loss-fusion",), ("--cross-entropy-fusion-impl", "te")),
                before=(0, 19),
                bridge=(
                    ("model.cross_entropy_loss_fusion", True),
                    ("model.cross_entropy_fusion_impl", "te"),
                ),
            ),
        ),
        "native takes 0.67 of the unfused loss's time; te works in place, in 16 bits: a run that"
        " diverged is reported, and Megatron-LM refuses it since 0.19",
        "SkyRL issue 1841 (8k tokens, 62,080 rows of the vocabulary: 11 ms, 8 ms); Megatron-LM"
        " issue 1627",
        lossy=("te",),
        read=_read_loss,
    ),
    Switch(
        "grad_reduce_dtype",
        "Numbers in which gradients are accumulated and reduced: fp32 or bf16.",
        ("fp32", "bf16"),
        "fp32",
        "same",
        (
            Spelling(
                "fp32",
                (
                    ("--accumulate-allreduce-grads-in-fp32",),
                    ("--megatron-fsdp-main-grads-dtype", "fp32"),
                ),
                (0, 17),
                bridge=_WIDE_GRADIENTS,
                where=_shards_by_own_fsdp,
            ),
            Spelling("fp32", (("--accumulate-allreduce-grads-in-fp32",),), bridge=_WIDE_GRADIENTS),
            Spelling(
                "bf16",
                (("--grad-reduce-in-bf16",),),
                bridge=(
                    ("ddp.grad_reduce_in_fp32", False),
                    ("mixed_precision.grad_reduce_in_fp32", False),
                ),
            ),
        ),
        "bf16 halves the gradient buffer and what is reduced; micro-batches are added in bf16 too."
        " Megatron-FSDP has bf16 since 0.19 unless a flag of its own says fp32",
        "[megatron-core] training/arguments.py, core/distributed/fsdp/mcore_fsdp_adapter.py; bytes"
        " counted",
        lossy=("bf16",),
        exists=_narrows_gradients,
        read=_read_gradients,
    ),
    Switch(
        "fsdp",
        "Whose code shards gradients and weights (zero 2 and 3): Megatron-FSDP, or torch's FSDP2.",
        ("megatron", "torch2"),
        "megatron",
        "reassociated",
        (
            Spelling("megatron"),
            Spelling("torch2", (("--use-torch-fsdp2",),), since=(0, 14)),
        ),
        "torch's has neither pipeline nor expert parallelism, gathers one layer ahead and reduces"
        " in bf16 into gradients that the optimizer copies to fp32",
        "[megatron-core] core/distributed/torch_fully_sharded_data_parallel.py,"
        " training/arguments.py",
        exists=_shards,
        acts=_shards_in_bf16,
        requires=(("grad_reduce_dtype", "bf16"),),
        read=_read_fsdp,
    ),
    Switch(
        "moe_dispatcher",
        "How tokens reach their experts: NCCL's alltoall or allgather, deepep or hybridep.",
        ("alltoall", "allgather", "deepep", "hybridep"),
        "allgather",
        "reassociated",
        (
            Spelling(
                "alltoall",
                (("--moe-token-dispatcher-type", "alltoall"),),
                bridge=(("model.moe_token_dispatcher_type", "alltoall"),),
            ),
            Spelling(
                "allgather",
                (("--moe-token-dispatcher-type", "allgather"),),
                bridge=(("model.moe_token_dispatcher_type", "allgather"),),
            ),
            *_dispatcher("deepep"),
            *_dispatcher("hybridep"),
        ),
        "the libraries send a token once to each NVLink domain and let the host run ahead sooner",
        "DeepEP README; DeepSeek-V3 on GB200: DeepEP -4.6% of a step, HybridEP -12.0% more",
        exists=_has_experts,
        acts=_dispatches,
        needs=(SEND_TOKENS,),
        read=_read_dispatcher,
    ),
    Switch(
        "moe_permute_fusion",
        "Tokens are sorted by expert in fused kernels.",
        (False, True),
        False,
        "reassociated",
        _on("moe_permute_fusion", "model", "--moe-permute-fusion"),
        "halves the traffic of sorting tokens, and launches less",
        "[megatron-core] core/transformer/moe/moe_utils.py; kernels counted",
        exists=_has_experts,
    ),
    Switch(
        "moe_router_fusion",
        "Scores, choice and auxiliary loss in few kernels (Transformer Engine 2.7).",
        (False, True),
        False,
        "reassociated",
        _on("moe_router_fusion", "model", "--moe-router-fusion"),
        "halves the router's traffic, and launches less",
        "DeepSeek-V3 on GB200: 72 to 31 kernels, -1.9% of a step",
        exists=_has_experts,
    ),
    Switch(
        "moe_router_force_load_balancing",
        "Random scores in the router, so that every expert gets as many tokens: for benchmarks.",
        (False, True),
        False,
        "benchmark-only",
        _on("moe_router_force_load_balancing", "model", "--moe-router-force-load-balancing"),
        "no expert gets more tokens than the mean, and what experts learn is of random tokens; a"
        " plan never has it",
        "[megatron-core] core/transformer/moe/router.py; Qwen3-235B on 256 H100 at 16k tokens: 295"
        " against 237 TFLOP/s with real routing (Megatron MoE ModelZoo)",
        exists=_has_experts,
    ),
    Switch(
        "overlap_moe_expert_parallel_comm",
        "Dispatch and combine of one micro-batch run beside the compute of another.",
        (False, True),
        False,
        "reassociated",
        _on("overlap_moe_expert_parallel_comm", "model", "--overlap-moe-expert-parallel-comm"),
        "hides the exchange of experts and taxes what it runs beside; one more layer's activations"
        " are alive",
        "Qwen3-235B on 256 H100: 19.7 to 17.6 s (Megatron MoE ModelZoo); the share is set by hand",
        exists=_has_experts,
        acts=_exchanges,
        needs=(
            Need(
                "overlapped exchange needs virtual stages",
                lambda recipe, layout: (np.asarray(layout.pp) == 1) | (np.asarray(layout.v) > 1),
                "where experts' exchange runs beside another micro-batch a pipeline must"
                " interleave, but got pp={layout.pp} and v={layout.v}",
                "try v 2 or more, or pp 1",
            ),
            Need(
                "overlapped exchange keeps its experts",
                lambda recipe, layout: ~layout.recomputes_all & (layout.recomputes("moe") == 0),
                "where experts' exchange runs beside another micro-batch neither whole layers nor"
                " the module moe are recomputed, but got recompute={knobs[recompute]}"
                " {knobs[recompute_modules]}",
                "try selective recomputation without moe",
            ),
            Need(
                "overlapped exchange is of plain models",
                lambda recipe, layout: np.asarray(not by_letters(recipe.model)),
                "experts' exchange runs beside another micro-batch in models that are no hybrids by"
                " letters, but got {recipe.model.name}",
                "turn the overlap off",
            ),
            Need(
                "overlapped exchange predicts one token",
                lambda recipe, layout: np.asarray(recipe.model.mtp_layers <= 1),
                "where experts' exchange runs beside another micro-batch one multi-token-prediction"
                " layer is the most, but got {recipe.model.mtp_layers}",
                "turn the overlap off",
            ),
            Need(
                "overlapped exchange runs in 16 bits",
                lambda recipe, layout: np.asarray(recipe.precision != "fp32"),
                "where experts' exchange runs beside another micro-batch the model must be in bf16"
                " or fp16, but got {recipe.precision}",
                "try bf16",
            ),
            Need(
                "overlapped exchange is no all-gather",
                _sends_tokens,
                "what runs beside another micro-batch is an all-to-all or a library's exchange, but"
                " got moe_dispatcher allgather",
                "try moe_dispatcher alltoall",
            ),
            Need(
                "one overlap of the exchange",
                lambda recipe, layout: np.asarray(
                    not setting(recipe, "moe_shared_expert_overlap", False)
                ),
                "the exchange runs beside another micro-batch or beside shared experts, but got"
                " both",
                "turn moe_shared_expert_overlap off",
            ),
        ),
    ),
    Switch(
        "moe_shared_expert_overlap",
        "Dispatch and combine run beside the shared experts of the same layer.",
        (False, True),
        False,
        "reassociated",
        _on("moe_shared_expert_overlap", "model", "--moe-shared-expert-overlap"),
        "hides as much of the exchange as the shared experts take; no isolated measurement is"
        " published",
        "[megatron-core] core/transformer/moe/shared_experts.py",
        exists=_shares_experts,
        acts=_dispatches,
        needs=(
            Need(
                "shared experts beside an all-to-all",
                _sends_tokens,
                "shared experts run beside an all-to-all or a library's exchange, but got"
                " moe_dispatcher allgather",
                "try moe_dispatcher alltoall",
            ),
            Need(
                "shared experts beside no library's exchange",
                _exchanges_by_nccl,
                "before 0.18 shared experts run beside an all-to-all alone, but got moe_dispatcher"
                " deepep or hybridep",
                "try moe_dispatcher alltoall, or --framework-version 0.18",
                before=(0, 18),
            ),
            Need(
                "overlapped shared experts are kept",
                lambda recipe, layout: layout.recomputes("shared_experts") == 0,
                "shared experts that run beside the exchange are not recomputed, but got"
                " recompute_modules {knobs[recompute_modules]}",
                "leave shared_experts out, or turn moe_shared_expert_overlap off",
            ),
        ),
    ),
    Switch(
        "cuda_graph",
        "What is captured and replayed without launches: none, attn, router (of experts), layers"
        " (attention and MLP, or the router) or full_iteration.",
        ("none", "attn", "router", "layers", "full_iteration"),
        "none",
        "same",
        (
            Spelling("none", bridge=(("model.cuda_graph_impl", "none"),)),
            *_graph("attn", ("attn",)),
            *_graph("router", ROUTER_MODULES, True),
            *_graph("layers", DENSE_MODULES, False),
            *_graph("layers", EXPERT_MODULES, True),
            Spelling(
                "full_iteration",
                (
                    ("--cuda-graph-impl", "full_iteration"),
                    ("--no-check-for-nan-in-loss-and-grad",),
                ),
                (0, 18),
                bridge=_FULL_GRAPH,
            ),
            Spelling(
                "full_iteration",
                (
                    ("--cuda-graph-impl", "local"),
                    ("--cuda-graph-scope", "full_iteration"),
                    ("--no-check-for-nan-in-loss-and-grad",),
                ),
                (0, 16),
                bridge=_FULL_GRAPH,
            ),
        ),
        "takes launches and the host's waits off the captured part, and holds memory of its own",
        "DeepSeek-V3 on GB200: attn, moe_router, moe_preprocess -7.9% of a step",
        needs=(
            Need(
                "graphed layers are not recomputed whole",
                _graph_keeps_layers,
                "where modules are captured whole layers are not recomputed, but got recompute="
                "{knobs[recompute]}",
                "try selective recomputation, or cuda_graph none",
                values=("attn", "router", "layers"),
            ),
            Need(
                "a graphed router keeps its experts",
                _graph_keeps_router,
                "where the router is captured the module moe is not recomputed, but got"
                " recompute_modules {knobs[recompute_modules]}",
                "leave moe out, or try cuda_graph attn",
                values=("router", "layers"),
            ),
            Need(
                "graphed recomputation has no dropout",
                _graph_repeats_no_attention_dropout,
                "where attention is captured it is not recomputed under dropout, but got"
                " recompute_modules {knobs[recompute_modules]}",
                "leave core_attn out, or try cuda_graph none",
                values=("attn", "layers", "full_iteration"),
            ),
            Need(
                "a router is captured where there is one",
                lambda recipe, layout: np.asarray(recipe.model.moe is not None),
                "cuda_graph router needs experts, but {recipe.model.name} has none",
                "try cuda_graph layers",
                values=("router",),
            ),
            Need(
                "a graphed MLP repeats no dropout",
                _graph_repeats_no_hidden_dropout,
                "where layers are captured an MLP is not recomputed under dropout, but got"
                " recompute_modules {knobs[recompute_modules]}",
                "leave mlp and moe out, or try cuda_graph attn",
                values=("layers", "full_iteration"),
            ),
            Need(
                "a graph of all needs fixed shapes",
                lambda recipe, layout: np.asarray(recipe.model.moe is None),
                "a graph of the whole iteration needs shapes that do not change, but"
                " {recipe.model.name} sends its experts as many tokens as they get",
                "try cuda_graph layers",
                values=("full_iteration",),
            ),
            Need(
                "a graph of all has no vision tower",
                sees_no_images,
                "a graph of the whole iteration needs shapes that do not change, but images differ"
                " in size and number",
                "try cuda_graph layers",
                values=("full_iteration",),
            ),
        ),
        read=_read_graph,
    ),
    *megatron_parallel.SWITCHES,
    *megatron_kernels.SWITCHES,
    *megatron_offload.SWITCHES,
    *precision.SWITCHES,
    EXPANDABLE_SEGMENTS,
)
