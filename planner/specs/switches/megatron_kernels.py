"""Switches of Megatron-LM's kernels: fusions that are on by default and can be taken away, and
kernels of sparse attention.

Source of flags and defaults: [megatron-core] training/arguments.py, core/transformer/
transformer_config.py of 0.14 to 0.19.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.layers import has_indexer
from planner.specs.megatron import fsdp_fuses
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Need, Plain, Spelling, Switch, Value
from planner.specs.versions import Version

SPARSE_KERNELS: Version = (0, 19)
FUSED_SPARSE = ("hopper", "blackwell", "blackwell-ultra")
"""Generations that cuDNN's kernels of sparse attention are for."""
TILE_KIB = 164
"""Shared memory of a block that Megatron-LM's TileLang kernel of sparse attention takes at the
least, with 16 heads a rank: H queries, two stages of 64 keys, all 576 wide (as every published
latent is with its rotated part), and 64 H scores in 16
bits. Only the generations above have so much: A100 163 KiB, Ada 99, CDNA 2 and 3 64, CDNA 4 160.

Source: [megatron-core] core/transformer/experimental_attention_variant/ops/
        tilelang_sparse_mla_fwd.py of 0.19.2; github.com/radixark/miles pull 3155, whose measured
        bytes of such kernels (172,032 with 32 heads 512 wide) the count gives.
"""


def sparse_kernels(architecture: str) -> str:
    """Whose kernels of sparse attention a GPU runs."""
    return "cudnn" if architecture in FUSED_SPARSE else "none"


def _fusion(name: str, *flags: str) -> tuple[Spelling, ...]:
    """Only what turns it off is written: which kernels a recipe of Bridge can have it knows
    itself.
    """
    off = Spelling(False, tuple((flag,) for flag in flags), bridge=((f"model.{name}", False),))
    return (off, Spelling(True))


def _may_accumulate(recipe: Recipe, layout: Layouts) -> Mask:
    """torch's FSDP and an early Megatron-FSDP run without the fusion: their files say so
    themselves.
    """
    return ~layout.sharded(2) | fsdp_fuses(recipe)


def _rotates(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.model.position == "rope")


def _rotates_together(recipe: Recipe, layout: Layouts) -> Mask:
    """Not beside an indexer of keys: [megatron-core] core/transformer/transformer_config.py."""
    return ~np.asarray(_indexed(recipe, layout))


def _indexed(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(has_indexer(recipe.model))


def _has_sparse_kernels(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.hardware.gpu.architecture in FUSED_SPARSE)


def _read_accumulation(plain: Plain) -> Value | None:
    stated = plain.get("gradient_accumulation_fusion")
    return stated if isinstance(stated, bool) and not plain.get("use_torch_fsdp2") else None


def _read_activation(plain: Plain) -> Value | None:
    """The flag of the model's own activation function; Bridge has one for all."""
    of_model = "bias_swiglu_fusion" if plain.get("swiglu") else "bias_gelu_fusion"
    stated = plain.get("bias_activation_fusion", plain.get(of_model))
    return stated if isinstance(stated, bool) else None


def _read_sparse_kernels(plain: Plain) -> Value | None:
    stated = plain.get("dsa_kernel_backend")
    return stated if stated in ("none", "tilelang", "cudnn") else None


def _read_rotation(plain: Plain) -> Value | None:
    stated = plain.get("apply_rope_fusion", plain.get("rope_fusion"))
    return stated if isinstance(stated, bool) else None


SWITCHES = (
    Switch(
        "gradient_accumulation_fusion",
        "Products of weight gradients add to the main gradient themselves, or write into the bucket"
        " that Megatron-FSDP reduces (Transformer Engine 2.10).",
        (False, True),
        True,
        "reassociated",
        _fusion("gradient_accumulation_fusion", "--no-gradient-accumulation-fusion"),
        "off: a 16-bit gradient of each weight is written and read again",
        "[megatron-core] core/tensor_parallel/layers.py, core/distributed/fsdp; bytes counted",
        exists=_may_accumulate,
        read=_read_accumulation,
    ),
    Switch(
        "bias_activation_fusion",
        "Bias and activation function of the MLP in one kernel each way.",
        (False, True),
        True,
        "reassociated",
        _fusion("bias_activation_fusion", "--no-bias-swiglu-fusion", "--no-bias-gelu-fusion"),
        "off: branches are activated, multiplied and split in kernels of their own, and one tensor"
        " more is kept",
        "[megatron-core] core/fusions/fused_bias_swiglu.py, core/transformer/mlp.py; tensors"
        " counted",
        read=_read_activation,
    ),
    Switch(
        "rope_fusion",
        "Queries and keys are rotated in one kernel each.",
        (False, True),
        True,
        "reassociated",
        _fusion("apply_rope_fusion", "--no-rope-fusion"),
        "off: products with sine and cosine, halves and their join are kernels of their own",
        "[megatron-core] core/models/common/embeddings/rope_utils.py; tensors counted",
        exists=_rotates,
        acts=_rotates_together,
        read=_read_rotation,
    ),
    Switch(
        "dsa_kernel_backend",
        "Kernels of sparse attention behind an indexer: they read the chosen keys alone.",
        ("none", "tilelang", "cudnn"),
        "none",
        "reassociated",
        (
            Spelling("none", bridge=(("model.dsa_kernel_backend", "none"),)),
            *(
                Spelling(
                    library,
                    (("--dsa-kernel-backend", library),),
                    since=SPARSE_KERNELS,
                    bridge=(("model.dsa_kernel_backend", library),),
                )
                for library in ("tilelang", "cudnn")
            ),
        ),
        "none: scores of all keys, of attention and of the indexer, are in memory in 32 bits",
        "[megatron-core] core/transformer/experimental_attention_variant/dsa_kernels.py; tensors"
        " counted",
        exists=_indexed,
        needs=(
            Need(
                "cuDNN's sparse attention is of Hopper and later",
                _has_sparse_kernels,
                "cuDNN's kernels of sparse attention need Hopper or Blackwell, but got"
                " {recipe.hardware.name}",
                "try dsa_kernel_backend none",
                values=("cudnn",),
            ),
            Need(
                "TileLang's sparse attention fits shared memory",
                _has_sparse_kernels,
                f"TileLang's kernels of sparse attention need {TILE_KIB} KiB of shared memory a"
                " block, as Hopper and Blackwell have, but got {recipe.hardware.name}",
                "try dsa_kernel_backend none",
                values=("tilelang",),
            ),
        ),
        read=_read_sparse_kernels,
    ),
)
