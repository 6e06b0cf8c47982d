"""What changes the numbers: left off unless allowed, said with its gain, listed where taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.cost.params.layer import total_params
from planner.errors import InputError
from planner.specs import plan as plans
from planner.specs.switches.lossy import in_force
from planner.specs.switches.table import BY_FRAMEWORK
from planner.units import GIB

LLAMA = {"model": "llama3-70b", "gpus": 64, "cluster": "h100-sxm"}
GRADIENTS, MOMENTS = "grad_reduce_dtype", "optimizer moments"


def test_nothing_lossy_is_taken_unasked() -> None:
    answer = api.recommend(**LLAMA, top=1)
    assert answer.best is not None
    assert in_force(answer.recipe, answer.best.layout) == {} and answer.held == ()
    assert {offer.name for offer in answer.offers} == {GRADIENTS, MOMENTS}


def test_an_offer_that_gates_is_a_layout_that_fits_with_it_alone() -> None:
    """16-bit gradients save 2 bytes of each parameter of the rank, 16-bit moments at least 4 of
    each of its shard: bytes of Megatron's distributed optimizer.
    """
    answer = api.recommend(**LLAMA, top=1)
    offer = next(offer for offer in answer.offers if offer.name == GRADIENTS)
    assert offer.gates and offer.saved_s is not None and offer.saved_s > 0
    layout: dict[str, Any] = {
        word: getattr(offer.layout, word) for word in ("tp", "pp", "dp", "v", "mbs", "m", "zero")
    }
    without = api.explain(**LLAMA, **layout)
    with_it = api.explain(**LLAMA, **layout, switch=(f"{GRADIENTS}=bf16",))
    assert not without.estimate.fits and with_it.estimate.fits
    saved = without.estimate.memory.gradients_bytes - with_it.estimate.memory.gradients_bytes
    share = total_params(answer.recipe.model) / (offer.layout.tp * offer.layout.pp)
    assert 0.9 * 2 * share < saved < 1.2 * 2 * share
    assert saved > 5 * GIB


def test_allowed_it_is_taken_and_listed(tmp_path: Path) -> None:
    own = {**LLAMA, "own_switches": True, "top": 1}
    plain = api.recommend(**own)
    answer = api.recommend(**own, allow_numerics=True, out=tmp_path)
    assert plain.best is not None and answer.best is not None
    assert answer.best.estimate.step_s < plain.best.estimate.step_s
    held = {held.name: (held.value, held.by) for held in answer.held}
    assert held == {
        GRADIENTS: ("bf16", "--allow-numerics"),
        MOMENTS: ("bf16", "--allow-numerics"),
    }
    assert any(line.startswith("changes the numbers, as allowed") for line in answer.best.why)
    saved = plans.read(tmp_path / "plan.yaml")
    assert saved.numerics == {GRADIENTS: "bf16", MOMENTS: "bf16"}
    script = (tmp_path / "launch.sh").read_text()
    assert f"# changes the numbers: {GRADIENTS} bf16, {MOMENTS} bf16" in script
    assert "--grad-reduce-in-bf16" in script and "--exp-avg-dtype bf16" in script
    again = api.check(tmp_path / "launch.sh", cluster="h100-sxm").estimate
    assert again is not None
    assert again.step_s == pytest.approx(answer.best.estimate.step_s, rel=1e-9)
    assert [one.by for one in api.explain(tmp_path / "plan.yaml").held] == [
        "--switch",
        "--optimizer",
    ]


def test_what_the_question_fixes_is_left_alone() -> None:
    words = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm"}
    answer = api.recommend(**words, switch=(f"{GRADIENTS}=fp32",), allow_numerics=True, top=1)
    assert GRADIENTS not in {one.name for one in (*answer.held, *answer.offers)}
    stated = api.recommend(**words, switch=(f"{GRADIENTS}=bf16",), optimizer="adam", top=1)
    assert [str(one) for one in stated.held] == [f"{GRADIENTS} bf16 (--switch)"]
    assert stated.offers == ()


def test_a_software_of_its_own_says_so() -> None:
    """NeMo's recipes reduce in bf16; DeepSpeed reduces in the type that it trains in."""
    words = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm"}
    nemo = api.recommend(**words, stack="nemo", top=1)
    assert f"{GRADIENTS} bf16 (nemo's own)" in map(str, nemo.held)
    deepspeed = api.recommend(**words, framework="deepspeed", top=1)
    assert [one.by for one in deepspeed.held] == ["deepspeed's own"]


def test_where_nothing_fits_it_is_among_the_changes() -> None:
    words = {"model": "llama3-70b", "gpus": 16, "cluster": "h100-sxm", "offload": "none"}
    words["own_switches"] = True
    answer = api.recommend(**words)
    assert answer.best is None and answer.search is not None and answer.search.nearest
    says = "optimizer moments bf16, which changes the numbers (--allow-numerics)"
    [change] = [change for change in answer.search.nearest if change.change == says]
    assert change.estimate.fits
    allowed = api.recommend(**words, allow_numerics=True, top=1)
    assert allowed.best is not None
    fewest = api.recommend(
        model="llama3-70b",
        cluster="h100-sxm",
        offload="none",
        min_gpus=True,
        allow_numerics=True,
        top=1,
    )
    assert fewest.min_gpus == 16


def test_what_no_layout_can_have_is_no_offer() -> None:
    """The precision-aware optimizer needs the distributed one (megatron-core's OptimizerConfig)."""
    words = {"model": "llama3-8b", "gpus": 64, "cluster": "h100-sxm", "zero": 0}
    answer = api.recommend(**words, top=1)
    assert answer.best is not None and MOMENTS not in {offer.name for offer in answer.offers}


def test_what_fits_nowhere_is_no_offer() -> None:
    """405 G parameters of 6 bytes and more on 8 GPUs of 80 GB."""
    answer = api.recommend(model="llama3-405b", gpus=8, cluster="h100-sxm", top=1)
    assert answer.best is None and answer.offers == ()


def test_compare_lists_what_it_took() -> None:
    rows = api.compare(
        model="llama3-8b", gpus=8, over={"cluster": ["h100-sxm", "h200"]}, allow_numerics=True
    ).rows
    assert all("--allow-numerics" in {one.by for one in row.held} for row in rows)


def test_off_is_never_lossy() -> None:
    for switches in BY_FRAMEWORK.values():
        for switch in switches.values():
            if switch.values and switch.values[0] not in switch.lossy:
                assert switch.arithmetic_of(switch.values[0]) in ("same", "reassociated")


def test_forced_balance_is_refused_in_a_plan_and_read_in_a_file(tmp_path: Path) -> None:
    words = {"model": "mixtral-8x7b", "gpus": 64, "cluster": "h100-sxm"}
    name = "moe_router_force_load_balancing"
    with pytest.raises(InputError, match="trains nothing"):
        api.recommend(**words, switch=(f"{name}=on",))
    answer = api.recommend(**words, top=1, out=tmp_path)
    assert name not in {gain.name for gain in answer.switches}
    script = tmp_path / "launch.sh"
    text = script.read_text()
    assert "force-load-balancing" not in text
    script.write_text(text.replace("--bf16", "--bf16 --moe-router-force-load-balancing"))
    found = {finding.rule: finding for finding in api.check(script, cluster="h100-sxm").findings}
    finding = found["benchmark, not training"]
    assert finding.severity == "warning" and finding.ways[0].values == {name: None}
