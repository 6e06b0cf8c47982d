"""A launch file for SkyPilot: a task whose nodes each run the torchrun script that lies beside
it.
"""

from __future__ import annotations

from typing import Any

from planner.emit import yaml_file
from planner.emit.launchers import torchrun
from planner.emit.program import Program
from planner.errors import InputError

SCRIPT = "launch.sh"
ACCELERATORS = {
    "A100 PCIe 40GB": "A100",
    "A100 SXM4 40GB": "A100",
    "A100 PCIe 80GB": "A100-80GB",
    "A100 SXM4 80GB": "A100-80GB",
    "A10G": "A10G",
    "B200 SXM 180GB": "B200",
    "B300 SXM 288GB": "B300",
    "GB200, one GPU": "GB200",
    "GB300, one GPU": "GB300",
    "GH200 96GB": "GH200",
    "GH200 144GB": "GH200",
    "GeForce RTX 3090": "RTX3090",
    "GeForce RTX 4090": "RTX4090",
    "GeForce RTX 5090": "RTX5090",
    "H100 NVL 94GB": "H100-NVL",
    "H100 PCIe 80GB": "H100",
    "H100 SXM5 80GB": "H100",
    "H200 SXM 141GB": "H200",
    "L4": "L4",
    "L40S": "L40S",
    "MI300X": "MI300X",
    "RTX 6000 Ada": "RTX6000-Ada",
    "RTX PRO 6000 Blackwell Server Edition": "RTXPRO6000",
    "T4": "T4",
    "V100 PCIe 16GB": "V100",
    "V100 SXM2 16GB": "V100",
    "V100 PCIe 32GB": "V100-32GB",
    "V100 SXM2 32GB": "V100-32GB",
}
"""SkyPilot's names of GPUs. Source: [skypilot] catalog and utils/gpu_names.py of 0.14.1."""
_RUN = f"""\
export NODE_RANK=$SKYPILOT_NODE_RANK
export MASTER_ADDR=$(head -n 1 <<<"$SKYPILOT_NODE_IPS")
bash {SCRIPT}
"""
_USE = f"""\
# sky launch this file from its own folder, which goes to every node ({SCRIPT} and what lies \
beside it). What the script calls must be on
# the nodes: put its installation into setup, or set resources.image_id. Variables of the script \
go into envs. On several nodes set
# resources.network_tier: best where the cloud has it; the expected time counts on the cluster's \
own network.
"""


def accelerator(name: str) -> str:
    """SkyPilot's name of a profile's GPU. InputError where it has none."""
    if name not in ACCELERATORS:
        raise InputError(
            f"SkyPilot must know the GPU, but it has no name for {name}; try --launcher slurm or"
            " kubernetes"
        )
    return ACCELERATORS[name]


def task(program: Program) -> dict[str, Any]:
    """The task: nodes, their GPUs, what each of them runs."""
    gpus = {"accelerators": f"{accelerator(program.gpu)}:{program.gpus_per_node}"}
    return {
        "name": program.name,
        "num_nodes": program.nodes,
        "resources": gpus,
        "workdir": ".",
        "run": _RUN,
    }


def skypilot(program: Program) -> str:
    """Start it with `sky launch`; the script that it runs is one of `started_files`."""
    return yaml_file.text(program, _USE, [task(program)], starts=False)


def started_files(program: Program) -> tuple[tuple[str, str], ...]:
    """What the task starts: the torchrun script, by name."""
    return ((SCRIPT, torchrun(program)),)
