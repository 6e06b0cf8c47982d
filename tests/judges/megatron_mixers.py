"""Megatron-LM's hybrids and variants of attention, built on a CPU: its own layers, with its own
local modules where their specs name Transformer Engine's; for the process that judges flags.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import cache
from typing import Any


@cache
def _stand_ins() -> dict[str, Any]:
    """By Transformer Engine's name a local module of the same weights."""
    import torch
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def known(function: Any, named: dict[str, Any]) -> dict[str, Any]:
        import inspect

        names = inspect.signature(function).parameters
        return {name: value for name, value in named.items() if name in names}

    class Column(ColumnParallelLinear):  # type: ignore[misc]
        def __init__(self, *sizes: int, **named: Any) -> None:
            super().__init__(*sizes, **known(ColumnParallelLinear.__init__, named))

    class Row(RowParallelLinear):  # type: ignore[misc]
        def __init__(self, *sizes: int, **named: Any) -> None:
            super().__init__(*sizes, **known(RowParallelLinear.__init__, named))

    class NormedColumn(Column):
        """With the norm of its input inside."""

        def __init__(self, width: int, *sizes: int, **named: Any) -> None:
            super().__init__(width, *sizes, **named)
            self.layer_norm_weight = torch.nn.Parameter(torch.empty(width))
            if named["config"].normalization == "LayerNorm":
                self.layer_norm_bias = torch.nn.Parameter(torch.empty(width))

    class Whole(torch.nn.Module):
        """On every rank."""

        def __init__(self, width: int, outputs: int, bias: bool = False, **named: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(outputs, width))
            if bias:
                self.bias = torch.nn.Parameter(torch.empty(outputs))

    return {
        "TEColumnParallelLinear": Column,
        "TERowParallelLinear": Row,
        "TELayerNormColumnParallelLinear": NormedColumn,
        "TELinear": Whole,
        "TENorm": WrappedTorchNorm,
        "TEDotProductAttention": DotProductAttention,
    }


def _replace() -> None:
    """Every name of Transformer Engine's modules, wherever one was imported."""
    import megatron.core.extensions.transformer_engine  # noqa: F401

    stand = _stand_ins()
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core"):
            for word in stand.keys() & vars(module).keys():
                setattr(module, word, stand[word])


def _mixers() -> None:
    """The kernels of Mamba, delta nets and latent experts are not there; their parameters are."""
    import megatron.core.ssm.mamba_mixer as mamba
    import megatron.core.transformer.moe.moe_layer as moe
    import torch

    class GatedNorm(torch.nn.Module):
        def __init__(self, width: int, **named: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(width))

    class Seeds:
        def fork(self) -> Any:
            return contextlib.nullcontext()

    mamba.HAVE_MAMBA_SSM, mamba.RMSNormGated = True, GatedNorm
    mamba.ExtendedRMSNorm = GatedNorm
    moe.HAVE_TE = True
    nets = importlib.import_module("megatron.core.ssm.gated_delta_net")
    parts = [x for name, x in sys.modules.items() if name.startswith(nets.__name__)]
    for module in (mamba, *parts):
        module.HAVE_FLA, module.get_cuda_rng_tracker = True, Seeds  # type: ignore[attr-defined]
        module.chunk_gated_delta_rule = Seeds  # type: ignore[attr-defined]


def hybrid_stand_ins(args: Any) -> tuple[Any, Any]:
    """The stack of --spec and the class of the model."""
    package, name = args.spec
    importlib.import_module(package)
    _replace()
    _mixers()
    module = importlib.reload(sys.modules[package])
    stack = getattr(module, name)
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec

    local = get_moe_module_spec(use_te=False, num_experts=8, moe_grouped_gemm=False)
    stack.submodules.moe_layer.submodules.mlp = local
    if "hybrid" in package:
        from megatron.core.models.hybrid.hybrid_model import HybridModel

        return stack, HybridModel
    from megatron.core.models.mamba import MambaModel

    return stack, MambaModel


def _local_backend() -> None:
    """What variants take for Transformer Engine's: local modules, with norms inside products."""
    import megatron.core.models.gpt.experimental_attention_variant_module_specs as specs
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt import gpt_layer_specs

    stand = _stand_ins()

    class Backend(LocalSpecProvider):  # type: ignore[misc]
        def linear(self) -> type:
            return stand["TELinear"]  # type: ignore[no-any-return]

        def column_parallel_linear(self) -> type:
            return stand["TEColumnParallelLinear"]  # type: ignore[no-any-return]

        def row_parallel_linear(self) -> type:
            return stand["TERowParallelLinear"]  # type: ignore[no-any-return]

        def column_parallel_layer_norm_linear(self) -> type:
            return stand["TELayerNormColumnParallelLinear"]  # type: ignore[no-any-return]

        def layer_norm(self, *_: Any, **__: Any) -> type:
            return stand["TENorm"]  # type: ignore[no-any-return]

        def fuse_layernorm_and_linear(self) -> bool:
            return True

    for module in (specs, gpt_layer_specs):
        module.TESpecProvider = Backend  # type: ignore[attr-defined]


def variant_spec(config: Any, virtual: int | None) -> Any:
    """The layers of --experimental-attention-variant on a stage."""
    import megatron.core.models.gpt.experimental_attention_variant_module_specs as specs

    _replace()
    _mixers()
    _local_backend()
    return specs.get_transformer_block_with_experimental_attention_variant_spec(
        config=config, vp_stage=virtual
    )


def variant_layers(config: Any) -> Any:
    """All of them: prediction is as the last."""
    import megatron.core.models.gpt.experimental_attention_variant_module_specs as specs

    return specs.get_transformer_layer_with_experimental_attention_variant_spec(config=config)
