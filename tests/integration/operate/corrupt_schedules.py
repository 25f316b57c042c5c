"""Ticks and schedules that cannot be; each returns the ids that must be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Job, Schedule, ScheduleTick
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story


def tick_of(story: Story | None, **columns: Any) -> ScheduleTick:
    """Return a tick that is as it must be, with its schedule, but for these columns."""
    now = clock.now().replace(microsecond=0)
    Schedule.objects.get_or_create(
        name="shop.report",
        defaults={
            "job_type": "shop.report",
            "rule": "every 60 s",
            "missed": "coalesce",
            "settled_at": now,
            "next_tick": now + timedelta(minutes=1),
            "declared_at": now,
        },
    )
    values = {"outcome": "enqueued", "job_id": story.job.pk} if story else {"outcome": "refused", "message": "E: no"}
    values |= {"schedule_name": "shop.report", "tick": now, "created_at": now, **columns}
    return ScheduleTick.objects.create(**values)


def healthy_schedules() -> None:
    """Write a tick of each outcome, and one that was run by hand later than everything that is settled."""
    now = clock.now().replace(microsecond=0)
    tick_of(Story())
    tick_of(Story(), tick=now - timedelta(minutes=1), outcome="duplicate")
    tick_of(None, tick=now - timedelta(minutes=2))
    tick_of(Story(), tick=now + timedelta(seconds=9), action_id=uuid7())


@corrupts("T1")
def tick_without_its_job() -> set[Any]:
    story = Story()
    tick = tick_of(story, job_id=uuid7())
    return {tick.pk}


@corrupts("T1")
def enqueued_tick_that_names_no_job() -> set[Any]:
    return {tick_of(Story(), job_id=None).pk}


@corrupts("T1")
def refused_tick_with_a_job() -> set[Any]:
    return {tick_of(None, job_id=Story().job.pk).pk}


@corrupts("T2")
def tick_that_is_not_settled() -> set[Any]:
    tick = tick_of(Story())
    Schedule.objects.update(settled_at=tick.tick - timedelta(seconds=1))
    return {tick.pk}


@corrupts("T2")
def tick_of_no_schedule() -> set[Any]:
    tick = tick_of(None)
    Schedule.objects.all().delete()
    return {tick.pk}


@corrupts("T2")
def tick_that_is_there_twice() -> set[Any]:
    first = tick_of(Story())
    unguard(ScheduleTick)
    return {first.pk, tick_of(Story(), tick=first.tick).pk}


@corrupts("T3")
def job_of_two_ticks() -> set[Any]:
    story = Story()
    first = tick_of(story)
    assert Job.objects.count() == 1
    return {first.pk, tick_of(story, tick=first.tick - timedelta(minutes=1)).pk}


@corrupts("T3")
def next_tick_that_is_settled() -> set[Any]:
    tick_of(Story())
    row = Schedule.objects.get()
    Schedule.objects.update(next_tick=row.settled_at)
    return {row.pk}
