"""A day of ticks over a change of clocks, four workers at once of which two die in the middle: each tick once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
from django.db import connections

from django_jobs import Cron, Every, faults
from django_jobs.models import Job, Schedule, ScheduleTick
from django_jobs.operate.schedule_runner import BUSY, Looks
from django_jobs.operate.verify import verify
from tests.integration.schedules.conftest import Hands

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

STEP = timedelta(minutes=15)
BEGIN = datetime(2026, 10, 24, 16, 0, 1, tzinfo=UTC)
RULES = {
    "tests.quarterly": Every(STEP),
    "tests.half_hourly": Cron("*/30 * * * *", timezone="Europe/Berlin"),
    "tests.daily": Cron("30 2 * * *", timezone="Europe/Berlin"),
}


class DiedError(BaseException):
    """The process has gone."""


class Crew:
    """Four workers that look at once, and how many of them are still to die inside a tick."""

    def __init__(self) -> None:
        self.living = {number: Looks() for number in range(4)}
        self.to_die = 0

    def fault(self, point: str, _: str) -> None:
        """End the worker that comes to the point while one is to die."""
        if point == "schedule.after_insert" and self.to_die > 0:
            self.to_die -= 1
            raise DiedError

    def look(self) -> None:
        """Let all of them look until nothing is due."""
        meet = threading.Barrier(len(self.living))
        threads = [threading.Thread(target=self._look, args=(*one, meet)) for one in list(self.living.items())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look(self, number: int, looks: Looks, meet: threading.Barrier) -> None:
        try:
            meet.wait()
            while looks.serve(using="default") <= BUSY:
                pass
        except DiedError:
            del self.living[number]
        finally:
            connections.close_all()


def ticks_between(rule: Any, begin: datetime, end: datetime) -> list[datetime]:
    """Return what must have been run."""
    return list(takewhile(lambda tick: tick <= end, rule.after(begin)))


def test_each_tick_once_over_a_change_of_clocks_r57(
    scheduled: Callable[..., Any], hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57: 24 h in which 02:30 comes twice; four look at once at every step, two of them die inside a tick."""
    hands.now = BEGIN
    for name, rule in RULES.items():
        scheduled(rule, type=name, missed="catch_up")
    crew = Crew()
    monkeypatch.setattr(faults, "plan", crew.fault)
    for step in range(97):
        hands.now = BEGIN + step * STEP
        crew.to_die = int(step in {25, 60})
        crew.look()

    assert len(crew.living) == 2
    for name, rule in RULES.items():
        found = ScheduleTick.objects.filter(schedule_name=name, outcome="enqueued").order_by("tick")
        assert list(found.values_list("tick", flat=True)) == ticks_between(rule, BEGIN, hands.now)
    daily = ScheduleTick.objects.get(schedule_name="tests.daily")
    assert daily.tick == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert Job.objects.count() == ScheduleTick.objects.count() == 96 + 48 + 1
    assert not Schedule.objects.filter(next_tick__lte=hands.now).exists()
    assert verify(using="default").violated == ()
