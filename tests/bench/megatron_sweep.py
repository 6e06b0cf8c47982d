"""How many launch commands Megatron-LM's own parser, validation, configuration and process groups accept.

    python -m tests.bench.megatron_sweep [--questions 400] [--each 5] [--version 0.19.2] [--seed 1] [--whole] [--build]

Legal layouts at random over every preset that Megatron-LM expresses, every cluster, 8 to 16,384 GPUs. With --build also whether
the layers and parameters of every stage are those that Megatron-LM builds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from tests import sweep
from tests.megatron_oracle import NEWEST, verdicts


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--questions", type=int, default=400)
    options.add_argument("--each", type=int, default=5)
    options.add_argument("--version", default=NEWEST)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--whole", action="store_true", help="make the process groups of the whole world")
    options.add_argument("--build", action="store_true", help="make the model of every stage and compare")
    asked = options.parse_args()
    started = time.perf_counter()
    drawn = list(sweep.commands(asked.seed, asked.questions, asked.each))
    answers = verdicts([replace(case, whole=asked.whole, build=asked.build) for _, _, case in drawn], asked.version)
    refused = [answer for answer in answers if not answer["accepted"]]
    for answer in refused[:20]:
        print(f"refused at {answer['stage']}: {answer['message'][:300]}\n  {answer['name']}")
    if asked.build:
        pairs = list(zip(drawn, answers, strict=True))
        equal = [answer.get("stages") == sweep.expected_stages(recipe, layout) for (recipe, layout, _), answer in pairs]
        print(*(case.name for (_, _, case), same in zip(drawn, equal, strict=True) if not same), sep="\n")
        print(f"layers and parameters of every stage are those that Megatron-LM builds: {sum(equal)} of {len(equal)}")
    seconds = time.perf_counter() - started
    print(f"megatron-core {asked.version}: {len(answers) - len(refused)} of {len(answers)} commands accepted, {seconds:.0f} s")


if __name__ == "__main__":
    main()
