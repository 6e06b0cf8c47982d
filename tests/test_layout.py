"""A layout as text."""

from __future__ import annotations

import numpy as np

from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask


def test_one_layout_in_a_line() -> None:
    layout = Layout(tp=8, pp=4, v=5, m=64, sp=1, schedule=SCHEDULE_CODE["interleaved"])
    assert str(layout) == "tp 8 pp 4 dp 1 v 5 mbs 1 m 64 sp zero 1 interleaved"
    assert repr(layout) == "Layout(tp=8, pp=4, v=5, m=64, sp=True, schedule='interleaved')"
    selective = Layout(
        recompute=RECOMPUTE_CODE["selective"], recompute_modules=module_mask(["core_attn", "mlp"])
    )
    assert str(selective) == (
        "tp 1 pp 1 dp 1 mbs 1 m 1 zero 1 recompute selective recompute_modules core_attn,mlp"
    )


def test_columns_are_counted() -> None:
    layouts = Layout(tp=np.array([1, 2, 4]), pp=2)
    assert str(layouts) == "3 layouts"
    assert repr(layouts) == "<3 layouts as columns>"
    assert str(layouts[1]) == "tp 2 pp 2 dp 1 mbs 1 m 1 zero 1"
