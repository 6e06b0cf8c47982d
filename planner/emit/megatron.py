"""A recipe and a layout as Megatron-LM's flags, core 0.14 to main."""

from __future__ import annotations

from planner.emit import comments, environment
from planner.emit.program import Flag, Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

VOCAB_MULTIPLE = 128
"""Megatron's default of --make-vocab-size-divisible-by."""
EXACT_NULL_VOCAB = (0, 18)
"""Until then NullTokenizer adds one entry to --vocab-size."""
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
ACTIVATIONS = {("silu", True): ("--swiglu",), ("gelu", False): (), ("squared_relu", False): ("--squared-relu",)}
FP8_RECIPES = {"fp8-delayed": ("hybrid", "delayed"), "fp8-tensorwise": ("hybrid", "tensorwise"),
               "fp8-blockwise": ("e4m3", "blockwise"), "mxfp8": ("e4m3", "mxfp8")}  # fmt: skip
FSDP_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
AMPERE = 8.0

def missing_features(model: ModelSpec) -> list[str]:
    """What the model has and Megatron-LM has no flag for."""
    biases = (model.attention_bias, model.mlp_bias)
    found = {
        f"{model.position} positions": model.position not in POSITIONS,
        "a LayerNorm without bias": model.norm == "layernorm_nobias",
        f"{'a gated' if model.gated_mlp else 'an ungated'} MLP with {model.activation}":
            (model.activation, model.gated_mlp) not in ACTIVATIONS,
        f"biases on attention {model.attention_bias} and MLP {model.mlp_bias} together":
            biases not in (("none", False), ("qkv", False), ("qkvo", True)),
    }  # fmt: skip
    return [feature for feature, is_missing in found.items() if is_missing]


def _refuse_what_is_missing(model: ModelSpec) -> None:
    missing = missing_features(model)
    if missing:
        raise InputError(f"Megatron-LM must have a flag for every part of the model, but {model.name} has {', '.join(missing)}; "
                         "plan it, and write the launch files of another framework")  # fmt: skip
    if "megatron" not in model.frameworks:
        raise InputError(f"Megatron-LM must be able to express the model, but {model.name} is for {', '.join(model.frameworks)} alone")


def _padded_vocab(recipe: Recipe, layout: Layout) -> int:
    multiple: int = VOCAB_MULTIPLE * layout.tp
    return -(-recipe.model.vocab_size // multiple) * multiple


def _bias_flags(model: ModelSpec) -> list[Flag]:
    if model.mlp_bias:
        return []
    flags: list[Flag] = [("--disable-bias-linear",)]
    return flags + [("--add-qkv-bias",)] * (model.attention_bias == "qkv")


def _position_flags(recipe: Recipe) -> list[Flag]:
    model = recipe.model
    rows = model.position_rows if model.position == "learned" else max(model.max_seq_length, recipe.seq_length)
    flags: list[Flag] = [("--position-embedding-type", POSITIONS[model.position]), ("--max-position-embeddings", str(rows))]
    if model.position == "rope":
        flags.append(("--rotary-base", str(round(model.rope_theta))))
    return flags


def model_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """The network: what decides its parameters and its arithmetic."""
    model = recipe.model
    _refuse_what_is_missing(model)
    flags: list[Flag] = [
        ("--num-layers", str(model.num_layers)),
        ("--hidden-size", str(model.hidden_size)),
        ("--ffn-hidden-size", str(model.ffn_size)),
        ("--num-attention-heads", str(model.num_heads)),
        ("--kv-channels", str(model.head_dim)),
    ]
    if model.num_kv_heads != model.num_heads:
        flags += [("--group-query-attention",), ("--num-query-groups", str(model.num_kv_heads))]
    flags += [(switch,) for switch in ACTIVATIONS[model.activation, model.gated_mlp]]
    flags.append(("--normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm"))
    flags += [*_position_flags(recipe), *_bias_flags(model)]
    flags += [("--qk-layernorm",)] * model.qk_norm
    flags += [("--untie-embeddings-and-output-weights",)] * (not model.tied_embeddings)
    flags.append(("--padded-vocab-size", str(_padded_vocab(recipe, layout))))
    dropout = "0.1" if recipe.stack.dropout else "0.0"
    return [*flags, ("--attention-dropout", dropout), ("--hidden-dropout", dropout), ("--seq-length", str(recipe.seq_length))]


def _stage_flags(layout: Layout) -> list[Flag]:
    """How layers split over pipeline stages; a stage layout says all of it, the number of virtual stages too."""
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
        *_stage_flags(layout),
    ]
    if layout.sp and layout.tp > 1:
        flags.append(("--sequence-parallel",))
    if layout.cp > 1:
        flags.append(("--cp-comm-type", "p2p"))
    if layout.v > 1 and layout.group:
        flags.append(("--microbatch-group-size-per-virtual-pipeline-stage", str(layout.group)))
    if layout.zero >= 1:
        flags.append(("--use-distributed-optimizer",))
    if layout.zero >= 2:
        # The default of the strategy changed in 0.18: always written.
        flags += [("--use-megatron-fsdp",), ("--data-parallel-sharding-strategy", FSDP_STRATEGIES[layout.zero]),
                  ("--ckpt-format", "fsdp_dtensor"), ("--no-gradient-accumulation-fusion",)]  # fmt: skip
    return flags


def batch_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Megatron derives the number of micro-batches from these and dp."""
    return [("--micro-batch-size", str(layout.mbs)), ("--global-batch-size", str(layout.gbs))]


def recompute_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        modules = module_names(layout.recompute_modules) or ["core_attn"]
        return [("--recompute-granularity", "selective"), ("--recompute-modules", *modules)]
    if layout.recompute == RECOMPUTE_CODE["full"]:
        method, layers = ("block", layout.recompute_layers) if layout.recompute_layers else ("uniform", 1)
        return [("--recompute-granularity", "full"), ("--recompute-method", method), ("--recompute-num-layers", str(layers))]
    return []


def precision_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Arithmetic, the width of gradients, the attention kernel."""
    flags: list[Flag] = []
    if recipe.precision != "fp32":
        flags.append(("--fp16",) if recipe.precision == "fp16" else ("--bf16",))
    if recipe.precision in FP8_RECIPES:
        form, kind = FP8_RECIPES[recipe.precision]
        flags += [("--fp8-format", form), ("--fp8-recipe", kind)]
    if recipe.precision == "nvfp4":
        flags += [("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")]
    if recipe.precision == "fp8-rowwise":
        raise InputError("Megatron-LM's fp8 recipe must be delayed, tensorwise, blockwise or mxfp8, but got rowwise; try fp8-tensorwise")
    if recipe.precision != "fp32":
        narrow = recipe.stack.grad_reduce_bytes < 4
        flags += [("--grad-reduce-in-bf16",)] * (narrow and recipe.precision != "fp16")
        flags += [("--accumulate-allreduce-grads-in-fp32",)] * (not narrow)
    # FlashAttention takes 16 bits on Ampere and later; elsewhere Transformer Engine chooses among what it has.
    without_flash = recipe.attention == "flash" and (recipe.precision == "fp32" or recipe.hardware.gpu.compute_capability < AMPERE)
    return [*flags, ("--attention-backend", "auto" if without_flash else recipe.attention),
            ("--cross-entropy-loss-fusion",), ("--cross-entropy-fusion-impl", "native")]  # fmt: skip


def overlap_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """What the stack overlaps; with virtual stages Megatron overlaps their transfers by itself."""
    flags: list[Flag] = []
    if recipe.stack.grad_overlap_share > 0:
        flags.append(("--overlap-grad-reduce",))
        if recipe.stack.param_overlap_share > 0 and layout.zero >= 1:
            flags.append(("--overlap-param-gather",))
    if recipe.stack.tp_overlap_share > 0 and layout.sp and layout.tp > 1:
        flags.append(("--tp-comm-overlap",))
    return flags


def optimizer_flags() -> list[Flag]:
    """Common values of large language models: a start, no part of the plan."""
    return [
        ("--optimizer", "adam"), ("--adam-beta1", "0.9"), ("--adam-beta2", "0.95"), ("--lr", "3e-4"), ("--min-lr", "3e-5"),
        ("--lr-decay-style", "cosine"), ("--lr-warmup-fraction", "0.01"), ("--weight-decay", "0.1"), ("--clip-grad", "1.0"),
        ("--init-method-std", "0.02"),
    ]  # fmt: skip


LOGGING: list[Flag] = [("--log-interval", "1"), ("--log-throughput",), ("--distributed-timeout-minutes", "30")]


def mock_flags(recipe: Recipe) -> list[Flag]:
    """Synthetic data whose tokenizer has exactly the model's vocabulary."""
    exact = version_of("megatron", recipe.framework_version) >= EXACT_NULL_VOCAB
    entries = recipe.model.vocab_size if exact else recipe.model.vocab_size - 1
    return [("--mock-data",), ("--tokenizer-type", "NullTokenizer"), ("--vocab-size", str(entries)),
            ("--train-iters", "20"), ("--eval-iters", "0")]  # fmt: skip


def groups(recipe: Recipe, layout: Layout) -> tuple[tuple[str, tuple[Flag, ...]], ...]:
    """Every flag but those of the data, by what it is about.

    Raises InputError when Megatron-LM cannot express the model or the precision, and names the feature.
    """
    parts = {
        "MODEL": model_flags(recipe, layout),
        "PARALLEL": parallel_flags(recipe, layout),
        "BATCH": batch_flags(recipe, layout),
        "RECOMPUTE": recompute_flags(recipe, layout),
        "PRECISION": precision_flags(recipe, layout),
        "OVERLAP": overlap_flags(recipe, layout),
        "OPTIMIZER": optimizer_flags(),
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
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model "${{TOKENIZER:?the tokenizer that DATA was made with}}"
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


def program(recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory; script replaces pretrain_gpt.py."""
    mock = " ".join(word for flag in mock_flags(recipe) for word in flag)
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=comments.plan(recipe, layout, f"Megatron-LM core {recipe.framework_version}") + expected,
        variables=_VARIABLES,
        environment=environment.megatron(recipe, layout),
        groups=groups(recipe, layout),
        data_switch=_DATA.format(mock=mock),
        entry=escaped(script) if script else "$MEGATRON_PATH/pretrain_gpt.py",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
    )
