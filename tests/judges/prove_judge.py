"""Runs a `prove.py` on a CPU: `python prove_judge.py PROVE.py`, with megatron-core's wheel on the
path. What it asks of torch.cuda is answered without a GPU; all else is Megatron-core's own code.
"""

from __future__ import annotations

import collections
import contextlib
import runpy
import sys
import types
import typing
from typing import Any
from unittest import mock

import torch
import typing_extensions
from torch.overrides import TorchFunctionMode

PROPERTIES = types.SimpleNamespace(
    major=9, minor=0, name="stand-in", total_memory=1 << 36, multi_processor_count=132
)


class OnCpu(TorchFunctionMode):
    """Whatever is asked to be made on or moved to a GPU is made here."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        device = named.get("device")
        if isinstance(device, int) or "cuda" in str(device):
            named["device"] = "cpu"
        placed = [
            "cpu" if "cuda" in str(word) and isinstance(word, str | torch.device) else word
            for word in args
        ]
        return function(*placed, **named)


class Stream:
    """A stream or an event: work on a CPU is in order by itself."""

    stream_id = device_index = device_type = cuda_stream = 0

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 0.0


def always(value: Any) -> Any:
    return lambda *_, **__: value


def answers(**values: Any) -> dict[str, Any]:
    """Functions by name that give these values, whatever they are asked."""
    return {name: always(value) for name, value in values.items()}


NOTHING = (
    "init",
    "_lazy_init",
    "set_device",
    "synchronize",
    "empty_cache",
    "set_stream",
    "reset_peak_memory_stats",
    "manual_seed",
    "manual_seed_all",
    "set_rng_state",
)


def without_gpu() -> None:
    cuda: Any = torch.cuda
    one = Stream()
    known = answers(
        **dict.fromkeys(NOTHING),
        is_available=True,
        is_initialized=True,
        device_count=1,
        current_device=torch.device("cpu"),
        get_device_properties=PROPERTIES,
        get_device_capability=(9, 0),
        get_device_name="stand-in",
        is_bf16_supported=True,
        is_current_stream_capturing=False,
        current_stream=one,
        default_stream=one,
        memory_allocated=0,
        max_memory_allocated=12345,
        memory_reserved=0,
        max_memory_reserved=23456,
        memory_stats=collections.defaultdict(int),
        mem_get_info=(1, 1),
        get_rng_state=torch.get_rng_state(),
        stream=contextlib.nullcontext(),
    )
    for name, answer in known.items():
        setattr(cuda, name, answer)
    cuda.Stream = cuda.Event = Stream
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: None
    for name, answer in answers(
        is_available=True,
        current_accelerator=torch.device("cpu"),
        device_count=1,
        current_stream=one,
        current_device_index=0,
        set_device_index=None,
        synchronize=None,
    ).items():
        setattr(torch.accelerator, name, answer)
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *_, **__: self
    tensor.record_stream = lambda self, stream: None
    plain = tensor.type
    tensor.type = lambda self, *words, **named: (
        plain(self, *words, **named)
        if words or named
        else "torch.cuda." + plain(self).rpartition(".")[2]
    )
    torch.compile = lambda function=None, **_: function or (lambda inner: inner)


def import_megatron() -> None:
    """Its kernels need something called triton at import, and its data sets a compiled helper."""
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    stand_ins = {"triton": mock.MagicMock(__version__="3.5.0"), "triton.language": mock.MagicMock()}
    sys.modules.update(stand_ins)
    import megatron.core.datasets.utils as datasets
    import megatron.core.jit as jit
    import megatron.core.tensor_parallel.random as random
    import megatron.training.training  # noqa: F401

    for name in stand_ins:
        del sys.modules[name]
    jit.disable_jit_fuser()
    helpers = "megatron.core.datasets.helpers_cpp"
    sys.modules[helpers] = types.ModuleType(helpers)
    datasets.compile_helpers = lambda: None
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda *_, **__: None


if __name__ == "__main__":
    without_gpu()
    import_megatron()
    with OnCpu():
        runpy.run_path(sys.argv[1], run_name="__main__")
