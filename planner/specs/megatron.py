"""What a stack and a layout mean to Megatron-LM, for the rules and the files alike."""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

WHOLE_STATES = 12.0
"""Bytes a parameter of Adam's states in 32 bits: main weight and two moments."""
MOMENTS = {10.0: "fp32", 6.0: "bf16", 4.0: "fp8"}
"""Types of the precision-aware optimizer's moments by bytes a parameter of all states; of the main
weight it keeps the 16 bits beyond the bf16 weight (store_param_remainders).

Source: [megatron-core] core/optimizer/optimizer_config.py; Transformer Engine's FusedAdam.
"""
NARROW = {"precision-aware-fp32": "fp32", "precision-aware": "bf16", "precision-aware-fp8": "fp8"}
"""The precision-aware optimizer by the type of its moments, as questions name it."""


def exchange_overlaps(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether dispatch and combine of experts run beside another micro-batch's compute: as the
    stack does, where there is an exchange.
    """
    return (np.asarray(layout.ep) > 1) & (recipe.software.experts.overlap_share > 0)


def sharded_by_torch(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether weights or gradients are sharded by torch's FSDP2, not by Megatron-FSDP."""
    return recipe.software.fsdp == "torch" and layout.zero >= 2


EXACT_NULL_VOCAB = (0, 18)
"""Until then NullTokenizer adds one entry to --vocab-size.

Source: [megatron-core] core/tokenizers/text/libraries/null_tokenizer.py
"""
FSDP_FUSES = (0, 17)
"""Since then Megatron-FSDP asks Transformer Engine for 2.10, whose products of weight gradients
write into its buckets; before, files turn the fusion off.

Source: [megatron-core] core/distributed/fsdp/mcore_fsdp_adapter.py
"""


def fsdp_fuses(recipe: Recipe) -> bool:
    """Whether products may write weight gradients into the buckets that FSDP reduces: never torch's
    (training/arguments.py refuses it).
    """
    since = version_of("megatron", recipe.framework_version) >= FSDP_FUSES
    return recipe.software.fsdp != "torch" and since
