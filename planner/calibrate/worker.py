"""The child that measures: kernels, memory, launches, collectives of this machine, all ranks at the same time as in training.

`python -m planner.calibrate.worker REQUEST.json RESULT.json` with torchrun's environment variables; rank 0 writes the result.
Without a request (`torchrun ... -m planner.calibrate.worker RESULT.json`) the usual sizes are measured, over nodes too.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from planner.calibrate import sizes
from planner.calibrate.machine import machine
from planner.launch.watch import watch_parent

BATCHES = 5
"""Of repeated runs, whose median counts."""
MOST = 1000
Rows = list[dict[str, Any]]


def main(arguments: list[str]) -> int:
    watch_parent()
    asked = json.loads(Path(arguments[0]).read_text(encoding="utf-8")) if len(arguments) > 1 else sizes.request(_default_device())
    device = _start(asked["device"])
    found = {"machine": machine(device.type), "ranks": dist.get_world_size(), "ranks_per_node": _per_node()}
    parts: dict[str, Callable[[dict[str, Any], torch.device], Any]] = {
        "launch_us": launch_us, "memory": memory, "gemm": products, "attention": attention, "collectives": collectives,
    }  # fmt: skip
    for name, measured in parts.items():
        _say(arguments[-1], {"phase": name})
        found[name] = measured(asked, device)
    if dist.get_rank() == 0:
        Path(arguments[-1]).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


def launch_us(asked: dict[str, Any], device: torch.device) -> float:
    """CPU time of one small operation that is launched eagerly, in microseconds, among many in a row."""
    small, count = torch.ones(16, device=device), int(asked["operations"])

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
        taken.append(time.perf_counter() - start)  # before the device is done: what the CPU alone takes
    return _of_ranks(statistics.median(taken) / count * 1e6)


def memory(asked: dict[str, Any], device: torch.device) -> Rows:
    """Streaming: c = a + b; `bytes` are those moved."""
    rows = []
    for size in asked["memory"]:
        a, b, c = (torch.ones(size // 4, device=device) for _ in range(3))
        rows.append({"bytes": 3 * size, "seconds": _timed(lambda a=a, b=b, c=c: torch.add(a, b, out=c), asked, device)})  # type: ignore[misc]
    return rows


def products(asked: dict[str, Any], device: torch.device) -> Rows:
    rows = []
    for dtype, (m, n, k) in ((dtype, size) for dtype in _types(device) for size in asked["gemm"]):
        a = torch.randn(m, k, device=device).to(dtype)
        b = torch.randn(n, k, device=device).to(dtype)
        seconds = _timed(lambda a=a, b=b: F.linear(a, b), asked, device)  # type: ignore[misc]
        rows.append({"precision": _name(dtype), "m": m, "n": n, "k": k, "seconds": seconds})
    return rows


def attention(asked: dict[str, Any], device: torch.device) -> Rows:
    """Causal attention of torch, forward, and backward alone."""
    rows = []
    dtype = _types(device)[0]
    for batch, heads, seq, width in asked["attention"]:
        q, k, v = (torch.randn(batch, heads, seq, width, device=device).to(dtype).requires_grad_() for _ in range(3))
        forward = _timed(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True), asked, device)  # type: ignore[misc]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        given = torch.ones_like(out)
        backward = _timed(lambda o=out, g=given, x=(q, k, v): torch.autograd.grad(o, x, g, retain_graph=True), asked, device)  # type: ignore[misc]
        rows.append({"batch": batch, "heads": heads, "seq": seq, "width": width, "seconds": forward, "backward_s": backward})
    return rows


def collectives(asked: dict[str, Any], device: torch.device) -> Rows:
    """Every collective over the first 2, 4, ... ranks, and over nodes; `bytes` are those of the whole buffer."""
    world, rows = dist.get_world_size(), []
    groups = [(n, list(range(n))) for n in _counts(world)]
    for members, ranks in groups:
        group = dist.new_group(ranks)
        for op in sizes.COLLECTIVES:
            for size in asked["collectives"]:
                seconds = _exchange(op, size, members, group, device, asked)
                nodes = -(-members // _per_node())
                if seconds is not None:
                    rows.append({"op": op, "ranks": members, "nodes": nodes, "bytes": size, "seconds": seconds})
    return rows


def _exchange(op: str, size: int, members: int, group: Any, device: torch.device, asked: dict[str, Any]) -> float | None:
    """Seconds of one collective; None where the backend lacks it, or between ranks that are not the first two (a message)."""
    rank, one = dist.get_rank(), max(size // 4 // members, 1)
    full, part = torch.ones(one * members, device=device), torch.ones(one, device=device)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(full, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(full, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, full, group=group),
        "all_to_all": lambda: dist.all_to_all_single(full, full.clone(), group=group),
        "send_recv": lambda: dist.send(full, 1) if rank == 0 else dist.recv(full, 0),
    }
    taking = rank < (2 if op == "send_recv" else members)
    if op == "send_recv" and members != 2:
        return None
    try:
        return _timed(calls[op] if taking else None, asked, device)
    except (RuntimeError, NotImplementedError) as fault:
        if "not support" in str(fault) or "NotImplemented" in type(fault).__name__:
            return None
        raise


def _timed(run: Callable[[], Any] | None, asked: dict[str, Any], device: torch.device) -> float:
    """Median seconds of a call, over ranks that take part (run is None on the others): all start together, repeat equally often."""
    if run is not None:
        run()
    _wait(device)
    dist.barrier()
    start = time.perf_counter()
    if run is not None:
        run()
        _wait(device)
    once = _largest(time.perf_counter() - start)
    count = max(1, min(MOST, int(asked["seconds"] / BATCHES / max(once, 1e-7))))
    taken = []
    for _ in range(BATCHES):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count if run is not None else 0):
            run()  # type: ignore[misc]
        _wait(device)
        taken.append((time.perf_counter() - start) / count)
    return _of_ranks(statistics.median(taken) if run is not None else None)


def _of_ranks(value: float | None) -> float:
    """The median over the ranks that have a value."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return float(statistics.median(x for x in every if x is not None))


def _largest(value: float) -> float:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return float(max(every))


def _start(kind: str) -> torch.device:
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    if kind == "cpu":
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // _per_node()))
    return torch.device(f"cuda:{torch.cuda.current_device()}" if kind == "cuda" else "cpu")


def _default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _per_node() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "0")) or dist.get_world_size()


def _counts(world: int) -> list[int]:
    return sorted({*(2**power for power in range(1, world.bit_length()) if 2**power <= world), *([world] if world > 1 else [])})


def _types(device: torch.device) -> tuple[torch.dtype, ...]:
    if device.type == "cpu":
        return (torch.float32, torch.bfloat16)
    return (torch.bfloat16, torch.float32) if torch.cuda.is_bf16_supported() else (torch.float16, torch.float32)


def _name(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "bf16", torch.float16: "bf16", torch.float32: "fp32"}[dtype]  # a profile holds fp16's rates as bf16's


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _say(result: str, line: dict[str, Any]) -> None:
    if dist.get_rank() == 0:
        with Path(f"{result}.progress").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
