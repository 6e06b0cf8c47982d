"""The types of quantities in a formula."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numeric = float | NDArray[Any]
"""One number, or a numpy column with one value a layout: formulas never ask which."""
Mask = bool | np.bool_ | NDArray[np.bool_]
"""Whether something holds: of one layout, or a column with one answer a layout."""


def distinct(values: Any) -> list[Any]:
    """The different values of a column, ascending. numpy's unique would import its masked arrays
    first, which takes as long as a search over some hundred splits.
    """
    return sorted(set(np.ravel(values).tolist()))
