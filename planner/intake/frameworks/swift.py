"""ms-swift's Megatron arguments in a YAML or args.json: Megatron's names with a few of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from planner.intake.documents.tree import Leaf
from planner.intake.frameworks.vocabulary import Named, doubted, make_reading, named
from planner.intake.reading import Reading

SECTIONS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
)
"""Megatron's names at the top of a file ..."""
OWN = (
    "tuner_type",
    "train_type",
    "mcore_model",
    "model",
    "max_length",
    "rlhf_type",
    "save_safetensors",
    "load_safetensors",
)
"""... with one of these."""
RENAMED = {
    "max_length": "seq_length",
    "decoder_first_pipeline_num_layers": "decoder_first_pipeline_num_layers",
    "fp8": "fp8_format",
}


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """Megatron's names; how the model is tuned stays under `hf.` as with the Trainer. Training is
    bf16 unless the file says otherwise.
    """
    flat, near = doubted(chain.from_iterable(map(names, leaves)), exact=False)
    return make_reading(file, "swift", "megatron", flat, notes=[*notes, *near])


def names(leaf: Leaf) -> list[Named]:
    """One argument of `megatron sft`, `pt` or `rlhf`, in a file or on the command line."""
    key = ".".join(leaf.path).replace("-", "_")
    if key in ("model", "load", "mcore_model", "load_safetensors"):
        out = [named(key, leaf)]
        if isinstance(leaf.value, str):
            out.append(named("model", leaf))
        return out
    if key in ("tuner_type", "train_type"):
        return [named("hf.train_type", leaf)]
    if key.startswith("lora_") or key in (
        "target_modules",
        "freeze_llm",
        "freeze_vit",
        "freeze_aligner",
        "freeze_parameters",
    ):
        return [named(f"hf.{key}", leaf)]
    if key == "torch_dtype":
        text = str(leaf.value)
        return [Named("bf16", leaf, text == "bfloat16"), Named("fp16", leaf, text == "float16")]
    out = [named(RENAMED.get(key, key), leaf)]
    if key == "max_length":
        out.append(named("max_length", leaf))
    return out
