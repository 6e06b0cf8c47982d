"""Flag sets with the verdict of megatron-core 0.19.2 (tests/data/megatron_flag_cases.jsonl): ours
must be the same where a rule can know it. Each set is one 8B-sized base with one thing changed;
what a layout has no word for is listed, not compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.emit import environment
from planner.emit.megatron_model import missing_features
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE, Layout
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.software import Software
from planner.specs.switches.table import with_switches
from planner.specs.tuning import precise
from tests import documents

CASES = [
    json.loads(line)
    for line in (
        (Path(__file__).parents[1] / "data" / "megatron_flag_cases.jsonl").read_text().splitlines()
    )
]

# Cases about a flag that has no knob here, with why: what is refused is never written
# (tests/emit/test_megatron.py), what is accepted is
# never needed.
LEFT_OUT = {
    "opg-with-opt-step w/dist ckpt": "--overlap-param-gather-with-optimizer-step is not written",
    "opg-with-opt-step ckpt torch": "--overlap-param-gather-with-optimizer-step is not written",
    "CE fusion te": "the loss is always fused by Megatron's own kernel",
    "tp overlap w/o SP": "--tp-comm-overlap follows from the stack, and is written with sp alone",
    "fp8+fp4": "a question has one precision",
    "delay wgrad dense": "--delay-wgrad-compute is not written",
    "overlap-param-gather w/o distopt": (
        "--overlap-param-gather follows from the stack, and is written with zero 1 and more"
    ),
    "overlap-param-gather w/o ogr": (
        "--overlap-param-gather is written with --overlap-grad-reduce alone"
    ),
    "defer emb": "--defer-embedding-wgrad-compute is not written",
    "defer emb no gaf": "--defer-embedding-wgrad-compute is not written",
    "distribute acts + SP": "--distribute-saved-activations is not written",
    "train samples+iters": "--train-samples is not written",
    "recompute selective + method": "selective recomputation is written without a method",
    "recompute full uniform w/o n": "full recomputation is written with its number of layers",
    "cpu-offload opt w/o paware": "offload is written with the precision-aware optimizer",
    "exp-avg bf16 w/o paware": "narrow moments are written with the precision-aware optimizer",
    "num-micro-batches flag": "no version has such a flag; m follows from the batch",
}
# The real parser lets it pass and training would still not do what is asked: our rule is stricter
# on purpose.
STRICTER = {
    "recompute full block 99": "recompute layers fit a stage",
    "moe ep no SP": "experts need sequence parallelism",
    "cp a2a heads": "heads of a rank split over cp_a2a",
}


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
    changed: dict[str, Any] = {
        "num_layers": int(flags["--num-layers"][0]),
        "num_heads": int(flags["--num-attention-heads"][0]),
    }
    # Megatron compares the sequence with --max-position-embeddings; for rotary positions the writer
    # always gives enough.
    if "--num-experts" in flags:
        known = {
            "num_experts": "--num-experts",
            "experts_per_token": "--moe-router-topk",
            "expert_ffn_size": "--moe-ffn-hidden-size",
        }
        changed["moe"] = {field: int(flags[name][0]) for field, name in known.items()}
    positions = {"position": "learned", "position_rows": rows} if rows < seq else {}
    model = type(library.model("llama3-8b")).model_validate(
        {**base, **changed, **positions, "parameters": None}
    )
    fp8 = {"precision": "fp8-tensorwise"} if "--fp8-format" in flags else {}
    machine = {
        "hardware": "b200-sxm" if case["arch"] >= 10 else "h100-sxm",
        "stack": software(flags),
    }
    batch = int(flags["--global-batch-size"][0]) if "--global-batch-size" in flags else 0
    degrees = [
        int(flags.get(f"--{name}-parallel-size", ["1"])[0])
        for name in ("tensor-model", "pipeline-model", "context")
    ]
    dp = max(case["world_size"] // (degrees[0] * degrees[1] * degrees[2]), 1)
    return documents.recipe(
        model, case["world_size"], seq_length=seq, global_batch_size=batch or dp, **fp8, **machine
    )


def software(flags: dict[str, list[str]]) -> Software:
    """What the flags say of the stack: FSDP2, an overlapped exchange of experts, states in 16
    bits.
    """
    stack = library.stack("megatron-fsdp2" if "--use-torch-fsdp2" in flags else "megatron")
    overlapped = "--overlap-moe-expert-parallel-comm" in flags
    stack = with_switches(stack, {"overlap_moe_expert_parallel_comm": overlapped})
    narrow = precise("bf16") if flags.get("--exp-avg-dtype") == ["bf16"] else {}
    return with_switches(stack, narrow)


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

    tp, pp, cp = (
        number(f"--{name}-parallel-size", 1)
        for name in ("tensor-model", "pipeline-model", "context")
    )
    v = virtual_stages(flags, recipe.model.num_layers, pp)
    granularity = flags.get("--recompute-granularity", ["none"])[0]
    block = number("--recompute-num-layers") if flags.get("--recompute-method") == ["block"] else 0
    return documents.layout(
        recipe,
        tp=tp,
        pp=pp,
        cp=cp,
        v=v,
        ep=number("--expert-model-parallel-size", 1),
        etp=number("--expert-tensor-parallel-size", tp if recipe.model.moe else 1),
        mbs=number("--micro-batch-size"),
        sp=int("--sequence-parallel" in flags and tp > 1),
        zero=3 if {"--use-megatron-fsdp", "--use-torch-fsdp2"} & set(flags) else 1,
        offload=OFFLOAD_CODE["optimizer-cpu" if "--optimizer-cpu-offload" in flags else "none"],
        cp_a2a=number(
            "--hierarchical-context-parallel-sizes",
            cp if flags.get("--cp-comm-type") == ["a2a"] else 1,
        ),
        schedule=SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"],
        group=number("--microbatch-group-size-per-virtual-pipeline-stage"),
        recompute=RECOMPUTE_CODE[granularity],
        recompute_layers=block,
        first_layers=number("--decoder-first-pipeline-num-layers"),
        last_layers=number("--decoder-last-pipeline-num-layers"),
        account_for_embedding=int("--account-for-embedding-in-pipeline-split" in flags),
        account_for_loss=int("--account-for-loss-in-pipeline-split" in flags),
        stage_layout=flags.get("--pipeline-model-parallel-layout", [""])[0],
    )


def refusals(case: dict[str, Any]) -> set[str]:
    """Rules that break, parts of the model without a flag, and a variable that would have been
    set.
    """
    flags = words(case)
    recipe = question(case, flags)
    one = layout(flags, recipe)
    needed = dict(environment.megatron(recipe, one)).get("CUDA_DEVICE_MAX_CONNECTIONS")
    unset = {"variable"} if needed == "1" != case["env"]["CUDA_DEVICE_MAX_CONNECTIONS"] else set()
    return (
        {breach.rule for breach in breaches(recipe, one)}
        | set(missing_features(recipe.model))
        | unset
    )


KNOWABLE = [case for case in CASES if case["name"] not in LEFT_OUT]


@pytest.mark.parametrize("case", KNOWABLE, ids=[case["name"] for case in KNOWABLE])
def test_verdict_is_megatrons(case: dict[str, Any]) -> None:
    found = refusals(case)
    assert (
        found == {STRICTER[case["name"]]}
        if case["name"] in STRICTER
        else (not found) == case["accepted"]
    ), found


def test_every_case_is_compared_or_left_out_with_a_reason() -> None:
    assert len(CASES) == 56
    assert set(LEFT_OUT) < {case["name"] for case in CASES}
    assert len(KNOWABLE) == 39 and sum(not case["accepted"] for case in KNOWABLE) >= 17
