"""The words of a question, each stated once.

An annotation is all there is to a word: its type, its help, what it is called in a help text, the
panel it stands in, its limits. The command line, completion, the documents and the Python verbs
are made from these classes. Cheap to import: `ppplan --help` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

THE_QUESTION, LAYOUT = "The question", "Knobs of the layout"
PIPELINE, WORK = "The pipeline", "What a stage takes, in any unit of time"
"""Panels of --help. Words of LAYOUT are those of a layout: a saved plan states them."""

MAX_COUNT = 2**27
"""Of tokens in a sequence, sequences in a batch, and every degree: ten times what anyone has run,
and products stay exact.
"""
MAX_LAYERS = 2**20
MAX_IMAGES = 2**12
Knob = int | str | None
"""A number fixes the knob, `LOW..HIGH` bounds it, None leaves it to the search (or to the default
of explain).
"""


@dataclass(frozen=True, slots=True)
class Word:
    """What is said of a word beside its type."""

    help: str
    metavar: str | None = None
    panel: str = THE_QUESTION
    complete: str = ""
    """The function of planner.cli.complete that knows its values."""
    short: str = ""
    """A second name of the option."""
    low: float | None = None
    above: float | None = None
    high: float | None = None
    """The least value, or what it must be above, and the most; None: no limit, or one that is
    checked elsewhere.
    """
    default: int | float | str | None = None
    """What holds where the word is not stated; help texts show it."""


def _knob(help: str, metavar: str | None = "N|LOW..HIGH", complete: str = "") -> Word:
    return Word(help, metavar, LAYOUT, complete)


def _layers(help: str) -> Word:
    return Word(help, "N", LAYOUT, low=0, high=MAX_LAYERS)


def _count(help: str, metavar: str = "N", high: int = MAX_COUNT, short: str = "") -> Word:
    return Word(help, metavar, low=1, high=high, short=short)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to train on what, and what the answer may look like. None: not stated, a default is
    chosen and said. A recipe file is one of these in YAML.

    Build it with planner.api.question(), which checks the words.
    """

    model: Annotated[
        str,
        Word(
            "Preset, Hugging Face config.json or its folder, or model YAML.",
            "NAME|PATH",
            complete="model",
        ),
    ]
    gpus: Annotated[int | None, _count("Number of GPUs.", high=2**20)] = None
    cluster: Annotated[
        str | None,
        Word(
            "Profile or YAML; default: the local GPUs, else h100-sxm.",
            "NAME|PATH",
            complete="cluster",
        ),
    ] = None
    set: Annotated[
        tuple[str, ...], Word("Changes one figure of the cluster; repeatable.", "FIELD=VALUE")
    ] = ()
    seq_length: Annotated[
        int | None, _count("Tokens; default 4,096 (models up to 4k) or 8,192.")
    ] = None
    global_batch_size: Annotated[
        int | None, _count("Sequences a step; default about 4M tokens.", short="--gbs")
    ] = None
    global_batch_tokens: Annotated[int | None, _count("The batch in tokens.", high=2**40)] = None
    precision: Annotated[
        str | None,
        Word(
            "bf16, fp16, fp32, fp8-delayed, fp8-tensorwise, fp8-rowwise, fp8-blockwise, mxfp8,"
            " nvfp4.",
            "NAME",
            complete="precision",
        ),
    ] = None
    framework: Annotated[
        str | None, Word("megatron, deepspeed or torch.", "NAME", complete="framework")
    ] = None
    framework_version: Annotated[str | None, Word("Its rules, flags and defaults.", "VERSION")] = (
        None
    )
    software: Annotated[
        str | None,
        Word(
            "Training software and its version, such as megatron-core@0.16.",
            "NAME[@VERSION]",
            complete="software",
        ),
    ] = None
    stack: Annotated[
        str | None,
        Word(
            "Software or a distribution of it, such as nemo; default: the framework's.",
            "NAME",
            complete="stack",
        ),
    ] = None
    switch: Annotated[
        tuple[str, ...],
        Word(
            "Sets a switch of the software; `ppplan switches` lists them; repeatable.",
            "NAME=VALUE",
            complete="switch",
        ),
    ] = ()
    allow_numerics: Annotated[
        bool | None,
        Word("Takes what changes the numbers too (16-bit gradients, ...) where it is faster."),
    ] = None
    own_switches: Annotated[
        bool | None,
        Word(
            "Leaves switches as the software has them; else recommend searches what keeps the"
            " arithmetic."
        ),
    ] = None
    container: Annotated[
        str | None,
        Word(
            "Image that runs start in, such as nemo:26.04: its versions hold.",
            "IMAGE",
            complete="container",
        ),
    ] = None
    attention: Annotated[
        str | None, Word("flash, fused or unfused; default: the stack's.", "NAME")
    ] = None
    max_memory_gib: Annotated[
        float | None, Word("Use at most so much of a GPU's memory.", "GIB", above=0)
    ] = None
    optimizer: Annotated[
        str | None,
        Word(
            "adam; precision-aware (-fp32, -fp8), muon, lion, sgd; under DeepSpeed adafactor,"
            " adam-8bit too.",
            "NAME",
        ),
    ] = None
    lora_rank: Annotated[
        int | None, _count("Trains adapters of this rank; all else is frozen.")
    ] = None
    lora_targets: Annotated[
        tuple[str, ...] | None,
        Word("qkv, proj, fc1, fc2, or q_proj and so on; by comma; default all linears.", "NAME"),
    ] = None
    lora_base: Annotated[
        str | None, Word("Frozen linears: 16bit, or nf4 (QLoRA, not under Megatron).", "NAME")
    ] = None
    frozen: Annotated[
        tuple[str, ...] | None,
        Word("Not trained: embedding, attention, mlp, norms, head, vision.", "NAME"),
    ] = None
    packing: Annotated[bool | None, Word("Samples share a sequence, or are padded to it.")] = None
    mean_length: Annotated[
        int | None, _count("Mean tokens of a sample; default: the sequence.")
    ] = None
    images_per_sample: Annotated[
        int | None,
        Word(
            "Images of a sample: the vision tower's work, with 0 its states alone; default: the"
            " text part without a tower.",
            "N",
            low=0,
            high=MAX_IMAGES,
        ),
    ] = None
    image_size: Annotated[
        int | None,
        _count(
            "Pixels of an image's edge, where the tower takes any; default 1,024.",
            "PIXELS",
            high=2**14,
        ),
    ] = None
    mtbf_hours: Annotated[
        float | None,
        Word(
            "Hours between interruptions of one GPU (a run's: over its GPUs); asks for goodput."
            " Llama 3 405B: 50,700.",
            "HOURS",
            low=1 / 60,
            high=1e12,
        ),
    ] = None
    checkpoint_s: Annotated[
        float | None, Word("How long a checkpoint halts training.", "S", above=0, high=1e9)
    ] = None
    restart_s: Annotated[
        float | None,
        Word("From an interruption until training goes on.", "S", low=0, high=1e9),
    ] = None

    tp: Annotated[Knob, _knob("Tensor parallelism.")] = None
    pp: Annotated[Knob, _knob("Pipeline parallelism.")] = None
    dp: Annotated[Knob, _knob("Data parallelism.")] = None
    cp: Annotated[Knob, _knob("Context parallelism.")] = None
    ep: Annotated[Knob, _knob("Expert parallelism.")] = None
    etp: Annotated[Knob, _knob("Tensor parallelism of experts.")] = None
    v: Annotated[Knob, _knob("Virtual stages per pipeline rank.")] = None
    mbs: Annotated[Knob, _knob("Sequences per micro-batch.")] = None
    m: Annotated[Knob, _knob("Micro-batches per step.")] = None
    zero: Annotated[
        Knob,
        _knob("Optimizer sharding stage, 0 to 3; Megatron: 1 is the distributed optimizer."),
    ] = None
    hpz: Annotated[
        Knob, _knob("DeepSpeed, zero 3: ranks that share a second copy of the weights (ZeRO++).")
    ] = None
    cp_a2a: Annotated[
        Knob, _knob("Megatron: of the cp ranks, how many exchange heads; default 1, a ring.")
    ] = None
    offload: Annotated[
        str | None,
        _knob(
            "none, optimizer-cpu; under DeepSpeed optimizer-nvme, params-cpu and params-nvme too.",
            "NAME",
        ),
    ] = None
    sp: Annotated[bool | None, _knob("Sequence parallelism.", None)] = None
    schedule: Annotated[str | None, _knob("Pipeline schedule.", "NAME", complete="schedule")] = None
    group: Annotated[
        int | None, _layers("Micro-batch group size of a virtual stage; default pp.")
    ] = None
    recompute: Annotated[str | None, _knob("none, selective or full.", "NAME")] = None
    recompute_layers: Annotated[int | None, _layers("With full: layers a virtual stage.")] = None
    recompute_modules: Annotated[
        tuple[str, ...] | None, _knob("With selective; by comma.", "NAME")
    ] = None
    account_for_embedding: Annotated[
        bool | None, _knob("The embedding counts as a layer of the first stage.", None)
    ] = None
    account_for_loss: Annotated[
        bool | None, _knob("The loss counts as a layer of the last stage.", None)
    ] = None
    first_layers: Annotated[int | None, _layers("Layers of the first pipeline rank.")] = None
    last_layers: Annotated[int | None, _layers("Layers of the last pipeline rank.")] = None
    stage_layout: Annotated[str | None, _knob("Megatron's pipeline layout string.", "STR")] = None

    def words(self) -> dict[str, Any]:
        """The words that are stated, with their values."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {word: value for word, value in every.items() if value not in (None, ())}


class QuestionWords(TypedDict, total=False):
    """The words of Question as keywords of a verb, for type checkers and completion. A test holds
    the two together: Python has no way to derive one from the other.
    """

    model: str
    gpus: int | None
    cluster: str | None
    set: Sequence[str]
    seq_length: int | None
    global_batch_size: int | None
    global_batch_tokens: int | None
    precision: str | None
    framework: str | None
    framework_version: str | None
    software: str | None
    stack: str | None
    switch: Sequence[str]
    allow_numerics: bool | None
    own_switches: bool | None
    container: str | None
    attention: str | None
    max_memory_gib: float | None
    optimizer: str | None
    lora_rank: int | None
    lora_targets: Sequence[str] | None
    lora_base: str | None
    frozen: Sequence[str] | None
    packing: bool | None
    mean_length: int | None
    images_per_sample: int | None
    image_size: int | None
    mtbf_hours: float | None
    checkpoint_s: float | None
    restart_s: float | None
    tp: Knob
    pp: Knob
    dp: Knob
    cp: Knob
    ep: Knob
    etp: Knob
    v: Knob
    mbs: Knob
    m: Knob
    zero: Knob
    hpz: Knob
    cp_a2a: Knob
    offload: str | None
    sp: bool | None
    schedule: str | None
    group: int | None
    recompute: str | None
    recompute_layers: int | None
    recompute_modules: Sequence[str] | None
    account_for_embedding: bool | None
    account_for_loss: bool | None
    first_layers: int | None
    last_layers: int | None
    stage_layout: str | None


def _of_pipeline(help: str, metavar: str, complete: str = "", short: str = "") -> Word:
    return Word(help, metavar, PIPELINE, complete, short)


def _of_work(help: str, metavar: str | None = "T") -> Word:
    return Word(help, metavar, WORK)


class SimulateWords(TypedDict, total=False):
    """The words of `simulate`. Those without an annotation of their own are the question's."""

    schedule: Annotated[
        str | None,
        _of_pipeline(
            "One of `ppplan schedules`, or all: a comparison.", "NAME|all", complete="schedule"
        ),
    ]
    pp: Annotated[int | None, _of_pipeline("Pipeline ranks.", "P")]
    microbatches: Annotated[int | None, _of_pipeline("Micro-batches of a step.", "M", short="--m")]
    m: int | None
    """Short for microbatches."""
    v: Annotated[
        int | None,
        _of_pipeline("Virtual stages a rank; default the fewest, 2 with all.", "V"),
    ]
    group: Annotated[
        int | None, _of_pipeline("Interleaved: micro-batches of a group; default P.", "G")
    ]
    bubble: Annotated[
        float | None, _of_pipeline("Finds M: the fewest for a bubble below it.", "SHARE")
    ]
    forward_only: Annotated[
        str | None,
        _of_pipeline("A scenario of prefill chunks and decode groups.", "SCENARIO.yaml"),
    ]
    memory_limit: Annotated[
        float | None, _of_pipeline("Automatic: activations a rank, in stages.", "N")
    ]
    weight_retained: Annotated[
        float,
        _of_pipeline(
            "Share of activations that weight gradients keep; default 1.",
            "SHARE",
        ),
    ]
    forward: Annotated[float | None, _of_work("Forward of a full 1/p of the model; default 1.")]
    backward: Annotated[
        float | None, _of_work("Its backward; default 2; split schedules halve it.")
    ]
    input_grad: Annotated[float | None, _of_work("With --weight-grad, in place of --backward.")]
    weight_grad: Annotated[float | None, _of_work("With --input-grad, in place of --backward.")]
    pair: Annotated[
        float | None, _of_work("An overlapped forward and backward; default their sum.")
    ]
    transfer: Annotated[float | None, _of_work("An activation to the next rank; default 0.")]
    blocking: Annotated[bool | None, _of_work("The sender is busy while it sends.", None)]
    stage_scale: Annotated[
        str | Sequence[float] | None,
        _of_work("A factor a rank or virtual stage: 1,1,1,1.2.", "A,B,..."),
    ]
    head_extra: Annotated[
        float, _of_work("Head and loss on the last stage, in full 1/p of the model.", "X")
    ]
    model: str | None
    cluster: str | None
    set: Sequence[str] | None
    seq_length: int | None
    tp: Annotated[int | None, Word("With --model: tensor parallelism.", "N")]
    mbs: Annotated[int | None, Word("With --model: sequences per micro-batch.", "N")]
    cp: Annotated[int | None, Word("Context parallelism.", "N")]
    sp: bool | None
    recompute: Annotated[str | None, Word("With --model: none, selective or full.", "NAME")]
    precision: str | None
    stack: str | None
    attention: str | None
    account_for_embedding: bool | None
    account_for_loss: bool | None
    first_layers: int | None
    last_layers: int | None
    stage_layout: str | None


SIMULATE_DEFAULTS = {"weight_retained": 1.0, "head_extra": 0.0}
"""Of the words of simulate that are not None where they are not stated."""


def _of_run(help: str, metavar: str | None, default: int | float | str | None = None) -> Word:
    return Word(help, metavar, panel="", default=default)


class TuneWords(TypedDict, total=False):
    """The words of `tune`."""

    trials: Annotated[
        int,
        _of_run(
            "Layouts to measure, those of the study so far and of its other workers included.",
            "N",
            10,
        ),
    ]
    runner: Annotated[
        str,
        _of_run(
            "Whose training step: torch (a benchmark of the plan's model), megatron, deepspeed.",
            "NAME",
            "torch",
        ),
    ]
    launcher: Annotated[
        str, _of_run("Where trials run: local, torchrun, slurm or kubernetes.", "NAME", "local")
    ]
    storage: Annotated[
        str | None,
        _of_run(
            "SQLite beside the plan by default; any URL of Optuna; journal:FILE on a shared disk.",
            "URL",
        ),
    ]
    study: Annotated[str | None, _of_run("Its name; default: that of the plan and runner.", "NAME")]
    repeats: Annotated[
        int,
        _of_run(
            "Runs once more, in turns, of the fastest and of those that noise may have put behind"
            " it.",
            "N",
            2,
        ),
    ]
    switches: Annotated[
        int,
        _of_run(
            "Runs of the fastest layouts under other switches of the software and sizes of buckets,"
            " one changed at a time.",
            "N",
            4,
        ),
    ]
    resume: Annotated[
        bool,
        _of_run(
            "Go on with a study, or join its workers; one that was killed loses no finished trial.",
            None,
            False,
        ),
    ]
    limit_s: Annotated[float, _of_run("Longest that a trial may take, start to end.", "S", 600)]
    devices: Annotated[
        int | None,
        _of_run(
            "Devices to use; default: the GPUs here, else a process a core. A larger plan is"
            " measured in parts.",
            "N",
        ),
    ]
    out: Annotated[
        str | Path | None,
        _of_run("Folder for what is found; default: PLAN-tuned beside the plan.", "DIR"),
    ]
    megatron_path: Annotated[
        str | Path | None,
        _of_run("A checkout of Megatron-LM, for --runner megatron.", "DIR"),
    ]


class CalibrateWords(TypedDict, total=False):
    """The words of `calibrate` beside the file to write."""

    device: Annotated[
        str | None, _of_run("cuda or cpu; default: the GPUs if there are any.", "NAME")
    ]
    devices: Annotated[
        int | None,
        _of_run("GPUs, or processes on a CPU, at once; default: all GPUs, or 2 processes.", "N"),
    ]
    limit_s: Annotated[float, _of_run("Seconds after which measuring is given up.", "S", 600.0)]
    measured: Annotated[
        str | Path | None,
        _of_run(
            "A result of planner.calibrate.worker that torchrun started over nodes.", "FILE.json"
        ),
    ]


@cache
def declared(kind: type) -> dict[str, tuple[Any, Word]]:
    """Type and declaration of every word of a class, in its order; a word without a declaration of
    its own has the question's.
    """
    out = dict(_declared(kind))
    short = {word.short for _, word in out.values()}
    for name in [name for name in out if f"--{name}" in short]:
        del out[name]
    return out


def _declared(kind: type) -> Iterator[tuple[str, tuple[Any, Word]]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            annotated, word = get_args(hint)
            yield name, (annotated, word)
        else:
            yield name, declared(Question)[name]
