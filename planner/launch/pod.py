"""The ranks of one Kubernetes pod: `python -m planner.launch.pod MODULE REQUEST.json`. What became
of them is a line of the pod's log.

Its number and where all meet come as the variables that the manifest or an operator sets.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.launch.children import Children, Command
from planner.launch.outcome import Work
from planner.launch.rank_environment import environment
from planner.launch.supervise import supervise

PROGRESS, OUTCOME = "ppplan-progress ", "ppplan-outcome "


def ranks(
    work: Work, children: Children, first: int, world: int, meet: tuple[str, str]
) -> list[Command]:
    """The pod's ranks, counted from `first` among those of all pods."""
    words = [sys.executable, "-m", work.module, str(children.request), str(children.result)]
    out = []
    for local in range(work.ranks):
        variables = environment(work, local, int(meet[1]), children.token)
        variables.pop("GLOO_SOCKET_IFNAME", None)  # other pods are not on the loopback
        place = {
            "RANK": str(first + local),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": meet[0],
            "GROUP_RANK": str(first // work.ranks),
        }
        out.append(
            Command(
                words,
                {**variables, **place, **work.environment},
                f"rank {first + local} of {world}",
            )
        )
    return out


def tell(line: dict[str, Any]) -> bool:
    print(PROGRESS + json.dumps(line), flush=True)
    return False


def main() -> None:
    module, request = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    index = int(os.environ.get("JOB_COMPLETION_INDEX") or os.environ.get("RANK") or 0)
    each, world = int(os.environ["PPPLAN_EACH"]), int(os.environ["PPPLAN_WORLD"])
    meet = (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    work = Work(
        module,
        request,
        each,
        float(os.environ["PPPLAN_LIMIT_S"]),
        "cuda" if os.environ["PPPLAN_DEVICE"] == "cuda" else "cpu",
        json.loads(os.environ.get("PPPLAN_ENVIRONMENT", "{}")),
        float(os.environ.get("PPPLAN_SILENCE_S") or 0) or None,
    )
    folder = Path(tempfile.mkdtemp(prefix="ppplan-pod-"))
    outcome, _ = supervise(
        work,
        folder,
        lambda children: ranks(work, children, index * each, world, meet),
        tell,
        answers=index == 0,
    )
    print(OUTCOME + json.dumps(asdict(outcome)), flush=True)
    sys.exit(0 if outcome.state == "done" else 1)


if __name__ == "__main__":
    main()
