"""Words of what is trained: names, defaults by framework, contradictions, a saved plan that keeps
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import InputError
from planner.specs import plan, resolve
from planner.specs.recipe import Recipe


def recipe(model: str = "llama3-8b", **words: Any) -> Recipe:
    return resolve.recipe(api.question(model=model, gpus=8, cluster="h100-sxm", **words))


@pytest.mark.parametrize(
    "words, targets",
    [
        ({}, ("qkv", "proj", "fc1", "fc2")),
        (
            {"framework": "deepspeed"},
            ("q_proj", "k_proj", "v_proj", "proj", "gate_proj", "up_proj", "fc2"),
        ),
        ({"lora_targets": ("linear_qkv", "down_proj")}, ("qkv", "fc2")),
        ({"lora_targets": ("q_proj", "o_proj", "proj")}, ("q_proj", "proj")),
    ],
)
def test_targets(words: dict[str, Any], targets: tuple[str, ...]) -> None:
    found = recipe(lora_rank=16, **words).lora
    assert found is not None and found.targets == targets


@pytest.mark.parametrize(
    "name, kept",
    [
        ("AdamW", "adam"),
        ("dist_muon", "muon"),
        ("precision-aware-bf16", "precision-aware"),
        (None, "adam"),
    ],
)
def test_optimizers_have_other_names(name: str | None, kept: str) -> None:
    assert recipe(optimizer=name).optimizer == kept


@pytest.mark.parametrize(
    "words, says",
    [
        (
            {"optimizer": "moun"},
            "optimizer must be a known name, but got 'moun'; did you mean muon",
        ),
        ({"lora_rank": 16, "lora_targets": ("qvk",)}, "did you mean qkv"),
        (
            {"lora_rank": 16, "lora_targets": ("qkv", "q_proj")},
            "one adapter, but lora_targets name qkv and its part q_proj",
        ),
        ({"lora_targets": ("qkv",)}, "add --lora-rank 16"),
        ({"lora_rank": 5000}, "lora_rank must be from 1 to 4,096"),
        ({"lora_rank": 16, "frozen": ("mlp",)}, "leave it out"),
        ({"frozen": ("embeding",)}, "did you mean embedding"),
        (
            {"frozen": ("embedding", "attention", "mlp", "norms", "head")},
            "something must be trained",
        ),
        ({"model": "llama3.2-1b", "frozen": ("embedding",)}, "are one table"),
        (
            {"model": "gpt3-175b", "lora_rank": 8, "lora_targets": ("gate_proj",)},
            "has no gate_proj",
        ),
        (
            {"model": "deepseek-v3", "lora_rank": 8, "lora_targets": ("q_proj",)},
            "latent attention must be qkv",
        ),
        ({"packing": True}, "add --mean-length N"),
        ({"mean_length": 9000}, "mean_length must be at most seq_length, but got 9,000 and 8,192"),
        ({"optimizer": "precision-aware", "framework": "deepspeed"}, "Megatron-LM's"),
        (
            {"optimizer": "precision-aware", "switch": ("use_precision_aware_optimizer=off",)},
            "use_precision_aware_optimizer must be on with optimizer precision-aware, but got off",
        ),
        (
            {"optimizer": "precision-aware", "switch": ("exp_avg_dtype=fp32",)},
            "exp_avg_dtype must be bf16 with optimizer precision-aware, but got fp32; leave one",
        ),
    ],
)
def test_words_that_contradict_one_another(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        recipe(**words)


def test_defaults_are_said() -> None:
    said = "; ".join(recipe(lora_rank=16, packing=True, mean_length=512).assumed)
    assert (
        "lora_targets: qkv, proj, fc1, fc2" in said
        and "16.0 samples of 512 tokens fill a sequence of 8,192" in said
    )
    assert "fills 6% of a sequence" in "; ".join(recipe(mean_length=512).assumed)
    assert any(
        "multi-token prediction: left out" in one
        for one in recipe("deepseek-v3", lora_rank=16).assumed
    )


def test_a_saved_plan_keeps_what_is_trained(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    asked = api.question(
        model="llama3-8b",
        gpus=8,
        cluster="h100-sxm",
        lora_rank=16,
        optimizer="sgd",
        packing=True,
        mean_length=512,
        tp=2,
    )
    answer = api.recommend(asked, top=1, out=tmp_path / "plan", script=script)
    assert answer.search is not None
    read = resolve.recipe_and_layout(plan.read_layout(tmp_path / "plan" / "plan.yaml"))
    assert (read[0].lora, read[0].optimizer, read[0].mean_length) == (
        answer.recipe.lora,
        "sgd",
        512,
    )
    assert read[1] == answer.search.plans[0].layout
