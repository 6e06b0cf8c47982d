"""The options that several commands share: one word, one meaning, one help text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import complete

_PRECISIONS = (
    "bf16, fp16, fp32, fp8-delayed, fp8-tensorwise, fp8-rowwise, fp8-blockwise, mxfp8, nvfp4."
)
_BATCH = "Sequences a step; default about 4M tokens."
_EMBEDDING = "The embedding counts as a layer of the first stage."
_LOSS = "The loss counts as a layer of the last stage."
_OFFLOAD = "none, optimizer-cpu; under DeepSpeed optimizer-nvme, params-cpu and params-nvme too."
_MTBF = (
    "Hours between interruptions of one GPU (a run's: over its GPUs); asks for goodput. Llama 3"
    " 405B: 50,700."
)
_OPTIMIZERS = (
    "adam; precision-aware (-fp32, -fp8), muon, lion, sgd; under DeepSpeed adafactor, adam-8bit"
    " too."
)
_TARGETS = "qkv, proj, fc1, fc2, or q_proj and so on; by comma; default all linears."
_QUESTION, _LIMITS = "The question", "Knobs of the layout"


def whole(stated: str | int) -> int:
    """A whole number as an option (or its default) states it; the range is the question's
    matter.
    """
    text = str(stated)
    if not (text.isascii() and text.removeprefix("-").isdecimal()):
        raise typer.BadParameter(f"must be a whole number, but got {text[:40]!r}")
    if len(text) > 30:
        raise typer.BadParameter(
            f"must be a whole number of at most 30 digits, but got {len(text):,}"
        )
    return int(text)


def decimal(stated: str | float) -> float:
    """A number as an option states it."""
    try:
        return float(stated)
    except ValueError:
        raise typer.BadParameter(f"must be a number, but got {str(stated)[:40]!r}") from None


def share(stated: str | float) -> float:
    """A fraction of 1 (0.1 for 10%), finite and not negative."""
    value = decimal(stated)
    if not 0 <= value <= 1e9:
        raise typer.BadParameter(
            f"must be a share of at least 0, such as 0.1 for 10%, but got {str(stated)[:40]!r}"
        )
    return value


def _ask(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_QUESTION, **more)


def _knob(*names: str, help: str, metavar: str | None = "N|LOW..HIGH", **more: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_LIMITS, **more)


File = Annotated[
    str | None,
    typer.Argument(
        help="A recipe.yaml or plan.yaml; options restate words of it.", show_default=False
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(help="One of them, in full.", show_default=False, autocompletion=complete.name),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[
    str | None,
    typer.Option("--out", help="Folder for plan.yaml and the launch files.", metavar="DIR"),
]
Launcher = Annotated[
    str,
    typer.Option(
        "--launcher",
        help="torchrun, slurm, deepspeed, kubernetes or skypilot.",
        metavar="NAME",
        autocompletion=complete.launcher,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="accelerate (deepspeed, torch) or bridge (megatron); default: the framework.",
        metavar="NAME",
        autocompletion=complete.form,
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report", help="Writes the answer as one HTML page with charts.", metavar="FILE.html"
    ),
]
Script = Annotated[
    str | None,
    typer.Option("--script", help="Your own training script in the launch files.", metavar="PATH"),
]

Model = Annotated[
    str | None,
    _ask(
        "--model",
        help="Preset, Hugging Face config.json or its folder, or model YAML.",
        metavar="NAME|PATH",
        autocompletion=complete.model,
    ),
]
Gpus = Annotated[int | None, _ask("--gpus", help="Number of GPUs.", metavar="N", parser=whole)]
Cluster = Annotated[
    str | None,
    _ask(
        "--cluster",
        help="Profile or YAML; default: the local GPUs, else h100-sxm.",
        metavar="NAME|PATH",
        autocompletion=complete.cluster,
    ),
]
Set = Annotated[
    list[str] | None,
    _ask("--set", help="Changes one figure of the cluster; repeatable.", metavar="FIELD=VALUE"),
]
SeqLength = Annotated[
    int | None,
    _ask(
        "--seq-length",
        help="Tokens; default 4,096 (models up to 4k) or 8,192.",
        metavar="N",
        parser=whole,
    ),
]
GlobalBatchSize = Annotated[
    int | None, _ask("--global-batch-size", "--gbs", help=_BATCH, metavar="N", parser=whole)
]
GlobalBatchTokens = Annotated[
    int | None,
    _ask("--global-batch-tokens", help="The batch in tokens.", metavar="N", parser=whole),
]
Precision = Annotated[
    str | None,
    _ask("--precision", help=_PRECISIONS, metavar="NAME", autocompletion=complete.precision),
]
Stack = Annotated[
    str | None,
    _ask(
        "--stack",
        help="Training software; default: the framework's.",
        metavar="NAME",
        autocompletion=complete.stack,
    ),
]
Framework = Annotated[
    str | None,
    _ask(
        "--framework",
        help="megatron, deepspeed or torch.",
        metavar="NAME",
        autocompletion=complete.framework,
    ),
]
FrameworkVersion = Annotated[
    str | None,
    _ask("--framework-version", help="Its rules, flags and defaults.", metavar="VERSION"),
]
Attention = Annotated[
    str | None,
    _ask("--attention", help="flash, fused or unfused; default: the stack's.", metavar="NAME"),
]
MtbfHours = Annotated[
    float | None, _ask("--mtbf-hours", help=_MTBF, metavar="HOURS", parser=decimal)
]
CheckpointS = Annotated[
    float | None,
    _ask(
        "--checkpoint-s", help="How long a checkpoint halts training.", metavar="S", parser=decimal
    ),
]
RestartS = Annotated[
    float | None,
    _ask(
        "--restart-s",
        help="From an interruption until training goes on.",
        metavar="S",
        parser=decimal,
    ),
]
Optimizer = Annotated[str | None, _ask("--optimizer", help=_OPTIMIZERS, metavar="NAME")]
LoraRank = Annotated[
    int | None,
    _ask(
        "--lora-rank",
        help="Trains adapters of this rank; all else is frozen.",
        metavar="N",
        parser=whole,
    ),
]
LoraTargets = Annotated[list[str] | None, _ask("--lora-targets", help=_TARGETS, metavar="NAME")]
LoraBase = Annotated[
    str | None,
    _ask(
        "--lora-base",
        help="Frozen linears: 16bit, or nf4 (QLoRA, not under Megatron).",
        metavar="NAME",
    ),
]
Frozen = Annotated[
    list[str] | None,
    _ask("--frozen", help="Not trained: embedding, attention, mlp, norms, head.", metavar="NAME"),
]
Packing = Annotated[
    bool | None,
    _ask("--packing/--no-packing", help="Samples share a sequence, or are padded to it."),
]
MeanLength = Annotated[
    int | None,
    _ask(
        "--mean-length",
        help="Mean tokens of a sample; default: the sequence.",
        metavar="N",
        parser=whole,
    ),
]
MaxMemory = Annotated[
    float | None,
    _ask(
        "--max-memory-gib",
        help="Use at most so much of a GPU's memory.",
        metavar="GIB",
        parser=decimal,
    ),
]

Tp = Annotated[str | None, _knob("--tp", help="Tensor parallelism.")]
Pp = Annotated[str | None, _knob("--pp", help="Pipeline parallelism.")]
Dp = Annotated[str | None, _knob("--dp", help="Data parallelism.")]
Cp = Annotated[str | None, _knob("--cp", help="Context parallelism.")]
Ep = Annotated[str | None, _knob("--ep", help="Expert parallelism.")]
Etp = Annotated[str | None, _knob("--etp", help="Tensor parallelism of experts.")]
V = Annotated[str | None, _knob("--v", help="Virtual stages per pipeline rank.")]
Mbs = Annotated[str | None, _knob("--mbs", help="Sequences per micro-batch.")]
M = Annotated[str | None, _knob("--m", help="Micro-batches per step.")]
Zero = Annotated[
    str | None,
    _knob(
        "--zero", help="Optimizer sharding stage, 0 to 3; Megatron: 1 is the distributed optimizer."
    ),
]
Hpz = Annotated[
    str | None,
    _knob(
        "--hpz", help="DeepSpeed, zero 3: ranks that share a second copy of the weights (ZeRO++)."
    ),
]
CpA2a = Annotated[
    str | None,
    _knob(
        "--cp-a2a", help="Megatron: of the cp ranks, how many exchange heads; default 1, a ring."
    ),
]
Offload = Annotated[str | None, _knob("--offload", help=_OFFLOAD, metavar="NAME")]
Sp = Annotated[bool | None, _knob("--sp/--no-sp", help="Sequence parallelism.", metavar=None)]
Schedule = Annotated[
    str | None,
    _knob(
        "--schedule", help="Pipeline schedule.", metavar="NAME", autocompletion=complete.schedule
    ),
]
Group = Annotated[
    int | None,
    _knob(
        "--group",
        help="Micro-batch group size of a virtual stage; default pp.",
        metavar="N",
        parser=whole,
    ),
]
Recompute = Annotated[
    str | None, _knob("--recompute", help="none, selective or full.", metavar="NAME")
]
NoRecompute = Annotated[
    bool, _knob("--no-recompute", help="Short for --recompute none.", metavar=None)
]
RecomputeLayers = Annotated[
    int | None,
    _knob(
        "--recompute-layers", help="With full: layers a virtual stage.", metavar="N", parser=whole
    ),
]
RecomputeModules = Annotated[
    list[str] | None, _knob("--recompute-modules", help="With selective; by comma.", metavar="NAME")
]
AccountEmbedding = Annotated[
    bool | None,
    _knob("--account-for-embedding/--no-account-for-embedding", help=_EMBEDDING, metavar=None),
]
AccountLoss = Annotated[
    bool | None, _knob("--account-for-loss/--no-account-for-loss", help=_LOSS, metavar=None)
]
FirstLayers = Annotated[
    int | None,
    _knob("--first-layers", help="Layers of the first pipeline rank.", metavar="N", parser=whole),
]
LastLayers = Annotated[
    int | None,
    _knob("--last-layers", help="Layers of the last pipeline rank.", metavar="N", parser=whole),
]
StageLayout = Annotated[
    str | None, _knob("--stage-layout", help="Megatron's pipeline layout string.", metavar="STR")
]

_NOT_WORDS = {
    "file",
    "as_json",
    "top",
    "out",
    "launcher",
    "format",
    "script",
    "min_gpus",
    "sweep",
    "no_recompute",
    "formulas",
    "report",
}


def question(given: dict[str, Any], layout: bool = False) -> Any:
    """The question of a file, of options, or of a file with options that restate it; with `layout`
    a saved plan states its layout.
    """
    from planner.errors import InputError
    from planner.specs import plan
    from planner.specs.question import changed
    from planner.specs.question import question as asked

    words = {name: _value(value) for name, value in given.items() if name not in _NOT_WORDS}
    if given["no_recompute"]:
        if words["recompute"] not in (None, "none"):
            raise InputError(
                "recompute must be stated once, but got --no-recompute and --recompute"
                f" {words['recompute']}"
            )
        words["recompute"] = "none"
    if given["file"] is not None:
        return changed((plan.read_layout if layout else plan.read_question)(given["file"]), words)
    if words["model"] is None:
        raise InputError(
            "a model must be stated, but got none; add --model NAME (`ppplan models` lists them) or"
            " name a recipe.yaml"
        )
    return asked(words, "the command line")


def listed(stated: list[str] | None) -> list[str]:
    """Repeated options as one list, each also split at commas, in the order given, none twice."""
    return list(
        dict.fromkeys(
            part.strip() for text in stated or () for part in text.split(",") if part.strip()
        )
    )


def _value(value: Any) -> Any:
    """Repeated options as one tuple, each also split at commas; none given is None."""
    return (
        tuple(part.strip() for text in value for part in text.split(",")) or None
        if isinstance(value, list)
        else value
    )
