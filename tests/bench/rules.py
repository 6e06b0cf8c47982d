"""How long the rules take over a million layouts: `python -m tests.bench.rules`."""

from __future__ import annotations

import time

import numpy as np

from planner.rules.table import mask, rules_for
from tests import documents, sweep


def main() -> None:
    question = documents.recipe(gpus=512)
    batch = sweep.draw(np.random.default_rng(1), question, 1_000_000)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        ok, removed = mask(question, batch)
        seconds.append(time.process_time() - started)
    print(f"{len(rules_for(question))} rules over {len(ok):,} layouts: {min(seconds):.2f} s; {ok.sum():,} legal, removed {removed}")


if __name__ == "__main__":
    main()
