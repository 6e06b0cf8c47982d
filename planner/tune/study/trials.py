"""Trials as rows: what was launched, what became of it, and what that says of the next."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from planner.launch.outcome import Outcome
from planner.layout import Layout
from planner.specs.switches.switch import Switches
from planner.tune.measurement import Measurement
from planner.tune.study.prune import SPREADS
from planner.tune.study.space import Space, key

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

State = Literal[
    "done", "pruned", "oom", "crashed", "timeout", "illegal", "interrupted", "running", "withdrawn"
]
"""As of an Outcome; illegal: the runner refused it before anything started; interrupted: its tuner
was stopped or killed, and it may be tried again; running: a worker holds it; withdrawn: another
worker had it first, nothing was started."""
FAILED = ("oom", "crashed", "timeout", "illegal")
COUNTED = ("done", "pruned", "oom", "crashed", "timeout", "running")
"""States that use up one of the trials asked for."""
MAX_LOST = 3
"""Times that a layout may take its tuner down before it counts as crashed."""
BAND = 0.02
"""Layouts this close to the fastest are its rivals even where nothing seems noisy."""
GAIN = 0.01
"""Switches that gain less are left as they are, however quiet the machine is."""
TAIL = 4000
"""Characters of stderr that are kept."""


@dataclass(frozen=True, slots=True)
class Row:
    """One trial."""

    number: int
    layout: Layout
    state: State
    predicted_s: float
    measured_s: float | None = None
    """Median of the timed steps, or the step composed from measured parts; of a pruned trial the
    fastest step that it reported.
    """
    memory_bytes: float | None = None
    reason: str = ""
    noise_share: float = 0.0
    """Standard deviation of one of its steps."""
    seconds: float = 0.0
    """Of the whole trial, start to end."""
    proxy: str = ""
    """What ran in place of the plan; empty when the plan itself ran."""
    device: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    stderr_tail: str = ""
    host: str = ""
    steps_s: tuple[float, ...] = ()
    repeat: int = 0
    """Above 0 for a layout that was run once more."""
    switches: Switches = field(default_factory=dict)
    """What was not left as it is; empty for a trial of the layout alone."""
    layers: tuple[dict[str, Any], ...] = ()
    """Where parts of the plan ran: seconds of each layer and end, measured and predicted."""

    @property
    def key(self) -> str:
        return key(self.layout, self.switches)

    @property
    def turn(self) -> tuple[str, int]:
        """What two workers must not both run."""
        return self.key, self.repeat


def result(
    outcome: Outcome, measurement: Measurement | None, noise: float, steps: Sequence[float]
) -> dict[str, Any]:
    """What is kept of a finished trial, as plain JSON; `steps` are those that it reported while it
    ran.
    """
    kept: dict[str, Any] = {
        "state": outcome.state,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "stderr_tail": outcome.stderr_tail[-TAIL:] if outcome.state != "done" else "",
    }
    if measurement is not None:
        kept |= {
            "measured_s": measurement.step_s,
            "memory_bytes": measurement.memory_bytes,
            "noise_share": noise,
            "proxy": measurement.proxy,
            "device": measurement.device,
            "versions": dict(measurement.versions),
            "measurement": asdict(measurement),
        }
    elif outcome.state == "pruned" and steps:
        kept |= {"measured_s": min(steps), "noise_share": noise}
    return kept


def row(trial: FrozenTrial) -> Row:
    """A trial of a study's storage."""
    attributes, result = trial.user_attrs, trial.user_attrs.get("result", {})
    state = attributes.get("ended") or result.get("state", "interrupted")
    if not trial.state.is_finished() and state != "withdrawn":
        state = "running"
    measured = result.get("measurement", {})
    return Row(
        trial.number,
        Layout.from_named(attributes["layout"]),
        cast(State, state),
        float(attributes["predicted_s"]),
        result.get("measured_s"),
        result.get("memory_bytes"),
        result.get("reason", ""),
        result.get("noise_share", 0.0),
        result.get("seconds", 0.0),
        result.get("proxy", ""),
        result.get("device", ""),
        tuple(sorted(result.get("versions", {}).items())),
        result.get("stderr_tail", ""),
        attributes.get("owner", {}).get("host", ""),
        tuple(measured.get("steps_s", ())),
        int(attributes.get("repeat", 0)),
        attributes.get("switches", {}),
        tuple(measured.get("layers", ())),
    )


def rows(trials: Iterable[FrozenTrial]) -> tuple[Row, ...]:
    """Every trial that started or was refused; one that its tuner lost is left out once the layout
    was tried again.
    """
    every = [row(trial) for trial in trials if "layout" in trial.user_attrs]
    latest = {trial.turn: trial.number for trial in every if trial.state != "withdrawn"}
    lost = lost_keys(every)
    out = []
    for trial in every:
        if trial.state == "withdrawn":
            continue
        if trial.state != "interrupted":
            out.append(trial)
        elif latest[trial.turn] == trial.number:
            out.append(_crashed(trial) if trial.key in lost else trial)
    return tuple(out)


def _crashed(trial: Row) -> Row:
    return Row(
        trial.number,
        trial.layout,
        "crashed",
        trial.predicted_s,
        reason=f"its tuner was killed {MAX_LOST} times while it ran; it is not tried again",
        host=trial.host,
        switches=trial.switches,
    )


def lost_keys(every: Iterable[Row]) -> set[str]:
    """Layouts that were lost as often as is allowed. A trial that Ctrl-C stopped gave a reason: it
    does not count.
    """
    lost = [trial.key for trial in every if trial.state == "interrupted" and not trial.reason]
    return {name for name, count in Counter(lost).items() if count >= MAX_LOST}


def combined(trials: Iterable[Row]) -> list[Row]:
    """Layouts that ran to their end, one row for each under each setting of its switches: the
    median over their runs, with the noise inside runs or between them."""
    groups: dict[str, list[Row]] = {}
    for trial in trials:
        if trial.state == "done" and trial.measured_s is not None:
            groups.setdefault(trial.key, []).append(trial)
    return [_median(group) for group in groups.values()]


def _median(group: list[Row]) -> Row:
    """The runs of a layout as one row."""
    times = [_time(trial) for trial in group]
    middle = statistics.median(times)
    noisiest = max(group, key=lambda trial: trial.noise_share)
    between_runs = (max(times) - min(times)) / 2 / middle
    return replace(group[0], measured_s=middle, noise_share=max(between_runs, noisiest.noise_share))


def settled(trials: Iterable[Row]) -> list[Row]:
    """Layouts that ran to their end, one row each, fastest first: under other switches where those
    were faster by more than the noise.
    """
    groups: dict[str, list[Row]] = {}
    for trial in combined(trials):
        groups.setdefault(key(trial.layout), []).append(trial)
    return sorted((_best_setting(group) for group in groups.values()), key=_time)


def _best_setting(group: list[Row]) -> Row:
    """The fastest run of a layout; default switches unless another setting wins by more than the
    noise.
    """
    fastest = min(group, key=_time)
    for plain in group:
        gain = max(GAIN, fastest.noise_share, plain.noise_share)
        if not plain.switches and _time(fastest) >= _time(plain) * (1 - gain):
            return plain
    return fastest


def _time(trial: Row) -> float:
    return trial.measured_s or math.inf


def best(trials: Iterable[Row]) -> Row | None:
    """The fastest that ran to its end, its runs together."""
    return next(iter(settled(trials)), None)


def noise(trials: Iterable[Row]) -> float:
    """The largest spread of any layout that ran to its end."""
    return max((trial.noise_share for trial in combined(trials)), default=0.0)


def rivals(trials: Iterable[Row], most: int) -> list[Row]:
    """The fastest and those that noise alone may have put behind it, fastest first; none when the
    fastest stands alone. Where the fastest has switches, its layout without them is a rival."""
    every = combined(trials)
    fastest = settled(every)
    if not fastest:
        return []
    reach = _time(fastest[0]) * (1 + max(BAND, SPREADS * noise(fastest)))
    near = [trial for trial in fastest if _time(trial) <= reach][:most]
    for trial in every:
        if fastest[0].switches and not trial.switches and trial.layout == fastest[0].layout:
            near.append(trial)
    return near if len(near) > 1 else []


def places(space: Space) -> dict[str, int]:
    """Of each candidate its index."""
    return {trial.key: index for index, trial in enumerate(space.candidates)}
