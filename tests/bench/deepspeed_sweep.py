"""A long sweep with the real DeepSpeedConfig: `python -m tests.bench.deepspeed_sweep [questions]
[seed]` prints how many it accepts.
"""

from __future__ import annotations

import sys
import time

from tests.emit.test_deepspeed_config import wrong
from tests.judges import deepspeed_oracle, deepspeed_sweep
from tests.judges.tried import Tried


def main(questions: int = 150, seed: int = 11) -> None:
    started = time.perf_counter()
    tried = Tried("deepspeed", deepspeed_sweep.VERSIONS[-1])
    drawn = list(deepspeed_sweep.cases(seed, questions, 5, tried))
    said = deepspeed_oracle.verdicts(case for *_, case in drawn)
    faults = [
        (case.name, found)
        for (recipe, layout, case), one in zip(drawn, said, strict=True)
        if (found := wrong(recipe, layout, one))
    ]
    print(tried)
    print(
        f"{len(drawn):,} configurations: {len(drawn) - len(faults):,} accepted, none of their keys"
        f" ignored, understood as meant ({time.perf_counter() - started:.0f} s)"
    )
    for name, found in faults[:10]:
        print(name, found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
