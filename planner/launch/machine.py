"""What this machine has, told in under two seconds: cores, memory, GPUs, versions without importing
them, Slurm, Kubernetes.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from planner.launch import devices, installed
from planner.launch.devices import Gpu, Links, ask
from planner.launch.rank_environment import cores

PACKAGES = (
    "torch",
    "deepspeed",
    "megatron-core",
    "transformer-engine",
    "flash-attn",
    "optuna",
    "plotly",
)
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
"""Names of the wheel that torch's brings along."""
_BUILD = re.compile(r"^(cuda|hip)\b[^=]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Slurm:
    """What a Slurm client here sees."""

    version: str
    job: str
    """The allocation that we are in; empty outside one."""
    partitions: tuple[str, ...]
    """Name, nodes and generic resources: "gpu: 16 nodes, gpu:h100:8"."""
    fault: str
    """Why the controller did not answer; empty when it did."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """What kubectl here is set to."""

    version: str
    context: str
    """Empty: none is set."""
    in_pod: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as its own tools tell."""

    host: str
    system: str
    product: str
    """The firmware's name of the machine: an instance type in some clouds."""
    python: str
    cores: int
    """That this process may use."""
    memory_bytes: float
    """Of the host, or the container's limit."""
    available_bytes: float
    shared_memory_bytes: float
    """Size of /dev/shm, through which ranks of a host pass data; 0: none."""
    gpus: tuple[Gpu, ...]
    no_gpus: str
    """Why none were found."""
    links: Links | None
    versions: dict[str, str | None]
    """Of packages by name, None where not installed; nccl: that of torch's wheel."""
    torch_build: str
    """cuda 12.6, hip 6.2, cpu; empty without torch."""
    nvcc: str
    """Path of the CUDA compiler, with which DeepSpeed builds its own kernels; empty: none."""
    slurm: Slurm | None
    kubernetes: Kubernetes | None
    software: dict[str, str] = field(default_factory=dict)
    """Versions of what training runs are built of; `unknown` where nothing tells one."""


def look() -> Machine:
    """Asks all tools beside one another; none can hold the answer up."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        asked_gpus, links = pool.submit(devices.gpus), pool.submit(devices.links)
        slurm, kubernetes = pool.submit(_slurm), pool.submit(_kubernetes)
        versions, (total, available) = _versions(), _memory()
        gpus, no_gpus = asked_gpus.result()
        torch_build = _torch_build()
        return Machine(
            host=socket.gethostname(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            product=_product(),
            python=platform.python_version(),
            cores=cores(),
            memory_bytes=total,
            available_bytes=available,
            shared_memory_bytes=_shared(),
            gpus=gpus,
            no_gpus=no_gpus,
            links=links.result(),
            versions=versions,
            torch_build=torch_build,
            nvcc=_nvcc(),
            slurm=slurm.result(),
            kubernetes=kubernetes.result(),
            software=installed.software(torch_build).stated(),
        )


def _versions() -> dict[str, str | None]:
    versions = {name: _version(name) for name in PACKAGES}
    return {**versions, "nccl": next(filter(None, map(_version, NCCL)), None)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch_build() -> str:
    """From the file that torch writes its build into, since its import takes seconds."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        return torch_build(Path(spec.origin).with_name("version.py").read_text())
    except OSError:
        return "unknown"


def torch_build(text: str) -> str:
    """cuda or hip with its version, else cpu, of the text of torch/version.py."""
    match = _BUILD.search(text)
    return f"{match.group(1)} {match.group(2)}" if match else "cpu"


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    own = Path(home) / "bin" / "nvcc"
    return str(own) if own.is_file() else shutil.which("nvcc") or ""


def _memory() -> tuple[float, float]:
    """Bytes in all, and those that a new program can have."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, available = (
            float(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, KeyError, ValueError):
        return (float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),) * 2
    limit = _limit()
    return min(total, limit), min(available, limit)


def _limit() -> float:
    """The container's, in both forms that Linux has had."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return float(Path(path).read_text())
        except (OSError, ValueError):
            continue
    return float("inf")


def _shared() -> float:
    try:
        about = os.statvfs("/dev/shm")
    except OSError:
        return 0.0
    return float(about.f_frsize * about.f_blocks)


def _product() -> str:
    try:
        return Path("/sys/class/dmi/id/product_name").read_text().strip()
    except OSError:
        return ""


def _slurm() -> Slurm | None:
    if shutil.which("sinfo") is None:
        return None
    version, _ = ask(["sinfo", "--version"])  # fails too where no controller is configured
    listed, fault = ask(["sinfo", "-h", "-o", "%P|%D|%G"])
    rows = [line.strip().split("|") for line in listed.splitlines() if line.count("|") == 2]
    partitions = tuple(
        f"{name.rstrip('*')}: {nodes} node{'s' * (nodes != '1')}"
        + (f", {kinds}" if kinds != "(null)" else "")
        for name, nodes, kinds in rows
    )
    return Slurm(
        "".join(version.split()[-1:]), os.environ.get("SLURM_JOB_ID", ""), partitions, fault
    )


def _kubernetes() -> Kubernetes | None:
    text, fault = ask(["kubectl", "version", "--client"])
    if fault:
        return None
    version = re.search(r"v\d+\.\d+\.\d+", text)
    context, _ = ask(["kubectl", "config", "current-context"])
    return Kubernetes(
        version.group() if version else "", context.strip(), "KUBERNETES_SERVICE_HOST" in os.environ
    )
