"""The overlay profile: it finds again what was changed on a machine, and `recommend` takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.estimate import estimate
from planner.specs import library, resolve
from planner.tune.answer.overlay import corrected, overlay
from planner.tune.study.trials import Row
from tests.tune.simulated import other_machine, question, real_s

pytestmark = pytest.mark.slow


def timed(count: int, noise: float = 0.0) -> list[Row]:
    _, space = question()
    return [
        Row(
            index,
            one.layout,
            "done",
            one.predicted_s,
            real_s(one) * (1 + noise * (-1) ** index),
            host="here",
        )
        for index, one in enumerate(space.candidates[:count])
    ]


def test_the_fit_finds_what_was_changed(tmp_path: Path) -> None:
    """The other machine's kernels run at 0.8 and its NVLink at half; its memory is as the profile
    says, and no network is used.
    """
    recipe, space = question()
    found = overlay(
        recipe, "a100-80g-sxm", (), timed(24), "measured on here, 2026-01-01, torch 2.13"
    )
    assert found is not None
    assert found.factors["kernels"] == pytest.approx(0.8, rel=0.05)
    assert found.factors["node"] == pytest.approx(0.5, rel=0.12)
    assert found.error_before > 0.2 and found.error_after < 0.01
    (tmp_path / "overlay.yaml").write_text(found.text)
    hardware = library.hardware(str(tmp_path / "overlay.yaml"))
    base = recipe.hardware
    assert hardware.name == "a100-80g-sxm-tuned" and hardware.gpu == base.gpu
    assert hardware.price_usd_per_gpu_hour == base.price_usd_per_gpu_hour
    assert "2026-01-01" in hardware.kernels.source and "24 layouts" in hardware.node.domain.source
    tuned = recipe.model_copy(update={"hardware": hardware})
    for one in space.candidates[24:]:  # layouts that the fit has not seen
        assert estimate(tuned, one.layout).step_s == pytest.approx(real_s(one), rel=0.03)


def test_recommend_with_the_overlay_predicts_the_other_machine(tmp_path: Path) -> None:
    recipe, _ = question()
    found = overlay(recipe, "a100-80g-sxm", (), timed(12, noise=0.01), "source")
    assert found is not None
    (tmp_path / "overlay.yaml").write_text(found.text)
    asked = api.question(
        model="llama3-8b",
        gpus=8,
        cluster=str(tmp_path / "overlay.yaml"),
        seq_length=4096,
        global_batch_size=64,
    )
    best = api.recommend(asked, top=1).search.plans[0]  # type: ignore[union-attr]
    assert best.estimate.step_s == pytest.approx(
        float(estimate(other_machine(), best.layout).step_s), rel=0.03
    )


def test_figures_that_the_question_changed_stay_changed(tmp_path: Path) -> None:
    changes = ("fabric.nic_gbytes_per_s=12.5", "node.domain.efficiency.8=0.7")
    recipe = resolve.recipe(
        api.question(
            model="llama3-8b",
            gpus=8,
            cluster="a100-80g-sxm",
            set=changes,
            seq_length=4096,
            global_batch_size=64,
        )
    )
    found = overlay(recipe, "a100-80g-sxm", changes, timed(6), "source")
    assert found is not None
    (tmp_path / "overlay.yaml").write_text(found.text)
    hardware = library.hardware(str(tmp_path / "overlay.yaml"))
    assert hardware.fabric.nic_gbytes_per_s == 12.5
    assert hardware.node.domain.efficiency[8] == pytest.approx(
        0.7 * found.factors["node"], rel=1e-3
    )


def test_one_layout_tells_nothing_apart() -> None:
    recipe, _ = question()
    assert overlay(recipe, "a100-80g-sxm", (), timed(1), "source") is None


def test_the_base_stays_where_the_refit_predicts_no_better() -> None:
    """Five layouts are 1% slower than predicted and one three times: least squares follows the one,
    the median does not.
    """
    recipe, space = question()
    rows = [
        Row(at, one.layout, "done", one.predicted_s, one.predicted_s * (3.0 if at == 5 else 1.01))
        for at, one in enumerate(space.candidates[:6])
    ]
    fitted = overlay(recipe, "a100-80g-sxm", (), rows, "source")
    assert fitted is not None and fitted.error_before == pytest.approx(1 - 1 / 1.01)
    assert fitted.error_after > fitted.error_before
    kept, why = corrected(recipe, "a100-80g-sxm", (), rows, "source")
    assert kept is None and "1.0% before" in why and f"{fitted.error_after:.1%} after" in why
    assert corrected(recipe, "a100-80g-sxm", (), timed(6), "source")[0] is not None
    assert "fewer than 2" in corrected(recipe, "a100-80g-sxm", (), rows[:1], "source")[1]


def test_the_median_error_is_of_the_table_of_trials_before_the_fit() -> None:
    """Pruned trials and those under switches are fitted or left out, and never judged."""
    recipe, space = question()
    rows = [
        *timed(7),
        Row(
            7,
            space.candidates[7].layout,
            "pruned",
            space.candidates[7].predicted_s,
            9 * real_s(space.candidates[7]),
        ),
        Row(
            8,
            space.candidates[0].layout,
            "done",
            space.candidates[0].predicted_s,
            1.0,
            switches={"bucket_cap_mb": 100},
        ),
    ]
    fitted = overlay(recipe, "a100-80g-sxm", (), rows, "source")
    errors = sorted(abs(one.predicted_s / one.measured_s - 1) for one in rows[:7] if one.measured_s)
    assert fitted is not None and fitted.error_before == pytest.approx(errors[3])
