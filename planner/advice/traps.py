"""Silent traps of Megatron-LM: what runs, but is not what its author thinks."""

from __future__ import annotations

from planner import switch_gains
from planner.advice.findings import Finding, Way, caught
from planner.advice.flag_names import OLD_RECOMPUTE, changed
from planner.interpret import megatron_model, software_choice
from planner.interpret.interpret import Launch
from planner.layout import MODULES, RECOMPUTE_CODE, module_mask, module_names
from planner.rules.experts import idle_modules
from planner.specs.hardware import AMPERE
from planner.specs.layers import has_indexer
from planner.specs.routing import kept_share
from planner.specs.switches import table
from planner.specs.switches.lossy import BENCHMARK
from planner.specs.switches.megatron_kernels import SPARSE_KERNELS, sparse_kernels
from planner.specs.switches.table import BY_FRAMEWORK, settings_of
from planner.specs.versions import version_of

SELECTIVE = RECOMPUTE_CODE["selective"]
BLACKWELL = 10.0
WASTE = 0.01
"""Rows added to the vocabulary, as a share of it, above which it is worth a word."""
OFFLOAD_V1 = "env.NVTE_CPU_OFFLOAD_V1"
OWN_PRECISION = ("nemo", "bridge", "swift")
"""Kinds that train in bf16 unless told otherwise."""


def findings(launch: Launch) -> list[Finding]:
    """Every trap that the launch is in."""
    return caught(launch, TRAPS)


COMPANIONS = {
    "offload_modules": ("fine_grained_activation_offloading",),
    "activation_offload_fraction": ("fine_grained_activation_offloading",),
    "fp8_recipe": ("fp8_format", "fp8"),
    "fp8_param_gather": ("fp8_format", "fp8"),
    "fp4_recipe": ("fp4_format", "fp4"),
    "cross_entropy_fusion_impl": ("cross_entropy_loss_fusion",),
    "cuda_graph_modules": ("cuda_graph_impl",),
    "recompute_modules": ("recompute_granularity", "recompute_activations"),
}
"""Arguments that Megatron-LM looks at where one of others is given, and else passes over. Source:
[megatron-core] core/transformer/transformer_config.py, core/models/common/language_module/
language_module.py, training/arguments.py.
"""


def _without_companion(launch: Launch) -> Finding | None:
    """Arguments that do nothing, for want of the one that turns on what they configure."""
    if launch.recipe.framework != "megatron" or launch.reading.kind in OWN_PRECISION:
        return None
    idle = {}
    for name, needed in COMPANIONS.items():
        stated = launch.reading.values.get(name)
        if stated is None or not stated.value or name in launch.absent:
            continue
        if not any(launch.plain.get(other) not in (None, False, "none") for other in needed):
            idle[name] = needed[0]
    if not idle:
        return None
    listed = [f"{_flag(name)} without {_flag(needed)}" for name, needed in idle.items()]
    text = f"{', '.join(listed)} does nothing: give both, or leave both out"
    return Finding("warning", "arguments without effect", text, (Way(dict.fromkeys(idle)),))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _idle_switches(launch: Launch) -> Finding | None:
    """Switches that are stated and change nothing in this layout and model."""
    framework = launch.recipe.framework
    settings = {
        name: value
        for name, value in table.read(framework, launch.plain).items()
        if name in launch.reading.values
    }
    _, idle = switch_gains.stated(settings, launch.recipe, launch.layout)
    if framework != "megatron" or not idle:
        return None
    text = f"{', '.join(map(_flag, idle))} change nothing for this model and layout"
    return Finding("hint", "switches without effect", text)


def _fp32(launch: Launch) -> Finding | None:
    if launch.recipe.precision != "fp32" or launch.reading.kind in OWN_PRECISION:
        return None
    able = launch.recipe.hardware.gpu.compute_capability >= AMPERE
    halves = "bf16" if able else "fp16"
    text = (
        "fp32 training: neither --bf16 nor --fp16 is given, so that parameters are float32, 16"
        " bytes each, and matrix products run at a fraction of the 16-bit rate; flash attention is"
        f" not used. Use --{halves}"
    )
    return Finding("warning", "fp32 training", text, (Way({halves: True}),))


def _benchmark(launch: Launch) -> Finding | None:
    """A switch that is for benchmarks: the run is as fast as said, and trains nothing."""
    for name, value in settings_of(launch.recipe.software).items():
        switch = BY_FRAMEWORK[launch.recipe.framework][name]
        if switch.arithmetic_of(value) == BENCHMARK and name in launch.reading.values:
            text = (
                f"{name} is for benchmarks, and the run trains nothing: {switch.says}. Leave it out"
            )
            return Finding("warning", "benchmark, not training", text, (Way({name: None}),))
    return None


def _sp_alone(launch: Launch) -> Finding | None:
    if not launch.plain.get("sequence_parallel") or launch.layout.tp > 1:
        return None
    return Finding(
        "warning",
        "sequence parallelism ignored",
        "--sequence-parallel is turned off in silence: it needs a tensor-parallel size "
        "above 1, but that is 1",
        (Way({"sequence_parallel": None}),),
    )


def _alone(launch: Launch) -> Finding | None:
    """The optimizer's states are shared by the ranks that hold the same weights: of one rank there
    is nothing to share.
    """
    ranks = launch.layout.dp * launch.layout.cp
    if (
        ranks > 1
        or not launch.plain.get("use_distributed_optimizer")
        or "use_distributed_optimizer" not in launch.reading.values
    ):
        return None
    return Finding(
        "warning",
        "distributed optimizer has no effect",
        "the distributed optimizer has no effect at DP=1: --use-distributed-optimizer shards"
        f" states over data-parallel ranks, but {launch.recipe.gpus} GPUs / (tp {launch.layout.tp}"
        f" x pp {launch.layout.pp}) leave one",
        (Way({"use_distributed_optimizer": None}),),
    )


def _flash_in_fp32(launch: Launch) -> Finding | None:
    wanted = launch.plain.get("use_flash_attn") or str(
        launch.plain.get("attention_backend") or ""
    ).endswith("flash")
    if not wanted or launch.recipe.attention == "flash":
        return None
    if launch.recipe.precision == "fp32":
        return Finding(
            "warning",
            "flash attention needs 16 bits",
            "--use-flash-attn needs 16-bit inputs: under fp32 attention is unfused, "
            "with its scores in memory. Add --bf16",
            (Way({"bf16": True}),),
        )
    gpu = launch.recipe.hardware.gpu
    if gpu.compute_capability >= AMPERE:
        return None  # another kernel is named
    return Finding(
        "warning",
        "flash attention needs a newer GPU",
        f"flash attention needs compute capability 8.0, but {gpu.name} has "
        f"{gpu.compute_capability}: attention is unfused",
    )


def _core_attn(launch: Launch) -> Finding | None:
    """What core_attn would recompute, flash and fused attention never keep; sparse attention
    does.
    """
    only = launch.layout.recompute == SELECTIVE and launch.layout.recompute_modules == module_mask(
        ["core_attn"]
    )
    if (
        not only
        or launch.recipe.attention == "unfused"
        or has_indexer(launch.recipe.model)
        or not _stated(launch, "recompute_granularity")
    ):
        return None
    return Finding(
        "warning",
        "core_attn recompute useless",
        f"recomputing core_attn is useless with {launch.recipe.attention} (fused) attention, which"
        " keeps no scores: it costs attention's forward pass and frees next to nothing. Leave it"
        " out, or recompute what is kept (--recompute-modules mlp)",
        (Way(changed(launch, {"recompute": 0})),),
    )


def _without_sparse_kernels(launch: Launch) -> Finding | None:
    """Sparse attention that computes everything, since no kernels of it are asked for."""
    recipe = launch.recipe
    if recipe.framework != "megatron" or not has_indexer(recipe.model):
        return None
    version = version_of("megatron", recipe.framework_version)
    if version < SPARSE_KERNELS or recipe.software.quirks.sparse_kernels:
        return None
    library = sparse_kernels(recipe.hardware.gpu.architecture)
    if library == "none":
        return None
    return Finding(
        "warning",
        "sparse attention without its kernels",
        "without --dsa-kernel-backend sparse attention computes and keeps the scores of all keys in"
        f" 32 bits, of attention and of the indexer. Add --dsa-kernel-backend {library}",
        (Way({"dsa_kernel_backend": library}),),
    )


def _idle_modules(launch: Launch) -> Finding | None:
    """Names that selective recomputation takes and does nothing with: the model has no such
    module.
    """
    stated = launch.plain.get("recompute_modules")
    if launch.plain.get("recompute_granularity") != "selective" or not launch.sized:
        return None
    words = stated if isinstance(stated, list) else str(stated or "").replace(",", " ").split()
    named = module_mask([word for word in words if word in MODULES])
    idle = module_names(idle_modules(launch.recipe, named))
    if not idle:
        return None
    return Finding(
        "warning",
        "recomputed modules are there",
        f"--recompute-modules {' '.join(idle)} recomputes nothing: {launch.recipe.model.name} has"
        " no such module of its own (norms of dense layers are part of their linear ones)",
        (Way({"recompute_modules": [word for word in words if word not in idle] or None}),),
    )


def _offload_version(launch: Launch) -> Finding | None:
    """Transformer Engine 2.10 offloads weights too unless told otherwise."""
    if not launch.plain.get("fine_grained_activation_offloading"):
        return None
    if launch.reading.kind in OWN_PRECISION or str(launch.plain.get(OFFLOAD_V1)) == "1":
        return None
    return Finding(
        "warning",
        "NVTE_CPU_OFFLOAD_V1",
        "with --fine-grained-activation-offloading Megatron-LM asserts NVTE_CPU_OFFLOAD_V1=1 under"
        " Transformer Engine 2.10 and later, but the script does not set it (the environment may)",
        (Way({OFFLOAD_V1: "1"}),),
    )


def _starved(launch: Launch) -> Finding | None:
    layout = launch.layout
    if layout.m >= layout.pp or layout.v > 1:
        return None
    batch = layout.dp * layout.mbs * layout.pp
    return Finding(
        "warning",
        "fewer micro-batches than stages",
        f"m = {layout.m} micro-batches for pp = {layout.pp} stages: {layout.pp - layout.m} stages"
        f" are idle at any time; more micro-batches (a global batch of at least {batch}) fill it",
        (Way(changed(launch, {"gbs": batch})),),
    )


def _batch_defaults(launch: Launch) -> Finding | None:
    if (
        launch.plain.get("global_batch_size")
        or launch.plain.get("step_batch_size_schedule")
        or launch.plain.get("rampup_batch_size")
    ):
        return None
    if launch.recipe.framework == "deepspeed":
        return None
    return Finding(
        "warning",
        "one micro-batch a step",
        "--global-batch-size is not given: it becomes micro-batch x data-parallel size = "
        f"{launch.recipe.global_batch_size}, one micro-batch a step",
        (Way({"global_batch_size": launch.recipe.global_batch_size * 8}),),
    )


def _connections(launch: Launch) -> Finding | None:
    """Before Blackwell overlapping tp or cp communication relies on the order of launches."""
    split = launch.layout.tp > 1 or launch.layout.cp > 1
    sharded = launch.layout.zero >= 2
    connections = launch.plain.get("env.CUDA_DEVICE_MAX_CONNECTIONS")
    if launch.recipe.framework != "megatron" or launch.reading.kind in OWN_PRECISION:
        return None
    if sharded and str(connections) == "1":
        return Finding(
            "error",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "FSDP must not run with CUDA_DEVICE_MAX_CONNECTIONS=1: it serialises gathers "
            "and compute",
            (Way({"env.CUDA_DEVICE_MAX_CONNECTIONS": None}),),
        )
    if (
        not split
        or sharded
        or str(connections) == "1"
        or launch.recipe.hardware.gpu.compute_capability >= BLACKWELL
    ):
        return None
    got = f"it is {connections}" if connections is not None else "the script does not set it"
    return Finding(
        "warning",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "with tensor or context parallelism Megatron-LM asserts "
        f"CUDA_DEVICE_MAX_CONNECTIONS=1, but {got} (the environment may)",
        (Way({"env.CUDA_DEVICE_MAX_CONNECTIONS": "1"}),),
    )


def _padded(launch: Launch) -> Finding | None:
    if not launch.sized or launch.plain.get("padded_vocab_size"):
        return None
    size, tp = launch.recipe.model.vocab_size, launch.layout.tp
    unit = int(launch.plain.get("make_vocab_size_divisible_by") or 128)
    rows = megatron_model.padded(size, unit, tp)
    if rows <= size or not megatron_model.describes_model(launch.plain):
        return None
    heavy = rows / size - 1 > WASTE
    return Finding(
        "warning" if heavy else "hint",
        "vocabulary padded",
        f"the vocabulary of {size:,} is padded to {rows:,}, a multiple of "
        f"{unit} x tp {tp}: checkpoints and logits have {rows - size:,} rows more",
    )


def _ungrouped(launch: Launch) -> Finding | None:
    """Grouped-query attention takes two flags."""
    if (
        not launch.plain.get("num_query_groups")
        or launch.plain.get("group_query_attention")
        or not megatron_model.describes_model(launch.plain)
    ):
        return None
    if (
        launch.recipe.framework != "megatron"
        or launch.plain.get("multi_latent_attention")
        or launch.reading.kind in OWN_PRECISION
    ):
        return None
    return Finding(
        "warning",
        "grouped-query attention off",
        f"--num-query-groups {launch.plain['num_query_groups']} does nothing without "
        f"--group-query-attention: the model has {launch.recipe.model.num_heads} key-value heads",
        (Way({"group_query_attention": True}),),
    )


def _across_nodes(launch: Launch) -> Finding | None:
    domain = max(launch.recipe.hardware.node.gpus, launch.recipe.hardware.node.domain_gpus)
    if launch.layout.tp <= domain:
        return None
    return Finding(
        "warning",
        "tensor parallelism across nodes",
        f"tp {launch.layout.tp} spans nodes of {domain} GPUs: every layer waits for the network",
        (Way(changed(launch, {"tp": domain})),),
    )


def _ramp(launch: Launch) -> Finding | None:
    if not launch.plain.get("rampup_batch_size") or launch.recipe.framework != "megatron":
        return None
    if version_of("megatron", launch.recipe.framework_version) < (0, 18):
        return None
    return Finding(
        "warning",
        "batch ramp-up ignored",
        "--rampup-batch-size is ignored since Megatron-LM 0.18; "
        "--step-batch-size-schedule takes its place",
        (Way({"rampup_batch_size": None}),),
    )


def _copied_heads(launch: Launch) -> Finding | None:
    heads = launch.recipe.model.num_kv_heads
    if launch.layout.tp <= heads or launch.recipe.framework != "megatron" or not launch.sized:
        return None
    return Finding(
        "hint",
        "key-value heads copied",
        f"tp {launch.layout.tp} exceeds the {heads} key-value heads: each is held by "
        f"{launch.layout.tp // heads} ranks",
    )


def _dispatcher(launch: Launch) -> Finding | None:
    if (
        not launch.recipe.model.moe
        or launch.layout.ep == 1
        or launch.plain.get("moe_token_dispatcher_type") != "allgather"
    ):
        return None
    if launch.recipe.framework != "megatron":
        return None
    return Finding(
        "warning",
        "tokens gathered",
        "with --moe-token-dispatcher-type allgather (the default) every rank gets every token of"
        " its group: alltoall sends each where it goes",
        (Way({"moe_token_dispatcher_type": "alltoall"}),),
    )


def _dropped(launch: Launch) -> Finding | None:
    factor = software_choice.capacity(launch.plain)
    if factor is None or not launch.recipe.model.moe or launch.recipe.framework != "megatron":
        return None
    lost = 1 - kept_share(factor)
    text = (
        f"--moe-expert-capacity-factor {factor:g} drops what an expert gets beyond {factor:g} times"
        f" the mean: about {lost:.0%} of the routed tokens while nothing balances the router;"
        " memory and time are of those that stay"
    )
    return Finding(
        "warning" if lost > WASTE else "hint",
        "tokens dropped",
        text,
        (Way({"moe_expert_capacity_factor": None}),),
    )


def _dropout(launch: Launch) -> Finding | None:
    """Megatron's own default is 0.1, which nobody means who trains a model with RMSNorm."""
    names = [
        name
        for name in ("hidden_dropout", "attention_dropout")
        if name not in launch.reading.values and launch.plain.get(name)
    ]
    modern = (
        launch.plain.get("normalization") == "RMSNorm" and launch.reading.kind not in OWN_PRECISION
    )
    if not names or not modern or launch.recipe.framework != "megatron":
        return None
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in names)
    text = (
        f"{flags} are not given, so that Megatron-LM drops 10%: models with RMSNorm are trained"
        " without, and its masks take memory"
    )
    return Finding("warning", "dropout by default", text, (Way(dict.fromkeys(names, 0.0)),))


def _stated(launch: Launch, name: str) -> bool:
    """Whether the file says so itself, in its newest or in an older word."""
    return any(word in launch.reading.values for word in (name, *OLD_RECOMPUTE))


TRAPS = (
    _fp32,
    _without_companion,
    _idle_switches,
    _benchmark,
    _sp_alone,
    _alone,
    _flash_in_fp32,
    _core_attn,
    _without_sparse_kernels,
    _idle_modules,
    _offload_version,
    _starved,
    _batch_defaults,
    _connections,
    _padded,
    _ungrouped,
    _across_nodes,
    _ramp,
    _copied_heads,
    _dispatcher,
    _dropped,
    _dropout,
)
