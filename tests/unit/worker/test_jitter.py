"""Workers that do the same at the same moment do not stay together: polls, and the return after an outage."""

from __future__ import annotations

import random
from bisect import bisect_left
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs import clock
from django_jobs.worker.child import Child
from django_jobs.worker.heart import again_after
from django_jobs.worker.idle import Idle
from django_jobs.worker.wake import Wake

WORKERS = 50


@pytest.fixture(autouse=True)
def _same_dice() -> None:
    random.seed(80)


def idle() -> Any:
    """An idle child that looked for jobs a while ago; sleeping takes no time here."""
    config = SimpleNamespace(poll=1.0, bell=-1)
    claimer = SimpleNamespace(seconds_to_next_due=lambda: float("inf"))
    made = Idle(config, claimer, Wake())  # type: ignore[arg-type]
    made._news_at = float("-inf")
    return made


def failing(seconds: float) -> Any:
    """What the pauses of a child depend on whose looks have failed for so long."""
    return SimpleNamespace(_error_since=clock.boot_seconds() - seconds)


def busiest(times: list[float], window: float) -> int:
    """Return how many of these moments at most lie in one window."""
    ordered = sorted(times)
    return max(bisect_left(ordered, start + window) - place for place, start in enumerate(ordered))


def test_r80_idle_workers_that_start_together_do_not_stay_in_phase() -> None:
    """50 of them, started in the same moment: after 20 polls no tenth of a second sees a third of them."""
    at = [0.0] * WORKERS

    for _ in range(20):
        at = [time + idle().seconds() for time in at]

    assert busiest([time % 1.0 for time in at], 0.1) <= WORKERS / 3


def test_r80_return_after_an_outage_is_no_stampede() -> None:
    """50 workers that failed together for a minute ask at most twice as often as usual when the database is back."""
    usual = WORKERS * (1 / 0.875 + 1 / 5)  # looks and heartbeats in a second
    asked = []
    for _ in range(WORKERS):
        look = Child._pause(failing(60.0))
        while look < 5.0:
            asked.append(look)
            look += idle().seconds()
        asked.append(again_after())

    assert busiest(asked, 1.0) <= 2 * usual
    assert busiest(asked, 0.05) <= WORKERS / 3
