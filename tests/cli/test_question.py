"""Questions: defaults of the contract, restated words, the layout that words state."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.errors import InputError
from planner.layout import Layout
from planner.specs import library, plan, resolve
from planner.specs.question import bounds, changed
from planner.specs.sweep import sweeps


@pytest.mark.parametrize(
    ("model", "seq_length", "batch"),
    [
        ("llama3-70b", 8192, 512),  # 8,192 x 512 = 4,194,304 tokens
        ("llama2-13b", 4096, 1024),
        ("gpt3-175b", 2048, 2048),  # its position table ends at 2,048
    ],
)
def test_defaults_are_about_4m_tokens(model: str, seq_length: int, batch: int) -> None:
    recipe = resolve.recipe(api.question(model=model, gpus=64, cluster="a100-80g-sxm"))
    assert (recipe.seq_length, recipe.global_batch_size) == (
        seq_length,
        batch,
    ) and recipe.tokens == 2**22
    assert (recipe.precision, recipe.software.name, recipe.framework, recipe.attention) == (
        "bf16",
        "megatron",
        "megatron",
        "flash",
    )
    assert len(recipe.assumed) == 3


def test_precision_follows_the_gpu() -> None:
    assert (
        resolve.recipe(api.question(model="llama2-7b", gpus=8, cluster="v100-32g-sxm2")).precision
        == "fp16"
    )


def test_rates_that_were_not_measured_are_said() -> None:
    said = resolve.recipe(api.question(model="llama2-7b", gpus=8, cluster="rtx4090-pcie")).assumed
    assert any(one.startswith("kernel rates of rtx4090-pcie") and "L40S" in one for one in said)


def test_what_is_stated_is_not_assumed() -> None:
    asked = api.question(
        model="llama3-8b",
        gpus=8,
        cluster="h100-sxm",
        seq_length=4096,
        global_batch_tokens=2**20,
        precision="bf16",
    )
    recipe = resolve.recipe(asked)
    assert recipe.global_batch_size == 256 and recipe.assumed == ()


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=2**17), st.integers(min_value=1, max_value=4096))
def test_default_batch_is_shared_by_the_gpus(gpus: int, wanted: int) -> None:
    size = resolve._shared(wanted, gpus)
    odd = gpus // (gpus & -gpus)
    if odd * 4 <= wanted:
        assert size % odd == 0 and abs(size - wanted) <= wanted / 8


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=10**6), st.integers(min_value=0, max_value=10**6))
def test_ranges(low: int, more: int) -> None:
    for text in (f"{low}..{low + more}", f" {low} .. {low + more} "):
        found = bounds("tp", text)
        assert found and (found.low, found.high) == (low, low + more)
    fixed = bounds("tp", low)
    assert fixed and fixed.low == fixed.high == low


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_other_text_is_one_message(text: str) -> None:
    try:
        found = bounds("tp", text)
    except InputError as fault:
        assert "tp must be a whole number" in str(fault)
    else:
        assert found and 1 <= found.low <= found.high


def test_restated_words_derive_anew_what_followed() -> None:
    first = api.question(
        model="llama3-70b",
        cluster="h100-sxm",
        gpus=64,
        tp=8,
        pp=8,
        dp=1,
        m=64,
        global_batch_size=64,
    )
    layouts = [
        resolve.recipe_and_layout(changed(first, words))[1]
        for words in ({"tp": 4}, {"m": 8}, {"mbs": 2}, {"v": 2})
    ]
    assert [(one.tp, one.pp, one.dp, one.mbs, one.m, one.v) for one in layouts] == [
        (4, 8, 2, 1, 32, 1),
        (8, 8, 1, 1, 8, 1),
        (8, 8, 1, 2, 32, 1),
        (8, 8, 1, 1, 64, 2),
    ]
    assert layouts[3].named()["schedule"] == "interleaved"


def test_without_gpus_the_degrees_say_how_many() -> None:
    recipe, layout = resolve.recipe_and_layout(
        api.question(model="llama3-8b", cluster="h100-sxm", tp=2, pp=2, dp=4, m=6, mbs=2)
    )
    assert (recipe.gpus, recipe.global_batch_size, layout.gbs) == (16, 48, 48)


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from(["none", "selective", "full"]),
    st.booleans(),
)
def test_a_saved_layout_reads_back(
    tp: int, pp: int, dp: int, mbs: int, recompute: str, accounted: bool
) -> None:
    words = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "mbs": mbs,
        "m": 8 * pp,
        "recompute": recompute,
        "account_for_loss": accounted,
    }
    asked = api.question(model="llama3-8b", cluster="h100-sxm", **words)
    recipe, layout = resolve.recipe_and_layout(asked)
    saved = plan.SavedPlan(
        question=plan.with_defaults(asked, recipe).words(),
        layout=layout.named(),
        estimate={},
        versions={},
        profile={},
    )
    again, same = resolve.recipe_and_layout(plan.layout_question(saved, "plan"))
    assert same == layout == Layout.from_named(layout.named())
    assert again.model_copy(update={"assumed": (), "knobs": {}}) == recipe.model_copy(
        update={"assumed": (), "knobs": {}}
    )


def test_local_gpus_are_the_default_cluster(
    ppplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\nprintf 'NVIDIA A100-SXM4-80GB\\nNVIDIA A100-SXM4-80GB\\n'\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    question = ("recommend", "--model", "llama3-8b", "--gpus", "8", "--json")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    local = json.loads(ppplan(*question).out)
    assert (
        local["question"]["cluster"] == "a100-80g-sxm"
        and "GPUs of this machine" in local["question"]["assumed"][0]
    )
    monkeypatch.setattr(library, "local_cluster", lambda: None)
    assert json.loads(ppplan(*question).out)["question"]["cluster"] == "h100-sxm"


def test_a_model_of_ones_own_is_found_again(
    ppplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = library.model("llama3-8b").model_dump(mode="json") | {
        "name": "mine",
        "aliases": [],
        "num_layers": 24,
        "parameters": None,
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    assert (
        ppplan(
            "recommend",
            "--model",
            "mine.yaml",
            "--gpus",
            "8",
            "--cluster",
            "h100-sxm",
            "--out",
            "plan",
        ).code
        == 0
    )
    monkeypatch.chdir("/")
    answer = json.loads(ppplan("explain", tmp_path / "plan" / "plan.yaml", "--json").out)
    assert (
        answer["question"]["model"] == "mine"
        and sum(stage["layers"] for stage in answer["estimate"]["stages"]) == 24
    )


WORDS = st.dictionaries(
    st.sampled_from(
        [
            "gpus",
            "tp",
            "pp",
            "dp",
            "cp",
            "m",
            "mbs",
            "v",
            "zero",
            "sp",
            "seq_length",
            "global_batch_size",
            "max_memory_gib",
            "schedule",
            "recompute",
            "recompute_modules",
            "first_layers",
            "cluster",
            "set",
            "stack",
            "precision",
            "nonsense",
        ]
    ),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.lists(st.text(max_size=4), max_size=2),
        st.sampled_from([1, 2, 4, 8, "1..4", "full", "1f1b", "h100-sxm"]),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=200)
@given(WORDS)
def test_any_words_give_a_layout_or_one_message(words: dict[str, object]) -> None:
    try:
        recipe, layout = resolve.recipe_and_layout(api.question(model="llama3-8b", **words))
    except InputError as fault:
        assert str(fault) and "\n" not in str(fault).strip()
    else:
        assert layout.gpus == recipe.gpus and layout.gbs == recipe.global_batch_size


def test_sweeps() -> None:
    assert sweeps(["v=1,2", "gbs=8..10", "sp=on,off", "recompute=none,full"]) == {
        "v": [1, 2],
        "global_batch_size": [8, 9, 10],
        "sp": [True, False],
        "recompute": ["none", "full"],
    }
    with pytest.raises(InputError, match="once"):
        sweeps(["v=1", "v=2"])
