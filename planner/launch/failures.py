"""Why a run failed, from how its ranks ended and what they wrote: out of memory, communication,
signal, exit code.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from planner.launch.outcome import State

TAIL_BYTES = 16_384
LINE = 400
_MEMORY_WORDS = (b"emory", b"alloc", b"ALLOC", b"MEMORY")
"""One of them is in whatever _MEMORY finds; a plain search for them is quick on many megabytes."""
_MEMORY = re.compile(
    rb"[^\r\n]*(?:OutOfMemoryError|(?:CUDA|HIP|XPU|NPU) out of memory|CUDA error: out of"
    rb" memory|cudaErrorMemoryAllocation"
    rb"|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|Cuda"
    rb" failure[^\r\n]{0,20}'?out of memory"
    rb"|DefaultCPUAllocator: (?:can't allocate|not enough) memory|Cannot allocate"
    rb" memory|^MemoryError|std::bad_alloc)[^\r\n]*",
    re.MULTILINE,
)
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|[KMGT]iB)")
_COMMUNICATION = (
    (
        "NCCL",
        re.compile(
            r"NCCL error|nccl\w+Error|ProcessGroupNCCL|NCCL WARN|collective operation timeout"
        ),
    ),
    (
        "gloo",
        re.compile(r"gloo/|ProcessGroupGloo|Gloo \w+ failed|Operation timed out!", re.IGNORECASE),
    ),
    (
        "rendezvous",
        re.compile(
            r"DistNetworkError|DistStoreError|RendezvousError|TCPStore|Connection"
            r" (?:reset|refused|closed) by peer"
        ),
    ),
)
_PORT_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:\s*)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE
)
_KINDS = ("memory", "error", "signal", "exit", "communication", "stopped")
"""Whom to blame when several ranks failed together: those whose peer is gone complain of the
connection, or are told to stop.
"""


@dataclass(slots=True)
class Ended:
    """One rank: how it ended, and what it wrote; only the tail is kept."""

    rank: int
    code: int | None = None
    """Exit code, negative for a signal; None while it runs."""
    tail: bytearray = field(default_factory=bytearray)
    memory: str = ""
    """The first line that speaks of too little memory."""
    cut: bool = False
    """Whether more of that line may come."""
    order: int = 0
    """Counts the ranks as they were seen to end."""
    name: str = ""
    """Of a launcher that is our child in place of its ranks."""

    @property
    def text(self) -> str:
        return self.tail.decode(errors="replace")


def hear(ended: Ended, chunk: bytes) -> None:
    """More of what a rank wrote."""
    seen = bytes(ended.tail[-LINE:]) + chunk
    unfinished = ended.cut or not ended.memory
    speaks = unfinished and any(word in seen for word in _MEMORY_WORDS)
    match = _MEMORY.search(seen) if speaks else None
    if match:
        line = match.group().decode(errors="replace").strip()[:LINE]
        ended.memory = max(ended.memory, line, key=len)
        ended.cut = match.end() == len(seen)
    ended.tail += chunk
    del ended.tail[:-TAIL_BYTES]


def kernel_kills() -> int | None:
    """Processes that Linux has killed for want of memory since it started; None where it does not
    tell.
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def port_taken(ranks: list[Ended]) -> bool:
    """Whether the run failed only because another process took the port between our look and its
    use.
    """
    return any(rank.code and _PORT_TAKEN.search(rank.text) for rank in ranks)


def failure(
    ranks: list[Ended], kills_before: int | None, kills_now: int | None
) -> tuple[State, str, str]:
    """(state, one sentence, tail of what the rank to blame wrote) of a run in which at least one
    rank failed.
    """
    failed = [rank for rank in ranks if rank.code or rank.memory]
    first = min(failed, key=lambda rank: (_KINDS.index(_kind(rank)), rank.order))
    short = first.code == -signal.SIGKILL and (
        kills_before is None or kills_now is None or kills_now > kills_before
    )
    state: State = "oom" if _kind(first) == "memory" or short else "crashed"
    return (
        state,
        f"{first.name or f'rank {first.rank} of {len(ranks)}'} {_sentence(first, short)}",
        first.text,
    )


def _kind(rank: Ended) -> str:
    if rank.memory:
        return "memory"
    if rank.code is not None and rank.code < 0:
        return "stopped" if rank.code == -signal.SIGTERM else "signal"
    if _channel(rank):
        return "communication"
    return "error" if _exception(rank) else "exit"


def _sentence(rank: Ended, short: bool) -> str:
    if rank.memory:
        match = _ASKED.search(rank.memory) or _ASKED.search(rank.text)
        size = f", asking for {_size(match.group(1), match.group(2))}" if match else ""
        return f"ran out of memory{size}: {rank.memory}"
    if short:
        return "was killed by SIGKILL, as Linux does when the host runs out of memory"
    if rank.code is not None and rank.code < 0:
        return f"was ended by {_signal(-rank.code)}"
    if channel := _channel(rank):
        return f"failed in communication ({channel}): {_exception(rank) or _last(rank)}"
    words = _exception(rank) or _last(rank)
    return f"ended with exit code {rank.code}" + (f": {words}" if words else "")


def _size(number: str, unit: str) -> str:
    return f"{float(number) / 2**30:.2f} GiB" if unit == "bytes" else f"{number} {unit}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _channel(rank: Ended) -> str:
    """Whether what stopped the rank is the network between ranks: its exception says so, or,
    without one, its last lines.
    """
    words = _exception(rank) or rank.text[-2000:]
    return next((name for name, pattern in _COMMUNICATION if pattern.search(words)), "")


def _exception(rank: Ended) -> str:
    lines = [
        line for line in _EXCEPTION.findall(rank.text) if "ChildFailedError" not in line
    ]  # torchrun's, of a rank that said more
    return lines[-1].strip()[:LINE] if lines else ""


def _last(rank: Ended) -> str:
    lines = [line.strip() for line in rank.text.splitlines() if line.strip()]
    return lines[-1][:LINE] if lines else ""
