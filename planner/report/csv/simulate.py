"""The answers of `simulate` as CSV: a row a schedule, an action, or a batch on a stage."""

from __future__ import annotations

from planner.action import KINDS
from planner.pipeline.answer import Answer, ServedAnswer
from planner.pipeline.fewest_microbatches import FewestMicrobatches
from planner.pipeline.serving.serve import Served
from planner.pipeline.timelines import ScheduleComparison, SimulatedSchedule


def table(answer: Answer) -> str:
    """Schedules of a comparison; else actions, or batches of a forward-only pipeline. Raises
    InputError where there are two pipelines.
    """
    if isinstance(answer, ScheduleComparison):
        return _schedules(answer)
    if isinstance(answer, ServedAnswer):
        return _batches(answer.pool)
    simulated = answer.simulated if isinstance(answer, FewestMicrobatches) else answer
    assert simulated is not None
    return _actions(simulated)


def _schedules(comparison: ScheduleComparison) -> str:
    lines = [
        "schedule,pp,m,v,makespan,span,bubble_share,span_bubble_share,peak_in_flight_stages,"
        "messages"
    ]
    for simulated in comparison.schedules:
        timeline = simulated.timeline
        figures = (
            timeline.makespan,
            timeline.span,
            timeline.bubble_share,
            timeline.span_bubble_share,
            float(timeline.peak_in_flight.max()) / simulated.v,
        )
        numbers = ",".join(repr(float(figure)) for figure in figures)
        lines.append(
            f"{simulated.schedule},{simulated.pp},{simulated.m},{simulated.v},{numbers},"
            f"{timeline.messages}"
        )
    return "\n".join(lines) + "\n"


def _actions(simulated: SimulatedSchedule) -> str:
    """Rank by rank in order; pair 1 says that an action runs as one with the next row's."""
    lines = ["rank,position,stage,kind,microbatch,pair,start,end"]
    timeline = simulated.timeline
    for rank, actions in enumerate(simulated.order.actions):
        starts, ends = timeline.start[rank].tolist(), timeline.end[rank].tolist()
        for position, (stage, kind, microbatch, pair) in enumerate(actions.tolist()):
            lines.append(
                f"{rank},{position},{stage},{KINDS[kind]},{microbatch},{pair},"
                f"{starts[position]!r},{ends[position]!r}"
            )
    return "\n".join(lines) + "\n"


def _batches(served: Served) -> str:
    assert served.passed is not None
    lines = ["batch,stage,returns,start_ms,end_ms"]
    starts, ends = served.passed.starts.tolist(), served.passed.ends.tolist()
    for batch, returns in enumerate(served.returns):
        for stage, (start, end) in enumerate(zip(starts[batch], ends[batch], strict=True)):
            lines.append(f"{batch},{stage},{returns},{start!r},{end!r}")
    return "\n".join(lines) + "\n"
