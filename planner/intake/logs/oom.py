"""The message of a run that found no memory, to the digit that was printed, with the interval that
its rounding leaves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from planner.units import GB, GIB, MIB

Place = Literal["device", "host"]
Range = tuple[float, float]

WINDOW = 4000
"""Characters of a message that are looked at: the longest, with a line for each process of a shared
GPU, has about 3,000.
"""
DIGITS = 24
"""More digits than any size has: a longer run of them is not a size."""

_UNITS = {
    "bytes": (1.0, 1.0),
    "B": (1.0, 1.0),
    "KiB": (1024.0, 1024.0),
    "MiB": (float(MIB), float(MIB)),
    "GiB": (float(GIB), float(GIB)),
    "TiB": (1024.0 * GIB, 1024.0 * GIB),
    "KB": (1e3, 1024.0),
    "MB": (1e6, float(MIB)),
    "GB": (GB, float(GIB)),
    "TB": (1e12, 1024.0 * GIB),
}
"""Smallest and largest meaning of each unit: torch prints binary ones; what prints GB means 1e9 or
2**30, so both are kept.
"""
_SIZE = rf"(\d{{1,{DIGITS}}}(?:\.\d{{1,{DIGITS}}})?) ?(bytes|[KMGT]i?B|B)\b"

_STARTS = re.compile(r"[Tt]ried to allocate ")
_FIELDS = {
    "requested_bytes": rf"[Tt]ried to allocate {_SIZE}",
    "total_bytes": rf"(?:total capac(?:i?ty) of {_SIZE}|{_SIZE} total capacity)",
    "free_bytes": rf"(?:of which {_SIZE} is free|{_SIZE} free[;)])",
    "allocated_bytes": rf"(?:{_SIZE} is allocated by PyTorch|{_SIZE} already allocated)",
    "reserved_bytes": rf"(?:{_SIZE} reserved in total by PyTorch|{_SIZE} cached)",
    "unallocated_bytes": rf"{_SIZE} is reserved by PyTorch but unallocated",
    "private_pools_bytes": rf"with {_SIZE} allocated in private pools",
    "process_bytes": rf"this process has {_SIZE} memory in use",
    "allowed_bytes": rf"{_SIZE} allowed;",
}
_FIELD_PATTERNS = {name: re.compile(pattern) for name, pattern in _FIELDS.items()}
_DEVICE = re.compile(r"\b(?:GPU|NPU|XPU|HPU|MLU) (\d{1,5})\b")
_VENDOR = re.compile(r"\b(CUDA|HIP|XPU|NPU|MUSA)\b.{0,12}out of memory")
_OTHERS = re.compile(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")
_RANK = re.compile(r"\[(?:rank|default|Rank )(\d{1,7})\]")
_BARE = re.compile(rf"^\s*{_SIZE}\s*\.?\s*$")
_HOST = re.compile(
    r"DefaultCPUAllocator|oom[-_]kill|Out of memory: Killed process|exits? with return code ="
    r" -9\b|Cannot allocate memory|"
    r"Signal 9 \(SIGKILL\)|exitcode: -9\b"
)
_SILENT = re.compile(
    r"OutOfMemoryError|CUDA error: out of memory|CUDA out of memory|HIP out of memory|HIP error:"
    r" out of memory|"
    r"Cuda failure (?:2 )?'out of memory'|cudaErrorMemoryAllocation|hipErrorOutOfMemory|"
    r"(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|CUDA driver error: out of memory"
)


@dataclass(frozen=True, slots=True)
class Oom:
    """What the message says; None where it does not. Sizes are the printed figures in bytes."""

    text: str
    """The message, cut at 4,000 characters."""
    place: Place
    """Memory of the device, or of the host."""
    requested_bytes: float | None = None
    total_bytes: float | None = None
    """What the driver says the device has."""
    allocated_bytes: float | None = None
    """By tensors, as the framework counts."""
    reserved_bytes: float | None = None
    """By the framework's allocator, tensors included. From torch 2.1 on it is the sum of the two
    parts that are printed.
    """
    unallocated_bytes: float | None = None
    """Reserved, in no tensor: fragmentation."""
    free_bytes: float | None = None
    process_bytes: float | None = None
    """Held by this process on the device, the context and communication buffers included."""
    allowed_bytes: float | None = None
    """Limit set with set_per_process_memory_fraction."""
    private_pools_bytes: float | None = None
    """Tensors of CUDA graphs."""
    device: int | None = None
    vendor: str | None = None
    """CUDA, HIP, XPU, NPU."""
    rank: int | None = None
    others_bytes: dict[int, float] = field(default_factory=dict)
    """Held by other processes, by pid; inside a container the own process may be among them."""
    ranges: dict[str, Range] = field(default_factory=dict)
    """By field name: the least and the most bytes that print as that figure, ends included."""


def parse(text: str) -> Oom | None:
    """The first message of memory that ran out in a text, or None.

    Formats: torch 1.0 ("cached"), 1.2 to 2.0 ("reserved in total by PyTorch"), 2.1 on ("has a total
    capacity of", with the typo of 2.0.1 and 2.1), the CPU allocator (exact bytes), CUDA, cuBLAS,
    cuDNN and NCCL errors without a size, and what the kernel, Slurm or a launcher says when the
    host's memory ran out. A bare size ("16.83 GiB") is a request.
    """
    start = _STARTS.search(text)
    if start is None:
        return _without_size(text)
    line = text.rfind("\n", max(0, start.start() - WINDOW), start.start()) + 1
    message = text[max(line, start.start() - WINDOW // 8) : start.start() + WINDOW]
    after = _STARTS.search(message, start.end() - max(line, start.start() - WINDOW // 8))
    return _sized(message[: after.start()] if after else message)


def _without_size(text: str) -> Oom | None:
    bare = _BARE.match(text[:100])
    if bare:
        value, interval = _printed(bare.group(1), bare.group(2))
        return Oom(
            text[:100].strip(),
            "device",
            requested_bytes=value,
            ranges={"requested_bytes": interval},
        )
    match = _SILENT.search(text) or _HOST.search(text)
    if match is None:
        return None
    message = _line_around(text, match.start())
    place: Place = "host" if _HOST.search(message) and not _SILENT.search(message) else "device"
    return Oom(message, place, vendor=_group(_VENDOR, message), rank=_rank(message))


def _sized(message: str) -> Oom:
    sizes: dict[str, float] = {}
    ranges: dict[str, Range] = {}
    for name, pattern in _FIELD_PATTERNS.items():
        match = pattern.search(message)
        if match:
            number, unit = filter(None, match.groups())
            sizes[name], ranges[name] = _printed(number, unit)
    if "reserved_bytes" not in sizes and sizes.keys() >= {"allocated_bytes", "unallocated_bytes"}:
        sizes["reserved_bytes"] = sizes["allocated_bytes"] + sizes["unallocated_bytes"]
        tensors, rest = ranges["allocated_bytes"], ranges["unallocated_bytes"]
        ranges["reserved_bytes"] = (tensors[0] + rest[0], tensors[1] + rest[1])
    others = {}
    for pid, number, unit in _OTHERS.findall(message):
        others[int(pid)], _ = _printed(number, unit)
    device = _group(_DEVICE, message)
    return Oom(
        text=message.strip()[:WINDOW],
        place="host" if _HOST.search(message) else "device",
        device=int(device) if device else None,
        vendor=_group(_VENDOR, message),
        rank=_rank(message),
        others_bytes=others,
        ranges=ranges,
        **sizes,
    )


def _printed(number: str, unit: str) -> tuple[float, Range]:
    """A printed figure in bytes, and the interval that rounds to it: half a unit of the last digit
    either way.
    """
    decimals = len(number.partition(".")[2])
    low, high = _UNITS[unit]
    half = 0.5 * 10.0**-decimals
    if high == 1.0 and not decimals:
        half = 0.0
    size = float(number)
    return size * high, (max(0.0, (size - half) * low), (size + half) * high)


def _group(pattern: re.Pattern[str], text: str) -> str | None:
    """What the pattern's group holds where the text has it."""
    match = pattern.search(text)
    return match[1] if match else None


def _rank(message: str) -> int | None:
    rank = _group(_RANK, message.lstrip().partition("\n")[0])
    return int(rank) if rank else None


def _line_around(text: str, at: int) -> str:
    """The line of a position, or what of it lies within half a window of that."""
    before = text[max(0, at - WINDOW // 2) : at].rpartition("\n")[2]
    after = text[at : at + WINDOW // 2].partition("\n")[0]
    return (before + after).strip()
