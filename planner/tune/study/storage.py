"""Where a study is kept: a SQLite file by default, any URL that Optuna takes, or `journal:FILE` on
a disk that nodes share; and the writes to it that Optuna's Study has no method for.

NOTE: `study.ask(fixed_distributions)` and `enqueue_trial` cannot claim a layout. ask() creates a
running trial and writes its attributes one by one: other workers would see a trial without a
layout, and a kill in between would leave one. A trial that is enqueued goes to whichever worker
asks first, still under the owner who enqueued it. `study.add_trial` is one write, but does not say
which trial it made; `study.tell` refuses the value of a pruned trial. So the storage is called
itself, here and nowhere else: its methods are public, the way to it from a Study is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import InputError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileSymlinkLock
    from optuna.trial import FrozenTrial, Trial, TrialState

T = TypeVar("T")
JOURNAL = "journal:"
WAIT_S = 60
"""For another process that writes the same SQLite file."""
LOCK_GRACE_S = 10
"""After which the journal's lock of a process that was killed is broken; it is held for
milliseconds.
"""
TRIES = 6


def default(plan: Path) -> str:
    """The SQLite file beside a plan."""
    return f"sqlite:///{plan.absolute().with_suffix('.tune.db')}"


def opened(url: str) -> BaseStorage:
    """InputError for what is no storage, or cannot be reached."""
    if url.startswith(JOURNAL):
        return _journal(Path(url.removeprefix(JOURNAL)).expanduser())
    if "://" not in url:
        way_out = (
            f"sqlite:///{url[:80]} for a SQLite file, journal:{url[:80]} for a journal on a shared"
            " disk"
        )
        raise InputError(f"storage must be a URL, but got {url[:80]!r}; {way_out}")
    with _alone(url):
        return retried(lambda: _database(url))


def _database(url: str) -> BaseStorage:
    from optuna.storages import RDBStorage

    sqlite = {"connect_args": {"timeout": WAIT_S}}
    server = {"pool_pre_ping": True}
    try:
        return RDBStorage(url, engine_kwargs=sqlite if url.startswith("sqlite") else server)
    except Exception as fault:  # sqlalchemy, its drivers and Optuna each raise their own
        if _busy(fault):
            raise
        reason = str(fault).splitlines()[0][:200]
        raise InputError(
            f"storage must be a database that Optuna can open, but {_shown(url)}: {reason}"
        ) from None


def _shown(url: str) -> str:
    """Without the password."""
    before, _, after = url.partition("://")
    return f"{before}://{after.rpartition('@')[2]}"[:120]


def _journal(path: Path) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(str(path), grace_period=LOCK_GRACE_S)
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        backend = JournalFileBackend(str(path), lock_obj=lock)
        _mend(path, lock)
        return JournalStorage(backend)
    except (OSError, ValueError, KeyError) as fault:
        raise InputError(
            f"storage must be a journal that Optuna wrote, but {path}: {str(fault)[:200]}"
        ) from None


def _mend(path: Path, lock: JournalFileSymlinkLock) -> None:
    """A line that was torn when its writer was killed would spoil the next one: it was never
    acknowledged, so it goes.
    """
    lock.acquire()
    try:
        with path.open("rb+") as file:
            data = file.read()
            complete_bytes = data.rfind(b"\n") + 1
            if complete_bytes < len(data):
                file.truncate(complete_bytes)
    finally:
        lock.release()


@contextmanager
def _alone(url: str) -> Iterator[None]:
    """Tables of a new SQLite file are made by one process at a time."""
    name = url.removeprefix("sqlite:///").split("?")[0]
    if not url.startswith("sqlite:///") or name in ("", ":memory:"):
        yield
        return
    path = Path(name)
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as fault:
        raise InputError(
            f"storage must be a file that can be written, but {path}: {fault.strerror}"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def add_running(
    study: Study,
    parameters: dict[str, int | str],
    distributions: Mapping[str, BaseDistribution],
    attributes: dict[str, Any],
) -> FrozenTrial:
    """A new running trial with all its attributes, in one write. Storages number trials in the
    order in which they appear.
    """
    from optuna.trial import FrozenTrial, TrialState

    template = FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params=parameters,
        distributions=dict(distributions),
        user_attrs=attributes,
        system_attrs={},
        intermediate_values={},
    )
    storage = study._storage
    return storage.get_trial(storage.create_new_trial(study._study_id, template_trial=template))


def current(study: Study, trial: FrozenTrial) -> FrozenTrial:
    """The trial as the storage has it now."""
    return study._storage.get_trial(trial._trial_id)


def reporter(study: Study, trial: FrozenTrial) -> Trial:
    """What reports the steps of a running trial and asks the pruner."""
    from optuna.trial import Trial

    return Trial(study, trial._trial_id)


def set_attribute(study: Study, trial: FrozenTrial, name: str, value: Any) -> None:
    """Raises optuna's UpdateFinishedTrialError for a trial that has ended."""
    study._storage.set_trial_user_attr(trial._trial_id, name, value)


def finish(
    study: Study, trial: FrozenTrial, state: TrialState, value: float | None, ended: str = ""
) -> None:
    """Ends a trial, with why where it left no result. Another process may have ended it a moment
    ago, which is as good.
    """
    from optuna.exceptions import UpdateFinishedTrialError

    values = None if value is None else [value]
    with contextlib.suppress(UpdateFinishedTrialError):
        if ended:
            retried(lambda: set_attribute(study, trial, "ended", ended))
        retried(lambda: study._storage.set_trial_state_values(trial._trial_id, state, values))


def retried(work: Callable[[], T]) -> T:
    """The work, again while the database says that another process is in the way. What it does must
    be the same done twice.
    """
    for attempt in range(TRIES - 1):
        try:
            return work()
        except Exception as fault:  # as above
            if not _busy(fault):
                raise
            time.sleep(random.random() * 0.2 * 2**attempt)
    return work()


def _busy(fault: BaseException | None) -> bool:
    """Whether a database is locked, here or in the fault's causes."""
    while fault is not None:
        if any(
            word in str(fault).lower()
            for word in ("database is locked", "deadlock", "could not serialize")
        ):
            return True
        fault = fault.__cause__ or fault.__context__
    return False
