"""What a pipeline schedule states of itself: limits, order and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from planner.action import Order
from planner.numeric import Numeric


class Transfers(Enum):
    """Whether a rank can compute while it sends an activation to its neighbour."""

    BLOCKING = "blocking"
    """The sender waits, as in Megatron's paired exchanges of plain 1F1B."""
    OVERLAPPED = "overlapped"
    BY_STACK = "by stack"
    """Overlapped where the training software is set so (Software.overlap.p2p), else blocking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A named way to order pipeline work. A file of this package that holds one adds it.

    Sizes are p pipeline ranks, m micro-batches and v virtual stages (chunks) a rank. Times are of
    one full 1/p of the model and one micro-batch, in any unit: forward, input gradient, weight
    gradient. All functions but `legal` and `order` take numbers or numpy columns. A closed form
    that a schedule does not have is None.
    """

    name: str
    year: int
    """Of publication; schedules are listed by year, then by name."""
    says: str | None
    """What it does: the file's docstring, or text of its own."""
    chunks: tuple[int, int | None]
    """Fewest and most virtual stages a rank; None = no limit."""
    legal: Callable[..., None]
    """legal(p, m, v) raises InputError outside the limits of the implementation."""
    order: Callable[..., Order]
    """order(p, m, v, ...) with any of `knobs` by name."""
    knobs: tuple[str, ...] = ()
    """What `order` takes beside the sizes: group (then `legal` and `peak_in_flight` take it too),
    durations, transfer, memory_limit, weight_retained.
    """
    default_limit: Callable[[Numeric], Numeric] | None = None
    """(p) -> activations in full stages that an automatic schedule may hold where no memory_limit
    is stated.
    """
    transfers: Transfers = Transfers.OVERLAPPED
    makespan: Callable[..., Numeric]
    """(p, m, v, forward, input_grad, weight_grad) -> time of a step with equal stages."""
    exact: Callable[..., Numeric] | None = None
    """(p, m, v, forward, input_grad, weight_grad) -> where makespan and span are exact; None:
    nowhere, they are estimates.
    """
    span: Callable[..., Numeric] | None = None
    """As makespan: the longest time between a rank's own first start and last end, which a step
    costs with post-validation.
    """
    unequal: Callable[..., Numeric] | None = None
    """(p, m, v, forward, backward) -> makespan where the end ranks take other times; forward and
    backward are unequal.Chunks. None: ranks are taken as equal to their mean, so that a slow first
    or last rank does not show in the idle time.
    """
    bubble_share: Callable[..., Numeric] | None = None
    """(p, m, v) -> idle time over makespan, averaged over ranks."""
    peak_in_flight: Callable[..., Numeric]
    """(p, m, v, rank) -> activations that a rank (from 0) holds at the peak, in chunks."""
    messages: Callable[..., Numeric]
    """(p, m, v) -> tensors that cross ranks in a step."""
    exposed_transfer: Callable[..., Numeric]
    """(p, m, v, transfer) -> what overlapped transfers add to the makespan."""
    blocking_transfer: Callable[..., Numeric] | None = None
    """(p, m, v, transfer, slack) -> what blocking transfers add to the makespan; slack: by how much
    longer than a middle rank the slowest end rank works in a step.
    """

    @property
    def module(self) -> str:
        """Name of the module that states its limits."""
        return function_of(self.legal).__module__

    @property
    def automatic(self) -> bool:
        """Whether the order is planned for the durations."""
        return "durations" in self.knobs

    @property
    def closed_forms(self) -> tuple[Callable[..., Numeric], ...]:
        """The functions that state a formula; of an automatic schedule the limit alone, as the
        others are borrowed estimates for the search.
        """
        functions = (
            self.default_limit,
            self.makespan,
            self.span,
            self.unequal,
            self.bubble_share,
            self.peak_in_flight,
            self.messages,
            self.exposed_transfer,
            self.blocking_transfer,
        )
        stated = tuple(function_of(function) for function in functions if function is not None)
        return stated[:1] if self.automatic else stated


def function_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the docstring, also of a partial call."""
    return call.func if isinstance(call, partial) else call
