"""Which framework's arguments a command line holds."""

from __future__ import annotations

import posixpath
import re

from planner.intake.bash.traced_text import Text, plain
from planner.intake.frameworks.deepspeed_keys import words
from planner.intake.frameworks.megatron_flags import deepspeed_only
from planner.intake.frameworks.nemo_recipes import SPELLED
from planner.intake.scripts.argparse_like import Parsed
from planner.intake.scripts.launchers import TrainingCommand

MEGATRON = words("""
tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size \
expert_model_parallel_size num_layers hidden_size
num_attention_heads micro_batch_size global_batch_size seq_length yaml_cfg \
use_distributed_optimizer sequence_parallel recompute_granularity
model_parallel_size encoder_num_layers
""")
HUGGING = words("""
per_device_train_batch_size model_name_or_path gradient_accumulation_steps output_dir \
num_train_epochs learning_rate gradient_checkpointing
per_device_eval_batch_size finetuning_type cutoff_len max_seq_length model_id_or_path train_type \
tuner_type lora_rank lora_r fsdp deepspeed
model_max_length max_seq_len per_gpu_train_batch_size use_peft attn_implementation \
lr_scheduler_type warmup_ratio torch_dtype
""")
"""Arguments of the Trainer and of the programs around it."""
DEEPSPEED = {"deepspeed", "zero_stage", "deepspeed_config"}
"""Any of these beside Megatron's flags: Megatron-DeepSpeed."""
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w/-]*(\.[\w-]+)*=", re.ASCII)


def overrides(parsed: Parsed) -> list[Text]:
    """Hydra's `a.b=c` on the command line."""
    return [word for word in parsed.positional if _OVERRIDE.match(plain(word))]


def hugging(parsed: Parsed) -> int:
    """How many arguments are the Trainer's."""
    return sum(leaf.path[0] in HUGGING for leaf in parsed.leaves)


def by_recipe(parsed: Parsed) -> bool:
    """Whether a flag names a recipe of NeMo 2 or Megatron-Bridge."""
    return any(leaf.path[0] in SPELLED for leaf in parsed.leaves)


def kind(command: TrainingCommand, parsed: Parsed) -> str:
    """megatron, megatron-deepspeed, swift, nemo, torchtitan, huggingface, or config where files say
    it all.
    """
    program = command.program
    base = posixpath.basename(program)
    if program.startswith("megatron "):
        return "swift"
    if "torchtitan" in program or sum("." in leaf.path[0] for leaf in parsed.leaves) >= 2:
        return "torchtitan"
    if base == "deepy.py" or ("neox" in program.lower() and not parsed.flags):
        return "neox"
    names = {flag.name for flag in parsed.flags}
    core = len(names & MEGATRON)
    if program.startswith(("swift ", "llamafactory-cli ", "trl ", "axolotl ")) or (
        hugging(parsed) >= 2 and hugging(parsed) > core
    ):
        return "huggingface"
    hydra = len(overrides(parsed))
    if by_recipe(parsed) and not core:
        return "nemo"
    if hydra >= 2 and hydra > core:
        return "nemo"
    if core:
        if names & DEEPSPEED or sum(map(deepspeed_only, parsed.flags)) >= 2:
            return "megatron-deepspeed"
        return "megatron"
    if hugging(parsed):
        return "huggingface"
    return "nemo" if hydra else "config"
