"""The model of every pipeline stage as Megatron-LM's own GPTModel, on the meta device: for the
process that judges flags.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

from megatron_mixers import hybrid_stand_ins, variant_layers, variant_spec  # beside this file


def accepts(function: Any, **wanted: Any) -> dict[str, Any]:
    """The arguments that this version's function has."""
    import inspect

    known = inspect.signature(function).parameters
    return {name: value for name, value in wanted.items() if name in known}


def process_groups(args: Any, rank: int, world_size: int) -> None:
    import torch.distributed as dist
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    start, create = parallel_state.initialize_model_parallel, parallel_state.create_group

    def own(ranks: list[int], *words: Any, **named: Any) -> Any:
        """Of the groups of other ranks nothing is asked, and they are thousands."""
        mine = rank in ranks
        return create(ranks, *words, **named) if mine else dist.GroupMember.NON_GROUP_MEMBER

    with mock.patch.object(parallel_state, "create_group", own):
        start(
            args.tensor_model_parallel_size,
            args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size,
            **accepts(
                start,
                context_parallel_size=args.context_parallel_size,
                expert_model_parallel_size=args.expert_model_parallel_size,
                expert_tensor_parallel_size=args.expert_tensor_parallel_size,
                create_gloo_process_groups=False,
                hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
                num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            ),
        )


def _for_a_cpu(config: Any) -> None:
    """Fusions that need a GPU build are off; they add no parameter."""
    import torch

    for name in (
        "perform_initialization",
        "gradient_accumulation_fusion",
        "persist_layer_norm",
        "apply_rope_fusion",
        "sequence_parallel",
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "bias_activation_fusion",
    ):
        setattr(config, name, False)
    config.use_cpu_initialization, config.context_parallel_size = True, 1
    torch.nn.Embedding.reset_parameters = lambda table: None  # else every case imports the compiler
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign,assignment]
    torch.cuda.current_device = lambda: torch.device("meta")
    torch.cuda.Stream = lambda *_, **__: None  # type: ignore[assignment,misc]
    _attention_of_any_width()


def _attention_of_any_width() -> None:
    """The CPU's core attention knows no widths of keys and values of their own, as latent attention
    has; it has no weights either.
    """
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    plain = DotProductAttention.__init__

    def init(
        self: Any,
        *given: Any,
        k_channels: int | None = None,
        v_channels: int | None = None,
        **named: Any,
    ) -> None:
        plain(self, *given, **named)

    DotProductAttention.__init__ = init  # type: ignore[method-assign]


def _chunk(args: Any, config: Any, virtual: int | None) -> dict[str, int]:
    """One virtual stage as the real model on the meta device."""
    if getattr(args, "hybrid_layer_pattern", None):
        return _hybrid_chunk(args, config, virtual)
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    if getattr(args, "experimental_attention_variant", None):
        spec = variant_spec(config, virtual)
    else:
        spec = get_gpt_decoder_block_spec(
            config,
            **accepts(
                get_gpt_decoder_block_spec,
                use_transformer_engine=False,
                vp_stage=virtual,
                normalization=args.normalization,
            ),
        )
    _norms_that_are_used(config, spec.layer_specs)
    ends = accepts(parallel_state.is_pipeline_first_stage, ignore_virtual=False, vp_stage=virtual)
    with torch.device("meta"):
        model = GPTModel(
            config,
            spec,
            args.padded_vocab_size,
            args.max_position_embeddings,
            pre_process=parallel_state.is_pipeline_first_stage(**ends),
            post_process=parallel_state.is_pipeline_last_stage(**ends),
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type,
            mtp_block_spec=_predictions(args, config, virtual),
            **accepts(GPTModel.__init__, vp_stage=virtual),
        )
    return {
        "layers": len(model.decoder.layers),
        "params": sum(parameter.numel() for parameter in model.parameters()),
    }


def _hybrid_chunk(args: Any, config: Any, virtual: int | None) -> dict[str, int]:
    """One virtual stage of a pattern of letters, of the stack that its --spec names."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection

    from_spec, model_class = hybrid_stand_ins(args)
    ends = accepts(parallel_state.is_pipeline_first_stage, ignore_virtual=False, vp_stage=virtual)
    wanted = {"hybrid_stack_spec": from_spec, "mamba_stack_spec": from_spec}
    with torch.device("meta"):
        model = model_class(
            config=config,
            vocab_size=args.padded_vocab_size,
            max_sequence_length=args.max_position_embeddings,
            hybrid_layer_pattern=args.hybrid_layer_pattern,
            pre_process=parallel_state.is_pipeline_first_stage(**ends),
            post_process=parallel_state.is_pipeline_last_stage(**ends),
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type,
            pg_collection=ProcessGroupCollection.use_mpu_process_groups(),
            vp_stage=virtual,
            **accepts(model_class.__init__, **wanted),
        )
    return {
        "layers": len(model.decoder.layers),
        "params": sum(parameter.numel() for parameter in model.parameters()),
    }


def _norms_that_are_used(config: Any, layers: Any) -> None:
    """Without a latent of the queries Transformer Engine's layer has no norm for it; the CPU's asks
    for one and then refuses it.
    """
    from megatron.core.transformer.identity_op import IdentityOp

    if getattr(config, "multi_latent_attention", False) and config.q_lora_rank is None:
        for layer in layers:
            layer.submodules.self_attention.submodules.q_layernorm = IdentityOp


def _predictions(args: Any, config: Any, virtual: int | None) -> Any:
    """The multi-token-prediction layers of a stage, as the pretraining script makes them; None
    where it has none.
    """
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_layer_specs,
        get_gpt_mtp_block_spec,
    )

    if not args.mtp_num_layers:
        return None
    if getattr(args, "experimental_attention_variant", None):
        layers = variant_layers(config)
    else:
        layers = get_gpt_decoder_layer_specs(
            config,
            **accepts(
                get_gpt_decoder_layer_specs,
                use_transformer_engine=False,
                normalization=args.normalization,
                vp_stage=virtual,
            ),
        )
    _norms_that_are_used(config, layers)
    return get_gpt_mtp_block_spec(
        config,
        layers[-1],
        use_transformer_engine=False,
        **accepts(get_gpt_mtp_block_spec, vp_stage=virtual),
    )


def build(args: Any, config: Any) -> list[list[dict[str, int]]]:
    """Chunks of every pipeline rank, on the smallest world that has them all."""
    from megatron.core import parallel_state

    _for_a_cpu(config)
    ranks = args.tensor_model_parallel_size * args.context_parallel_size
    step = math.lcm(ranks, args.expert_model_parallel_size * args.expert_tensor_parallel_size)
    pp, v = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    out = []
    for stage in range(pp):
        process_groups(args, stage * step, pp * step)
        chunks = []
        for virtual in range(v or 1):
            if v:
                parallel_state.set_virtual_pipeline_model_parallel_rank(virtual)
            chunks.append(_chunk(args, config, virtual if v else None))
        out.append(chunks)
    return out
