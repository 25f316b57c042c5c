"""Schedules of real workers: each tick once, whoever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from django_jobs import clock
from django_jobs.models import Job, Schedule, ScheduleTick
from django_jobs.operate.verify import verify
from django_jobs.store.pauses import pause
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.workers import Witness, wait_for

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

Rows = Callable[[], Counter[int]]
NAME = "tests.acceptance.scheduled_handlers.every_second"
SECOND = timedelta(seconds=1)


def test_each_second_once_with_four_workers_of_which_two_are_killed(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Four workers start at once, two die by SIGKILL with their children: every second has one tick, one job, one row."""
    imports = {"JOBS_IMPORTS": "tests.acceptance.scheduled_handlers"}
    workers = [make_worker(threads=2, env=imports).start() for _ in range(4)]
    ticks = ScheduleTick.objects.order_by("tick")
    for worker in workers:
        worker.wait_ready()
    for worker in workers[:2]:
        seen = ticks.count()
        wait_for(lambda seen=seen: ticks.count() >= seen + 4, seconds=60, what="ticks before the kill")
        worker.kill_group()
    seen = ticks.count()
    wait_for(lambda: ticks.count() >= seen + 8, seconds=60, what="ticks after the kills")
    pause("schedule", NAME, actor="ann", reason="seen enough", using="default")
    paused_at = clock.now() + SECOND  # a tick that was read before the pause may still be committed
    settled = Schedule.objects.filter(name=NAME, settled_at__gt=paused_at)
    wait_for(settled.exists, seconds=60, what="ticks that are given up")
    wait_until_done(seconds=60)

    found = list(ticks.values_list("tick", "outcome"))
    assert [tick for tick, _ in found] == [found[0][0] + n * SECOND for n in range(len(found))]
    assert {outcome for _, outcome in found} == {"enqueued"}
    assert states() == {"succeeded": len(found)}
    assert rows() == Counter({int(tick.timestamp()): 1 for tick, _ in found})
    assert Job.objects.count() == len(found) >= 16
    assert verify(using="default").violated == ()
