"""Flags and variables that follow from the stack and from the version; every flag is one that the
version's own parser has.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.emit import environment, megatron
from planner.errors import InputError
from planner.specs import library, resolve
from planner.specs.question import from_words
from planner.specs.software import Software
from planner.specs.switches.table import with_switches
from planner.specs.tuning import precise, with_named_states
from planner.specs.versions import KNOWN, version_of
from tests import documents
from tests.judges import megatron_sweep

pytestmark = pytest.mark.slow


# Options of the parsers of tags core_v0.14.0 to core_v0.19.2 and of main (d98e8a64), with the first
# and the last that has each.
FLAGS = list(
    csv.DictReader(
        (Path(__file__).parents[1] / "data" / "megatron_flags.csv").read_text().splitlines()
    )
)
# Written for a user's own data, or where a layout says so.
BY_HAND = (
    "--data-path",
    "--split",
    "--tokenizer-model",
    "--eval-interval",
    "--save",
    "--load",
    "--save-interval",
    "--tp-comm-overlap",
    "--pipeline-model-parallel-layout",
    "--microbatch-group-size-per-virtual-pipeline-stage",
    "--hierarchical-context-parallel-sizes",
)


def stack(
    name: str = "megatron", experts: dict[str, Any] | None = None, **changes: Any
) -> Software:
    of_experts = {f"experts.{field}": value for field, value in (experts or {}).items()}
    return library.stack(name).with_figures(of_experts | changes)


def written(
    model: str, software: Software, changes: dict[str, Any] | None = None, **knobs: Any
) -> dict[str, list[str]]:
    recipe = documents.recipe(model, 64, stack=software, **(changes or {}))
    flags = megatron.flags(recipe, documents.layout(recipe, **knobs))
    assert len({flag[0] for flag in flags}) == len(flags)
    return {flag[0]: list(flag[1:]) for flag in flags}


def options(version: str) -> set[str]:
    now = version_of("megatron", version)
    return {
        row["flag"]
        for row in FLAGS
        if version_of("megatron", row["first"]) <= now <= version_of("megatron", row["last"])
    }


@pytest.mark.parametrize("version", KNOWN["megatron"])
def test_every_flag_is_one_of_the_version(version: str) -> None:
    drawn = list(megatron_sweep.commands(int(version_of("megatron", version)[1]), 60, 2, version))
    names = {word for _, _, case in drawn for word in case.flags if word.startswith("--")}
    assert len(drawn) > 50 and len(names) > 90
    assert (names | set(BY_HAND)) - options(version) == set()


def test_options_of_versions_are_as_known() -> None:
    """0.14 has no flag of 4 bits, 0.15 has; --use-legacy-models is gone after 0.17;
    --moe-flex-dispatcher-backend came with 0.16.
    """
    spans = {row["flag"]: (row["first"], row["last"]) for row in FLAGS}
    assert spans["--fp4-format"] == ("0.15", "main")
    assert spans["--use-legacy-models"] == ("0.14", "0.17")
    assert spans["--moe-flex-dispatcher-backend"] == ("0.16", "main")
    assert "--num-micro-batches" not in spans


MOMENTS = ("--exp-avg-dtype", "--exp-avg-sq-dtype")


@pytest.mark.parametrize("moments", ["fp32", "bf16", "fp8"])
def test_narrow_states_are_the_precision_aware_optimizer(moments: str) -> None:
    flags = written("llama3-70b", with_switches(stack(), precise(moments)), tp=8)
    assert flags["--use-precision-aware-optimizer"] == []
    stated = {} if moments == "fp32" else {name: [moments] for name in MOMENTS}
    assert {name: flags[name] for name in MOMENTS if name in flags} == stated


def test_a_document_of_narrow_states_says_their_switches() -> None:
    """6 bytes a parameter in place of 12: remainders of main weights, moments in bf16."""
    document = library.stack("megatron").with_figures({"states.optimizer_state_bytes": 6.0})
    named = with_named_states(document)
    assert named.switches["exp_avg_dtype"] == named.switches["exp_avg_sq_dtype"] == "bf16"
    assert named.states.optimizer_state_bytes == 6.0


@pytest.mark.parametrize(
    ("precision", "flags"),
    [
        ("fp8-tensorwise", ["--fp8-param-gather"]),
        ("mxfp8", ["--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"]),
        ("nvfp4", ["--fp4-param-gather"]),
        ("bf16", []),
    ],
)
def test_weights_are_gathered_as_they_are_kept(precision: str, flags: list[str]) -> None:
    """validate_args and Transformer Engine: mxfp8 weights need the buffer of gradients."""
    settings = {"fp8_param_gather": True, "fp4_param_gather": True}
    gathering = with_switches(stack(), settings)
    found = written("llama3-70b", gathering, {"precision": precision}, tp=8)
    off = with_switches(gathering, dict.fromkeys(settings, False))
    narrow = written("llama3-70b", off, {"precision": precision}, tp=8)
    assert found.keys() - narrow.keys() == set(flags)


@pytest.mark.parametrize("version, off", [("0.16", True), ("0.17", False), ("0.19", False)])
def test_megatron_fsdp_fuses_since_it_checks_transformer_engine(version: str, off: bool) -> None:
    """core/distributed/fsdp/mcore_fsdp_adapter.py of 0.17 on: Transformer Engine 2.10 or newer."""
    flags = written("llama3-8b", stack(), {"framework_version": version}, zero=3)
    assert ("--no-gradient-accumulation-fusion" in flags) == off
    apart = with_switches(stack(), {"gradient_accumulation_fusion": False})
    flags = written("llama3-8b", apart, {"framework_version": version}, zero=3)
    assert "--no-gradient-accumulation-fusion" in flags


@pytest.mark.parametrize("zero, kept", [(2, True), (3, False)])
def test_fsdp2(zero: int, kept: bool) -> None:
    """validate_args: neither distributed optimizer nor fused accumulation; so no gather of
    parameters to overlap.
    """
    flags = written("llama3-8b", stack("megatron-fsdp2"), zero=zero)
    assert flags["--use-torch-fsdp2"] == [] and flags["--ckpt-format"] == ["torch_dist"]
    assert ("--torch-fsdp2-no-reshard-after-forward" in flags) == kept
    assert "--no-gradient-accumulation-fusion" in flags
    absent = {
        "--use-distributed-optimizer",
        "--use-megatron-fsdp",
        "--data-parallel-sharding-strategy",
        "--overlap-param-gather",
        "--overlap-grad-reduce",
    }
    assert not absent & set(flags)


@pytest.mark.parametrize(
    "name, version, knobs, expected",
    [
        ("megatron", "0.19", {"ep": 8}, {"--moe-token-dispatcher-type": ["alltoall"]}),
        (
            "nemo-2025",
            "0.19",
            {"ep": 8},
            {"--moe-token-dispatcher-type": ["flex"], "--moe-flex-dispatcher-backend": ["deepep"]},
        ),
        (
            "nemo-2025",
            "0.15",
            {"ep": 8},
            {"--moe-token-dispatcher-type": ["flex"], "--moe-enable-deepep": []},
        ),
        (
            "nemo",
            "0.16",
            {"ep": 8},
            {
                "--moe-token-dispatcher-type": ["flex"],
                "--moe-flex-dispatcher-backend": ["hybridep"],
            },
        ),
        (
            "nemo",
            "0.19",
            {"ep": 1},
            {"--moe-token-dispatcher-type": ["alltoall"], "--moe-flex-dispatcher-backend": None},
        ),
    ],
)
def test_dispatcher_is_the_stacks(
    name: str, version: str, knobs: dict[str, Any], expected: dict[str, list[str] | None]
) -> None:
    """DeepEP asserts more than one rank of experts; the flag that names the library is of 0.16."""
    flags = written("mixtral-8x7b", stack(name), {"framework_version": version}, **knobs)
    assert {flag: flags.get(flag) for flag in expected} == expected


@pytest.mark.parametrize(
    "cluster, knobs, overlapped, connections",
    [
        ("h100-sxm", {"ep": 8}, True, "32"),
        ("h100-sxm", {"ep": 8, "tp": 2}, True, "1"),
        ("b200-sxm", {"ep": 8, "tp": 2}, True, "32"),
        ("h100-sxm", {"ep": 1}, False, None),
    ],
)
def test_overlapped_exchange_and_its_variable(
    cluster: str, knobs: dict[str, Any], overlapped: bool, connections: str | None
) -> None:
    """validate_args: on Hopper 1 or 32, as one rather wants tensor parallelism or the exchange in
    order.
    """
    software = with_switches(library.stack("megatron"), {"overlap_moe_expert_parallel_comm": True})
    recipe = documents.recipe("mixtral-8x7b", 64, hardware=cluster, stack=software)
    one = documents.layout(recipe, **knobs)
    assert (("--overlap-moe-expert-parallel-comm",) in megatron.flags(recipe, one)) == overlapped
    assert dict(environment.megatron(recipe, one)).get("CUDA_DEVICE_MAX_CONNECTIONS") == connections


@pytest.mark.parametrize(
    "name, v, off",
    [("megatron", 2, False), ("megatron-2022", 2, True), ("megatron-2022", 1, False)],
)
def test_transfers_that_a_stack_does_not_overlap(name: str, v: int, off: bool) -> None:
    flags = written("llama3-70b", stack(name), {"attention": "unfused"}, pp=4, v=v, zero=0)
    assert ("--no-overlap-p2p-communication" in flags) == off


def test_sinks_leave_the_kernel_open() -> None:
    """Transformer Engine: a learned softmax runs in cuDNN's and in the unfused attention."""
    assert written("gpt-oss-20b", stack(), ep=8)["--attention-backend"] == ["auto"]


@pytest.mark.parametrize(
    "model, version, feature",
    [
        ("gpt-oss-20b", "0.14", "attention in windows, attention sinks, an MLP with quick_gelu"),
        ("qwen2-57b-a14b", "0.15", "a gate on shared experts"),
    ],
)
def test_what_came_later_is_named(model: str, version: str, feature: str) -> None:
    with pytest.raises(InputError, match=feature):
        written(model, stack(), {"framework_version": version})


def test_the_kind_of_fsdp_is_a_switch() -> None:
    """core/distributed/torch_fully_sharded_data_parallel.py: gradients of bf16, 2 bytes, which the
    optimizer copies to fp32, 4; the switch brings the type of gradients with it.
    """
    asked = {"model": "llama3-8b", "gpus": 16, "cluster": "h100-sxm"}
    switch = from_words(asked | {"switch": ["fsdp=torch2"], "zero": 3})
    recipe = resolve.recipe(switch)
    named = library.stack("megatron-fsdp2")
    assert recipe.software.switches["grad_reduce_dtype"] == "bf16"
    for software in (recipe.software, named):
        assert (software.states.gradient_bytes, software.states.grad_reduce_bytes) == (6, 2)
        assert software.sharding_stages == (2, 3)


def test_fsdp2_is_found_and_written() -> None:
    """The stack has no other sharding."""
    words = {
        "model": "llama3-8b",
        "cluster": "h100-sxm",
        "gpus": 16,
        "stack": "megatron-fsdp2",
        "global_batch_size": 64,
    }
    answer = api.recommend(from_words(words))
    assert answer.search is not None and answer.search.plans
    best = answer.search.plans[0].layout
    assert (best.pp, best.zero in (2, 3)) == (1, True)
    assert ("--use-torch-fsdp2",) in megatron.flags(answer.recipe, best)
