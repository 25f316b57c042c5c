"""Ticks that fall into a pause are given up, whether or not a worker looked while it lasted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Every
from django_jobs.define import schedules as declared
from django_jobs.models import Job, Pause, Schedule, ScheduleTick
from django_jobs.operate import schedule_runner
from django_jobs.operate.verify import verify
from django_jobs.store.pauses import pause, resume
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.schedules.conftest import START, Hands, turn

pytestmark = pytest.mark.django_db

Declare = Callable[..., Any]
MINUTELY = Every(timedelta(minutes=1))
NAME = "tests.scheduled"


def held(**options: Any) -> None:
    """Pause the schedule."""
    pause("schedule", NAME, actor="ann", reason="month's end", using="default", **options)


def resumed() -> bool:
    """Let the schedule go on."""
    return resume("schedule", NAME, actor="ann", using="default")


def ticks() -> list[str]:
    """Return the ticks that were run."""
    return [f"{row.tick:%H:%M}" for row in ScheduleTick.objects.order_by("tick")]


@pytest.mark.parametrize("missed", ["skip", "coalesce", "catch_up"])
def test_pause_that_no_worker_saw_gives_its_ticks_up(scheduled: Declare, hands: Hands, missed: str) -> None:
    """The workers were stopped for the same maintenance: whatever ``missed`` says, it goes on with the next tick."""
    scheduled(MINUTELY, missed=missed)
    held()
    hands.move(minutes=3)
    assert resumed() is True
    turn()
    assert (ticks(), Job.objects.count()) == ([], 0)
    hands.move(seconds=30)
    turn()
    assert ticks() == ["12:04"]
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("missed", ["skip", "coalesce", "catch_up"])
def test_pause_that_ended_by_itself_gives_its_ticks_up(scheduled: Declare, hands: Hands, missed: str) -> None:
    """Those before its end; the one at its end runs, and so do later ones, as ``missed`` says."""
    scheduled(MINUTELY, missed=missed)
    held(until=START + timedelta(minutes=2, seconds=30))  # 12:03:00
    hands.move(minutes=2, seconds=29)
    turn() if missed == "skip" else None
    hands.move(seconds=2)
    turn()
    assert ticks() == ["12:03"]
    hands.move(minutes=2)
    turn()
    assert ticks() == {"catch_up": ["12:03", "12:04", "12:05"]}.get(missed, ["12:03", "12:05"])


def test_pause_that_is_over_takes_no_later_tick(scheduled: Declare, hands: Hands) -> None:
    """Its row stays until somebody resumes or pauses again; neither gives up what was due after its end."""
    scheduled(MINUTELY, missed="catch_up")
    held(until=START + timedelta(minutes=2, seconds=30))
    hands.move(minutes=4)
    assert resumed() is True
    assert not Pause.objects.exists()
    turn()
    assert ticks() == ["12:03", "12:04"]


def test_resuming_before_the_first_tick_changes_nothing(scheduled: Declare, hands: Hands) -> None:
    """Nothing fell into the pause: the row stays as it is."""
    scheduled(MINUTELY)
    before = Schedule.objects.values().get()
    held()
    hands.move(seconds=29)
    assert resumed() is True
    assert Schedule.objects.values().get() == before
    assert resumed() is False


def test_resuming_what_is_not_paused_gives_nothing_up(scheduled: Declare, hands: Hands) -> None:
    """A tick that no worker has seen yet is due all the same."""
    scheduled(MINUTELY)
    hands.move(minutes=3)
    assert resumed() is False
    turn()
    assert ticks() == ["12:03"]


@pytest.mark.django_db(transaction=True)
def test_resuming_between_a_workers_look_and_its_lock_brings_no_tick_back(
    scheduled: Declare, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker saw the pause, and holds the schedule when the pause has gone: the ticks of the pause stay given up."""
    scheduled(MINUTELY, missed="catch_up")
    held()
    hands.move(minutes=3)
    lock = schedule_runner.held

    def late(name: str, *, using: str) -> Any:
        monkeypatch.setattr(schedule_runner, "held", lock)
        assert resumed() is True
        return lock(name, using=using)

    monkeypatch.setattr(schedule_runner, "held", late)
    turn()
    turn()
    assert (ticks(), Schedule.objects.get().settled_at) == ([], hands.now)
    hands.move(seconds=30)
    turn()
    assert ticks() == ["12:04"]


def test_pause_of_the_job_type_gives_no_tick_up(scheduled: Declare, hands: Hands) -> None:
    """Enqueueing goes on while a job type or a queue is held back: its jobs wait."""
    scheduled(MINUTELY, missed="catch_up")
    for kind, name in (("type", NAME), ("queue", "default")):
        pause(kind, name, actor="ann", reason="month's end", using="default")
    hands.move(minutes=2)
    turn()
    assert ticks() == ["12:01", "12:02"]


def test_schedule_that_a_worker_has_announced_is_no_unknown_name(scheduled: Declare) -> None:
    """One that this code declares no more is held back by its name, as the guide says; a slip of the pen is doubted."""
    one = scheduled(MINUTELY)
    declared.forget_schedule(one.name)
    for name, doubted in ((one.name, False), ("shop.typo", True)):
        told, _ = jobs("pause", "schedule", name, "--as", "ann", "--reason", "month's end")
        assert ("Note: this code declares no schedule" in told) is doubted
