"""What a machine says of itself, from what its tools print, and what follows for the runners."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from planner.launch import capabilities, devices, machine
from planner.launch.devices import Gpu
from planner.launch.machine import Kubernetes, Machine, Slurm
from planner.units import GIB
from tests.judges import megatron_oracle

HGX = (
    "0, NVIDIA H100 80GB HBM3, 81559, 4, 535.161.08\n1, NVIDIA H100 80GB HBM3, 81559, 70521,"
    " 535.161.08\n"
)
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t"
    " X \tNV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A\nGPU1\tNV12\t X"
    " \tSYS\tSYS\tPXB\t0-31\t0\t\tN/A\nGPU2\tSYS\tSYS\t X"
    " \tNV12\tSYS\t32-63\t1\t\tN/A\nGPU3\tSYS\tSYS\tNV12\t X"
    " \tSYS\t32-63\t1\t\tN/A\nNIC0\tPXB\tPXB\tSYS\tSYS\t X \n\nLegend:\n\n  X    = Self\n  SYS  ="
    " Connection traversing PCIe as well as the SMP interconnect between NUMA nodes\n"
)
ROCM = json.dumps(
    {
        "card1": {
            "Card Series": "AMD Instinct MI300X",
            "Card Model": "0x74a1",
            "VRAM Total Memory (B)": "206141652992",
            "VRAM Total Used Memory (B)": "297164800",
        },
        "card0": {
            "Card series": "AMD Instinct MI300X",
            "VRAM Total Memory (B)": "206141652992",
            "VRAM Total Used Memory (B)": "297164800",
        },
        "system": {"Driver version": "6.7.0"},
    }
)


def a_machine(**changes: object) -> Machine:
    known = dict.fromkeys((*machine.PACKAGES, "nccl"))
    plain = Machine(
        "h",
        "Linux",
        "",
        "3.12.0",
        8,
        64 * GIB,
        60 * GIB,
        16 * GIB,
        (),
        "no driver",
        None,
        {**known, "torch": "2.6.0"},
        "cpu",
        "",
        None,
        None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_nvidia() -> None:
    first, second = devices.from_nvidia(HGX)
    assert (
        first == Gpu(0, "NVIDIA H100 80GB HBM3", 81559 * 2**20, 4 * 2**20, "535.161.08", "NVIDIA")
        and second.index == 1
    )
    assert (
        devices.from_nvidia("0, NVIDIA A100-SXM4-80GB MIG 1g.10gb, [N/A], [N/A], 550.54\n")[
            0
        ].memory_bytes
        == 0
    )
    assert devices.from_nvidia("No devices were found\n") == ()


def test_amd() -> None:
    found = devices.from_rocm("WARNING: AMD GPU device(s) is/are in a low-power state.\n" + ROCM)
    assert [(one.index, one.name, one.memory_bytes) for one in found] == [
        (0, "AMD Instinct MI300X", 206141652992),
        (1, "AMD Instinct MI300X", 206141652992),
    ]
    assert devices.from_rocm("{not json") == () == devices.from_rocm("")


def test_topology() -> None:
    found = devices.from_topology(TOPOLOGY)
    assert found is not None and found.kinds == {"NV12": 2, "SYS": 4} and found.domain_gpus == 2
    assert devices.from_topology("") is None


def test_tools_that_fail_or_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    mismatch = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    for name, text in (("nvidia-smi", mismatch), ("rocm-smi", "sleep 9")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    assert devices.ask(["nvidia-smi"]) == (
        "",
        "nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch",
    )
    assert devices.ask(["rocm-smi"], 0.2) == ("", "rocm-smi did not answer in 0.2 s")
    assert devices.ask(["no-such-tool"]) == ("", "no-such-tool is not there")


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (
            (
                "__version__ = '2.6.0+cu126'\ncuda: Optional[str] = '12.6'\nhip: Optional[str] ="
                " None\n"
            ),
            "cuda 12.6",
        ),
        (
            (
                "__version__ = '2.6.0+rocm6.2.4'\ncuda: Optional[str] = None\nhip: Optional[str] ="
                " '6.2.41134'\n"
            ),
            "hip 6.2.41134",
        ),
        (
            "__version__ = '2.6.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
            "cpu",
        ),
    ],
)
def test_torch_build(text: str, build: str) -> None:
    assert machine.torch_build(text) == build


def test_torch_build_is_what_torch_says_of_itself() -> None:
    import torch

    assert machine.look().torch_build == (
        f"cuda {torch.version.cuda}" if torch.version.cuda else "cpu"
    )
    assert machine.look().versions["torch"] == torch.__version__


def of(found: tuple[capabilities.Able, ...], name: str) -> capabilities.Able:
    return next(one for one in found if one.name == name)


def test_runners_without_a_gpu() -> None:
    found = capabilities.runners(a_machine())
    assert [(one.name, one.works) for one in found] == [
        ("torch", True),
        ("deepspeed", False),
        ("megatron", False),
    ]
    assert "8 cores with gloo" in found[0].why and "no driver" in found[2].why
    assert not any(
        one.works
        for one in capabilities.runners(
            a_machine(versions=dict.fromkeys((*machine.PACKAGES, "nccl")), torch_build="")
        )
    )


def test_runners_with_gpus(tmp_path: Path) -> None:
    gpus = devices.from_nvidia(HGX)
    versions = {
        **dict.fromkeys(machine.PACKAGES),
        "torch": "2.6.0",
        "deepspeed": "0.16.0",
        "transformer-engine": "2.1",
    }
    whole = a_machine(
        gpus=gpus, torch_build="cuda 12.6", nvcc="/usr/local/cuda/bin/nvcc", versions=versions
    )
    assert (
        all(one.works for one in capabilities.runners(whole))
        and "2 x NVIDIA H100" in of(capabilities.runners(whole), "torch").why
    )
    assert "nvcc" in of(capabilities.runners(replace(whole, nvcc="")), "deepspeed").why
    assert "pretrain_gpt.py" in of(capabilities.runners(whole, str(tmp_path)), "megatron").why
    (tmp_path / "pretrain_gpt.py").touch()
    assert of(capabilities.runners(whole, str(tmp_path)), "megatron").works
    info = megatron_oracle.wheel() / "megatron" / "core" / "package_info.py"
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    shutil.copy(info, tmp_path / "megatron" / "core")
    assert of(capabilities.runners(whole, str(tmp_path)), "megatron").why.startswith(
        "Megatron core 0.19.2 from "
    )
    wrong = replace(whole, torch_build="cpu")
    assert (
        not of(capabilities.runners(wrong), "megatron").works
        and "built for cpu" in of(capabilities.runners(wrong), "torch").why
    )
    assert any("will not use" in one for one in capabilities.warnings(wrong))
    assert capabilities.warnings(whole) == ("GPU 1 in use by others: 68.9 GiB",)  # 70,521 MiB


def test_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PPPLAN_IMAGE", raising=False)
    bare = capabilities.launchers(a_machine())
    assert [(one.name, one.works) for one in bare] == [
        ("local", True),
        ("torchrun", True),
        ("slurm", False),
        ("kubernetes", False),
    ]
    slurm, kubernetes = (
        Slurm("23.11", "", ("gpu: 16 nodes, gpu:h100:8",), ""),
        Kubernetes("v1.32", "lab", False),
    )
    assert (
        "PPPLAN_IMAGE must name"
        in of(capabilities.launchers(a_machine(kubernetes=kubernetes)), "kubernetes").why
    )
    monkeypatch.setenv("PPPLAN_IMAGE", "lab/torch:1")
    both = capabilities.launchers(a_machine(slurm=slurm, kubernetes=kubernetes))
    assert of(both, "slurm").works and "16 nodes" in of(both, "slurm").why
    assert of(both, "kubernetes").works and "context lab" in of(both, "kubernetes").why
    inside = capabilities.launchers(a_machine(slurm=Slurm("23.11", "4711", (), "")))
    assert of(inside, "slurm").why == "srun inside allocation 4711"


@pytest.mark.parametrize(
    ("name", "mib", "product", "cluster", "exact"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "", "h100-sxm", True),
        ("NVIDIA H100 80GB HBM3", 81559, "p5.48xlarge", "aws-p5", True),
        ("NVIDIA A100-SXM4-40GB", 40960, "", "a100-40g-sxm", True),
        ("NVIDIA A100 80GB PCIe", 81920, "", "a100-80g-pcie", True),
        ("NVIDIA GB200", 189471, "", "gb200-nvl72", True),
        ("Tesla V100-SXM3-32GB", 32510, "", "v100-32g-sxm2", False),
        ("NVIDIA H100 64GB HBM2", 65247, "", "h100-sxm", False),
        ("NVIDIA GeForce GTX 1080", 8192, "", None, False),
    ],
)
def test_nearest(name: str, mib: int, product: str, cluster: str | None, exact: bool) -> None:
    """Names as drivers print them."""
    gpu = Gpu(0, name, mib * 2**20, 0, "535", "NVIDIA")
    found = capabilities.nearest(a_machine(gpus=(gpu,) * 4, product=product))
    assert (found.cluster, found.exact) == (cluster, exact), found


def test_doctor_answers_quickly(tmp_path: Path) -> None:
    """In JSON and in text; of two seconds most are left, by the clock of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [sys.executable, "-m", "planner", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2
    said = json.loads(done.stdout)
    assert not done.stderr and [one["name"] for one in said["runners"]] == [
        "torch",
        "deepspeed",
        "megatron",
    ]
    assert said["machine"]["versions"]["torch"] and said["machine"]["memory_gib"] > 0
    text = subprocess.run(
        [sys.executable, "-m", "planner", "doctor"], capture_output=True, text=True, check=True
    ).stdout
    assert "Runners of tune" in text and max(map(len, text.splitlines())) <= 100
