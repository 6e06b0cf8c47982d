"""What Megatron-Bridge's recipes and logs say of the runs on its pages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from planner import api
from planner.accuracy import bridge, recomputed, run_software
from planner.accuracy.columns import COLUMNS
from planner.accuracy.predict import predicted
from planner.estimate import estimate
from planner.specs import library, resolve
from planner.specs.residuals import residual_range
from planner.specs.switches.table import BY_FRAMEWORK
from planner.units import GIB

GUIDE = "NVIDIA-NeMo/Megatron-Bridge skills/nemo-mbridge-perf-memory-tuning"
CARD = "NVIDIA-NeMo/Megatron-Bridge examples/model_verification_cards/deepseek-v3/card.yaml"


def test_only_its_performance_guides_speak_of_its_recipes() -> None:
    assert bridge.states("llama3-70b", CARD, "bf16") == () and not bridge.of_last(CARD)
    assert dict(bridge.states("llama3-70b", GUIDE, "bf16")) == {"grad_reduce_dtype": "bf16"}
    in_8_bits = {"grad_reduce_dtype": "bf16", "fp8_param_gather": True}
    assert dict(bridge.states("llama3-70b", GUIDE, "fp8-tensorwise")) == in_8_bits
    assert "fp8_param_gather" not in dict(bridge.states("llama3-70b", GUIDE, "fp8-blockwise"))
    assert bridge.of_last(GUIDE)


def test_what_the_page_says_are_switches_and_figures() -> None:
    """Moonlight's recipe: gradients of 2 bytes, moments of 2, whole main weights of 4."""
    megatron = run_software.Named("megatron")
    found = run_software.built(megatron, bridge.states("moonlight-16b-a3b", GUIDE, "bf16"))
    states = (found.states.gradient_bytes, found.states.optimizer_state_bytes)
    assert (*states, found.experts.imbalance) == (2.0, 8.0, 1.3)
    assert found.states.remainder_bytes == 0.0
    assert run_software.built(megatron) == library.stack("megatron")


def cells(**stated: str | float) -> run_software.Cells:
    """A row's words."""
    return run_software.cells({name: stated.get(name) for name in run_software.COLUMNS})


def test_every_pattern_has_a_source_and_names_what_is_known() -> None:
    for kind, patterns in run_software.patterns().items():
        for pattern in patterns:
            assert pattern.source and pattern.when.keys() <= {*run_software.COLUMNS}
            assert (pattern.software in library.stacks()) == (kind != "switches")
            assert pattern.switches.keys() <= BY_FRAMEWORK["megatron"].keys()


@pytest.mark.parametrize("pp, v", [(4, 1), (8, 1)])
def test_last_rank_is_the_simulated_last_stage(pp: int, v: int) -> None:
    words = {
        "model": "llama3-70b",
        "cluster": "h100-sxm",
        "gpus": 8 * pp,
        "tp": 8,
        "pp": pp,
        "v": v,
        "global_batch_size": 32,
    }
    recipe, layout = resolve.recipe_and_layout(api.question(**words))
    last = estimate(recipe, layout, exact=True).stages[-1]
    assert bridge.last_memory(recipe, layout).device_bytes == pytest.approx(
        last.memory_bytes, rel=1e-9
    )


def test_a_guide_logs_the_last_rank_with_gradients_in_16_bits() -> None:
    """The same run on a guide's page and on a card: 2 bytes fewer a parameter, and the rank whose
    activations are fewest.
    """
    cells = {
        "model": "llama3-70b",
        "hardware": "h100-sxm",
        "gpus": 32,
        "tp": 8,
        "pp": 4,
        "vpp": 1,
        "dp": 1,
        "mbs": 1,
        "gbs_sequences": 32,
        "seq": 4096,
        "precision": "bf16",
        "sp": 1,
        "zero": 1,
        "recompute": "none",
        "stack": "megatron",
    }
    rows = pd.DataFrame(
        [{**cells, "source": "one", "source_ref": page} for page in (GUIDE, CARD)],
        columns=list(COLUMNS),
    )
    guide, card = predicted(rows)["predicted_allocated_gib"]
    # 20 layers of 855.6 M parameters over tp 8, and a table of 1.05 G: 2.27 G a rank at either end.
    gradients = 2 * (20 * 855_654_400 + 128_256 * 8192) / 8 / GIB
    # In flight 1 micro-batch in place of 4: three times 20 layers of at least 16 bytes a token and
    # hidden unit, over tp.
    fewer = 3 * 20 * 16 * 4096 * 8192 / 8 / GIB
    assert card - guide > gradients + fewer
    assert card - guide < gradients + 3 * fewer


@pytest.mark.parametrize(
    ("notes", "stack", "switches"),
    [
        (
            "ep_overlap=True; item=pretrain_performance; performance item",
            "nemo",
            {"moe_dispatcher": "alltoall", "overlap_moe_expert_parallel_comm": True},
        ),
        (
            (
                "cuda_graph=full_iteration; ep_overlap=True; dispatcher=flex;"
                " dispatcher_backend=hybridep; performance item"
            ),
            "nemo",
            {
                "moe_dispatcher": "hybridep",
                "overlap_moe_expert_parallel_comm": True,
                "cuda_graph": "full_iteration",
            },
        ),
        ("dispatcher_backend=hybridep; performance item", "nemo", {"moe_dispatcher": "hybridep"}),
        (
            "1F1B A2A overlap; HybridEP",
            "nemo",
            {"moe_dispatcher": "hybridep", "overlap_moe_expert_parallel_comm": True},
        ),
        (
            "EP overlap off; HybridEP + TE CUDA graphs moe_router/moe_preprocess; performance item",
            "nemo",
            {"moe_dispatcher": "hybridep", "cuda_graph": "router"},
        ),
    ],
)
def test_a_card_runs_what_it_names(notes: str, stack: str, switches: dict[str, Any]) -> None:
    words = cells(stack="megatron", notes=notes, source_ref=CARD, experts=128.0)
    facts = run_software.facts(words)
    assert dict(facts) == switches
    named = run_software.software_of(words)
    assert named == run_software.Named(stack)
    run = run_software.built(named, facts)
    assert {name: run.switches[name] for name in switches} == switches


def test_the_ablation_is_read_cumulatively() -> None:
    """docs/discussions/deepseek-v3-gb200-optimization: each step keeps those before it."""
    notes = "cumulative optimization step {}: x; other settings fixed"
    read = [dict(run_software.facts(cells(notes=notes.format(step)))) for step in range(13)]
    assert read[0] == read[1] == {}
    assert read[2] == {"moe_router_fusion": True}
    assert read[4] == read[3] == {"moe_router_fusion": True, "moe_dispatcher": "deepep"}
    assert read[12] == {
        "moe_router_fusion": True,
        "moe_dispatcher": "hybridep",
        "cuda_graph": "layers",
    }
    assert recomputed.modules(notes.format(3)) == ("mlp", "mla_up_proj")
    assert recomputed.modules(notes.format(4)) == ("mlp", "moe_act")


@pytest.mark.parametrize(
    ("stack", "page", "name"),
    [
        ("megatron-bridge 0.4.2 (core 0.17.1)", "", "nemo"),
        ("nemo 25.09 (NVIDIA MLPerf)", "", "nemo"),
        ("nemo:24.07", "", "nemo-2024"),
        ("megatron-core 0.9", "", "megatron-core-2024"),
        ("megatron-core dev 2026-08", "", "megatron"),
        ("primus (megatron)", "", "megatron"),
        ("megatron", "NVIDIA/NeMo docs performance_summary.md, container 24.07", "nemo-2024"),
        ("megatron", "Megatron-Bridge docs/performance-summary.md, NeMo container 26.04", "nemo"),
        ("megatron", "SimuMax docs", "megatron"),
        ("nemo-2025", "", "nemo-2025"),
    ],
)
def test_the_sources_words_name_the_software(stack: str, page: str, name: str) -> None:
    """Names of the product in the column are replaced by what the page states."""
    named = run_software.software_of(cells(stack=stack, source_ref=page))
    assert named == run_software.Named(name)


def test_software_never_seen_is_eager_and_its_range_wider() -> None:
    named = run_software.software_of(cells(stack="colossalai 0.3"))
    assert (named.name, named.stands_in_for) == ("deepspeed", "colossalai 0.3")
    assert named.assumed == ("stack deepspeed: nearest to colossalai 0.3",)
    question = api.question(model="llama3-8b", cluster="h100-sxm", gpus=8, framework="deepspeed")
    recipe = resolve.recipe(question)
    other = recipe.model_copy(update={"software": run_software.built(named)})
    low, high = residual_range(recipe, 1e14)
    wider_low, wider_high = residual_range(other, 1e14)
    assert wider_high / wider_low > high / low
