"""Framework versions: which are known, and how they compare."""

from __future__ import annotations

from planner.errors import InputError, unknown

Version = tuple[int, int]

KNOWN: dict[str, tuple[str, ...]] = {
    "megatron": ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19", "0.20", "main"),
    "deepspeed": ("0.16", "0.17", "0.18", "0.19", "main"),
    "torch": ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "main"),
}
_MAIN: dict[str, Version] = {"megatron": (0, 20), "deepspeed": (0, 20), "torch": (2, 14)}


def version_of(framework: str, text: str) -> Version:
    """Major and minor of a version as written: `0.19`, `0.19.2`, `core_v0.19.0`, `main`.

    Raises InputError for another framework, and for a version that the rules do not know.
    """
    if framework not in KNOWN:
        raise unknown("framework", framework, tuple(KNOWN))
    plain = text.strip().lower().removeprefix("core_").removeprefix("v")
    short = ".".join(plain.split(".")[:2])
    if short not in KNOWN[framework]:
        known = ", ".join(KNOWN[framework])
        raise InputError(
            f"framework version must be one of {known} for {framework}, but got {text[:40]!r}"
        )
    if short == "main":
        return _MAIN[framework]
    major, minor = short.split(".")
    return int(major), int(minor)
