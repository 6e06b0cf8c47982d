"""Stands where a checkout of Megatron-LM 0.19 has pretrain_gpt.py: Megatron-core's own arguments,
initialization, training loop, schedules, GPT and optimizer; local layers, and tokens that are all
the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.training import get_args, pretrain
from megatron.training.argument_utils import pretrain_cfg_container_from_args
from megatron.training.arguments import core_transformer_config_from_args, parse_and_validate_args

NOT_ON_A_CPU = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)
"""Fields of the configuration that ask for compiled kernels."""


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"tokens": torch.zeros(1, dtype=torch.long)}


def model(
    pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **_: Any
) -> Any:
    args = get_args()
    for name in NOT_ON_A_CPU:
        setattr(args, name, False)
    config = core_transformer_config_from_args(args)
    for name in NOT_ON_A_CPU:
        setattr(config, name, False)
    config.use_cpu_initialization = True
    return GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        args.padded_vocab_size,
        args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type="rope",
        vp_stage=vp_stage,
    )


def loss(out: torch.Tensor) -> Any:
    total, count = out.float().sum(), torch.tensor(out.numel(), dtype=torch.int)
    return total, count, {"lm loss": torch.stack([total.detach(), count.float()])}


def forward(data: Any, chunk: Any) -> Any:
    args = get_args()
    ids = torch.zeros(args.micro_batch_size, args.seq_length, dtype=torch.long)
    places = torch.arange(args.seq_length).expand_as(ids)
    hidden = torch.ones(1, 1, args.seq_length, args.seq_length, dtype=torch.bool).triu(1)
    return chunk(ids, places, hidden, labels=ids), partial(loss)


def data(samples: Any, vp_stage: int | None = None) -> Any:
    return Tokens(), None, None


data.is_distributed = True  # type: ignore[attr-defined]

if __name__ == "__main__":
    cfg = pretrain_cfg_container_from_args(parse_and_validate_args())
    pretrain(cfg, data, ModelType.encoder_or_decoder, forward, model_provider=model)
