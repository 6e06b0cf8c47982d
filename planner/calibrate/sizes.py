"""Which sizes a calibration measures: those of training on a GPU; smaller ones on a CPU, whose
every product takes its time.
"""

from __future__ import annotations

from itertools import product
from typing import Any


def _every(*values: tuple[int, ...]) -> list[list[int]]:
    """Every combination of a value of each."""
    return list(map(list, product(*values)))


_GPU = {
    "gemm": _every((1024, 2048, 4096, 8192), (1024, 4096, 14336), (1024, 4096, 8192, 28672)),
    "attention": _every((1, 2), (8, 32), (1024, 2048, 4096, 8192), (64, 128)),
    "memory": [2**power for power in (26, 27, 28, 29, 30)],
    "collectives": [2**power for power in range(16, 30, 2)],
    "operations": 2000,
    "seconds": 0.02,
}
_CPU = {
    "gemm": _every((128, 512, 2048), (64, 256, 1024), (64, 256, 1024)),
    "attention": _every((1, 4), (2, 8), (128, 256, 512), (32, 64)),
    "memory": [2**power for power in (20, 21, 22, 23, 24)],
    "collectives": [2**power for power in range(12, 25, 2)],
    "operations": 2000,
    "seconds": 0.05,
}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def request(device: str) -> dict[str, Any]:
    """What the worker is asked: m, n, k of products; batch, heads, tokens, head size of attention;
    bytes of copies and of messages.

    `seconds` is how long each of them is repeated, `operations` how many small ones are launched in
    a row.
    """
    return {"device": device, **(_GPU if device == "cuda" else _CPU)}
