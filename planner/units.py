"""Units: the suffix of a name says its unit, and the suffix drives the print."""

from __future__ import annotations

GIB = 2**30
MIB = 2**20
GB = 1e9
TERA = 1e12
MICRO = 1e-6

_SUFFIXES = {
    "_flops_per_s": (TERA, "TFLOP/s"),
    "_bytes_per_s": (GB, "GB/s"),
    "_bytes": (GIB, "GiB"),
    "_flops": (TERA, "TFLOP"),
    "_gib": (1.0, "GiB"),
    "_share": (0.01, "%"),
    "_s": (1e-3, "ms"),
}


def show(name: str, value: float) -> str:
    """The value with the unit that its name's suffix promises."""
    for suffix, (scale, unit) in _SUFFIXES.items():
        if name.endswith(suffix):
            return f"{value / scale:,.2f} {unit}"
    return f"{value:,}"
