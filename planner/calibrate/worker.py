"""The child that measures: kernels, memory, launches, collectives of this machine, all ranks at the
same time as in training.

`python -m planner.calibrate.worker REQUEST.json RESULT.json` with torchrun's environment variables;
rank 0 writes the result. Without a request (`torchrun ... -m planner.calibrate.worker RESULT.json`)
the usual sizes are measured, over nodes too.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from planner.calibrate import sizes
from planner.calibrate.machine import machine
from planner.launch.process_guard import watch_parent

_PRECISION = {torch.bfloat16: "bf16", torch.float16: "bf16", torch.float32: "fp32"}
"""A profile holds fp16's rates as bf16's."""
BATCHES = 5
"""Of repeated runs, whose median counts."""
MAX_RUNS = 1000
Rows = list[dict[str, Any]]
Run = Callable[[], Any]
Case = tuple[dict[str, Any], str, Callable[[], Run | None]]
"""A row, the field that its seconds go to, and what makes the call that is timed; None on ranks
that take no part.
"""


def main(arguments: list[str]) -> int:
    watch_parent()
    if len(arguments) > 1:
        request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    else:
        request = sizes.request("cuda" if torch.cuda.is_available() else "cpu")
    device = _start(request["device"])
    result = {
        "machine": machine(device.type),
        "ranks": dist.get_world_size(),
        "ranks_per_node": _per_node(),
    }
    parts: dict[str, Callable[[dict[str, Any], torch.device], Any]] = {
        "launch_us": launch_us,
        "memory": memory,
        "gemm": products,
        "attention": attention,
        "collectives": collectives,
    }
    for name, measured in parts.items():
        _say(arguments[-1], {"phase": name})
        result[name] = measured(request, device)
    if dist.get_rank() == 0:
        Path(arguments[-1]).write_text(json.dumps(result), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


def launch_us(request: dict[str, Any], device: torch.device) -> float:
    """CPU time of one small operation that is launched eagerly, in microseconds, among many in a
    row.
    """
    small, count = torch.ones(16, device=device), int(request["operations"])

    def chain() -> None:
        for _ in range(count):
            small.add_(1.0)

    chain()
    dist.barrier()
    taken = []
    for _ in range(BATCHES):
        _wait(device)
        start = time.perf_counter()
        chain()
        # before the device is done: what the CPU alone takes
        taken.append(time.perf_counter() - start)
    return float(statistics.median(_gathered(statistics.median(taken) / count * 1e6)))


def memory(request: dict[str, Any], device: torch.device) -> Rows:
    """Streaming: c = a + b; `bytes` are those moved."""

    def added(size: int) -> Run:
        a, b, c = (torch.ones(size // 4, device=device) for _ in range(3))
        return lambda: torch.add(a, b, out=c)

    return _timed(
        [({"bytes": 3 * size}, "seconds", partial(added, size)) for size in request["memory"]],
        request,
        device,
    )


def products(request: dict[str, Any], device: torch.device) -> Rows:
    """Matrix products of (m, k) and (n, k) operands."""

    def product(dtype: torch.dtype, m: int, n: int, k: int) -> Run:
        a = torch.randn(m, k, device=device).to(dtype)
        b = torch.randn(n, k, device=device).to(dtype)
        return lambda: F.linear(a, b)

    cases: list[Case] = []
    for dtype in _types(device):
        for m, n, k in request["gemm"]:
            row = {"precision": _PRECISION[dtype], "m": m, "n": n, "k": k}
            cases.append((row, "seconds", partial(product, dtype, m, n, k)))
    return _timed(cases, request, device)


def attention(request: dict[str, Any], device: torch.device) -> Rows:
    """Causal attention of torch, forward, and backward alone."""

    def parts(batch: int, heads: int, seq: int, width: int) -> tuple[Run, list[torch.Tensor]]:
        inputs = []
        for _ in "qkv":
            made = torch.randn(batch, heads, seq, width, device=device)
            inputs.append(made.to(_types(device)[0]).requires_grad_())
        q, k, v = inputs
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), inputs

    def forward(*size: int) -> Run:
        return parts(*size)[0]

    def backward(*size: int) -> Run:
        run, inputs = parts(*size)
        out = run()
        given = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, inputs, given, retain_graph=True)

    cases: list[Case] = []
    for size in request["attention"]:
        row = dict(zip(("batch", "heads", "seq", "width"), size, strict=True))
        cases += [
            (row, "seconds", partial(forward, *size)),
            (row, "backward_s", partial(backward, *size)),
        ]
    return _timed(cases, request, device)


def collectives(request: dict[str, Any], device: torch.device) -> Rows:
    """Every collective over the first 2, 4, ... ranks, and over nodes; `bytes` are those of the
    whole buffer.
    """
    cases: list[Case] = []
    for members in _counts(dist.get_world_size()):
        group = dist.new_group(list(range(members)))
        for op in _known(members, group, device):
            nodes = -(-members // _per_node())
            for size in request["collectives"]:
                row = {"op": op, "ranks": members, "nodes": nodes, "bytes": size}
                cases.append((row, "seconds", partial(_exchange, op, size, members, group, device)))
    return _timed(cases, request, device)


def _exchange(op: str, size: int, members: int, group: Any, device: torch.device) -> Run | None:
    """One collective, or a message between the first two ranks; None on ranks that take no part."""
    rank, part_numel = dist.get_rank(), max(size // 4 // members, 1)
    if rank >= (2 if op == "send_recv" else members):
        return None
    full = torch.ones(part_numel * members, device=device)
    part = torch.ones(part_numel, device=device)
    other = torch.empty_like(full)
    calls: dict[str, Run] = {
        "all_reduce": lambda: dist.all_reduce(full, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(full, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, full, group=group),
        "all_to_all": lambda: dist.all_to_all_single(full, other, group=group),
        "send_recv": lambda: dist.send(full, 1) if rank == 0 else dist.recv(full, 0),
    }
    return calls[op]


def _known(members: int, group: Any, device: torch.device) -> list[str]:
    """Which of them the backend has."""

    def has(op: str) -> bool:
        run = _exchange(op, 4096, members, group, device)
        try:
            if run is not None:
                run()
        except (RuntimeError, NotImplementedError) as fault:
            if "not support" in str(fault) or "NotImplemented" in type(fault).__name__:
                return False
            raise
        return True

    tried = [op for op in sizes.COLLECTIVES if op != "send_recv" or members == 2]
    every = _gathered([op for op in tried if has(op)])
    everywhere = set.intersection(*map(set, every))
    return [op for op in tried if op in everywhere]


def _timed(cases: list[Case], request: dict[str, Any], device: torch.device) -> Rows:
    """The rows, each with its median seconds over the ranks that take part; all ranks start a batch
    together and repeat equally often.

    Cases take turns: what disturbs a machine for a while falls on one batch of many of them, not on
    all batches of one.
    """
    taken: list[list[float]] = [[] for _ in cases]
    counts: list[int] = []
    for turn in range(BATCHES):
        for place, (_, _, made) in enumerate(cases):
            run = made()
            if run is not None:
                run()  # what a first call does more is not timed
            if turn == 0:
                once = max(_gathered(_batch(run, 1, device)))
                wanted = int(request["seconds"] / BATCHES / max(once, 1e-7))
                counts.append(max(1, min(MAX_RUNS, wanted)))
            seconds = _batch(run, counts[place], device)
            taken[place].append(math.nan if run is None else seconds)
    every = _gathered([statistics.median(seconds) for seconds in taken])
    rows: Rows = []
    for (row, key, _), of_ranks in zip(cases, zip(*every, strict=True), strict=True):
        row[key] = float(statistics.median([s for s in of_ranks if not math.isnan(s)]))
        if not rows or row is not rows[-1]:
            rows.append(row)
    return rows


def _batch(run: Run | None, count: int, device: torch.device) -> float:
    """Seconds of one of so many calls in a row."""
    _wait(device)
    dist.barrier()
    start = time.perf_counter()
    if run is not None:
        for _ in range(count):
            run()
    _wait(device)
    return (time.perf_counter() - start) / count


def _gathered(value: Any) -> list[Any]:
    """The value of every rank, by rank."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def _start(kind: str) -> torch.device:
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    if kind == "cpu":
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // _per_node()))
    return torch.device(f"cuda:{torch.cuda.current_device()}" if kind == "cuda" else "cpu")


def _per_node() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "0")) or dist.get_world_size()


def _counts(world: int) -> list[int]:
    """2, 4, ... and all ranks; none where there is one."""
    counts = [2**power for power in range(1, world.bit_length())]
    return sorted({*counts, world} - {1})


def _types(device: torch.device) -> tuple[torch.dtype, ...]:
    """Of operands, that of attention first."""
    if device.type == "cpu":
        return (torch.float32, torch.bfloat16)
    narrow = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return (narrow, torch.float32)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _say(result: str, line: dict[str, Any]) -> None:
    if dist.get_rank() == 0:
        with Path(f"{result}.progress").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
