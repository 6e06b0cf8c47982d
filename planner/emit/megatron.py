"""A recipe and a layout as Megatron-LM's flags, core 0.14 to main."""

from __future__ import annotations

from planner.emit import comments, environment, switches
from planner.emit.megatron_kinds import entry
from planner.emit.megatron_model import expert_flags, model_flags
from planner.emit.program import Flag, Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.hardware import AMPERE
from planner.specs.megatron import EXACT_NULL_VOCAB, NARROW, fsdp_fuses, sharded_by_torch
from planner.specs.megatron_letters import STAGES, by_letters
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

FP8_RECIPES = {
    "fp8-delayed": ("hybrid", "delayed"),
    "fp8-tensorwise": ("hybrid", "tensorwise"),
    "fp8-blockwise": ("e4m3", "blockwise"),
    "mxfp8": ("e4m3", "mxfp8"),
}
FSDP_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
NAMES = {**dict.fromkeys(("adam", *NARROW), "adam"), "sgd": "sgd", "muon": "muon", "lion": "lion"}
"""The optimizer's name there."""


def _stage_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """How layers split over pipeline stages; a stage layout says all of it, the number of virtual
    stages too, and so does a pattern of letters with the bounds of stages.
    """
    version = version_of("megatron", recipe.framework_version)
    if by_letters(recipe.model) and version >= STAGES:
        return []
    if layout.stage_layout:
        return [("--pipeline-model-parallel-layout", layout.stage_layout)]
    flags: list[Flag] = []
    if layout.v > 1:
        flags.append(("--num-virtual-stages-per-pipeline-rank", str(layout.v)))
    if layout.first_layers:
        flags.append(("--decoder-first-pipeline-num-layers", str(layout.first_layers)))
    if layout.last_layers:
        flags.append(("--decoder-last-pipeline-num-layers", str(layout.last_layers)))
    flags += [("--account-for-embedding-in-pipeline-split",)] * bool(layout.account_for_embedding)
    return flags + [("--account-for-loss-in-pipeline-split",)] * bool(layout.account_for_loss)


def parallel_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Degrees, and how stages and the optimizer are split."""
    flags: list[Flag] = [
        ("--tensor-model-parallel-size", str(layout.tp)),
        ("--pipeline-model-parallel-size", str(layout.pp)),
        ("--context-parallel-size", str(layout.cp)),
        *_stage_flags(recipe, layout),
    ]
    if recipe.model.moe:
        # The default of the latter is tp.
        flags += [
            ("--expert-model-parallel-size", str(layout.ep)),
            ("--expert-tensor-parallel-size", str(layout.etp)),
        ]
    if layout.sp and layout.tp > 1:
        flags.append(("--sequence-parallel",))
    flags += _context_flags(layout)
    if layout.v > 1 and layout.group:
        flags.append(("--microbatch-group-size-per-virtual-pipeline-stage", str(layout.group)))
    return flags + _sharding_flags(recipe, layout)


def _context_flags(layout: Layout) -> list[Flag]:
    """Heads exchanged for tokens (a2a), or an exchange inside and a ring of those groups outside;
    of a ring alone switch cp_comm_type says the kind.
    """
    if layout.cp_a2a == 1:
        return []
    kind = "a2a" if layout.cp_a2a == layout.cp else "a2a+p2p"
    flags: list[Flag] = [("--cp-comm-type", kind)]
    groups = (
        "--hierarchical-context-parallel-sizes",
        str(layout.cp_a2a),
        str(layout.cp // layout.cp_a2a),
    )
    return flags + [groups] * (kind == "a2a+p2p")


def _sharding_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """The default of the strategy changed in 0.18: always written."""
    if layout.zero < 2:
        return [("--use-distributed-optimizer",)] * (layout.zero == 1)
    if sharded_by_torch(recipe, layout):
        flags: list[Flag] = [
            ("--ckpt-format", "torch_dist"),
            ("--no-gradient-accumulation-fusion",),
        ]
        return flags + [("--torch-fsdp2-no-reshard-after-forward",)] * (layout.zero == 2)
    flags = [
        ("--use-distributed-optimizer",),
        ("--use-megatron-fsdp",),
        ("--data-parallel-sharding-strategy", FSDP_STRATEGIES[layout.zero]),
        ("--ckpt-format", "fsdp_dtensor"),
    ]
    return flags + [("--no-gradient-accumulation-fusion",)] * (not fsdp_fuses(recipe))


def batch_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Megatron derives the number of micro-batches from these and dp."""
    return [("--micro-batch-size", str(layout.mbs)), ("--global-batch-size", str(layout.gbs))]


def recompute_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        modules = module_names(layout.recompute_modules) or ["core_attn"]
        return [("--recompute-granularity", "selective"), ("--recompute-modules", *modules)]
    if layout.recompute == RECOMPUTE_CODE["full"]:
        method, layers = (
            ("block", layout.recompute_layers) if layout.recompute_layers else ("uniform", 1)
        )
        return [
            ("--recompute-granularity", "full"),
            ("--recompute-method", method),
            ("--recompute-num-layers", str(layers)),
        ]
    return []


def precision_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Arithmetic and the attention kernel."""
    flags: list[Flag] = []
    if recipe.precision != "fp32":
        flags.append(("--fp16",) if recipe.precision == "fp16" else ("--bf16",))
    if recipe.precision in FP8_RECIPES:
        form, kind = FP8_RECIPES[recipe.precision]
        flags += [("--fp8-format", form), ("--fp8-recipe", kind)]
    if recipe.precision == "nvfp4":
        flags += [("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")]
    if recipe.precision == "fp8-rowwise":
        raise InputError(
            "Megatron-LM's fp8 recipe must be delayed, tensorwise, blockwise or mxfp8, but got"
            " rowwise; try fp8-tensorwise"
        )
    # FlashAttention takes 16 bits, no sinks, on Ampere and later; elsewhere Transformer Engine
    # chooses among what it has.
    old = recipe.precision == "fp32" or recipe.hardware.gpu.compute_capability < AMPERE
    without_flash = recipe.attention == "flash" and (old or recipe.model.attention_sinks)
    return [*flags, ("--attention-backend", "auto" if without_flash else recipe.attention)]


LEARNING: tuple[Flag, ...] = (
    ("--adam-beta1", "0.9"),
    ("--adam-beta2", "0.95"),
    ("--lr", "3e-4"),
    ("--min-lr", "3e-5"),
    ("--lr-decay-style", "cosine"),
    ("--lr-warmup-fraction", "0.01"),
    ("--weight-decay", "0.1"),
    ("--clip-grad", "1.0"),
    ("--init-method-std", "0.02"),
)
"""Of every optimizer, in Megatron-LM and in Megatron-DeepSpeed."""


def optimizer_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Learning rates and the like are common values of large language models, a start, no part of
    the plan.

    Raises InputError where the optimizer is none that Megatron-LM has.
    Adam's figures stand with the others too: they update embeddings and norms by it.
    """
    if recipe.optimizer not in NAMES:
        raise InputError(
            f"Megatron-LM's optimizers are {', '.join(NAMES)}, but got {recipe.optimizer}; try"
            " --framework deepspeed"
        )
    return [
        ("--optimizer", NAMES[recipe.optimizer]),
        *LEARNING,
        *_state_flags(layout),
    ]


def _state_flags(layout: Layout) -> list[Flag]:
    """Optimizer states in host memory, by the code of the precision-aware optimizer."""
    return [
        ("--use-precision-aware-optimizer",),
        ("--optimizer-cpu-offload",),
    ] * bool(layout.offload)


LOGGING: list[Flag] = [
    ("--log-interval", "1"),
    ("--log-throughput",),
    ("--distributed-timeout-minutes", "30"),
]


def mock_flags(recipe: Recipe) -> list[Flag]:
    """Synthetic data whose tokenizer has exactly the model's vocabulary."""
    exact = version_of("megatron", recipe.framework_version) >= EXACT_NULL_VOCAB
    entries = recipe.model.vocab_size if exact else recipe.model.vocab_size - 1
    return [
        ("--mock-data",),
        ("--tokenizer-type", "NullTokenizer"),
        ("--vocab-size", str(entries)),
        ("--train-iters", "20"),
        ("--eval-iters", "0"),
        ("--eval-interval", "1000"),  # which has no default since 0.17, and is divided by
    ]


def groups(recipe: Recipe, layout: Layout) -> tuple[tuple[str, tuple[Flag, ...]], ...]:
    """Every flag but those of the data, by what it is about.

    Raises InputError when Megatron-LM cannot express the model or the precision, and names the
    feature.
    """
    parts = {
        "MODEL": model_flags(recipe, layout),
        "EXPERTS": expert_flags(recipe, layout),
        "PARALLEL": parallel_flags(recipe, layout),
        "BATCH": batch_flags(recipe, layout),
        "RECOMPUTE": recompute_flags(recipe, layout),
        "PRECISION": precision_flags(recipe, layout),
        "SWITCHES": switches.flags(recipe, layout),
        "OPTIMIZER": optimizer_flags(recipe, layout),
        "LOGGING": LOGGING,
    }
    return tuple((name, tuple(flags)) for name, flags in parts.items() if flags)


def flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Every flag of a run on synthetic data."""
    return [flag for _, group in groups(recipe, layout) for flag in group] + mock_flags(recipe)


_DATA = """\
if [[ $MOCK == 1 || -z $DATA ]]; then
  echo "synthetic data, 20 steps; set DATA and TOKENIZER to train" >&2
  DATA_FLAGS=({mock})
else
  read -r -a DATA_PATHS <<<"$DATA"
  DATA_FLAGS=(
    --data-path "${{DATA_PATHS[@]}}" --split '99,1,0'
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model "${{TOKENIZER:?the tokenizer that DATA \
was made with}}"
    --train-iters "$TRAIN_ITERS" --eval-interval 1000 --eval-iters 10
  )
fi
if [[ -n $SAVE ]]; then
  DATA_FLAGS+=(--save "$SAVE" --load "$SAVE" --save-interval 1000)
fi"""

_VARIABLES = (
    ("MEGATRON_PATH", "Megatron-LM", "checkout of Megatron-LM"),
    ("MOCK", "0", "1: 20 steps on synthetic data, as without DATA"),
    ("DATA", "", "prefix of a dataset in Megatron's format, or weights and prefixes"),
    ("TOKENIZER", "", "Hugging Face tokenizer, name or folder"),
    ("TRAIN_ITERS", "1000", "steps"),
    ("SAVE", "", "folder of checkpoints; empty keeps none"),
)


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory; script
    replaces Megatron-LM's program.
    """
    mock = " ".join(word for flag in mock_flags(recipe) for word in flag)
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=comments.plan(recipe, layout, f"Megatron-LM core {recipe.framework_version}")
        + expected,
        variables=_VARIABLES,
        environment=environment.megatron(recipe, layout),
        groups=groups(recipe, layout),
        data_switch=_DATA.format(mock=mock),
        entry=escaped(script) if script else f"$MEGATRON_PATH/{entry(recipe)}",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
    )
