"""What `recommend` promises and what `check` reads in the files that it wrote:
`python -m tests.bench.roundtrip [QUESTIONS] [SEED]` prints, by framework and format, how many
random questions agree in layout, switches, seconds and GiB (1e-9), and each difference.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import api
from planner.emit.table import FORMATS, LAUNCHERS
from planner.errors import InputError
from planner.specs.switches.switch import Switch
from planner.specs.switches.table import BY_FRAMEWORK, settings_of, shown
from planner.specs.switches.torch import BENCHMARK

MODELS = ("llama3-8b", "llama3-70b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b")
CLUSTERS = ("h100-sxm", "a100-80g-sxm", "b200-sxm", "gb200-nvl72", "h100-pcie")
PRECISIONS = (None, None, "bf16", "fp16", "fp32", "fp8-delayed", "fp8-tensorwise", "mxfp8")
OPTIMIZERS = (None, None, None, "precision-aware", "sgd", "muon")
RECOMPUTATION = (None, None, None, "none", "selective", "full")
CLOSE = 1e-9


@dataclass(frozen=True)
class Outcome:
    kind: str
    """Framework and format, or launcher."""
    differences: tuple[str, ...]


def question(chance: random.Random) -> dict[str, Any]:
    """The words of one random question."""
    framework = chance.choice(("megatron", "megatron", "deepspeed", "torch"))
    words: dict[str, Any] = {
        "model": chance.choice(MODELS),
        "gpus": 2 ** chance.randint(3, 9),
        "cluster": chance.choice(CLUSTERS),
        "framework": framework,
        "seq_length": chance.choice((2048, 4096, 8192)),
        "global_batch_size": 2 ** chance.randint(7, 11),
        "precision": chance.choice(PRECISIONS if framework == "megatron" else PRECISIONS[:5]),
        "pp": chance.choice((None, None, 2, 4)),
        "recompute": chance.choice(RECOMPUTATION),
        "offload": "optimizer-cpu" if chance.random() < 0.1 else None,
        "lora_rank": 16 if chance.random() < 0.1 else None,
        "optimizer": chance.choice(OPTIMIZERS) if framework == "megatron" else None,
    }
    table = BY_FRAMEWORK[framework]
    names = [
        name
        for name, switch in table.items()
        if switch.arithmetic != "benchmark-only" and switch.source != BENCHMARK
    ]
    switches = []
    for name in chance.sample(names, min(chance.randint(0, 3), len(names))):
        switches.append(f"{name}={value(chance, table[name])}")
    words["switch"] = tuple(switches)
    return {word: value for word, value in words.items() if value is not None}


def value(chance: random.Random, switch: Switch) -> str:
    """One of the values that a switch may have."""
    if switch.values:
        return shown(chance.choice(switch.values))
    if switch.words:
        return "+".join(word for word in switch.words if chance.random() < 0.5) or "none"
    return str(chance.choice((0.25, 0.5)) if switch.share else chance.choice((4, 1000)))


def tried(words: dict[str, Any], launcher: str, form: str | None) -> Outcome | None:
    """None where the question has no plan, or its plan no such file."""
    kind = f"{words['framework']} {form or launcher}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            asked = api.question(**words)
            answer = api.recommend(
                asked, top=1, out=Path(folder, "out"), launcher=launcher, format=form
            )
        except InputError:
            return None
        if answer.best is None or len(answer.files) < 2:
            return None
        plan = answer.best
        file = next(path for path in answer.files if Path(path).name.startswith("launch"))
        try:
            checked = api.check(file, cluster=words["cluster"])
        except InputError as fault:
            return Outcome(kind, (f"not read: {str(fault).replace(folder, '')[:100]}",))
        differences = []
        launch, estimate = checked.launch, checked.estimate
        layout, other = plan.layout.named(), launch.layout.named()
        differences += [f"layout {n}" for n in layout if layout[n] != other[n]]
        settings, read = settings_of(answer.recipe.software), settings_of(launch.recipe.software)
        version = launch.recipe
        for name, switch in BY_FRAMEWORK[words["framework"]].items():
            acts = switch.exists(version, plan.layout) & switch.acts(version, plan.layout)
            if acts and settings[name] != read.get(name):
                differences.append(f"switch {name}")
        if estimate is None:
            differences.append("no estimate")
        else:
            if abs(estimate.step_s / plan.estimate.step_s - 1) > CLOSE:
                differences.append("step_s")
            if abs(estimate.memory_bytes / plan.estimate.memory_bytes - 1) > CLOSE:
                differences.append("memory_gib")
        return Outcome(kind, tuple(differences))


def main(count: int, seed: int) -> None:
    chance = random.Random(seed)
    agree: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    differences: Counter[str] = Counter()
    for _ in range(count):
        words = question(chance)
        launcher, form = chance.choice(
            [(name, None) for name in LAUNCHERS] + [("torchrun", name) for name in FORMATS]
        )
        outcome = tried(words, launcher, form)
        if outcome is None:
            continue
        all_of[outcome.kind] += 1
        agree[outcome.kind] += not outcome.differences
        for difference in outcome.differences:
            differences[f"{outcome.kind}: {difference}"] += 1
        if outcome.differences and "-v" in sys.argv:
            print(words, launcher, form, outcome.differences)
    for kind in sorted(all_of):
        print(f"{kind}: {agree[kind]} of {all_of[kind]} agree")
    for difference, times in differences.most_common():
        print(f"  {times} {difference}")
    print(f"{sum(all_of.values())} of {count} questions have a plan and such a file")
    print(
        f"{sum(all_of.values()) - sum(agree.values())} differences in {sum(all_of.values())} plans"
    )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    main(*(numbers + [100, 0][len(numbers) :]))
