"""A clock of a process that jumps: kinds of faults that only tests have, because they need a library for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import time_machine

from django_jobs.faults import kinds

HOUR = timedelta(hours=1)


def _jump(by: timedelta) -> None:
    """Set this process's clock; the one that counts seconds since the machine's start goes on."""
    time_machine.travel(datetime.now(UTC) + by, tick=True).start()


kinds.KINDS["clock_forward"] = lambda _: _jump(HOUR)
kinds.KINDS["clock_back"] = lambda _: _jump(-HOUR)
