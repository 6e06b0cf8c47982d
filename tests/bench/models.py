"""Parameters read from config.json against counts of others: `python -m tests.bench.models [--seed
S] [--oracle PYTHON]`.

Stored configurations first; then, with an interpreter that has transformers 5.24 and torch, classes
drawn with random sizes. Each must be exact or refused with a reason; a wrong one fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from planner.cost.params.layer import total_params
from planner.errors import InputError
from planner.specs.huggingface import model_from_config
from planner.specs.layers import counts, kinds
from planner.specs.model import ModelSpec

DATA = Path(__file__).parents[1] / "data"


def stored() -> list[dict[str, Any]]:
    """Released configurations, published values and small classes of the test data."""
    lines = (DATA / "hybrid_configs.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    out = [
        {"parameters": case["text"], "buffers": case["buffers"], "config": case["config"]}
        for case in cases
    ]
    for line in (DATA / "family_counts.jsonl").read_text().splitlines():
        out.append({"buffers": 0, **json.loads(line)})
    return out


def drawn(oracle: str, seed: int, each: int) -> list[dict[str, Any]]:
    """Classes of transformers with random sizes."""
    script = str(Path(__file__).with_name("oracle_models.py"))
    command = [oracle, script, "--seed", str(seed), "--each", str(each)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in answer.splitlines()]


def balancing(model: ModelSpec) -> int:
    """Correction biases that the count has in."""
    return sum(
        count * kind.moe.num_experts
        for count, kind in zip(counts(model), kinds(model).values(), strict=True)
        if kind.moe and kind.has_mlp and kind.moe.router_bias == "correction"
    )


def judged(case: dict[str, Any]) -> tuple[str, str]:
    """exact, refused or wrong; and why."""
    try:
        model = model_from_config(case["config"], "drawn", "config.json")
    except InputError as fault:
        return "refused", str(fault)
    # a class may keep balancing biases as parameters or as buffers, or have none
    ours, truth = total_params(model), case["parameters"]
    if ours in (truth, truth + case["buffers"]) or ours - balancing(model) == truth:
        return "exact", ""
    return "wrong", f"{ours:,} for {truth:,} ({ours - truth:+,}); {model.note}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--oracle", help="a Python with transformers 5.24 and torch")
    parser.add_argument("--lines", type=Path, help="what an oracle wrote before")
    options = parser.parse_args()
    cases = stored()
    if options.lines:
        cases += [json.loads(line) for line in options.lines.read_text().splitlines()]
    if options.oracle:
        cases += drawn(options.oracle, options.seed, options.each)
    tally: Counter[str] = Counter()
    for case in cases:
        verdict, why = judged(case)
        tally[verdict] += 1
        if verdict != "exact":
            print(verdict, (case["config"].get("architectures") or ["?"])[0], why[:260])
    print(f"{len(cases)} configurations: {dict(tally)}")
    sys.exit(1 if tally["wrong"] else 0)


if __name__ == "__main__":
    main()
