"""Which runners and launchers would work on a machine, and why not; which known cluster it is
nearest to.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from planner.launch.devices import Gpu, gib
from planner.launch.machine import Machine
from planner.launch.remote_settings import VARIABLES
from planner.specs import library
from planner.specs.hardware import HardwareProfile
from planner.views import Views

LITTLE_SHARED_MEMORY_BYTES = 2**30
"""Containers give 64 MiB unless told otherwise, which NCCL soon fills."""
_PARTS = re.compile(r"[a-z]*\d+[a-z]*|[a-z]+")
_NOISE = {"nvidia", "amd", "instinct", "tesla", "geforce", "gpu", "one", "the"}


@dataclass(frozen=True, slots=True)
class Able:
    """Whether one way to run works here."""

    name: str
    works: bool
    why: str
    """What it would run on, or what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The profile of the machine type that is most like this one."""

    cluster: str | None
    exact: bool
    """The GPU is the profile's, by the name that its driver gives."""
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Views):
    """What this machine has, and what would work on it."""

    machine: Machine
    runners: tuple[Able, ...]
    launchers: tuple[Able, ...]
    nearest: Nearest
    warnings: tuple[str, ...]


def diagnosis(machine: Machine, megatron: str | None = None) -> Diagnosis:
    """megatron: folder of a clone of Megatron-LM."""
    return Diagnosis(
        machine, runners(machine, megatron), launchers(machine), nearest(machine), warnings(machine)
    )


def runners(machine: Machine, megatron: str | None = None) -> tuple[Able, ...]:
    return (
        Able("torch", *_torch(machine)),
        Able("deepspeed", *_deepspeed(machine)),
        Able("megatron", *_megatron(machine, megatron)),
    )


def on_gpus(machine: Machine) -> bool:
    """Whether torch here was built for the GPUs here."""
    kind = {"NVIDIA": "cuda", "AMD": "hip"}
    return bool(machine.gpus) and machine.torch_build.startswith(kind[machine.gpus[0].vendor])


def _torch(machine: Machine) -> tuple[bool, str]:
    if machine.versions["torch"] is None:
        return False, "torch is not installed: pip install 'ppplan[tune]'"
    if on_gpus(machine):
        return (
            True,
            (
                f"{len(machine.gpus)} x {machine.gpus[0].name}, torch {machine.versions['torch']}"
                f" ({machine.torch_build})"
            ),
        )
    reason = (
        f"torch is built for {machine.torch_build}, not for {machine.gpus[0].name}"
        if machine.gpus
        else "there is no GPU"
    )
    return (
        True,
        (
            f"on {machine.cores} cores with gloo alone, since {reason}: a plan's steps run, but"
            " their times are a CPU's"
        ),
    )


def _deepspeed(machine: Machine) -> tuple[bool, str]:
    works, why = _torch(machine)
    if not works or machine.versions["deepspeed"] is None:
        return False, why if not works else "deepspeed is not installed: pip install deepspeed"
    if machine.gpus and on_gpus(machine) and not machine.nvcc:
        return (
            False,
            (
                "DeepSpeed builds its fused Adam with nvcc, which is not there: install the CUDA"
                " toolkit or set CUDA_HOME"
            ),
        )
    return True, f"deepspeed {machine.versions['deepspeed']}, {why}"


def _megatron(machine: Machine, folder: str | None) -> tuple[bool, str]:
    if machine.versions["torch"] is None:
        return False, "torch is not installed"
    if not on_gpus(machine):
        return False, "Megatron-LM runs on GPUs alone, and torch here reaches none" + (
            f" ({machine.no_gpus})" if machine.no_gpus else ""
        )
    if folder is not None and not (Path(folder) / "pretrain_gpt.py").is_file():
        return False, f"{folder} must be a clone of Megatron-LM, but has no pretrain_gpt.py"
    if machine.versions["transformer-engine"] is None:
        return (
            False,
            (
                "Megatron-LM's layers are Transformer Engine's, which is not installed: pip install"
                " transformer-engine[pytorch]"
            ),
        )
    where = (
        f"{_core(Path(folder))} from {folder}"
        if folder
        else "with --megatron-path, the folder of a clone of Megatron-LM"
    )
    return True, f"{where}, on {len(machine.gpus)} x {machine.gpus[0].name}"


def _core(folder: Path) -> str:
    """The version of Megatron core that a clone says it is."""
    try:
        text = (folder / "megatron" / "core" / "package_info.py").read_text()
    except OSError:
        return "Megatron-LM"
    numbers = {
        name: number
        for name, number in re.findall(r"^(MAJOR|MINOR|PATCH) = (\d+)", text, re.MULTILINE)
    }
    return "Megatron core " + ".".join(
        numbers.get(name, "0") for name in ("MAJOR", "MINOR", "PATCH")
    )


def launchers(machine: Machine) -> tuple[Able, ...]:
    return (
        Able("local", True, f"ranks of this host, {len(machine.gpus) or machine.cores} at once"),
        Able("torchrun", *_torchrun(machine)),
        Able("slurm", *_slurm(machine)),
        Able("kubernetes", *_kubernetes(machine)),
    )


def _torchrun(machine: Machine) -> tuple[bool, str]:
    if machine.versions["torch"] is None:
        return False, "torch is not installed"
    return True, "over hosts that share a folder and reach one another's ports"


def _slurm(machine: Machine) -> tuple[bool, str]:
    if machine.slurm is None:
        return False, "Slurm's commands (sinfo, sbatch, srun) are not there"
    if machine.slurm.fault:
        return False, machine.slurm.fault
    if machine.slurm.job:
        return True, f"srun inside allocation {machine.slurm.job}"
    return True, f"sbatch of Slurm {machine.slurm.version}; " + "; ".join(machine.slurm.partitions)


def _kubernetes(machine: Machine) -> tuple[bool, str]:
    if machine.kubernetes is None:
        return False, "kubectl is not there"
    if not (machine.kubernetes.context or machine.kubernetes.in_pod):
        return False, "kubectl has no current context: kubectl config use-context NAME"
    if not os.environ.get("PPPLAN_IMAGE"):
        return False, f"PPPLAN_IMAGE must name {VARIABLES['PPPLAN_IMAGE']}"
    context = machine.kubernetes.context or "of this pod"
    return (
        True,
        f"kubectl {machine.kubernetes.version}, context {context}; not asked whether it answers",
    )


def warnings(machine: Machine) -> tuple[str, ...]:
    """What works now and may fail a trial."""
    out = []
    busy = [gpu for gpu in machine.gpus if gpu.used_bytes > 0.05 * gpu.memory_bytes]
    if busy:
        numbers = ", ".join(str(gpu.index) for gpu in busy)
        used = sum(gib(gpu.used_bytes) for gpu in busy)
        out.append(f"GPU {numbers} in use by others: {used:.1f} GiB")
    kinds = sorted({gpu.name for gpu in machine.gpus})
    if len(kinds) > 1:
        out.append(f"GPUs of several kinds: {', '.join(kinds)}; a plan counts on one")
    if machine.gpus and machine.versions["torch"] is not None and not on_gpus(machine):
        name = machine.gpus[0].name
        out.append(f"torch is built for {machine.torch_build} and will not use {name}")
    if 0 < machine.shared_memory_bytes < LITTLE_SHARED_MEMORY_BYTES:
        out.append(
            f"/dev/shm holds {machine.shared_memory_bytes / 2**20:.0f} MiB, which ranks of a host"
            " may fill (docker run --shm-size)"
        )
    return tuple(out)


def nearest(machine: Machine) -> Nearest:
    """The profile whose GPU is this machine's, by the driver's own name for it; else the one that
    shares most of the name, then memory.
    """
    if not machine.gpus:
        return Nearest(
            None,
            False,
            "no GPU to compare with the known clusters; `ppplan calibrate` writes a profile of this"
            " machine",
        )
    gpu, profiles = machine.gpus[0], [library.hardware(name) for name in library.clusters()]
    same = [
        profile
        for profile in profiles
        if gpu.name.lower() in (alias.lower() for alias in profile.aliases)
    ]
    typed = [
        profile
        for profile in profiles
        if machine.product and f"aws-{machine.product}" in profile.aliases
    ]
    for profile in [*typed, *same][:1]:
        named = (
            f"instance type {machine.product}"
            if profile in typed
            else f"{gpu.name} is the GPU of that profile"
        )
        return Nearest(
            profile.name,
            True,
            f"{named}; nodes of {profile.node.gpus} there, {len(machine.gpus)} GPUs here",
        )
    best = max(profiles, key=lambda profile: _likeness(gpu, profile))
    if _likeness(gpu, best)[0] == 0:
        return Nearest(
            None,
            False,
            f"no known cluster has a GPU like {gpu.name}; `ppplan calibrate` writes a profile of"
            " this machine",
        )
    return Nearest(
        best.name,
        False,
        f"{gpu.name} with {gib(gpu.memory_bytes):.0f} GiB is most like its {best.gpu.name} with "
        f"{best.gpu.memory_gib:.0f} GiB; `ppplan calibrate` measures this machine itself",
    )


def _likeness(gpu: Gpu, profile: HardwareProfile) -> tuple[int, float, int]:
    """Words of the name in common; nearness in memory; the plain profile of a GPU before a
    cloud's.
    """
    ours, theirs = (
        set(_PARTS.findall(name.lower())) - _NOISE for name in (gpu.name, profile.gpu.name)
    )
    models = {word for word in ours & theirs if any(letter.isdigit() for letter in word)}
    return len(models), -abs(gib(gpu.memory_bytes) - profile.gpu.memory_gib), len(profile.aliases)
