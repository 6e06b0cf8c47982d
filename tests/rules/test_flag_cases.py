"""Flag sets with the verdict of megatron-core 0.19.2 (tests/data/megatron_flag_cases.jsonl): ours must be the same where a rule
can know it. Each set is one 8B-sized base with one thing changed; what a layout has no word for is listed, not compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.recipe import Recipe
from tests import documents

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "megatron_flag_cases.jsonl").read_text().splitlines()]

# Flags that no knob of a dense layout stands for, by what they are about: the writer never writes these combinations.
BEYOND = {
    "--overlap-moe-expert-parallel-comm", "--tp-comm-overlap", "--use-torch-fsdp2", "--defer-embedding-wgrad-compute",
    "--optimizer-cpu-offload",
    "--overlap-param-gather-with-optimizer-step", "--delay-wgrad-compute", "--cross-entropy-fusion-impl", "--fp4-format",
    "--exp-avg-dtype", "--train-samples", "--num-micro-batches", "--distribute-saved-activations", "--hierarchical-context-parallel-sizes",
}  # fmt: skip
# Names of cases that differ in a flag which is written by rule: overlap-param-gather with what it needs, the whole batch, ...
UNWRITABLE = {
    "overlap-param-gather w/o distopt", "overlap-param-gather w/o ogr", "recompute selective + method", "recompute full uniform w/o n",
    "no CDMC hopper", "no CDMC blackwell", "moe topk1",
}  # fmt: skip
# The real parser lets it pass and training would still not do what is asked: our rule is stricter on purpose.
STRICTER = {"recompute full block 99": "recompute layers fit a stage", "moe ep no SP": "experts need sequence parallelism"}


def words(case: dict[str, Any]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for word in case["flags"]:
        if word.startswith("--"):
            last = out.setdefault(word, [])
        else:
            last.append(word)
    return out


def question(case: dict[str, Any], flags: dict[str, list[str]]) -> Recipe:
    """The base is llama3-8b; cases change its layers, heads and length."""
    base = library.model("llama3-8b").model_dump()
    seq = int(flags["--seq-length"][0])
    rows = int(flags["--max-position-embeddings"][0])
    changed: dict[str, Any] = {"num_layers": int(flags["--num-layers"][0]), "num_heads": int(flags["--num-attention-heads"][0])}
    # Megatron compares the sequence with --max-position-embeddings; for rotary positions the writer always gives enough.
    if "--num-experts" in flags:
        known = {"num_experts": "--num-experts", "experts_per_token": "--moe-router-topk", "expert_ffn_size": "--moe-ffn-hidden-size"}
        changed["moe"] = {field: int(flags[name][0]) for field, name in known.items()}
    positions = {"position": "learned", "position_rows": rows} if rows < seq else {}
    model = type(library.model("llama3-8b")).model_validate({**base, **changed, **positions, "parameters": None})
    fp8 = {"precision": "fp8-tensorwise"} if "--fp8-format" in flags else {}
    batch = int(flags["--global-batch-size"][0]) if "--global-batch-size" in flags else 0
    degrees = [int(flags.get(f"--{name}-parallel-size", ["1"])[0]) for name in ("tensor-model", "pipeline-model", "context")]
    dp = max(case["world_size"] // (degrees[0] * degrees[1] * degrees[2]), 1)
    return documents.recipe(model, case["world_size"], seq_length=seq, global_batch_size=batch or dp, **fp8)


def virtual_stages(flags: dict[str, list[str]], layers: int, pp: int) -> int:
    """v of the flags; layers a chunk that do not divide give a v that does not either."""
    if "--num-virtual-stages-per-pipeline-rank" in flags:
        return int(flags["--num-virtual-stages-per-pipeline-rank"][0])
    if "--num-layers-per-virtual-pipeline-stage" in flags:
        return -(-layers // pp // int(flags["--num-layers-per-virtual-pipeline-stage"][0]))
    return 1


def layout(flags: dict[str, list[str]], recipe: Recipe) -> Layout:
    def number(name: str, default: int = 0) -> int:
        return int(flags[name][0]) if name in flags else default

    tp, pp, cp = (number(f"--{name}-parallel-size", 1) for name in ("tensor-model", "pipeline-model", "context"))
    v = virtual_stages(flags, recipe.model.num_layers, pp)
    granularity = flags.get("--recompute-granularity", ["none"])[0]
    block = number("--recompute-num-layers") if flags.get("--recompute-method") == ["block"] else 0
    return documents.layout(
        recipe, tp=tp, pp=pp, cp=cp, v=v, ep=number("--expert-model-parallel-size", 1),
        etp=number("--expert-tensor-parallel-size", tp if recipe.model.moe else 1), mbs=number("--micro-batch-size"),
        sp=int("--sequence-parallel" in flags and tp > 1), zero=3 if "--use-megatron-fsdp" in flags else 1,
        schedule=SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"], group=number("--microbatch-group-size-per-virtual-pipeline-stage"),
        recompute=RECOMPUTE_CODE[granularity], recompute_layers=block,
        first_layers=number("--decoder-first-pipeline-num-layers"), last_layers=number("--decoder-last-pipeline-num-layers"),
        account_for_embedding=int("--account-for-embedding-in-pipeline-split" in flags),
        account_for_loss=int("--account-for-loss-in-pipeline-split" in flags),
        stage_layout=flags.get("--pipeline-model-parallel-layout", [""])[0],
    )  # fmt: skip


KNOWABLE = [case for case in CASES if case["name"] not in UNWRITABLE and not BEYOND & set(case["flags"])]


@pytest.mark.parametrize("case", KNOWABLE, ids=[case["name"] for case in KNOWABLE])
def test_verdict_is_megatrons(case: dict[str, Any]) -> None:
    flags = words(case)
    recipe = question(case, flags)
    found = {breach.rule for breach in breaches(recipe, layout(flags, recipe))}
    assert found == {STRICTER[case["name"]]} if case["name"] in STRICTER else (not found) == case["accepted"], found


def test_most_cases_are_compared() -> None:
    assert len(CASES) == 56
    assert len(KNOWABLE) >= 31
    assert sum(not case["accepted"] for case in KNOWABLE) >= 12
