"""Launch files against Megatron-LM itself: its parser, validation, configuration classes, process
groups and model.

The scripts are run under bash; what they hand to torchrun is what Megatron's code judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.cost.params import layer
from planner.emit import environment, table
from planner.emit.megatron_model import missing_features
from planner.layout import RECOMPUTE_CODE, Layout
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.recipe import Recipe
from tests import documents, recorder
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import NEWEST, Case, verdicts

SAMPLE, SEEDS = 50, (11, 12)
SCRIPTS = 15
"""So many of each sample are run under bash; the rest are the same flags without a shell."""
OLDER = "0.18.0"
# These refuse what dies later than at the parser, or is no matter of Megatron's: a run would stop,
# its parser cannot know.
BEYOND_PARSER = {
    "sequence splits over tp",
    "recompute layers fit a stage",
    "attention runs under cp",
    "low precision aligns",
    "stack shards this way",
    "stack runs the schedule",
    "stack has sequence parallelism",
    "batch is dp * mbs * m",
    "GPU runs the precision",
    "experts need sequence parallelism",
    "window runs under cp",
    "recompute modules fit the model",
    "heads of a rank split over cp_a2a",
    "offload needs the distributed optimizer",
}


def by_script(
    folder: Path, name: str, recipe: Recipe, layout: Layout, launcher: str, build: bool = False
) -> Case:
    """The case that a launch file makes of itself."""
    [script] = table.files(recipe, layout, None, launcher).values()
    call = recorder.call(folder, script, MOCK="1")
    assert call.world_size == recipe.gpus
    written = [variable for variable, _ in environment.megatron(recipe, layout)]
    env: dict[str, str | None] = {
        variable: call.env.get(variable) for variable in ("CUDA_DEVICE_MAX_CONNECTIONS", *written)
    }
    return Case(
        name, call.flags, call.world_size, env, int(recipe.hardware.gpu.compute_capability), build
    )


def sample(
    count: int, seed: int, gpus_at_most: int = 16384
) -> Iterator[tuple[str, Recipe, Layout]]:
    """One legal layout of each random question, small and large clusters alike."""
    rows = (
        (case.name, recipe, layout)
        for recipe, layout, case in megatron_sweep.commands(seed, 4 * count, 1)
        if recipe.gpus <= gpus_at_most
    )
    for _, row in zip(range(count), rows, strict=False):
        yield row


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sample_of_the_sweep_is_accepted(seed: int, tmp_path: Path) -> None:
    drawn = list(sample(SAMPLE, seed))
    assert len(drawn) == SAMPLE
    launchers = list(table.LAUNCHERS)
    cases = [by_script(tmp_path, *one, launchers[i % 2]) for i, one in enumerate(drawn[:SCRIPTS])]
    cases += [megatron_sweep.command(*one) for one in drawn[SCRIPTS:]]
    answers = verdicts(cases)
    assert [answer for answer in answers if not answer["accepted"]] == []
    for answer, (_, recipe, layout) in zip(answers, drawn, strict=True):
        assert (answer["m"], answer["dp"], answer["v"]) == (layout.m, layout.dp, layout.v)
        assert answer["padded_vocab"] == layer.padded_vocab(recipe.model, layout.tp)


@pytest.mark.parametrize("version, framework_version", [(OLDER, "0.18"), ("0.17.1", "0.17")])
def test_older_versions_accept_too(version: str, framework_version: str, tmp_path: Path) -> None:
    cases, vocabularies = [], []
    for name, recipe, layout in sample(6, seed=5, gpus_at_most=1024):
        older = recipe.model_copy(update={"framework_version": framework_version})
        cases.append(by_script(tmp_path, name, older, layout, "torchrun"))
        vocabularies.append(layer.padded_vocab(recipe.model, layout.tp))
    answers = verdicts(cases, version)
    assert [answer for answer in answers if not answer["accepted"]] == []
    assert [answer["padded_vocab"] for answer in answers] == vocabularies


# GPT and Llama, tied and untied tables, biases, norms of queries and keys, every way to split
# layers over stages.
BUILT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gpt3-175b", {"gpus": 64, "seq_length": 2048}, {"tp": 8, "pp": 8, "v": 3}),
    ("gpt-1.7b", {"gpus": 8, "seq_length": 2048}, {"tp": 2, "pp": 1}),
    ("llama2-7b", {"gpus": 8, "seq_length": 4096}, {"tp": 4, "pp": 2, "v": 4}),
    ("llama3-70b", {"gpus": 32}, {"tp": 8, "pp": 4, "v": 5}),
    ("llama3-70b", {"gpus": 64}, {"tp": 8, "pp": 8, "recompute": RECOMPUTE_CODE["full"]}),
    ("llama3-70b", {"gpus": 64}, {"tp": 8, "pp": 4, "first_layers": 18, "last_layers": 18, "v": 2}),
    (
        "llama3-405b",
        {"gpus": 256},
        {"tp": 8, "pp": 16, "v": 8, "account_for_embedding": 1, "account_for_loss": 1},
    ),
    ("llama3-8b", {"gpus": 16}, {"tp": 2, "pp": 4, "v": 2, "stage_layout": "Et*3|(t*4|)*6t*5L"}),
    ("llama3.2-1b", {"gpus": 8}, {"tp": 2, "pp": 4, "cp": 1}),
    ("qwen3-0.6b", {"gpus": 16}, {"tp": 8, "pp": 1}),
    ("qwen3-32b", {"gpus": 32}, {"tp": 4, "pp": 4, "cp": 2}),
    ("qwen2.5-32b", {"gpus": 16}, {"tp": 8, "pp": 2, "last_layers": 31}),
    ("starcoder2-15b", {"gpus": 8}, {"tp": 4, "pp": 2}),
    # Experts: all layers or after dense ones, shared with and without gate, biases, sinks, latents,
    # multi-token prediction.
    ("mixtral-8x7b", {"gpus": 16}, {"tp": 2, "pp": 2, "ep": 4}),
    ("qwen3-30b-a3b", {"gpus": 64}, {"tp": 4, "pp": 2, "v": 4, "ep": 16, "etp": 2}),
    ("qwen2-57b-a14b", {"gpus": 32}, {"tp": 4, "pp": 1, "ep": 16}),
    ("gpt-oss-20b", {"gpus": 16}, {"tp": 4, "pp": 2, "ep": 8}),
    ("glm4.5-air-106b-a12b", {"gpus": 64}, {"tp": 2, "pp": 2, "ep": 32}),
    (
        "deepseek-v3",
        {"gpus": 1024},
        {"tp": 2, "pp": 8, "ep": 64, "first_layers": 7, "last_layers": 6},
    ),
    (
        "deepseek-v3",
        {"gpus": 512},
        {"tp": 1, "pp": 4, "v": 2, "ep": 128, "stage_layout": "Et*8|t*8|t*8|t*8|t*8|t*8|t*8|t*5mL"},
    ),
    (
        "deepseek-v3",
        {"gpus": 1024},
        {"tp": 4, "pp": 8, "v": 4, "ep": 32, "stage_layout": "Ett|(tt|)*22t|(tt|)*7mL"},
    ),
]
# megatron-core 0.19 builds latent attention without a latent of the queries with Transformer Engine
# alone.
BUILT_BEFORE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("deepseek-v2-lite", {"gpus": 32}, {"tp": 2, "pp": 1, "ep": 16, "etp": 2}),
    ("moonlight-16b-a3b", {"gpus": 32}, {"tp": 1, "pp": 1, "ep": 32}),
    (
        "deepseek-v3",
        {"gpus": 448},
        {"tp": 2, "pp": 7, "ep": 32, "account_for_embedding": 1, "account_for_loss": 1},
    ),
]


@pytest.mark.parametrize("version, built", [(NEWEST, BUILT), (OLDER, BUILT_BEFORE)])
def test_stages_have_the_layers_and_parameters_that_megatron_builds(
    version: str, built: list[tuple[str, dict[str, Any], dict[str, Any]]], tmp_path: Path
) -> None:
    framework_version = ".".join(version.split(".")[:2])
    questions = [
        documents.recipe(model, **{"framework_version": framework_version, **changes})
        for model, changes, _ in built
    ]
    layouts = [
        documents.layout(recipe, **knobs)
        for recipe, (_, _, knobs) in zip(questions, built, strict=True)
    ]
    for recipe, layout in zip(questions, layouts, strict=True):
        assert breaches(recipe, layout) == ()
    cases = [
        by_script(tmp_path, recipe.model.name, recipe, layout, "slurm", build=True)
        for recipe, layout in zip(questions, layouts, strict=True)
    ]
    for recipe, layout, answer in zip(questions, layouts, verdicts(cases, version), strict=True):
        assert answer["accepted"], answer
        assert answer["stages"] == megatron_sweep.expected_stages(recipe, layout), (
            recipe.model.name,
            layout,
        )


def drawn_at_random(count: int) -> list[tuple[Recipe, Layout]]:
    """Layouts of small models, legal and illegal in equal parts, on clusters whose GPUs they
    fill.
    """
    rng = np.random.default_rng(2)
    found: dict[bool, list[tuple[Recipe, Layout]]] = {True: [], False: []}
    while min(map(len, found.values())) < count // 2:
        name = str(
            rng.choice(
                [
                    "llama3.2-1b",
                    "qwen3-0.6b",
                    "gpt-1.7b",
                    "qwen2.5-0.5b",
                    "phi4-14b",
                    "mixtral-8x7b",
                    "gpt-oss-20b",
                ]
            )
        )
        recipe = documents.recipe(
            name, int(rng.choice([12, 16, 24, 30, 64])), seq_length=2048, global_batch_size=480
        )
        batch = megatron_sweep.draw(rng, recipe, 50)
        for layout in (batch[row] for row in range(50)):
            rules = {found.rule for found in breaches(recipe, layout)}
            # One breach at a time: every refusal has to be Megatron's as well.
            if (
                layout.gpus == recipe.gpus
                and layout.recompute != RECOMPUTE_CODE["full"]
                and not rules & BEYOND_PARSER
                and len(rules) < 2
            ):
                found[not rules].append((recipe, layout))
                break
    return found[True][: count // 2] + found[False][: count // 2]


def test_rules_refuse_what_megatron_refuses_and_nothing_else() -> None:
    drawn = drawn_at_random(40)
    cases = [
        megatron_sweep.command(f"{recipe.model.name} {layout.named()}", recipe, layout, build=True)
        for recipe, layout in drawn
    ]
    for (recipe, layout), answer in zip(drawn, verdicts(cases), strict=True):
        said = breaches(recipe, layout)
        # One stage with both first and last layers stated is built by Megatron with the last ones
        # alone: not what was asked.
        built = sum(chunk["layers"] for stage in answer.get("stages", []) for chunk in stage)
        assert (answer["accepted"] and built == recipe.model.num_layers) == (not said), (
            said,
            answer,
        )


def test_a_model_that_megatron_cannot_express_is_in_no_sweep() -> None:
    left_out = set(library.models()) - set(megatron_sweep.presets())
    assert all("megatron" not in library.model(name).frameworks for name in left_out)
    unnamed = {name for name in left_out if not missing_features(library.model(name))}
    # Scalars on embedding, residual and attention, of which the document says nothing: they cost
    # nothing.
    assert unnamed == {"granite3.0-2b", "granite3.0-8b", "granite3.1-3b-a800m"}
