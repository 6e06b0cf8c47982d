"""A long sweep with the real DeepSpeedConfig: `python -m tests.bench.deepspeed_sweep [questions]
[seed]` prints how many it accepts.
"""

from __future__ import annotations

import sys
import time

from tests.emit.test_deepspeed_config import wrong
from tests.judges import deepspeed_oracle, deepspeed_sweep


def main(questions: int = 700, seed: int = 11) -> None:
    started = time.perf_counter()
    drawn = list(deepspeed_sweep.cases(seed, questions, 5))
    said = deepspeed_oracle.verdicts(case for *_, case in drawn)
    faults = [
        (case.name, found)
        for (recipe, layout, case), one in zip(drawn, said, strict=True)
        if (found := wrong(recipe, layout, one))
    ]
    print(
        f"{len(drawn):,} configurations: {len(drawn) - len(faults):,} accepted, none of their keys"
        f" ignored, understood as meant ({time.perf_counter() - started:.0f} s)"
    )
    for name, found in faults[:10]:
        print(name, found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
