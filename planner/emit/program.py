"""What a launcher starts: a Python program, its flags in groups, its environment. The framework
writes it, the launcher prints it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

Flag = tuple[str, ...]
"""A flag and its values, unquoted: ("--lr", "3e-4")."""


@dataclass(frozen=True, slots=True)
class Program:
    """One training program, ready for any launcher. Bash text is marked as such; everything else is
    plain and gets quoted.
    """

    name: str
    """For the scheduler's list of jobs."""
    comments: tuple[str, ...]
    """What stands at the top: the plan in words, and what it is expected to do."""
    variables: tuple[tuple[str, str, str], ...]
    """What a user may set: name, default, meaning."""
    environment: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, tuple[Flag, ...]], ...]
    """Flags by group: MODEL, PARALLEL, ..."""
    data_switch: str
    """Bash text: fills the array DATA_FLAGS."""
    entry: str
    """Bash text: the path of the Python file, or `--module NAME`, which torchrun and DeepSpeed's
    launcher take alike.
    """
    gpus: int
    gpus_per_node: int
    files: tuple[tuple[str, str], ...] = ()
    """Name and text of what lies beside the launch file; bash text finds it in $FILES."""
    versions: tuple[tuple[str, str], ...] = ()
    """Packages and the versions of them that the plan was computed for, as far as they are known.
    """
    gpu: str = ""
    """Name of the GPU, as its profile says it; known where the table of files made the program."""
    accelerate: str = ""
    """Bash text: `accelerate launch` and its options, which then starts the processes of a node in
    place of torchrun.
    """

    @property
    def nodes(self) -> int:
        return self.gpus // self.gpus_per_node


def gpus_per_node(gpus: int, node_gpus: int) -> int:
    """GPUs that the program uses on each node: all, or the most that divide an odd number
    evenly.
    """
    return max(size for size in range(1, min(gpus, node_gpus) + 1) if gpus % size == 0)


def quoted(flag: Flag) -> str:
    return " ".join(shlex.quote(word) for word in flag)


def escaped(path: str) -> str:
    """Bash text of a path that will stand between double quotes."""
    return "".join(f"\\{letter}" if letter in '\\"$`' else letter for letter in path)
