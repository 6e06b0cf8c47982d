"""What the torch benchmark can run of a plan, and in what it differs from the framework that the
plan is for.
"""

from __future__ import annotations

from typing import Literal

from planner.cost import pipeline
from planner.emit import switches
from planner.layout import MODULES, OFFLOADS, SCHEDULES, Layout, module_names
from planner.specs.recipe import Recipe
from planner.specs.switches.allocator import ALLOCATORS

TORCH = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-torch": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
}
"""Schedules that torch.distributed.pipelining has a class for; the order of any other is handed to
its runtime.
"""
FUSED = ("naive", "gpipe", "1f1b", "interleaved", "interleaved-torch", "looped-bfs")
"""Schedules whose backward pass is one piece."""
RECOMPUTED = ("core_attn", "layernorm", "mlp", "moe")
"""Modules that selective recomputation knows here."""
OTHER = "measure it with --runner megatron or --runner deepspeed"


def refused(recipe: Recipe, layout: Layout, devices: int | None = None) -> str:
    """Why the torch benchmark does not run a plan, with the nearest way out; empty when it does.

    devices: on fewer than the plan has GPUs only layers of it run; None: enough for the plan.
    """
    model = recipe.model
    checks = (
        (
            model.mla is not None,
            (
                f"the torch benchmark has no multi-head latent attention, which {model.name} needs;"
                f" {OTHER}"
            ),
        ),
        (
            layout.cp > 1,
            (
                f"the torch benchmark has no context parallelism, but got cp={layout.cp}; use cp=1,"
                f" or {OTHER}"
            ),
        ),
        (
            layout.etp > 1,
            (
                f"the torch benchmark keeps an expert whole, but got etp={layout.etp}; use etp=1,"
                f" or {OTHER}"
            ),
        ),
        (
            layout.offload > 0,
            (
                f"the torch benchmark offloads nothing, but got offload={OFFLOADS[layout.offload]};"
                f" use none, or {OTHER}"
            ),
        ),
        (
            recipe.lora is not None or bool(recipe.frozen),
            (
                "the torch benchmark trains every weight, but got"
                f" {'lora' if recipe.lora else 'frozen parts'}; leave it out, or {OTHER}"
            ),
        ),
        (
            recipe.tower is not None,
            f"the torch benchmark has no vision tower, but got images_per_sample; use {OTHER}",
        ),
        (
            layout.hpz > 1,
            (
                f"the torch benchmark keeps no second copy of weights, but got hpz={layout.hpz};"
                f" use hpz=1, or {OTHER}"
            ),
        ),
    )
    runs_whole = devices is None or layout.gpus <= devices
    reason = next((why for holds, why in checks if holds), "") or _shapes(recipe, layout)
    if reason or not runs_whole:
        return reason
    return _step(layout) or _order(recipe, layout)


def _step(layout: Layout) -> str:
    """What a training step needs beyond what a layer needs."""
    name = SCHEDULES[layout.schedule]
    if name in ("dualpipe", "dualpipev") and layout.pp > 1:
        return (
            f"torch's runtime overlaps no forward with a backward pass, but got schedule={name};"
            f" use zbv, or {OTHER}"
        )
    if name not in FUSED and layout.zero >= 3 and layout.pp > 1:
        got = f"zero={layout.zero}, schedule={name}"
        return (
            "weights that are gathered anew cannot wait for the second half of a split backward"
            f" pass, but got {got}; use zero=2 or 1f1b"
        )
    if layout.ep > 1 and layout.zero >= 2:
        return (
            f"fully_shard would spread experts over ranks with others, but got ep={layout.ep},"
            f" zero={layout.zero}; use zero=1"
        )
    if layout.dp * layout.tp % layout.ep:
        return f"ep must divide dp x tp = {layout.dp * layout.tp}, but got ep={layout.ep}"
    return ""


def allocator(recipe: Recipe, layout: Layout) -> dict[str, str]:
    """Variables of torch's allocator, as the plan's launch files set them."""
    written = dict(switches.environment(recipe, layout))
    return {name: value for name, value in written.items() if f"env.{name}" in ALLOCATORS}


def may_ddp(recipe: Recipe, layout: Layout) -> bool:
    """DDP knows neither DTensor nor backward passes in two pieces, nor experts that fewer ranks
    share.
    """
    fused = layout.pp == 1 or SCHEDULES[layout.schedule] in FUSED
    return (
        layout.dp > 1 and layout.zero == 0 and layout.tp == 1 and fused and recipe.model.moe is None
    )


def _order(recipe: Recipe, layout: Layout) -> str:
    """Why a schedule has no order for these sizes; empty when it has one."""
    if layout.pp == 1:
        return ""
    return pipeline.refused(recipe, layout).removeprefix("pipeline by closed form: ")


def _shapes(recipe: Recipe, layout: Layout) -> str:
    model, tp = recipe.model, layout.tp
    if model.num_heads % tp:
        return f"tp must divide the attention heads, but got tp={tp}, heads={model.num_heads}"
    if layout.sp and recipe.seq_length % tp:
        return (
            f"with sequence parallelism tp must divide seq_length, but got tp={tp},"
            f" seq_length={recipe.seq_length}"
        )
    if model.moe and model.moe.num_experts % layout.ep:
        return (
            f"ep must divide the experts, but got ep={layout.ep}, experts={model.moe.num_experts}"
        )
    if model.moe and tp > 1 and not layout.sp:
        return f"experts with tp={tp} need sequence parallelism, but got sp=0; set sp=1"
    return ""


def element(recipe: Recipe, device: Literal["cpu", "cuda"]) -> str:
    """torch's name of what weights and activations are held in: a CPU has no fast products of
    narrower ones.
    """
    if device == "cpu" or recipe.precision == "fp32":
        return "float32"
    return "float16" if recipe.precision == "fp16" else "bfloat16"


def notes(recipe: Recipe, layout: Layout, device: Literal["cpu", "cuda"]) -> tuple[str, ...]:
    """In what the benchmark's model and step differ from the plan's, in words."""
    model = recipe.model
    lost = [
        module
        for module in module_names(layout.recompute_modules)
        if module not in RECOMPUTED and module in MODULES
    ]
    says = (
        (
            recipe.precision != "fp32" and device == "cpu",
            f"fp32 on the CPU in place of {recipe.precision}",
        ),
        (
            recipe.precision not in ("fp32", "bf16", "fp16") and device == "cuda",
            f"bf16 in place of {recipe.precision}",
        ),
        (model.tied_embeddings, "the head has a matrix of its own, not the embedding's"),
        (model.window is not None, "every layer sees the whole sequence, without windows"),
        (model.mtp_layers > 0, "without the layers of multi-token prediction"),
        (model.position == "alibi", "without ALiBi"),
        (model.parallel_block, "attention and MLP one after the other"),
        (
            model.num_kv_heads < layout.tp,
            f"key and value heads repeated to one for each of {layout.tp} ranks",
        ),
        (recipe.optimizer != "adam", f"AdamW in place of {recipe.optimizer}"),
        (recipe.packing is not None, "every sequence is one whole sample"),
        (device == "cuda", "operations run one by one, none fused or compiled"),
        (bool(lost) and layout.recompute == 1, f"{', '.join(lost)} not recomputed"),
        (
            layout.dp > 1 and layout.zero == 1,
            "gradients are reduced after the backward pass, not beside it",
        ),
    )
    return tuple(words for holds, words in says if holds)
