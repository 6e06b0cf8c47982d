"""How many examples a property is tried on: few with every run of the tests, more of them with
`python -m tests.bench.properties`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = "PPPLAN_EXAMPLES"
"""The environment's variable by whose number all counts are multiplied."""


def examples(count: int) -> settings:
    """For properties whose every example takes tenths of a second."""
    return settings(
        max_examples=count * int(os.environ.get(TIMES, "1")),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
