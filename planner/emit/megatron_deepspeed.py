"""A recipe and a layout as a Megatron-DeepSpeed run: tensor, pipeline and data parallelism
together, with its own flags.
"""

from __future__ import annotations

from typing import Any

from planner.emit import comments, deepspeed_config, switches
from planner.emit.megatron import LEARNING, batch_flags
from planner.emit.program import Flag, Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

CONFIG = "ds_config.json"
VOCAB_MULTIPLE = 128
ACTIVATIONS = {
    ("silu", True): ("--swiglu",),
    ("gelu", False): (),
    ("squared_relu", False): ("--squared-relu",),
}
NORMS = {"rmsnorm": "rmsnorm", "layernorm": "layernorm"}
BIASES = {("none", False): ("--disable-bias-linear",), ("qkvo", True): ()}
PLAIN: dict[str, Any] = {
    "moe": None,
    "mla": None,
    "window": None,
    "norms_per_layer": 2,
    "norm_place": "before",
    "embedding_norm": False,
    "parallel_block": False,
    "rotary_share": 1.0,
    "no_rope_every": 0,
    "attention_sinks": False,
    "mtp_layers": 0,
    "kinds": (),
    "mixer": None,
    "attention_gate": False,
    "value_head_dim": None,
    "keys_are_values": False,
    "block_sparse": None,
    "altup_streams": 0,
    "laurel_rank": 0,
    "per_layer_inputs": None,
}
"""What every model here has, of each part that only one form of is built."""


def unlike_plain(model: ModelSpec) -> list[str]:
    """The parts that it has in another form."""
    found = (name for name, plain in PLAIN.items() if getattr(model, name) != plain)
    return [name.replace("_", " ").replace("kinds", "layers of several kinds") for name in found]


def missing_features(model: ModelSpec) -> list[str]:
    """What the model has and Megatron-DeepSpeed has no flag for."""
    features = {
        f"{model.position} positions": model.position == "alibi",
        f"the norm {model.norm}": model.norm not in NORMS,
        f"{'a gated' if model.gated_mlp else 'an ungated'} MLP with {model.activation}": (
            (model.activation, model.gated_mlp) not in ACTIVATIONS
        ),
        f"biases on attention {model.attention_bias} and MLP {model.mlp_bias} together": (
            (model.attention_bias, model.mlp_bias) not in BIASES
        ),
        "norms of queries and keys": model.qk_norm,
    }
    return [feature for feature, is_missing in features.items() if is_missing] + unlike_plain(model)


def model_flags(recipe: Recipe) -> list[Flag]:
    """The network. InputError names what has no flag."""
    model = recipe.model
    missing = missing_features(model)
    if missing:
        raise InputError(
            f"Megatron-DeepSpeed must have a flag for every part of the model, but {model.name} has"
            f" {', '.join(missing)}; try tp 1 or pp 1, or --framework megatron"
        )
    rows = (
        model.position_rows
        if model.position == "learned"
        else max(model.max_seq_length, recipe.seq_length)
    )
    flags: list[Flag] = [
        ("--num-layers", str(model.num_layers)),
        ("--hidden-size", str(model.hidden_size)),
        ("--ffn-hidden-size", str(model.ffn_size)),
        ("--num-attention-heads", str(model.num_heads)),
        ("--num-key-value-heads", str(model.num_kv_heads)),
        ("--kv-channels", str(model.head_dim)),
        ("--seq-length", str(recipe.seq_length)),
        ("--max-position-embeddings", str(rows)),
        ("--normalization", NORMS[model.norm]),
    ]
    flags += [
        (switch,)
        for switch in (
            *ACTIVATIONS[model.activation, model.gated_mlp],
            *BIASES[model.attention_bias, model.mlp_bias],
        )
    ]
    if model.position == "rope":
        flags += [
            ("--use-rotary-position-embeddings",),
            ("--rotary-position-embeddings-theta", str(round(model.rope_theta))),
        ]
    flags += [("--no-position-embedding",)] * (model.position == "none")
    flags += [("--untie-embeddings-and-output-weights",)] * (not model.tied_embeddings)
    dropout = "0.1" if recipe.software.dropout else "0.0"
    return [
        *flags,
        # Of the model; what trains is the tokenizer's, which a reader of the file does not see.
        ("--vocab-size", str(model.vocab_size)),
        ("--make-vocab-size-divisible-by", str(VOCAB_MULTIPLE)),
        ("--attention-dropout", dropout),
        ("--hidden-dropout", dropout),
    ]


def parallel_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    flags: list[Flag] = [
        ("--tensor-model-parallel-size", str(layout.tp)),
        ("--pipeline-model-parallel-size", str(layout.pp)),
    ]
    flags += [("--no-pipeline-parallel",)] * (layout.pp == 1) + [("--sequence-parallel",)] * bool(
        layout.sp
    )
    zero_bubble = layout.schedule == SCHEDULE_CODE["zb-h1"]
    return (
        flags + [("--enable-zbh1-pipeline",)] * zero_bubble + [("--zero-stage", str(layout.zero))]
    )


def kernel_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Precision, attention, recomputation of every layer."""
    flags: list[Flag] = [(f"--{recipe.precision}",)] * (recipe.precision != "fp32")
    flags += [("--use-flash-attn-v2",)] * (recipe.attention == "flash")
    if layout.recompute == RECOMPUTE_CODE["full"]:
        flags += [
            ("--checkpoint-activations",),
            ("--deepspeed-activation-checkpointing",),
            ("--checkpoint-num-layers", "1"),
        ]
    return flags + switches.flags(recipe, layout)


OPTIMIZER: tuple[Flag, ...] = (
    ("--optimizer", "adam"),
    *LEARNING,
    ("--log-interval", "1"),
    ("--eval-iters", "0"),
)

_DATA = f"""\
read -r -a DATA_PATHS <<<"${{DATA:?prefix of a dataset in the format of Megatron; \
Megatron-DeepSpeed has no synthetic data}}"
DATA_FLAGS=(
  --data-path "${{DATA_PATHS[@]}}" --split '100,0,0'
  --tokenizer-type HFTokenizer --tokenizer-model "${{TOKENIZER:?the tokenizer that DATA was made \
with}}" --train-iters "$TRAIN_ITERS"
)
if [[ -n $SAVE ]]; then
  DATA_FLAGS+=(--save "$SAVE" --load "$SAVE" --save-interval 1000)
fi
DEEPSPEED_FLAGS+=(--deepspeed_config "$FILES/{CONFIG}")"""

_VARIABLES = (
    ("MEGATRON_PATH", "Megatron-DeepSpeed", "checkout of Megatron-DeepSpeed"),
    ("DATA", "", "prefix of a dataset in Megatron's format, or weights and prefixes"),
    ("TOKENIZER", "", "Hugging Face tokenizer, name or folder"),
    ("TRAIN_ITERS", "20", "steps"),
    ("SAVE", "", "folder of checkpoints; empty keeps none"),
)


def groups(recipe: Recipe, layout: Layout) -> tuple[tuple[str, tuple[Flag, ...]], ...]:
    """Every flag but those of the data and the path of the JSON, by what it is about."""
    return (
        ("MODEL", tuple(model_flags(recipe))),
        ("PARALLEL", (*parallel_flags(recipe, layout), *batch_flags(recipe, layout))),
        ("KERNEL", tuple(kernel_flags(recipe, layout))),
        ("OPTIMIZER", OPTIMIZER),
        ("DEEPSPEED", (("--deepspeed",),)),
    )


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory; script
    replaces pretrain_gpt.py.
    """
    more = ("1F1B, v 1: DeepSpeed's pipeline has no interleaving (virtual stages)",) * (
        layout.pp > 1
    )
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=comments.plan(
            recipe, layout, f"Megatron-DeepSpeed, DeepSpeed {recipe.framework_version}"
        )
        + more
        + expected,
        variables=_VARIABLES,
        # Megatron's sequence parallelism asserts one connection, which keeps NCCL's launches in
        # order with the products.
        environment=(
            *switches.environment(recipe, layout),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
        ),
        groups=groups(recipe, layout),
        data_switch=_DATA,
        entry=escaped(script) if script else "$MEGATRON_PATH/pretrain_gpt.py",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
        files=((CONFIG, deepspeed_config.text(recipe, layout)),),
    )
