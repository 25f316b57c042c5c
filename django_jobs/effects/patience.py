"""Going on after a lost connection while an answer from outside must be written down."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.db import InterfaceError, InternalError, OperationalError, connections

from django_jobs import clock

logger = logging.getLogger("django_jobs.effects")

T = TypeVar("T")

LOST = (OperationalError, InterfaceError, InternalError)  # the last: a server that became read-only in a failover
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

pause = threading.Event().wait  # waits its whole time: nothing sets the event


def forget(using: str) -> None:
    """Close this thread's connection, so that the next statement opens a new one; never raises."""
    try:
        connections[using].close()
    except Exception:  # noqa: BLE001  the socket is gone; what matters is that the wrapper forgets it
        connections[using].connection = None


def patiently(action: Callable[[], T], *, using: str, limit: timedelta) -> T:
    """Repeat an action that is safe to repeat until the database answers, with growing pauses, for ``limit`` at most.

    Raises:
        OperationalError: The database did not answer in that time.
    """
    ends_at = clock.boot_seconds() + limit.total_seconds()
    seconds = FIRST_PAUSE
    while True:
        try:
            return action()
        except LOST as error:
            forget(using)
            if clock.boot_seconds() >= ends_at:
                raise
            logger.warning("The database did not answer (%s); trying again", type(error).__name__)
            pause(seconds * (0.5 + random.random() / 2))  # noqa: S311  spreads load, guards nothing
            seconds = min(seconds * 2, LONGEST_PAUSE)
