"""DeepSpeed: what its configuration refuses beyond the layout's rules, and what it does in
silence.
"""

from __future__ import annotations

from typing import Any

from planner.advice.findings import Finding, Severity, Way, caught
from planner.advice.flag_names import STAGE, changed
from planner.advice.spelling import nearest, with_guesses
from planner.intake.frameworks.deepspeed_keys import SECTIONS, TOP, refused
from planner.interpret import layout_knobs
from planner.interpret.interpret import Launch
from planner.layout import OFFLOADS
from planner.specs.switches import table
from planner.specs.versions import version_of

TRAINER = {
    "deepspeed.train_micro_batch_size_per_gpu": "hf.per_device_train_batch_size",
    "deepspeed.gradient_accumulation_steps": "hf.gradient_accumulation_steps",
    "deepspeed.bf16.enabled": "hf.bf16",
    "deepspeed.fp16.enabled": "hf.fp16",
}
"""Keys that HF's Trainer holds against its own arguments: other values than theirs raise."""
NEWEST = version_of("deepspeed", "main")
IGNORED = ("deepspeed.pipeline_num_chunks", "deepspeed.pipeline.pipeline_num_chunks")


def findings(launch: Launch) -> list[Finding]:
    if launch.recipe.framework != "deepspeed":
        return []
    traps = (
        _pipeline_module,
        _nothing_to_shard,
        _precisions,
        _offload,
        _chunks,
        _auto,
        _estimator,
        _fp32,
        _later_keys,
    )
    return [*_disagreements(launch), *caught(launch, traps), *_unknown(launch)]


def _later_keys(launch: Launch) -> Finding | None:
    """Switches that the version has not. Models of its configuration forbid keys that they do not
    know. Source: [deepspeed] runtime/config_utils.py DeepSpeedConfigModel.
    """
    version = launch.recipe.framework_version
    settings = table.read("deepspeed", launch.plain)
    missing = table.unavailable("deepspeed", settings, version)
    if not missing:
        return None
    listed = ", no ".join(f"{name} ({versions})" for name, versions in missing.items())
    keys: dict[str, Any] = {}
    for name in missing:
        spelling = table.BY_FRAMEWORK["deepspeed"][name].spelled(settings[name], NEWEST)
        keys |= {f"deepspeed.{path}": None for path, _ in spelling.keys} if spelling else {}
    return Finding(
        "error",
        "keys of other versions",
        f"DeepSpeed {version} has no {listed}: it refuses the key, and nothing of it is counted",
        (Way(keys),),
    )


def _pipeline_module(launch: Launch) -> Finding | None:
    """Megatron-DeepSpeed builds a PipelineModule unless told not to, even for one stage, and its
    engine refuses sharded gradients.
    """
    plain = launch.plain
    if (
        launch.reading.kind not in ("megatron-deepspeed",)
        or layout_knobs.stage(plain) < 2
        or plain.get("no_pipeline_parallel")
    ):
        return None
    if launch.layout.pp > 1:
        return None  # the rule of the layout says so
    return Finding(
        "error",
        "pipeline shards no gradients",
        f"ZeRO stage {layout_knobs.stage(plain)} does not run in Megatron-DeepSpeed's"
        " PipelineModule, which it builds even for one stage. Add --no-pipeline-parallel, or use"
        f" zero stage 1 (--zero-stage 1, {STAGE.removeprefix('deepspeed.')} = 1)",
        (Way({"no_pipeline_parallel": True}), Way(changed(launch, {"zero": 1}))),
    )


def _nothing_to_shard(launch: Launch) -> Finding | None:
    ranks = launch.layout.dp * launch.layout.cp
    if ranks > 1 or layout_knobs.stage(launch.plain) == 0 or launch.recipe.gpus == 1:
        return None
    return Finding(
        "warning",
        "nothing to shard",
        f"DP=1: ZeRO has nothing to shard: {launch.recipe.gpus} GPUs / (tp {launch.layout.tp} x pp "
        f"{launch.layout.pp}) leave one data-parallel rank, which holds all states",
        (Way(changed(launch, {"tp": max(launch.layout.tp // 2, 1)})),),
    )


def _precisions(launch: Launch) -> Finding | None:
    if not all(launch.plain.get(f"deepspeed.{name}.enabled") is True for name in ("bf16", "fp16")):
        return None
    return Finding(
        "error",
        "one 16-bit format",
        "bf16.enabled and fp16.enabled exclude each other, but both are true",
        (Way({"deepspeed.fp16.enabled": False}),),
    )


def _offload(launch: Launch) -> Finding | None:
    """A ratio below 1 keeps a part of the optimizer on the device, which stage 3 alone can."""
    ratio = launch.plain.get("deepspeed.zero_optimization.offload_optimizer.ratio")
    if not isinstance(ratio, (int, float)) or ratio >= 1 or layout_knobs.stage(launch.plain) == 3:
        return None
    return Finding(
        "error",
        "partial offload needs zero 3",
        f"offload_optimizer.ratio below 1 needs stage 3, but got {ratio} with stage "
        f"{layout_knobs.stage(launch.plain)}",
        (Way({STAGE: 3}), Way({"deepspeed.zero_optimization.offload_optimizer.ratio": 1.0})),
    )


def _chunks(launch: Launch) -> Finding | None:
    ignored = [name for name in IGNORED if name in launch.plain]
    if not ignored:
        return None
    return Finding(
        "warning",
        "no interleaving",
        "pipeline_num_chunks is no key of DeepSpeed's: it is ignored in silence, and the pipeline"
        " is plain 1F1B",
        (Way({ignored[0]: None}),),
    )


def _auto(launch: Launch) -> Finding | None:
    """Only Trainer and Accelerate fill `auto` in."""
    if launch.reading.kind not in ("megatron-deepspeed", "neox"):
        return None
    names = [
        name.removeprefix("deepspeed.")
        for name, value in launch.plain.items()
        if name.startswith("deepspeed.") and value == "auto"
    ]
    if not names:
        return None
    return Finding(
        "error",
        "auto is Hugging Face's",
        f'"auto" is filled in by Hugging Face\'s Trainer and Accelerate alone, but got it '
        f"for {', '.join(names[:6])}",
    )


def _estimator(launch: Launch) -> Finding | None:
    """DeepSpeed's own estimate of ZeRO-3 with everything offloaded is one layer's weights: no
    activations, no context.

    estimate_zero3_model_states_mem_needs: device 4 bytes a parameter of the largest layer, and
    where parameters stay there 2 of its share; a node's host 18 or 16 bytes over the nodes (at
    least 4 for each of its GPUs) times 1.5.
    """
    if launch.layout.zero != 3 or not launch.sized or not launch.layout.offload:
        return None
    from planner.cost.params.layer import total_params

    model = launch.recipe.model
    largest = max(
        model.vocab_size * model.hidden_size, model.gated_mlp * model.ffn_size * model.hidden_size
    )
    total = total_params(model)
    gpus, a_node = launch.recipe.gpus, launch.recipe.hardware.node.gpus
    nodes = max(gpus // a_node, 1)
    params_away = OFFLOADS[launch.layout.offload].startswith("params")
    device = 4 * largest + (0 if params_away else 2 * total / gpus)
    host = max(4 * min(gpus, a_node), (18 if params_away else 16) / nodes) * total * 1.5
    return Finding(
        "hint",
        "DeepSpeed's estimate leaves out activations",
        f"DeepSpeed's own estimate for this is {device / 2**30:.2f} GiB a GPU and"
        f" {host / 2**30:.0f} GiB of a node's host memory: states and weights of the largest layer"
        " alone, no activations, no context",
    )


def _fp32(launch: Launch) -> Finding | None:
    if launch.recipe.precision != "fp32":
        return None
    halves = "bf16" if launch.recipe.hardware.gpu.compute_capability >= 8.0 else "fp16"
    says = "neither bf16.enabled nor fp16.enabled is true, so that everything is float32"
    left = [
        name for name in ("bf16", "fp16") if launch.plain.get(f"deepspeed.{name}.enabled") == "auto"
    ]
    if left:
        says = (
            f"{left[0]}.enabled is auto, which the Trainer's --{left[0]} fills in, and nothing here"
            f" says that it is given: time and memory are those of float32 (--set"
            f" hf.{left[0]}=true for {left[0]})"
        )
    return Finding(
        "warning",
        "fp32 training",
        f"fp32 training: {says}",
        (Way({f"deepspeed.{halves}.enabled": True}),),
    )


def _disagreements(launch: Launch) -> list[Finding]:
    out = []
    for key, argument in TRAINER.items():
        configured, given = launch.plain.get(key), launch.plain.get(argument)
        if configured is None or given is None or configured == given:
            continue
        if "auto" in (configured, given):
            continue
        text = (
            f"{key.removeprefix('deepspeed.')} is {configured}, but"
            f" --{argument.removeprefix('hf.')} is {given}: Hugging Face's Trainer refuses values"
            ' that differ; "auto" takes the argument\'s'
        )
        ways = (Way({key: given}), Way({key: "auto"}))
        out.append(Finding("error", "configuration and Trainer agree", text, ways))
    return out


def _unknown(launch: Launch) -> list[Finding]:
    """Keys that DeepSpeed does not have: zero_optimization stops at them, 16-bit sections do so of
    late, the top ignores them.
    """
    strict: dict[str, tuple[str, ...]] = {}
    late: dict[str, tuple[str, ...]] = {}
    ignored = []
    for key in launch.reading.unknown:
        name = key.removeprefix("deepspeed.")
        if f"deepspeed.{name}" not in launch.reading.values or f"deepspeed.{name}" in IGNORED:
            continue
        part = refused(tuple(name.split(".")))
        if not part:
            ignored.append(name)
        elif part[0] == "zero_optimization":
            strict[name] = part
        else:
            late[name] = part
    findings = []
    if strict:
        findings.append(_refused(launch, strict, "error", "DeepSpeed stops at it"))
    if late:
        what = "DeepSpeed 0.19 stops at it, old versions ignore it"
        findings.append(_refused(launch, late, "warning", what))
    if ignored:
        text = f"not known to DeepSpeed, which ignores them: {with_guesses(ignored[:8], TOP)}"
        findings.append(Finding("hint", "ignored keys", text))
    return findings


def _refused(
    launch: Launch, stopped: dict[str, tuple[str, ...]], severity: Severity, what: str
) -> Finding:
    """stopped: of each value the part of its path that is refused, which goes, or is renamed where
    it is nearly a known one.
    """
    change: dict[str, Any] = {f"deepspeed.{'.'.join(part)}": None for part in stopped.values()}
    says = []
    for part in dict.fromkeys(stopped.values()):
        key, section = ".".join(part), ".".join(part[:-1])
        near = nearest(part[-1], SECTIONS[section])
        says.append(f"{section} has no key {part[-1]}" + (f" ({near}?)" if near else ""))
        for name, refused_part in stopped.items():
            if near and refused_part == part:
                renamed = f"deepspeed.{section}.{near}{name.removeprefix(key)}"
                change[renamed] = launch.plain.get(f"deepspeed.{name}")
    rule = "unknown keys" if severity == "error" else "keys of old versions"
    return Finding(severity, rule, f"{', '.join(says[:6])}: {what}", (Way(change),))
