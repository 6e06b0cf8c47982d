"""One task of a Slurm step as a rank: `python -m planner.launch.slurm_task MODULE REQUEST RESULT`;
Slurm's variables become torchrun's.
"""

from __future__ import annotations

import os
import runpy
import sys

NAMES = {
    "RANK": "SLURM_PROCID",
    "LOCAL_RANK": "SLURM_LOCALID",
    "WORLD_SIZE": "SLURM_NTASKS",
    "GROUP_RANK": "SLURM_NODEID",
}


def variables(given: dict[str, str]) -> dict[str, str]:
    """torchrun's, of Slurm's. Of SLURM_TASKS_PER_NODE such as "8(x2)" the first number is each
    node's: nodes are even.
    """
    here = given["SLURM_TASKS_PER_NODE"].split("(")[0].split(",")[0]
    return {**{name: given[theirs] for name, theirs in NAMES.items()}, "LOCAL_WORLD_SIZE": here}


def main() -> None:
    os.environ.update(variables(dict(os.environ)))
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
