"""The accelerators of this machine as their drivers tell, without torch: nvidia-smi, rocm-smi."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from dataclasses import dataclass

from planner.units import GIB

MIB = 2**20
LIMIT_S = 1.2
"""A driver that does not answer by then is said not to."""
_NVIDIA = [
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,memory.used,driver_version",
    "--format=csv,noheader,nounits",
]
_ROCM = ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"]
_TOPOLOGY = ["nvidia-smi", "topo", "-m"]
_STYLE = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as its driver names it."""

    index: int
    name: str
    memory_bytes: float
    used_bytes: float
    driver: str
    vendor: str


@dataclass(frozen=True, slots=True)
class Links:
    """How the GPUs of this machine reach one another."""

    kinds: dict[str, int]
    """Pairs by the driver's word: NV18 (that many NVLinks), PIX, PXB, PHB, NODE (ever farther over
    PCIe), SYS (between sockets).
    """
    domain_gpus: int
    """GPUs of the largest group that NVLink joins; 1 without."""


def ask(words: list[str], limit_s: float = LIMIT_S) -> tuple[str, str]:
    """(stdout, what was wrong) of a tool; one of them is empty. Nothing is asked of the shell."""
    if shutil.which(words[0]) is None:
        return "", f"{words[0]} is not there"
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return "", f"{words[0]} did not answer in {limit_s:g} s"
    except OSError as fault:
        return "", f"{words[0]} could not be started: {fault.strerror}"
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return (
            "",
            f"{words[0]} failed: {lines[-1][:200] if lines else f'exit code {done.returncode}'}",
        )
    return done.stdout, ""


def gpus() -> tuple[tuple[Gpu, ...], str]:
    """The accelerators, and when there are none the reason."""
    nvidia, why_no_nvidia = ask(_NVIDIA)
    listed = from_nvidia(nvidia)
    if listed:
        return listed, ""
    amd, why_no_amd = ask(_ROCM)
    listed = from_rocm(amd)
    if listed:
        return listed, ""
    reasons = why_no_nvidia or "nvidia-smi lists no GPU", why_no_amd or "rocm-smi lists no GPU"
    return (), "; ".join(reasons)


def from_nvidia(text: str) -> tuple[Gpu, ...]:
    """GPUs of nvidia-smi's CSV; its sizes are MiB. A part of a GPU may have "[N/A]" for a size."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return tuple(
        Gpu(int(row[0]), row[1], _number(row[2]) * MIB, _number(row[3]) * MIB, row[4], "NVIDIA")
        for row in rows
        if len(row) == 5 and row[0].isdecimal()
    )


def from_rocm(text: str) -> tuple[Gpu, ...]:
    """GPUs of rocm-smi's JSON; the case of its words differs between releases."""
    try:
        cards = json.loads(text[text.find("{") :]) if "{" in text else {}
    except ValueError:
        return ()
    out = []
    for card, fields in cards.items():
        words = (
            {name.lower(): str(value) for name, value in fields.items()}
            if card.startswith("card") and isinstance(fields, dict)
            else {}
        )
        if "vram total memory (b)" in words:
            total, used = (
                _number(words.get(f"vram total {kind}memory (b)", "0")) for kind in ("", "used ")
            )
            name = words.get("card series") or words.get("card model") or "AMD GPU"
            out.append(Gpu(int(card.removeprefix("card")), name, total, used, "", "AMD"))
    return tuple(sorted(out, key=lambda gpu: gpu.index))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def links() -> Links | None:
    """None where nvidia-smi has no matrix to show."""
    return from_topology(ask(_TOPOLOGY)[0])


def from_topology(text: str) -> Links | None:
    """Pairs of the matrix that `nvidia-smi topo -m` prints, and the groups that NVLink makes."""
    lines = [line.split("\t") for line in _STYLE.sub("", text).splitlines()]
    rows = {
        row[0].strip(): [cell.strip() for cell in row[1:]]
        for row in lines
        if re.fullmatch(r"GPU\d+", row[0].strip())
    }
    names = list(rows)
    pairs = [
        (i, j, rows[names[i]][j])
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if j < len(rows[names[i]])
    ]
    if not names:
        return None
    kinds: dict[str, int] = {}
    group = list(range(len(names)))
    for i, j, kind in pairs:
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind.startswith("NV"):
            group = [group[i] if label == group[j] else label for label in group]
    return Links(kinds, max(group.count(label) for label in group))


def gib(size_bytes: float) -> float:
    return size_bytes / GIB
