"""The sentences of what an implementation accepts; each schedule's `legal` lists its own."""

from __future__ import annotations

from planner.errors import InputError


def sizes(name: str, p: int, m: int, v: int, chunks: tuple[int, int | None]) -> None:
    """p, m and v are positive, and v is within the chunks that the schedule has a rank. Raises
    InputError.
    """
    if p < 1 or m < 1:
        raise InputError(f"{name} needs at least one rank and one microbatch, but got p={p}, m={m}")
    least, most = chunks
    if v < least or (most is not None and v > most):
        wanted = (
            f"exactly {least}"
            if least == most
            else f"at least {least}"
            if most is None
            else f"{least} to {most}"
        )
        raise InputError(
            f"{name} has {wanted} virtual stage(s) a rank, but got v={v}; use"
            f" v={max(least, min(v, most or v))}"
        )


def at_least(name: str, m: int, least: int, what: str) -> None:
    """Enough microbatches. Raises InputError."""
    if m < least:
        raise InputError(
            f"{name} needs m >= {what} = {least} microbatches, but got m={m}; use m={least}"
        )


def even(name: str, symbol: str, value: int) -> None:
    if value % 2:
        raise InputError(
            f"{name} needs an even {symbol}, but got {symbol}={value}; use {symbol}={value + 1}"
        )
