"""How many launch commands Megatron-LM's own parser, validation, configuration and process groups
accept.

    python -m tests.bench.megatron_sweep [--questions 400] [--each 5] [--version 0.19.2] [--seed 1]
    [--whole] [--build]

How often every value of a switch was in a command, and which never.
Legal layouts at random over every preset that Megatron-LM expresses, every cluster, 8 to 16,384
GPUs. With --build also whether the layers and parameters of every stage are those that Megatron-LM
builds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from planner.layout import Layout
from planner.specs.recipe import Recipe
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import NEWEST, verdicts
from tests.judges.tried import Tried


def kinds(drawn: list[tuple[Recipe, Layout]]) -> dict[str, int]:
    """How many of the commands have what."""
    return {
        "models": len({recipe.model.name for recipe, _ in drawn}),
        "clusters": len({recipe.hardware.name for recipe, _ in drawn}),
        "with experts": sum(recipe.model.moe is not None for recipe, _ in drawn),
        "v > 1": sum(one.v > 1 for _, one in drawn),
        "cp > 1": sum(one.cp > 1 for _, one in drawn),
        "exchanged heads": sum(one.cp_a2a > 1 for _, one in drawn),
        "ep > 1": sum(one.ep > 1 for _, one in drawn),
        "8 or 4 bits": sum(
            "fp" in recipe.precision and recipe.precision != "fp16" for recipe, _ in drawn
        ),
        "zero 2 or 3": sum(one.zero > 1 for _, one in drawn),
        "offload": sum(one.offload > 0 for _, one in drawn),
        "narrow states": sum(
            recipe.software.states.optimizer_state_bytes < 12 for recipe, _ in drawn
        ),
        "overlapped exchange": sum(
            one.ep > 1 and recipe.software.experts.overlap_share > 0 for recipe, one in drawn
        ),
        "4,096 GPUs or more": sum(recipe.gpus >= 4096 for recipe, _ in drawn),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--questions", type=int, default=400)
    options.add_argument("--each", type=int, default=5)
    options.add_argument("--version", default=NEWEST)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--whole", action="store_true", help="make the process groups of the whole world"
    )
    options.add_argument(
        "--build", action="store_true", help="make the model of every stage and compare"
    )
    asked = options.parse_args()
    started = time.perf_counter()
    version = ".".join(asked.version.split(".")[:2])
    tried = Tried("megatron", version)
    drawn = list(megatron_sweep.commands(asked.seed, asked.questions, asked.each, version, tried))
    answers = verdicts(
        [replace(case, whole=asked.whole, build=asked.build) for _, _, case in drawn], asked.version
    )
    refused = [answer for answer in answers if not answer["accepted"]]
    for answer in refused[:20]:
        print(f"refused at {answer['stage']}: {answer['message'][:300]}\n  {answer['name']}")
    if asked.build:
        pairs = list(zip(drawn, answers, strict=True))
        equal = [
            answer.get("stages") == megatron_sweep.expected_stages(recipe, layout)
            for (recipe, layout, _), answer in pairs
        ]
        print(
            *(case.name for (_, _, case), same in zip(drawn, equal, strict=True) if not same),
            sep="\n",
        )
        print(
            f"layers and parameters of every stage are those that Megatron-LM builds: {sum(equal)}"
            f" of {len(equal)}"
        )
    print(
        ", ".join(
            f"{kind} {count}"
            for kind, count in kinds([(recipe, layout) for recipe, layout, _ in drawn]).items()
        )
    )
    print(tried)
    seconds = time.perf_counter() - started
    print(
        f"megatron-core {asked.version}: {len(answers) - len(refused)} of {len(answers)} commands"
        f" accepted, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
