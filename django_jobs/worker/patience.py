"""Going on after a lost connection: for ever, with growing pauses, until the answer is known."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeVar

from django_jobs.store import Held
from django_jobs.worker.connection import LOST, drop

logger = logging.getLogger("django_jobs.worker")

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

stopping = threading.Event()  # set when the process ends: nobody waits for a database any more


def pauses() -> Callable[[], float]:
    """Return a function that gives the next pause in seconds: doubling, jittered, capped."""
    pause = FIRST_PAUSE

    def following() -> float:
        nonlocal pause
        now, pause = pause, min(pause * 2, LONGEST_PAUSE)
        return now * (0.5 + random.random() / 2)  # noqa: S311  spreads load, guards nothing

    return following


def patiently(held: Held, action: Callable[[], T]) -> T:
    """Repeat an action that is safe to repeat until the database answers."""
    following = pauses()
    while True:
        try:
            return action()
        except LOST as error:
            drop(held.using)
            if stopping.wait(following()):
                raise
            logger.warning("The database did not answer (%s); trying again", type(error).__name__)
