"""What Megatron-Bridge's recipes and logs say of the runs on its pages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from planner import api
from planner.accuracy import bridge, dispatchers
from planner.accuracy.columns import COLUMNS
from planner.accuracy.predict import predicted
from planner.estimate import estimate
from planner.specs import library, resolve
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
    found = dispatchers.document("megatron", bridge.states("moonlight-16b-a3b", GUIDE, "bf16"))
    states = (found.states.gradient_bytes, found.states.optimizer_state_bytes)
    assert (*states, found.experts.imbalance) == (2.0, 8.0, 1.3)
    assert found.states.remainder_bytes == 0.0
    assert dispatchers.document("megatron", ()) == library.stack("megatron")


def test_figures_of_words_have_sources() -> None:
    assert dispatchers.routing() == {"unbalanced": 1.3}
    assert dispatchers.ROUTING.read_text().count("set by hand") == 1


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
    ],
)
def test_a_card_runs_what_it_names(notes: str, stack: str, switches: dict[str, Any]) -> None:
    facts = dispatchers.facts(notes, CARD, "gb200-nvl72")
    assert dict(facts) == switches
    assert dispatchers.software_of("megatron", notes, CARD) == stack
    run = dispatchers.document(stack, facts)
    assert {name: run.switches[name] for name in switches} == switches


def test_the_ablation_is_read_cumulatively() -> None:
    """docs/discussions/deepseek-v3-gb200-optimization: each step keeps those before it."""
    notes = "cumulative optimization step {}: x; other settings fixed"
    read = [dict(dispatchers.facts(notes.format(step), "", "gb200-nvl72")) for step in range(13)]
    assert read[0] == read[1] == {}
    assert read[2] == {"moe_router_fusion": True}
    assert read[4] == read[3] == {"moe_router_fusion": True, "moe_dispatcher": "deepep"}
    assert read[12] == {
        "moe_router_fusion": True,
        "moe_dispatcher": "hybridep",
        "cuda_graph": "layers",
    }
    assert dispatchers.modules(notes.format(3)) == ("mlp", "mla_up_proj")
    assert dispatchers.modules(notes.format(4)) == ("mlp", "moe_act")
