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
from planner.emit.table import LAUNCHERS
from planner.errors import InputError
from planner.specs import library, named_software
from planner.specs.switches.switch import Switch
from planner.specs.switches.table import BY_FRAMEWORK, PLAIN, parse, settings_of, shown
from planner.specs.switches.torch import BENCHMARK
from planner.specs.versions import version_of

MODELS = {
    "llama3-8b": 8,
    "qwen3-30b-a3b": 32,
    "mixtral-8x7b": 64,
    "llama3-70b": 128,
    "gpt3-175b": 256,
    "deepseek-v3": 1024,
    "nemotron-h-8b": 16,
    "nemotron3.5-30b-a3b": 32,
    "qwen3-next-80b-a3b": 64,
}
"""With GPUs that hold each with room to choose."""
OF_FRAMEWORK = {
    "megatron": tuple(MODELS),
    "deepspeed": ("llama3-8b", "llama3-8b", "llama3-70b", "gpt3-175b", "mixtral-8x7b"),
    "torch": ("llama3-8b", "qwen3-30b-a3b", "llama3-70b", "deepseek-v3"),
}
"""The training script that is written for DeepSpeed has no experts, Accelerate's user's may."""
CLUSTERS = ("h100-sxm", "a100-80g-sxm", "b200-sxm", "gb200-nvl72", "h100-pcie")
OF_TORCH = ("fp8-rowwise", "mxfp8")
OF_MEGATRON = ("fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8")
TRAINED: tuple[dict[str, Any], ...] = (
    *({},) * 20,
    {"lora_rank": 16, "mean_length": 500, "packing": True},
    {"lora_rank": 8, "lora_base": "nf4"},
    {"frozen": ["embedding", "norms"], "mean_length": 700},
)
"""What only a training script of one's own does."""
OPTIMIZERS = (None, None, None, "precision-aware", "sgd", "muon")
RECOMPUTATION = (None, None, None, "none", "selective", "full")
FRAMEWORKS = ("megatron", "megatron", "deepspeed", "torch")
CLOSE = 1e-9


@dataclass(frozen=True)
class Outcome:
    kind: str
    """Framework and format, or launcher."""
    differences: tuple[str, ...]


def software_of(framework: str) -> list[str]:
    """What --software takes and files tell, in each of its versions: a document whose figures are
    of its own (nanotron, zero-bubble) is launched as its framework is.
    """
    named = []
    for name in named_software.names():
        document = "torch" if name == named_software.TORCHTITAN else name
        told = document in PLAIN.values() or document == "megatron-fsdp2"
        if told and library.stack(document).framework == framework:
            named += [f"{name}@{version}" for version in named_software.versions(name)] or [name]
    return named


def precisions(framework: str, cluster: str) -> list[str | None]:
    """Those that the GPU computes and the framework has, bf16 mostly."""
    gpu = library.hardware(cluster).gpu
    own = {"megatron": OF_MEGATRON, "torch": OF_TORCH, "deepspeed": ()}[framework]
    known = [name for name in own if name.partition("-")[0] in gpu.peak_tflops]
    return [None, None, None, "bf16", "fp16", "fp32", *known]


def question(chance: random.Random) -> dict[str, Any]:
    """The words of one random question, of a size at which most have a plan."""
    framework = chance.choice(FRAMEWORKS)
    model = chance.choice(OF_FRAMEWORK[framework])
    cluster = chance.choice(CLUSTERS)
    words: dict[str, Any] = {
        "model": model,
        "gpus": MODELS[model] * chance.choice((1, 1, 2, 4)),
        "cluster": cluster,
        "framework": framework,
        "software": chance.choice(software_of(framework)),
        "seq_length": min(chance.choice((2048, 4096)), library.model(model).max_seq_length),
        "global_batch_size": MODELS[model] * chance.choice((8, 16)),
        "precision": chance.choice(precisions(framework, cluster)),
        "pp": chance.choice((None, None, None, 2, 4)),
        "recompute": chance.choice(RECOMPUTATION),
        "offload": "optimizer-cpu" if chance.random() < 0.1 else None,
        **chance.choice(TRAINED),
        "optimizer": chance.choice(OPTIMIZERS) if framework == "megatron" else None,
    }
    if framework == "torch" and words["recompute"] == "selective":
        words["recompute_modules"] = chance.choice((["ops"], ["core_attn"]))
    words["switch"] = tuple(switches(chance, framework, words["software"]))
    return {word: value for word, value in words.items() if value is not None}


def switches(chance: random.Random, framework: str, software: str) -> list[str]:
    """Up to three, with values that files of the software have words for."""
    name, version = named_software.split(software)
    own = name != named_software.TORCHTITAN
    number = version_of(framework, version if version and own else "main")
    table = BY_FRAMEWORK[framework]
    names = [
        name
        for name, switch in table.items()
        if switch.arithmetic != "benchmark-only" and switch.source != BENCHMARK
    ]
    drawn = []
    for name in chance.sample(names, chance.choice((0, 0, 1, 2, 3))):
        text = value(chance, table[name])
        if table[name].spelled(parse([f"{name}={text}"], framework)[name], number):
            drawn.append(f"{name}={text}")
    return drawn


def ways(framework: str) -> list[tuple[str, str | None]]:
    """Launchers, and formats, that may write a plan of a framework."""
    forms = {"megatron": "bridge", "torch": "accelerate", "deepspeed": "accelerate"}
    started = [name for name in LAUNCHERS if name != "deepspeed" or framework == "deepspeed"]
    return [(name, None) for name in started] + [("torchrun", forms[framework])]


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
        script = Path(folder, "own.py")
        script.touch()
        own = form is None and words["framework"] != "torch" and {*words} & {"lora_rank", "frozen"}
        try:
            asked = api.question(**words)
            answer = api.recommend(
                asked,
                top=1,
                out=Path(folder, "out"),
                launcher=launcher,
                format=form,
                script=str(script) if own else None,
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
        launcher, form = chance.choice(ways(words["framework"]))
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
