"""How long the rules take over a million layouts: `python -m tests.bench.rules`."""

from __future__ import annotations

import time

import numpy as np

from planner.rules.table import mask, rules_for
from planner.specs.recipe import Recipe
from tests import documents
from tests.judges import megatron_sweep


def measure(question: Recipe) -> None:
    batch = megatron_sweep.draw(np.random.default_rng(1), question, 1_000_000)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        ok, removed = mask(question, batch)
        seconds.append(time.process_time() - started)
    print(
        f"{question.model.name}, {question.precision}: {len(rules_for(question))} rules over"
        f" {len(ok):,} layouts: {min(seconds):.2f} s; {ok.sum():,} legal, removed {removed}"
    )


def main() -> None:
    measure(documents.recipe(gpus=512))
    measure(documents.recipe("deepseek-v3", gpus=512, stack="nemo", precision="fp8-delayed"))


if __name__ == "__main__":
    main()
