"""Software and its distributions: what names stand for, and that figures follow the switches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import api
from planner.errors import InputError
from planner.report.text import parts
from planner.specs import library, resolve
from planner.specs.distributions import distributions, of_file
from planner.specs.named_software import spelled
from planner.specs.question import changed, from_words
from planner.specs.software_documents import reproductions, software, software_names
from planner.specs.switches.table import BY_FRAMEWORK, decided, effects
from tests.conftest import Ran

NAMES_BEFORE = (
    "aleph-alpha-scaling",
    "aleph-alpha-scaling-flash1",
    "aleph-alpha-scaling-rmsnorm",
    "aleph-alpha-scaling-softmax",
    "deepspeed",
    "deepspeed-2021",
    "deepspeed-liger",
    "megatron",
    "megatron-2021",
    "megatron-2022",
    "megatron-bridge",
    "megatron-fsdp2",
    "nanotron",
    "nemo",
    "nemo-2024",
    "nemo-2025",
    "nemo-automodel",
    "torch-fsdp",
    "torch-fsdp-2022",
    "torch-fsdp-2023",
    "torch-gloo",
    "zero-bubble",
)
"""Names of stacks that plans and files of users hold."""


@pytest.mark.parametrize("name", NAMES_BEFORE)
def test_names_of_before_are_known(name: str) -> None:
    assert library.stack(name).name == name


def test_what_reproduces_runs_is_known_but_not_offered() -> None:
    offered = library.offered_stacks()
    for name in ("megatron-2021", "nemo-2024", "torch-fsdp-2022", "aleph-alpha-scaling"):
        assert name in library.stacks() and name not in offered
        assert library.stack(name).reproduces
    for name in ("megatron", "nemo", "deepspeed", "torch-fsdp", "zero-bubble", "nanotron"):
        assert name in offered and not library.stack(name).reproduces


def test_a_distribution_is_its_software_under_switches() -> None:
    for distribution in distributions().values():
        built = distribution.built()
        base = software(distribution.software)
        assert (built.name, built.document) == (distribution.name, base.name)
        assert built.switches == base.switches | distribution.switches
        known = BY_FRAMEWORK[base.framework]
        for name, value in distribution.switches.items():
            assert not known[name].values or value in known[name].values


FITTED_WITH = ("zero-bubble",)
"""Software whose figures are those of a reproduction."""


@pytest.mark.parametrize("name", sorted({*software_names()} - reproductions() - {*FITTED_WITH}))
def test_what_switches_decide_is_not_fitted_in_a_document(name: str) -> None:
    document = software(name)
    assert {path: document.figure(path) for path in set_by_switches(document.framework)} == {
        path: decided(document)[path] for path in set_by_switches(document.framework)
    }


def set_by_switches(framework: str) -> set[str]:
    """Figures that some value of some switch sets as they are."""
    return {
        path
        for values in effects(framework).values()
        for effect in values.values()
        if isinstance(effect, dict)
        for path in effect.get("set", {})
    }


@pytest.mark.parametrize(
    ("kind", "framework", "name"),
    [
        ("megatron", "megatron", "megatron"),
        ("swift", "megatron", "megatron"),
        ("bridge", "megatron", "nemo"),
        ("nemo", "megatron", "nemo-2024"),
        ("torchtitan", "torch", "torch-fsdp"),
        ("huggingface", "torch", "torch-fsdp"),
        ("huggingface", "deepspeed", "deepspeed"),
        ("neox", "deepspeed", "deepspeed"),
    ],
)
def test_files_are_read_as_a_distribution(kind: str, framework: str, name: str) -> None:
    assert of_file(kind, framework).name == name


def _assumed(stack: str) -> tuple[str, ...]:
    question = api.question(model="llama3-8b", gpus=8, cluster="h100-sxm", stack=stack)
    return resolve.recipe(question).assumed


def test_the_answer_says_what_a_name_stands_for() -> None:
    nemo = "stack nemo: megatron-core 0.19 with tp_comm_overlap on"
    assert any(says.startswith(nemo) for says in _assumed("nemo"))
    assert not any(says.startswith("stack") for says in _assumed("megatron"))
    assert any("reproduces published runs" in says for says in _assumed("megatron-2022"))


def test_the_listing_leaves_reproductions_out_unless_asked() -> None:
    offered = {stack["name"] for stack in api.stacks().documents}
    every = {stack["name"]: stack["stands_for"] for stack in api.stacks(every=True).documents}
    assert "megatron-2021" not in offered and "nemo" in offered
    assert list(every) == library.stacks()
    assert every["nemo"].startswith("megatron-core with tp_comm_overlap on")
    assert every["nanotron"] is None


QUESTION = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm"}


@pytest.mark.parametrize(
    ("words", "framework", "version", "spelling"),
    [
        ({"software": "megatron-core@0.16"}, "megatron", "0.16", "megatron-core@0.16"),
        ({"software": "megatron-core"}, "megatron", "0.19", "megatron-core@0.19"),
        ({"software": "deepspeed@0.18"}, "deepspeed", "0.18", "deepspeed@0.18"),
        ({"software": "torch@2.9"}, "torch", "2.9", "torch@2.9"),
        ({"software": "torchtitan@0.2"}, "torch", "2.13", "torch@2.13"),
        ({"software": "nanotron"}, "torch", "2.13", "nanotron"),
        (
            {"software": "megatron-core@0.16", "stack": "nemo", "framework": "megatron"},
            "megatron",
            "0.16",
            "megatron-core@0.16",
        ),
        ({}, "megatron", "0.19", "megatron-core@0.19"),
    ],
)
def test_software_and_version_in_one_word(
    words: dict[str, str], framework: str, version: str, spelling: str
) -> None:
    recipe = resolve.recipe(from_words(QUESTION | words))
    assert (recipe.framework, recipe.framework_version) == (framework, version)
    assert spelled(recipe) == spelling
    assert recipe.software.name == words.get("stack", recipe.software.name)


def test_a_version_offers_the_switches_that_it_has() -> None:
    """HybridEP came with megatron-core 0.16, whose arguments name the library of the flexible
    dispatcher first."""
    early = {"software": "megatron-core@0.15", "stack": "nemo", "model": "mixtral-8x7b"}
    recipe = resolve.recipe(from_words(QUESTION | early))
    assert recipe.software.switches["moe_dispatcher"] == "deepep"
    with pytest.raises(InputError, match=r"megatron 0\.15 has"):
        resolve.recipe(from_words(QUESTION | early | {"switch": ("moe_dispatcher=hybridep",)}))


def test_torchtitans_version_stands_in_the_tuple() -> None:
    recipe = resolve.recipe(from_words(QUESTION | {"software": "torchtitan@0.2"}))
    assert recipe.versions.torchtitan == "0.2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"software": "megatron-core@0.16", "framework_version": "0.18"}, "must agree"),
        ({"software": "megatron-core@0.16", "framework": "deepspeed"}, "must agree"),
        ({"software": "megatron-core", "stack": "deepspeed"}, "must agree"),
        ({"software": "megatron-core@9.9"}, "version must be one of"),
        ({"software": "nanotron@1.0"}, "without a version"),
        ({"software": "torchtitan@0.1"}, "must be 0.2 or 0.3"),
        ({"software": "nemo"}, "use --stack nemo"),
        ({"software": "megatron-cor"}, "did you mean megatron-core"),
        ({"software": "nemo@2.6"}, "use --stack nemo and --software megatron-core@VERSION"),
        ({"stack": "megatron-core@0.16"}, "use --software megatron-core@0.16"),
        ({"stack": "nemo@2.6"}, "use --stack nemo with --framework-version"),
        ({"framework": "torchtitan"}, "use --software torchtitan"),
        ({"container": "nemo:99"}, "known: .*nemo:26.04.*pytorch:25.12"),
        ({"precision": "fp8"}, "fp8-blockwise or fp8-delayed or fp8-rowwise or fp8-tensorwise"),
    ],
)
def test_software_that_contradicts_or_is_not_known(words: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve.recipe(from_words(QUESTION | words))


def test_restating_the_version_or_the_stack_drops_the_software() -> None:
    question = from_words(QUESTION | {"software": "megatron-core@0.16"})
    later = resolve.recipe(changed(question, {"framework_version": "0.18"}))
    assert later.framework_version == "0.18"
    other = resolve.recipe(changed(question, {"stack": "deepspeed"}))
    assert other.software.name == "deepspeed"


@pytest.mark.parametrize("software", ["torch@2.9", "megatron-core@0.18", "deepspeed@0.18"])
def test_a_version_in_the_software_s_name_changes_the_version_alone(software: str) -> None:
    name, version = software.split("@")
    framework = {"megatron-core": "megatron"}.get(name, name)
    apart = {"framework": framework, "framework_version": version}
    named = resolve.recipe(from_words(QUESTION | {"software": software}))
    assert named == resolve.recipe(from_words(QUESTION | apart))
    newest = resolve.recipe(from_words(QUESTION | {"framework": framework}))
    assert named.software.name == newest.software.name


def test_a_tag_is_shown_as_its_version() -> None:
    recipe = resolve.recipe(from_words(QUESTION | {"software": "megatron-core@core_v0.16.0"}))
    assert recipe.framework_version == "0.16.0"


def test_the_question_in_a_line_names_all_that_runs() -> None:
    titan = resolve.recipe(from_words(QUESTION | {"software": "torchtitan@0.3"}))
    assert "torchtitan 0.3" in parts.question(titan).plain
    image = resolve.recipe(from_words(QUESTION | {"container": "nvcr.io/nvidia/nemo:26.04"}))
    assert "container nemo:26.04" in parts.question(image).plain


def test_check_takes_what_a_file_runs_in(tmp_path: Path, ppplan: Callable[..., Ran]) -> None:
    """nemo:26.04 holds megatron-core 0.17 (containers.yaml)."""
    script = tmp_path / "launch.sh"
    model = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    script.write_text(
        f"torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 {model} --max-position-embeddings 1024"
        " --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000\n"
    )
    for words, version in (
        (("--software", "megatron-core@0.16"), "0.16"),
        (("--framework-version", "0.18"), "0.18"),
        (("--container", "nemo:26.04"), "0.17"),
    ):
        ran = ppplan("check", script, "--cluster", "h100-sxm", "--json", *words)
        assert json.loads(ran.out)["framework_version"] == version
