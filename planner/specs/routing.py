"""How evenly routed tokens fall on experts that nothing balances by force."""

from __future__ import annotations

import math

LOADS = 0.68
"""Spread (of the logarithm) of the tokens of one expert over the mean, under a router that nothing
balances: at that the busiest of 8 ranks of 16 experts has 1.3 times the mean, as
accuracy/run_software.yaml takes it. Set by hand."""


def kept_share(capacity: float) -> float:
    """Share of the routed tokens that stays where an expert takes at most so many times the mean.

    Formula: E[min(X, c)], X lognormal with mean 1 and the deviation LOADS of its logarithm
    """
    low, high = ((math.log(capacity) + sign * LOADS**2 / 2) / LOADS for sign in (-1, 1))
    below, above = (0.5 * (1 + math.erf(z / math.sqrt(2))) for z in (low, high))
    return below + capacity * (1 - above)
