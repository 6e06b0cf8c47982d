"""Settings of launchers that start ranks on other hosts (torchrun, Slurm, Kubernetes), read from
ppplan's environment variables.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError

VARIABLES = {
    "PPPLAN_SHARED_DIR": (
        "a folder that all nodes see under the same path (default: the current one)"
    ),
    "PPPLAN_RANKS_PER_NODE": (
        "processes on each node: its GPUs (default 8, or all ranks when there are fewer)"
    ),
    "PPPLAN_SBATCH": "more options of sbatch or srun, as on a command line",
    "PPPLAN_ENDPOINT": "HOST:PORT of the first node, where torchrun's ranks meet",
    "PPPLAN_IMAGE": "the container image of Kubernetes pods: torch and ppplan",
    "PPPLAN_NAMESPACE": "Kubernetes namespace (default: the context's)",
    "PPPLAN_KUBERNETES_KIND": "PyTorchJob, JobSet or Job (default Job, which needs no operator)",
}
RANKS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """What a remote launcher must know beyond the work."""

    folder: Path
    """That all nodes see."""
    ranks_per_node: int = RANKS_PER_NODE
    words: tuple[str, ...] = ()
    """Further options of sbatch or srun."""
    endpoint: str = ""
    image: str = ""
    namespace: str = ""
    kind: str = "Job"
    poll_s: float = 1.0


def from_environment() -> RemoteSettings:
    """As VARIABLES say; InputError names the one that is wrong."""
    values = {name: os.environ.get(name, "") for name in VARIABLES}
    ranks, kind = (
        values["PPPLAN_RANKS_PER_NODE"] or str(RANKS_PER_NODE),
        values["PPPLAN_KUBERNETES_KIND"] or "Job",
    )
    if not (ranks.isascii() and ranks.isdecimal() and 1 <= int(ranks) <= 1024):
        raise InputError(
            f"PPPLAN_RANKS_PER_NODE must be {VARIABLES['PPPLAN_RANKS_PER_NODE']}, from 1 to 1,024,"
            f" but got {ranks[:40]!r}"
        )
    if kind not in ("Job", "JobSet", "PyTorchJob"):
        raise InputError(
            f"PPPLAN_KUBERNETES_KIND must be Job, JobSet or PyTorchJob, but got {kind[:40]!r}"
        )
    folder = Path(values["PPPLAN_SHARED_DIR"] or ".").resolve()
    if not folder.is_dir():
        raise InputError(
            f"PPPLAN_SHARED_DIR must be {VARIABLES['PPPLAN_SHARED_DIR']}, but {folder} is no folder"
        )
    try:
        words = tuple(shlex.split(values["PPPLAN_SBATCH"]))
    except ValueError as fault:
        raise InputError(
            f"PPPLAN_SBATCH must be words as a shell reads them, but {fault}"
        ) from None
    return RemoteSettings(
        folder,
        int(ranks),
        words,
        values["PPPLAN_ENDPOINT"],
        values["PPPLAN_IMAGE"],
        values["PPPLAN_NAMESPACE"],
        kind,
    )


def nodes(ranks: int, settings: RemoteSettings) -> tuple[int, int]:
    """(nodes, ranks on each). InputError when they do not come out even."""
    each = min(ranks, settings.ranks_per_node)
    if ranks % each:
        raise InputError(
            f"ranks must fill whole nodes, but got {ranks} ranks and {each} a node; set"
            " PPPLAN_RANKS_PER_NODE"
        )
    return ranks // each, each
