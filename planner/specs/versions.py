"""Framework versions: which are known, how they compare, and which package tells them."""

from __future__ import annotations

from planner.errors import InputError, unknown

Version = tuple[int, int]

KNOWN: dict[str, tuple[str, ...]] = {
    "megatron": ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19", "0.20", "main"),
    "deepspeed": ("0.16", "0.17", "0.18", "0.19", "main"),
    "torch": ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "main"),
}
_MAIN: dict[str, Version] = {"megatron": (0, 20), "deepspeed": (0, 20), "torch": (2, 14)}
OWN = {"megatron": "megatron_core", "deepspeed": "deepspeed", "torch": "torch"}
"""By framework the component whose version is the framework's."""
PACKAGES = {
    "megatron_core": ("megatron-core",),
    "deepspeed": ("deepspeed",),
    "torchtitan": ("torchtitan",),
    "transformer_engine": ("transformer-engine",),
    "torch": ("torch",),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
    "deepep": ("deep-ep",),
}
"""By component the packages that bring it: cuDNN and NCCL come with torch's wheel."""


def numbers_of(text: str) -> str:
    """A version without what tags put before it: `core_v0.16.0` is 0.16.0."""
    return text.strip().lower().removeprefix("core_").removeprefix("v")


def version_of(framework: str, text: str) -> Version:
    """Major and minor of a version as written: `0.19`, `0.19.2`, `core_v0.19.0`, `main`.

    Raises InputError for another framework, and for a version that the rules do not know.
    """
    if framework not in KNOWN:
        raise unknown("framework", framework, tuple(KNOWN))
    plain = numbers_of(text)
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
