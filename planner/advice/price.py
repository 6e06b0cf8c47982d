"""What training costs: days, dollars and energy of a trillion tokens. Plain arithmetic over an
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.specs.recipe import Recipe

TRILLION = 1e12
DAY_S, HOUR_S = 86_400.0, 3600.0
NODE_OVER_GPUS = 8.4 / (8 * 0.7)
"""Power of a node over the rated power of its GPUs: 8.4 kW of a node with eight H100 of 700 W that
trains, arXiv 2412.08602.
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """A trillion tokens on these GPUs; failures are counted where the question states them."""

    days: float
    gpu_hours: float
    usd: float | None
    """None without a price."""
    energy_mwh: float
    """Of whole nodes, without cooling."""
    usd_per_gpu_hour: float | None
    assumed: tuple[str, ...] = ()


def spent(
    recipe: Recipe,
    estimate: Estimate,
    goodput: Goodput | None,
    usd_per_gpu_hour: float | None = None,
) -> Spent:
    """Days, GPU hours, dollars and MWh of a trillion tokens. A price that is stated goes before the
    profile's own.
    """
    share = float(goodput.goodput_share) if goodput else 1.0
    rate = float(estimate.tokens_per_s_per_gpu) * recipe.gpus * share
    seconds = TRILLION / rate if rate else float("inf")
    hours = seconds / HOUR_S * recipe.gpus
    price = recipe.hardware.price_usd_per_gpu_hour if usd_per_gpu_hour is None else usd_per_gpu_hour
    listed = usd_per_gpu_hour is None and price is not None
    assumed = (
        *(
            (f"{recipe.hardware.name}: ${price:,.2f} a GPU hour, {recipe.hardware.price_source}",)
            if listed
            else ()
        ),
        (
            f"a node draws {NODE_OVER_GPUS:.1f} times the rated power of its GPUs, as eight H100"
            " did in training"
        ),
    )
    energy_mwh = hours * recipe.hardware.gpu.tdp_w * NODE_OVER_GPUS / 1e6
    return Spent(
        seconds / DAY_S, hours, None if price is None else hours * price, energy_mwh, price, assumed
    )
