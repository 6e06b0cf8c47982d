"""The layout that a file states, in the words of Megatron-LM's arguments or of DeepSpeed's
configuration.

Nothing is judged here. What does not divide is rounded down: rules of the layout say so where it
shows there, advice/not_in_layout.py where it does not.
"""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.interpret import megatron_kinds
from planner.interpret.megatron_model import expert_count
from planner.interpret.numbers import whole_number
from planner.layout import MODULES, OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.specs import stage_layout
from planner.specs.model import ModelSpec

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
TORCH_SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved-torch": "interleaved1f1b",
    "looped-bfs": "loopedbfs",
    "zbv": "zbvzerobubble",
    "interleaved-zb": "interleavedzerobubble",
    "dualpipev": "dualpipev",
}
"""Our names of torch.distributed.pipelining's schedules, theirs in lower case."""
OLD_FULL = (
    "checkpoint_activations",
    "deepspeed_activation_checkpointing",
    "activations_checkpoint_method",
)


def degrees(plain: dict[str, Any]) -> tuple[int, int, int]:
    """tp, pp, cp; a degree below 1 counts as 1."""
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    tp, pp, cp = (max(whole_number(plain, name), 1) for name in names)
    return tp, pp, cp


def deepspeed_degrees(plain: dict[str, Any]) -> tuple[int, int, int]:
    """tp, pp, cp of a DeepSpeed configuration (cp is Ulysses) and of what launches it."""
    tp, pp, cp = degrees(plain)
    tp = max(tp, whole_number(plain, "deepspeed.tensor_parallel.autotp_size"))
    pp = max(
        pp, whole_number(plain, "deepspeed.pipeline.stages"), whole_number(plain, "pipeline_stages")
    )
    cp = max(
        cp,
        whole_number(plain, "deepspeed.sequence_parallel_size"),
        whole_number(plain, "ds_sequence_parallel_size"),
    )
    return tp, pp, cp


def megatron(plain: dict[str, Any], gpus: int, layers: int) -> tuple[Layout, int]:
    """The layout and the global batch of Megatron-LM's arguments."""
    tp, pp, cp = degrees(plain)
    dp = max(gpus // (tp * pp * cp), 1)
    mbs = max(whole_number(plain, "micro_batch_size"), 1)
    batch = max(whole_number(plain, "global_batch_size", mbs * dp), 1)
    embedding = int(bool(plain.get("account_for_embedding_in_pipeline_split")))
    loss = int(bool(plain.get("account_for_loss_in_pipeline_split")))
    v, text = virtual(plain, pp, layers + embedding + loss)
    experts = expert_count(plain) > 0
    return (
        Layout(
            tp=tp,
            pp=pp,
            dp=dp,
            cp=cp,
            ep=max(whole_number(plain, "expert_model_parallel_size"), 1),
            v=v,
            mbs=mbs,
            m=max(batch // (mbs * dp), 1),
            etp=max(whole_number(plain, "expert_tensor_parallel_size", tp), 1) if experts else 1,
            sp=int(bool(plain.get("sequence_parallel")) and tp > 1),
            zero=sharding(plain),
            schedule=SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"],
            cp_a2a=_all_to_all(plain, cp),
            group=(
                whole_number(plain, "microbatch_group_size_per_virtual_pipeline_stage", 0)
                if v > 1
                else 0
            ),
            first_layers=whole_number(plain, "decoder_first_pipeline_num_layers", 0),
            last_layers=whole_number(plain, "decoder_last_pipeline_num_layers", 0),
            account_for_embedding=embedding,
            account_for_loss=loss,
            stage_layout=text,
            offload=OFFLOAD_CODE["optimizer-cpu" if _optimizer_away(plain) else "none"],
            **recompute(plain),
        ),
        batch,
    )


def _optimizer_away(plain: dict[str, Any]) -> bool:
    """Whether any of the optimizer is on the host: the flag alone is not enough where the share is
    0.
    """
    share = plain.get("optimizer_offload_fraction")
    return bool(plain.get("optimizer_cpu_offload")) and share != 0


def _all_to_all(plain: dict[str, Any], cp: int) -> int:
    """Ranks of context parallelism that exchange heads: all, the first level of a hierarchy, or 1
    where none do.
    """
    name = "hierarchical_context_parallel_sizes"
    kind, sizes = plain.get("cp_comm_type"), plain.get(name)
    if isinstance(kind, list) and kind:
        kind = kind[0]
    if kind == "a2a":
        return cp
    if kind == "a2a+p2p" and isinstance(sizes, list) and sizes:
        return max(whole_number({name: sizes[0]}, name), 1)
    return 1


def sharding(plain: dict[str, Any]) -> int:
    if plain.get("use_torch_fsdp2"):
        return 2 if plain.get("torch_fsdp2_no_reshard_after_forward") else 3
    if plain.get("use_megatron_fsdp") or plain.get("use_custom_fsdp"):
        return SHARDING.get(str(plain.get("data_parallel_sharding_strategy")), 3)
    return int(bool(plain.get("use_distributed_optimizer")))


def virtual(plain: dict[str, Any], pp: int, layers: int) -> tuple[int, str]:
    """Virtual stages a rank, and the stage layout string ('' without one)."""
    text = str(plain.get("pipeline_model_parallel_layout") or "")
    if text:
        try:
            return max(len(stage_layout.stages(text)) // pp, 1), text
        except InputError:
            return 1, text
    bounds = _bounds(plain)
    if len(bounds) > 1:
        return max(len(bounds) // pp, 1), _dealt(plain, bounds)
    direct = whole_number(plain, "num_virtual_stages_per_pipeline_rank", 0) or whole_number(
        plain, "virtual_pipeline_model_parallel_size", 0
    )
    chunk = whole_number(plain, "num_layers_per_virtual_pipeline_stage", 0)
    return max(direct or (layers // pp // chunk if chunk > 0 else 1), 1), ""


def _bounds(plain: dict[str, Any]) -> list[int]:
    """Layers of each stage that a pattern of letters bounds by |."""
    try:
        found = megatron_kinds.pattern(plain)
    except InputError:
        return []
    return [len(letters) for letters in found.stages] if found else []


def _dealt(plain: dict[str, Any], sizes: list[int]) -> str:
    """The stage layout of such stages, where they differ; prediction stands on the last one."""
    if len(set(sizes)) == 1:
        return ""
    return stage_layout.written(sizes, max(whole_number(plain, "mtp_num_layers", 0), 0))


def recompute(plain: dict[str, Any]) -> dict[str, int]:
    """Granularity, modules and layers; the flags of 2021 mean whole layers."""
    kind = plain.get("recompute_granularity") or (
        "selective" if plain.get("recompute_activations") else None
    )
    old = (
        any(plain.get(name) for name in OLD_FULL)
        or plain.get("activations_checkpoint_granularity") == "full"
    )
    kind = str(
        kind or plain.get("activations_checkpoint_granularity") or ("full" if old else "none")
    )
    if kind not in RECOMPUTE_CODE or kind == "none":
        return {"recompute": 0, "recompute_modules": 0, "recompute_layers": 0}
    if kind == "full":
        blocks = plain.get("recompute_method") == "block"
        return {
            "recompute": RECOMPUTE_CODE["full"],
            "recompute_modules": 0,
            "recompute_layers": max(whole_number(plain, "recompute_num_layers", 0), 0)
            if blocks
            else 0,
        }
    listed = plain.get("recompute_modules") or ["core_attn"]
    words = listed if isinstance(listed, list) else str(listed).replace(",", " ").split()
    names = list(dict.fromkeys(name for name in words if name in MODULES))
    return {
        "recompute": RECOMPUTE_CODE["selective"],
        "recompute_modules": module_mask(names),
        "recompute_layers": 0,
    }


def deepspeed(plain: dict[str, Any], gpus: int, layers: int = 0) -> tuple[Layout, int]:
    """The layout and the global batch of a DeepSpeed configuration, with what Megatron-DeepSpeed's
    or HF's arguments add.

    layers: of the model; 0 where it is not known.
    """
    tp, pp, cp = deepspeed_degrees(plain)
    dp = max(gpus // (tp * pp * cp), 1)
    mbs, m, batch = triangle(plain, dp)
    experts = expert_count(plain) > 0
    named = (
        "moe_expert_parallel_size"
        if plain.get("moe_expert_parallel_size")
        else "expert_model_parallel_size"
    )
    ep = (
        max(
            whole_number(plain, named),
            whole_number(plain, "deepspeed.expert_parallel.autoep_size"),
            1,
        )
        if experts
        else 1
    )
    blocks = max(whole_number(plain, "recompute_layers", 0), 0)
    full = (
        any(plain.get(name) for name in (*OLD_FULL, "hf.gradient_checkpointing"))
        or recompute(plain)["recompute"]
        or blocks
    )
    if 0 < layers // pp <= blocks:
        blocks = 0  # all layers of a stage
    return (
        Layout(
            tp=tp,
            pp=pp,
            dp=dp,
            cp=cp,
            ep=ep,
            mbs=mbs,
            m=m,
            sp=int(bool(plain.get("sequence_parallel")) and tp > 1),
            zero=min(max(stage(plain), 0), 3),
            recompute=RECOMPUTE_CODE["full"] if full else 0,
            recompute_layers=blocks,
            offload=OFFLOAD_CODE[offload(plain)],
            hpz=max(whole_number(plain, "deepspeed.zero_optimization.zero_hpz_partition_size"), 1),
            schedule=SCHEDULE_CODE["zb-h1" if plain.get("enable_zbh1_pipeline") else "1f1b"],
        ),
        batch,
    )


def stage(plain: dict[str, Any]) -> int:
    """The JSON's stage; Megatron-DeepSpeed's --zero-stage where there is no JSON."""
    name = "deepspeed.zero_optimization.stage"
    return (
        whole_number(plain, name, 0)
        if plain.get(name) is not None
        else whole_number(plain, "zero_stage", 0)
    )


def offload(plain: dict[str, Any]) -> str:
    for part, word in (("param", "params"), ("optimizer", "optimizer")):
        device = str(plain.get(f"deepspeed.zero_optimization.offload_{part}.device") or "none")
        if device in ("cpu", "nvme"):
            return f"{word}-{device}"
    if device == "none" and plain.get("deepspeed.zero_optimization.cpu_offload"):
        return "optimizer-cpu"
    return "none"


def triangle(plain: dict[str, Any], dp: int) -> tuple[int, int, int]:
    """(micro-batch, accumulation, batch): what is not stated follows from the rest, as DeepSpeed
    derives it, rounding down.
    """
    mbs = _first(
        plain,
        "deepspeed.train_micro_batch_size_per_gpu",
        "micro_batch_size",
        "hf.per_device_train_batch_size",
    )
    m = _first(plain, "deepspeed.gradient_accumulation_steps", "hf.gradient_accumulation_steps")
    batch = _first(plain, "deepspeed.train_batch_size", "global_batch_size")
    if batch and not mbs and not m:
        return max(batch // dp, 1), 1, batch
    mbs = mbs or max(batch // (max(m, 1) * dp), 1)
    m = m or max(batch // (mbs * dp), 1)
    return mbs, m, batch or mbs * m * dp


def _first(plain: dict[str, Any], *names: str) -> int:
    """The first that is stated; 0 where none is."""
    counts = (whole_number(plain, name, 0) for name in names)
    return next((count for count in counts if count > 0), 0)


def weighted_layers(plain: dict[str, Any], layers: int) -> int:
    """torchtitan: layers, with those that stand for the embedding and the output."""
    ends = ("first", "last")
    return layers + sum(
        whole_number(plain, f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1)
        for end in ends
    )


def torchtitan_stages(plain: dict[str, Any], layers: int) -> int:
    """Stages of all ranks that stated layers of a stage make; 0 where none are stated."""
    size = whole_number(plain, "num_layers_per_virtual_pipeline_stage", 0)
    return -(-weighted_layers(plain, layers) // size) if size > 0 and layers > 0 else 0


def multi_stage(plain: dict[str, Any]) -> bool:
    """Whether the stated schedule of torch.distributed.pipelining gives a rank several stages."""
    return _torch_schedule(plain) not in ("1f1b", "gpipe")


def _torch_schedule(plain: dict[str, Any]) -> str:
    schedule = str(plain.get("pipeline_parallel_schedule") or "").lower()
    return next((own for own, theirs in TORCH_SCHEDULES.items() if theirs == schedule), "1f1b")


def _counts_as_layer(plain: dict[str, Any], end: str) -> int:
    """Whether the file counts what stands beside the layers of the first or last stage as one."""
    return int(whole_number(plain, f"parallelism.pipeline_parallel_{end}_stage_less_layers", 0) > 0)


def _every_so_many(plain: dict[str, Any]) -> int:
    """torchtitan 0.2: of so many layers one is recomputed whole; 0 where operations are chosen."""
    if plain.get("activation_checkpoint.mode") != "selective":
        return 0
    option = str(plain.get("activation_checkpoint.selective_ac_option") or "")
    return int(option) if option.isdecimal() and len(option) < 6 else 0


def _recomputed_modules(plain: dict[str, Any]) -> list[str]:
    """What is chosen to recompute where no layers are: operations, or modules; nothing where
    neither is.
    """
    stated = plain.get("recompute_modules")
    if isinstance(stated, list):
        return [name for name in stated if name in MODULES]
    option = plain.get("activation_checkpoint.selective_ac_option")
    by_operation = plain.get("activation_checkpoint.mode") == "selective" and option == "op"
    return ["ops"] if by_operation else []


def torch(plain: dict[str, Any], gpus: int, spec: ModelSpec | None) -> tuple[Layout, int]:
    """torchtitan and FSDP: weights sharded over the data-parallel ranks (zero 3), gathered once a
    step (2), or copies alone (0).

    spec: None where the model is not known.
    """
    layers = spec.num_layers if spec else 0
    experts = bool(spec.moe) if spec else expert_count(plain) > 0
    tp, pp, cp = degrees(plain)
    dp = max(gpus // (tp * pp * cp), 1)
    mbs = _first(plain, "micro_batch_size", "hf.per_device_train_batch_size") or 1
    local = _first(plain, "local_batch_size") if pp > 1 else 0
    steps = _first(plain, "hf.gradient_accumulation_steps", "gradient_accumulation_steps") or max(
        local // mbs, 1
    )
    batch = _first(plain, "global_batch_size") or mbs * steps * dp
    name, m = _torch_schedule(plain), max(batch // (mbs * dp), 1)
    if name == "interleaved-torch" and (m % pp == 0 or m < pp):
        name = "interleaved"  # the same order by the name that plans have
    v = 1
    if multi_stage(plain) and pp > 1:
        v = max(torchtitan_stages(plain, layers) // pp, 2)
    zero = sharding(
        {
            "use_torch_fsdp2": plain.get("use_torch_fsdp2"),
            "torch_fsdp2_no_reshard_after_forward": plain.get(
                "torch_fsdp2_no_reshard_after_forward"
            ),
        }
    )
    recomputed = recompute(plain)
    every = _every_so_many(plain)
    stated = max(whole_number(plain, "recompute_layers", 0), 0)
    blocks = stated or recomputed["recompute_layers"]
    if every > 1:
        blocks = max(layers // (pp * v) // every, 1)
    full = (
        plain.get("hf.gradient_checkpointing")
        or every
        or stated
        or recomputed["recompute"] == RECOMPUTE_CODE["full"]
    )
    modules = [] if full else _recomputed_modules(plain)
    kind = "full" if full else "selective" if modules else "none"
    return (
        Layout(
            tp=tp,
            pp=pp,
            dp=dp,
            cp=cp,
            ep=max(whole_number(plain, "expert_model_parallel_size"), 1) if experts else 1,
            etp=max(whole_number(plain, "expert_tensor_parallel_size"), 1) if experts else 1,
            v=v,
            mbs=mbs,
            m=m,
            sp=int(tp > 1 and plain.get("parallelism.enable_sequence_parallel") is not False),
            zero=zero,
            recompute=RECOMPUTE_CODE[kind],
            recompute_layers=blocks if full else 0,
            recompute_modules=module_mask(modules),
            account_for_embedding=_counts_as_layer(plain, "first") if pp > 1 else 0,
            account_for_loss=_counts_as_layer(plain, "last") if pp > 1 else 0,
            schedule=SCHEDULE_CODE[name if pp > 1 else "1f1b"],
        ),
        batch,
    )
