"""Where a study is kept: a SQLite file by default, any URL that Optuna takes, or `journal:FILE` on
a disk that nodes share.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import InputError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileSymlinkLock

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

    sqlite = url.startswith("sqlite")
    options: dict[str, Any] = (
        {"connect_args": {"timeout": WAIT_S}} if sqlite else {"pool_pre_ping": True}
    )
    try:
        return RDBStorage(url, engine_kwargs=options)
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
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                file.truncate(whole)
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
