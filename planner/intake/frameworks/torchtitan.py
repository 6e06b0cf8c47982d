"""torchtitan's TOML, the same tables in YAML or in 0.3's Python: degrees and batch under Megatron's
names where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from planner.intake.documents.scalars import is_int
from planner.intake.documents.tree import Leaf, last
from planner.intake.frameworks.vocabulary import Named, make_reading, named
from planner.intake.reading import Reading

RENAMED = {
    "parallelism.tensor_parallel_degree": "tensor_model_parallel_size",
    "parallelism.pipeline_parallel_degree": "pipeline_model_parallel_size",
    "parallelism.context_parallel_degree": "context_parallel_size",
    "parallelism.expert_parallel_degree": "expert_model_parallel_size",
    "parallelism.expert_tensor_parallel_degree": "expert_tensor_parallel_size",
    "parallelism.data_parallel_shard_degree": "data_parallel_shard_degree",
    "parallelism.data_parallel_replicate_degree": "data_parallel_replicate_degree",
    "parallelism.pipeline_parallel_schedule": "pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_microbatch_size": "pipeline_parallel_microbatch_size",
    "parallelism.pipeline_parallel_layers_per_stage": "num_layers_per_virtual_pipeline_stage",
    "parallelism.fsdp_reshard_after_forward": "fsdp_reshard_after_forward",
    "experimental.pipeline_parallel_degree": "pipeline_model_parallel_size",
    "experimental.context_parallel_degree": "context_parallel_size",
    "experimental.pipeline_parallel_schedule": "pipeline_parallel_schedule",
    "training.tensor_parallel_degree": "tensor_model_parallel_size",
    "training.data_parallel_shard_degree": "data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "data_parallel_replicate_degree",
    "training.data_parallel_degree": "data_parallel_shard_degree",
    "training.local_batch_size": "local_batch_size",
    "training.batch_size": "local_batch_size",
    "training.seq_len": "seq_length",
    "training.global_batch_size": "global_batch_size",
    "training.enable_cpu_offload": "optimizer_cpu_offload",
    "optimizer.name": "optimizer",
    "training.compile": "compile",
    "compile.enable": "compile",
    "training.max_context_length": "seq_length",
}
"""Also where the keys stood before 2025: [experimental] and [training]. Source: [torchtitan]
config/job_config.py of several versions.
"""
PRESETS = {
    ("llama3", "1b"): "llama3.2-1b",
    ("llama3", "3b"): "llama3.2-3b",
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("deepseek_v3", "236b"): "deepseek-v2",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
    ("llama4", "17bx16e"): "llama4-scout",
}
"""Module and flavor whose preset here has another name than both together."""
LINEAR = ("quantize", "linear", "float8", "recipe_name")
DEFAULTS = (
    Leaf(("training", "local_batch_size"), 8, origin="default", where="torchtitan"),
    Leaf(("training", "seq_len"), 2048, origin="default", where="torchtitan"),
    Leaf(("parallelism", "data_parallel_shard_degree"), -1, origin="default", where="torchtitan"),
    Leaf(("training", "mixed_precision_param"), "bfloat16", origin="default", where="torchtitan"),
    Leaf(("activation_checkpoint", "mode"), "selective", origin="default", where="torchtitan"),
    Leaf(
        ("activation_checkpoint", "selective_ac_option"),
        "2",
        origin="default",
        where="torchtitan",
    ),
)
TOKENS = ("num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step")
"""Words of [training] that count tokens where 0.3 counted sequences; after 0.3.0."""
MAX_CONTEXT, TOKENS_OF_MICRO_BATCH = 2048, 16384
"""Their defaults."""
TABLES = frozenset(
    {
        "activation_checkpoint",
        "checkpoint",
        "comm",
        "compile",
        "dataloader",
        "debug",
        "experimental",
        "fault_tolerance",
        "float8",
        "job",
        "loss",
        "lr_scheduler",
        "memory_estimation",
        "metrics",
        "model",
        "mx",
        "optimizer",
        "parallelism",
        "primus_turbo",
        "profiling",
        "quantize",
        "training",
        "validation",
    }
)


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """Values under Megatron's names; weights are sharded (FSDP2) unless the shard degree is 1.

    `local_batch_size` is what a data-parallel rank takes a step: of a pipeline it is cut into
    micro-batches of `pipeline_parallel_microbatch_size`; beyond it, `global_batch_size` is reached
    by accumulation.
    """
    older = last(leaves, "training", "batch_size")
    flat = [leaf for leaf in DEFAULTS if not (older and leaf.path[-1] == "local_batch_size")]
    leaves = [*leaves, *_sequences(leaves)]
    for leaf in leaves:
        if leaf.value != -1 or leaf.path[-1] != "global_batch_size":
            flat.append(leaf)
    names = chain.from_iterable(map(_names, flat))
    return make_reading(
        file,
        "torchtitan",
        "torch",
        [*names, *_converters(flat), *_model(flat), *_batch(flat), *_sharding(flat)],
        notes=notes,
    )


def _sequences(leaves: Sequence[Leaf]) -> list[Leaf]:
    """What later versions say in tokens, in sequences of the longest context: a micro-batch of a
    data-parallel rank (without a pipeline its local batch, in one each of num_pp_microbatches), and
    a step.
    """
    length = last(leaves, "training", "max_context_length")
    each, step = (last(leaves, "training", word) for word in TOKENS)
    if each is None and step is None and length is None:
        return []
    tokens = length.value if length else MAX_CONTEXT
    if not is_int(tokens) or tokens < 1:
        return []
    out = []
    micro = each.value if each else TOKENS_OF_MICRO_BATCH
    passes = last(leaves, "parallelism", "num_pp_microbatches")
    times = passes.value if passes and is_int(passes.value) else 1
    stated = each or length or step
    assert stated is not None
    stated = replace(stated, span=None, removal=None)
    if is_int(micro) and micro >= tokens:
        size = micro // tokens
        out += [
            replace(stated, path=("training", "local_batch_size"), value=size * times),
            replace(stated, path=("parallelism", "pipeline_parallel_microbatch_size"), value=size),
        ]
    if step is not None and is_int(step.value) and step.value >= tokens:
        batch = step.value // tokens
        out.append(replace(stated, path=("training", "global_batch_size"), value=batch))
    return out


def _names(leaf: Leaf) -> list[Named]:
    dotted = ".".join(leaf.path)
    if dotted == "activation_checkpoint.mode":
        mode = str(leaf.value)
        granularity = None if leaf.value is None or mode == "none" else mode
        return [named(dotted, leaf), Named("recompute_granularity", leaf, granularity)]
    if dotted == "activation_checkpoint.first_layers":
        return [
            Named("recompute_method", leaf, "block"),
            Named("recompute_num_layers", leaf, leaf.value),
        ]
    if dotted == "training.mixed_precision_param":
        return [
            Named("bf16", leaf, leaf.value == "bfloat16"),
            Named("fp16", leaf, leaf.value == "float16"),
        ]
    return [named(RENAMED.get(dotted, dotted), leaf, leaf.path[0] in TABLES)]


def _converters(leaves: Sequence[Leaf]) -> list[Named]:
    """The recipe of 8 or 4 bits that converters of the model stand for."""
    leaf = last(leaves, "model", "converters")
    if leaf is None:
        return []
    recipe = None
    for converter in map(str, leaf.value if isinstance(leaf.value, list) else [leaf.value]):
        if converter.startswith("mx") or "quantize.linear.mx" in converter:
            recipe = "mxfp8"
        elif "nvfp4" in converter:
            return [Named("fp4_format", leaf, "e2m1")]
        elif "float8" in converter:
            scaled = last(leaves, *LINEAR)
            recipe = recipe or (str(scaled.value) if scaled else "tensorwise")
    if recipe is None:
        return []
    return [Named("fp8_format", leaf, "e4m3"), Named("fp8_recipe", leaf, recipe)]


def _model(leaves: Sequence[Leaf]) -> list[Named]:
    """The preset's name: `llama3` and `70B` are llama3-70b; a path of assets names the checkpoint
    better still.
    """
    name, flavor = last(leaves, "model", "name"), last(leaves, "model", "flavor")
    if name is None or flavor is None:
        return []
    family, size = str(name.value)[:60].removesuffix("_ft"), str(flavor.value)[:60].lower()
    return [Named("model", flavor, PRESETS.get((family, size), f"{family}-{size}"))]


def _batch(leaves: Sequence[Leaf]) -> list[Named]:
    """Megatron's micro-batch: the local batch, or what a pipeline cuts it into."""
    local = last(leaves, "training", "local_batch_size") or last(leaves, "training", "batch_size")
    stages = last(leaves, "parallelism", "pipeline_parallel_degree") or last(
        leaves, "experimental", "pipeline_parallel_degree"
    )
    if local is None:
        return []
    if stages is not None and is_int(stages.value) and stages.value > 1:
        size = last(leaves, "parallelism", "pipeline_parallel_microbatch_size")
        return [named("micro_batch_size", size) if size else Named("micro_batch_size", local, 1)]
    return [named("micro_batch_size", local)]


def _sharding(leaves: Sequence[Leaf]) -> list[Named]:
    older = last(leaves, "training", "data_parallel_shard_degree") or last(
        leaves, "training", "data_parallel_degree"
    )
    leaf = older or last(leaves, "parallelism", "data_parallel_shard_degree")
    reshard = last(leaves, "parallelism", "fsdp_reshard_after_forward")
    if leaf is None:
        return []
    ranks = (leaf, last(leaves, "parallelism", "context_parallel_degree"))
    several = any(degree and degree.value != 1 for degree in ranks)
    replicas = last(leaves, "parallelism", "data_parallel_replicate_degree")
    alone = replicas is None or replicas.value == 1
    # of one rank alone the word says how the plan counts it
    says = alone and reshard is not None and reshard.value in ("always", "never")
    out = [Named("use_torch_fsdp2", leaf, several or says)]
    stages = last(leaves, "parallelism", "pipeline_parallel_degree")
    if reshard is not None and reshard.value in ("always", "never"):
        out.append(Named("torch_fsdp2_no_reshard_after_forward", reshard, reshard.value == "never"))
    elif stages is not None and is_int(stages.value) and stages.value > 1:
        # by default weights stay gathered where micro-batches pass a pipeline
        out.append(Named("torch_fsdp2_no_reshard_after_forward", stages, True))
    return out
