"""The clock of the process, and the one place where tests put their own.

Leases, ages and expiries are decided by the database's clock. Store functions pass :func:`injected` to every statement:
``None`` in production (the database answers), a fixed time in tests. On SQLite the process clock is the database's
clock, because both run on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

_source: Callable[[], datetime] | None = None
_skipped = 0.0  # seconds that a test let pass at once


def injected() -> datetime | None:
    """Return the time put in by :func:`override`, or ``None`` when the database's clock counts."""
    return _source() if _source is not None else None


def source() -> Callable[[], datetime] | None:
    """Return what :func:`override` put in, or ``None`` when the database's clock counts."""
    return _source


def now() -> datetime:
    """Return the process's idea of now as an aware UTC datetime; never used to decide about a lease."""
    return injected() or datetime.now(UTC)


def boot_seconds() -> float:
    """Return seconds on a clock that also runs while the machine is suspended; only differences mean something."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock) + _skipped


def skip(seconds: float) -> None:
    """Let :func:`boot_seconds` go on at once by so much, as does a machine that was suspended; it never goes back."""
    global _skipped
    _skipped += max(0.0, seconds)


@contextmanager
def override(source: Callable[[], datetime]) -> Iterator[None]:
    """Make ``source`` the clock of this process, the statements of the store included, until the block ends."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
