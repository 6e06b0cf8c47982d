"""Cancels the steps of one name: `python -m planner.launch.slurm_step NAME`. A guard runs it when
srun may be gone before its tasks.
"""

from __future__ import annotations

import subprocess
import sys

from planner.launch.devices import ask
from planner.launch.slurm_status import ANSWER_S


def steps(listing: str, name: str) -> list[str]:
    """Numbers of the steps so named, of `squeue --steps -o "%i %j"`."""
    return [line.split()[0] for line in listing.splitlines() if line.split()[1:] == [name]]


def main() -> None:
    listing, _ = ask(["squeue", "--steps", "-h", "-o", "%i %j"], ANSWER_S)
    for step in steps(listing, sys.argv[1]):
        subprocess.run(["scancel", "--signal=KILL", step], stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
