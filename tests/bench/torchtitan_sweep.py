"""How many files torchtitan's own parsers, meshes and pipelines accept and understand as meant, and
how often every value of a switch was in one: `python -m tests.bench.torchtitan_sweep [QUESTIONS]
[SEED] [VERSION]`.
"""

from __future__ import annotations

import sys
import time

from tests.judges import torchtitan_oracle, torchtitan_sweep
from tests.judges.torchtitan_oracle import NEWEST
from tests.judges.tried import Tried


def main(questions: str = "200", seed: str = "1", version: str = NEWEST) -> None:
    started = time.perf_counter()
    tried = Tried("torch", "2.13", version.rpartition(".")[0])
    drawn = list(torchtitan_sweep.plans(int(seed), int(questions), 2, version, tried))
    said = torchtitan_oracle.verdicts(
        (torchtitan_sweep.case(recipe, layout) for recipe, layout, _ in drawn), version
    )
    newest = version == NEWEST
    wrong = torchtitan_sweep.wrong_in_newest if newest else torchtitan_sweep.wrong_in_older
    faults = []
    for (recipe, layout, _), reply in zip(drawn, said, strict=True):
        found = wrong(recipe, layout, reply)
        if found:
            faults.append(f"{recipe.model.name} {recipe.gpus} {layout.named()}: {found}")
    print(*faults[:20], tried, sep="\n")
    print(
        f"torchtitan {version}: {len(drawn) - len(faults)} of {len(drawn)} files accepted and"
        f" understood as meant, {time.perf_counter() - started:.0f} s"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
