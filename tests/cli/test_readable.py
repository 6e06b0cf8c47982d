"""What a newcomer reads: tables that keep to 100 columns, words for what a row does not show, the
same verbs from Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner import __version__, api
from planner.errors import InputError

pytestmark = pytest.mark.slow


Ppplan = Callable[..., Any]
LLAMA_405B = ("--model", "llama3-405b", "--gpus", "16384", "--cluster", "h100-sxm")


def test_a_table_too_wide_for_100_columns_drops_blanks_not_figures(ppplan: Ppplan) -> None:
    ran = ppplan("recommend", *LLAMA_405B, "--gbs", "2048", "--tp", "8", "--top", "3")
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "…" not in ran.out and "OOM" in ran.out


def test_layers_that_stand_for_embedding_and_loss_are_named(ppplan: Ppplan) -> None:
    """126 layers split over 16 stages only with both, as Megatron-LM's arguments say."""
    ran = ppplan("recommend", *LLAMA_405B, "--gbs", "2048", "--tp", "8", "--pp", "16", "--top", "1")
    said = " ".join(ran.out.split())
    assert (
        "126 + 1 for the embedding + 1 for the loss = 128 (--account-for-embedding"
        " --account-for-loss)" in said
    )
    even = ppplan(
        "recommend",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--tp",
        "8",
        "--pp",
        "4",
    )
    assert "Layers:" not in even.out


def test_a_starved_pipeline_says_that_the_batch_is_small(ppplan: Ppplan) -> None:
    said = " ".join(
        ppplan(
            "recommend", *LLAMA_405B, "--tp", "8", "--pp", "8", "--cp", "1", "--top", "1"
        ).out.split()
    )
    assert "only 2 micro-batches; a larger --global-batch-size" in said  # 512 sequences over dp 256
    fed = ppplan(
        "recommend",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--tp",
        "8",
        "--pp",
        "4",
        "--top",
        "1",
    )
    assert "--global-batch-size" not in fed.out


def test_numbers_of_virtual_stages_hold_the_plans_own_and_the_ends(ppplan: Ppplan) -> None:
    """96 layers over 8 ranks: v of 1, 2, 3, 4, 6 and 12 are legal."""
    ran = ppplan(
        "recommend",
        "--model",
        "gpt3-175b",
        "--gpus",
        "1024",
        "--cluster",
        "a100-80g-sxm",
        "--gbs",
        "1536",
        "--seq-length",
        "2048",
        "--tp",
        "4",
        "--pp",
        "8",
        "--mbs",
        "1",
        "--no-recompute",
        "--zero",
        "1",
        "--top",
        "1",
        "--json",
    )
    answer = json.loads(ran.out)
    tried = [
        row["v"]
        for row in answer["schedules"]["options"]
        if row["schedule"] in ("1f1b", "interleaved") and row["refused"] is None
    ]
    assert answer["plans"][0]["layout"]["v"] in tried
    assert (tried[0], tried[-1]) == (1, 12) and tried == sorted(tried)


def test_fewest_gpus_are_the_fewest_whole_nodes() -> None:
    asked = api.question(
        model="llama3-70b", cluster="a100-40g-sxm", seq_length=4096, global_batch_size=512
    )
    fewest = api.recommend(asked, min_gpus=True, top=1).min_gpus
    assert fewest is not None and fewest % 8 == 0
    below = api.recommend(
        api.question(
            model="llama3-70b",
            cluster="a100-40g-sxm",
            seq_length=4096,
            global_batch_size=512,
            gpus=fewest - 8,
        )
    )
    assert below.search is not None and not below.search.plans


def test_a_schedule_that_the_stack_does_not_run_is_named(ppplan: Ppplan) -> None:
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--schedule",
        "gpipe",
        "--json",
    )
    found = json.loads(ran.out)
    assert found["search"]["legal"] > 0 and all(
        plan["layout"]["schedule"] == "gpipe" for plan in found["plans"]
    )
    assert any(
        "gpipe, which megatron does not run" in note for note in found["question"]["assumed"]
    )


def test_gpus_that_do_not_fill_nodes_are_an_assumption(ppplan: Ppplan) -> None:
    words = (
        "explain",
        "--model",
        "llama3-8b",
        "--cluster",
        "h100-sxm",
        "--tp",
        "2",
        "--json",
        "--gpus",
    )
    assert any(
        "do not fill nodes of 8" in one
        for one in json.loads(ppplan(*words, "20").out)["question"]["assumed"]
    )
    for full in ("4", "8", "16"):
        assert not any(
            "nodes" in one for one in json.loads(ppplan(*words, full).out)["question"]["assumed"]
        )


def test_a_recipe_where_a_plan_belongs(ppplan: Ppplan, tmp_path: Any) -> None:
    (tmp_path / "recipe.yaml").write_text("model: llama3-8b\ngpus: 8\n")
    ran = ppplan("emit", tmp_path / "recipe.yaml")
    assert ran.code == 2 and "it is a recipe" in ran.err and "ppplan recommend" in ran.err


def test_own_schedule_is_not_set_beside_itself(ppplan: Ppplan) -> None:
    words = (
        "explain",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--tp",
        "8",
        "--pp",
        "4",
        "--no-formulas",
    )
    assert ppplan(*words).out.count(" 1f1b * ") == 1
    assert ppplan(*words, "--v", "2").out.count(" 1f1b ") == 1


def test_a_schedule_by_name_states_its_formulas(ppplan: Ppplan) -> None:
    out = ppplan("schedules", "1f1b").out
    assert "min(m, p - rank)" in out and "narayanan2021" in out


def test_version(ppplan: Ppplan) -> None:
    ran = ppplan("--version")
    assert (ran.code, ran.out) == (0, f"ppplan {__version__}\n")


def test_long_names_of_sources_are_not_cut(ppplan: Ppplan) -> None:
    out = ppplan("validate", "--source", "mlengineering_h200_b200").out
    assert (
        "mlengineering_h200_b200" in out
        and "…" not in out
        and max(map(len, out.splitlines())) <= 100
    )


def test_no_run_matches(ppplan: Ppplan) -> None:
    ran = ppplan("validate", "--source", "korthikanti2022", "--where", "tp > 1000")
    assert ran.code == 0 and "No run matches" in ran.out


def test_simulate_and_validate_from_python() -> None:
    """4 stages, 8 micro-batches: (p - 1) / (m + p - 1) = 3 / 11 idle; the paper's four models at
    two recomputations are 14 rows.
    """
    done: Any = api.simulate(schedule="1f1b", pp=4, m=8)
    assert done.timeline.bubble_share == pytest.approx(3 / 11)
    slow: Any = api.simulate(schedule="gpipe", pp=2, microbatches=3, stage_scale=[1, 2])
    assert slow.timeline.makespan == pytest.approx(
        3 * 6 + 3
    )  # three micro-batches of 6 on the slow rank; the other's forward and backward
    with pytest.raises(InputError, match="did you mean"):
        api.simulate(schedule="1f1b", pp=4, microbatch=8)
    assert len(api.validate(source="korthikanti2022").rows) == 14
