"""Every combination of the search's menus, by their plain product: what a brute force looks at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.enumerate import menus
from planner.enumerate.menus import crossed
from planner.layout import RECOMPUTE_CODE, Layouts
from planner.search.branch import joined
from planner.specs.recipe import Recipe


def all_combinations(recipe: Recipe) -> Layouts:
    """As columns, legal or not."""
    splits, out = menus.splits(recipe), []
    for pp in np.unique(splits.pp).tolist():
        rows = splits[np.flatnonzero(splits.pp == pp)]
        stagings, choices = menus.stagings(recipe, pp), menus.recomputations(recipe)
        if not len(stagings["v"]):
            continue
        for menu in (menus.shardings(recipe), stagings, choices):
            rows = crossed(rows, menu)
        if recipe.framework == "megatron":
            groups = [menus.group(recipe, pp, m) for m in np.asarray(rows.m).tolist()]
            rows = replace(rows, group=np.where(rows.v > 1, groups, 0))
        out.append(rows)
        if "recompute_layers" in recipe.knobs:
            continue
        full = rows[np.flatnonzero(rows.recompute == RECOMPUTE_CODE["full"])]
        of_stage = -(-recipe.model.num_layers // (pp * np.asarray(full.v)))
        for layers in range(1, int(of_stage.max(initial=1))):
            some = full[np.flatnonzero(of_stage > layers)]
            out.append(replace(some, recompute_layers=np.full(len(some), layers)))
    return joined(out) if out else splits
