"""Going on after a lost connection: with growing pauses, until the answer is known or the process ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from django_jobs.store import Held
from django_jobs.worker.connection import LOST, drop
from django_jobs.worker.outage import outage

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 3.0

stopping = threading.Event()  # set when the process ends: nobody waits for a database any more


def pauses() -> Callable[[], float]:
    """Return a function that gives the next pause in seconds: doubling, jittered, capped."""
    pause = FIRST_PAUSE

    def following() -> float:
        nonlocal pause
        now, pause = pause, min(pause * 2, LONGEST_PAUSE)
        return now * (0.5 + random.random() / 2)  # noqa: S311  spreads load, guards nothing

    return following


def patiently(held: Held, action: Callable[[], T], *, worth_it: Callable[[], bool] = lambda: True) -> T:
    """Repeat an action that is safe to repeat until the database answers, or while it is ``worth_it``."""
    following = pauses()
    while True:
        try:
            result = action()
        except LOST as error:
            drop(held.using)
            outage.failed(error)
            if not worth_it() or stopping.wait(following()):
                raise
        else:
            outage.answered()
            return result
