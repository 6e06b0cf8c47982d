"""Arguments of the Hugging Face Trainer in a file: LLaMA-Factory, axolotl, TRL, ms-swift, or a
plain args.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from planner.intake.documents.tree import Leaf
from planner.intake.frameworks.vocabulary import Framework, Named, make_reading, named
from planner.intake.reading import Reading

SECTIONS = (
    "per_device_train_batch_size",
    "model_name_or_path",
    "finetuning_type",
    "base_model",
    "sequence_len",
    "gradient_checkpointing",
)
LENGTHS = (
    "cutoff_len",
    "max_length",
    "max_seq_length",
    "max_seq_len",
    "sequence_len",
    "model_max_length",
    "block_size",
)
ALSO = dict.fromkeys(LENGTHS, "seq_length") | {
    "model_name_or_path": "model",
    "base_model": "model",
    "model_id_or_path": "model",
    "model": "model",
    "model_name": "model",
    "pretrained_model_name_or_path": "model",
    "tensor_parallel_size": "tensor_model_parallel_size",
    "tp_size": "tensor_model_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "cp_size": "context_parallel_size",
    "sequence_parallel_size": "context_parallel_size",
}
"""Arguments that state a value of Megatron's, beside what they are under `hf.`."""
AXOLOTL = {
    "micro_batch_size": "per_device_train_batch_size",
    "num_epochs": "num_train_epochs",
    "lora_r": "lora_rank",
    "lora_target_modules": "lora_target",
    "flash_attention": "flash_attn",
    "peft_type": "adapter",
}
"""axolotl's names of what the Trainer has. Source: axolotl, src/axolotl/core/trainer_builder
(2025).
"""
DEEPSPEED_CONFIG = ("deepspeed_config",)
"""The file's name among the arguments that DeepSpeed itself adds to a script, beside a bare
--deepspeed; the Trainer's --deepspeed names the file. Source: [deepspeed] __init__.py,
add_config_arguments.
"""


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """Each argument under `hf.`; the model and the length of a sample also under `model` and
    `seq_length`.
    """
    if any(leaf.path == DEEPSPEED_CONFIG and leaf.value for leaf in leaves):
        switch = ("deepspeed",)
        leaves = [leaf for leaf in leaves if leaf.path != switch or leaf.value is not True]
    axolotl = any(leaf.path[0] in ("base_model", "sequence_len") for leaf in leaves)
    names = list(chain.from_iterable(_names(leaf, axolotl) for leaf in leaves))
    sharded = any(name.name == "use_torch_fsdp2" and name.value for name in names)
    deep = any(name.name == "hf.deepspeed" and name.value for name in names)
    framework: Framework = "deepspeed" if deep and not sharded else "torch"
    return make_reading(file, "huggingface", framework, names, notes=notes)


def _names(leaf: Leaf, axolotl: bool) -> list[Named]:
    dotted = ".".join(leaf.path)
    key = dotted
    if axolotl:
        key = AXOLOTL.get(dotted, dotted)
    if leaf.path == DEEPSPEED_CONFIG:
        key = "deepspeed"
    out = [named(f"hf.{key}", leaf)]
    if key in ALSO:
        out.append(named(ALSO[key], leaf))
    if key == "fsdp" and leaf.value:
        strategies = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        out += sharding(" ".join(map(str, strategies)), leaf)
    if key in (
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_config.sharding_strategy",
        "fsdp_sharding_strategy",
    ):
        out += sharding(str(leaf.value), leaf)
    return out


def sharding(text: str, leaf: Leaf) -> list[Named]:
    """FSDP's strategies: full shards weights too, shard_grad_op gathers them once; by name or by
    torch's number (1, 2, 3, 4, 5).
    """
    lower = text.lower()
    grads = "shard_grad_op" in lower or "zero2" in lower or lower in ("2", "5")
    none = "no_shard" in lower or lower == "3"
    hybrid = "hybrid" in lower or lower in ("4", "5")
    out = [Named("use_torch_fsdp2", leaf, not none)]
    if grads:
        out.append(Named("torch_fsdp2_no_reshard_after_forward", leaf, True))
    if none:
        out.append(Named("data_parallel_shard_degree", leaf, 1))
    if hybrid:
        out.append(Named("fsdp_hybrid", leaf, True))
    return out
