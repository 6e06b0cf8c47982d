"""Stands where a clone of Megatron-LM has pretrain_gpt.py: a small GPT of megatron-core's own
modules, its own pipeline schedules, gloo.

Understands the flags that it needs of those that are written for Megatron-LM, and prints a step in
Megatron-LM's words. What of torch.cuda the modules call is led to the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import time
import typing
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import typing_extensions
from torch import distributed
from torch.overrides import TorchFunctionMode

SIZES = (
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "seq-length",
    "micro-batch-size",
    "global-batch-size",
    "train-iters",
    "pipeline-model-parallel-size",
    "tensor-model-parallel-size",
    "ffn-hidden-size",
)
VOCABULARY = 128


class OnCpu(TorchFunctionMode):
    """Whatever is asked to be made on or moved to a GPU is made here."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") == "cuda":
            return args[0]
        named = {
            name: "cpu" if name == "device" and str(value).startswith("cuda") else value
            for name, value in (kwargs or {}).items()
        }
        return function(
            *("cpu" if isinstance(one, str) and one.startswith("cuda") else one for one in args),
            **named,
        )


class Stream:
    """Work on a CPU is in order by itself."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def wait_stream(self, _: Any) -> None: ...
    def synchronize(self) -> None: ...


def without_gpu() -> None:
    cuda: Any = torch.cuda
    cuda.current_device, cuda.current_stream, cuda.Stream = (
        (lambda: "cpu"),
        (lambda *_: Stream()),
        Stream,
    )
    for room, name in (
        (cuda, "synchronize"),
        (cuda, "set_device"),
        (cuda.nvtx, "range_push"),
        (cuda.nvtx, "range_pop"),
    ):
        setattr(room, name, lambda *_, **__: None)
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.get_rng_state, cuda.set_rng_state = (
        (lambda *_, **__: torch.get_rng_state()),
        (lambda state, *_, **__: torch.set_rng_state(state)),
    )


def plain(function: Any = None, **_: Any) -> Any:
    """In place of torch.compile: a decorator, with or without options, that leaves a function as it
    is.
    """
    return plain if function is None else function


def import_megatron() -> None:
    """Kernels that a CPU never calls are defined on import, which needs something called triton;
    torch must not find it afterwards.
    """
    torch.compile = plain  # type: ignore[assignment]
    absent = [] if importlib.util.find_spec("triton") else ["triton", "triton.language"]
    sys.modules.update({name: mock.MagicMock(__version__="3.5.0") for name in absent})
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.pipeline_parallel  # noqa: F401

    for name in absent:
        del sys.modules[name]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in SIZES:
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_known_args()[0]


def stage(args: argparse.Namespace) -> Any:
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        num_attention_heads=args.num_attention_heads,
        ffn_hidden_size=args.ffn_hidden_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        batch_p2p_comm=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
    )
    ends = {
        "pre_process": parallel_state.is_pipeline_first_stage(),
        "post_process": parallel_state.is_pipeline_last_stage(),
    }
    model: Any = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        VOCABULARY,
        args.seq_length,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
        **ends,
    )
    model.model_type = ModelType.encoder_or_decoder
    return model


def tokens(args: argparse.Namespace) -> Iterator[torch.Tensor]:
    """The same sequence over and over: its loss must fall."""
    numbers = torch.Generator().manual_seed(5)
    one = torch.randint(VOCABULARY, (args.micro_batch_size, args.seq_length), generator=numbers)
    while True:
        yield one


def forward(data: Iterator[torch.Tensor], model: Any) -> Any:
    ids = next(data)
    places = torch.arange(ids.shape[1]).expand_as(ids)
    hidden = torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)

    def loss(out: torch.Tensor) -> Any:
        return out.mean(), {"lm loss": out.mean().detach()}

    return model(ids, places, hidden, labels=ids), loss


def main() -> None:
    args = options()
    without_gpu()
    distributed.init_process_group("gloo")
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel import random

    random._get_cuda_rng_state, random._set_cuda_rng_state = (
        (lambda *_, **__: torch.get_rng_state()),
        (  # type: ignore[attr-defined]
            lambda state, *_, **__: torch.set_rng_state(state)
        ),
    )
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    )
    random.model_parallel_cuda_manual_seed(1)
    torch.manual_seed(1)
    model, data = stage(args), tokens(args)
    optimizer, step = torch.optim.SGD(model.parameters(), lr=0.5), get_forward_backward_func()
    dp = distributed.get_world_size() // args.pipeline_model_parallel_size
    for number in range(1, args.train_iters + 1):
        began = time.perf_counter()
        optimizer.zero_grad()
        with OnCpu():
            losses = step(
                forward_step_func=forward,
                data_iterator=data,
                model=model,
                seq_length=args.seq_length,
                micro_batch_size=args.micro_batch_size,
                forward_only=False,
                num_microbatches=args.global_batch_size // args.micro_batch_size // dp,
            )
        optimizer.step()
        if distributed.get_rank() == distributed.get_world_size() - 1:
            tell(
                args,
                number,
                time.perf_counter() - began,
                float(sum(one["lm loss"] for one in losses) / len(losses)),
            )
    distributed.barrier()  # none leaves while another still waits for what it sent
    distributed.destroy_process_group()


def tell(args: argparse.Namespace, number: int, seconds: float, loss: float) -> None:
    """As training_log of Megatron-LM prints it."""
    print(
        f" [2026-01-01 00:00:00.000000] iteration {number:8d}/{args.train_iters:8d} | consumed"
        f" samples: {number * args.global_batch_size:12d} | elapsed time per iteration (ms):"
        f" {1000 * seconds:.1f} | throughput per GPU (TFLOP/s/GPU): 0.1 | learning rate:"
        f" 5.000000E-01 | global batch size: {args.global_batch_size:5d} | lm loss: {loss:.6E} |"
        " loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | number of nan"
        " iterations:   0 |",
        flush=True,
    )


if __name__ == "__main__":
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    import_megatron()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
