"""Counters beyond 32 bits, and beyond what a double holds exactly."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_jobs import clock, store
from django_jobs.models import Attempt, Job
from django_jobs.operate.history import as_dict, history_of
from tests.databases import Server
from tests.factories import JobFactory
from tests.integration.commands.test_jobs_command import jobs
from tests.scenes import BUDGET, failure, request

BIG = [2**31 + 5, 2**53 + 7]


@pytest.mark.parametrize("number", BIG, ids=["2^31+5", "2^53+7"])
def test_r79_big_numbers_go_through_the_whole_flow(database: Server, number: int) -> None:
    """R79: fence, revision and progress pass claim, renewal, failure, retry, success, JSON and explanation unrounded."""
    job = JobFactory(fence=number, revision=number, progress=number, progress_total=number)

    (first,) = store.claim(request(1), using="default")
    ends = clock.now() + timedelta(hours=1)
    assert first.number == number + 1
    store.renew(first, progress=number, total=number + 2, lease=BUDGET, ends_at=ends)
    with pytest.raises(store.leases.LeaseLostError):
        store.renew(first, progress=number, total=number + 2, lease=BUDGET, ends_at=ends)
    store.renew(first, progress=number + 1, total=number + 2, lease=BUDGET, ends_at=ends)
    store.fail(first, failure=failure(unknown=1), delay=timedelta(0), budget=BUDGET)
    (second,) = store.claim(request(1), using="default")
    store.renew(second, progress=number + 3, total=number + 3, lease=BUDGET, ends_at=ends)
    store.succeed(second, result=str(number), budget=BUDGET)

    job.refresh_from_db()
    assert (job.fence, job.revision) == (number + 2, number + 4)
    assert (job.progress, job.progress_total) == (number + 3, number + 3)
    attempts = Attempt.objects.filter(job_id=job.pk).order_by("number")
    assert [attempt.number for attempt in attempts] == [number, number + 1, number + 2]
    assert [attempt.progress for attempt in attempts] == [None, number + 1, number + 3]

    assert as_dict(history_of(job, using="default"))["job"]["revision"] == number + 4
    shown = json.loads(jobs("show", job.pk, "--json")[0])
    assert (shown["job"]["fence"], shown["job"]["progress"]) == (number + 2, number + 3)
    assert str(number + 3) in jobs("show", job.pk)[0]
    (listed,) = [json.loads(line) for line in jobs("list", "--json")[0].splitlines()]
    assert listed["fence"] == number + 2
    assert jobs("explain", job.pk)[1] == 0


@pytest.mark.parametrize("number", BIG, ids=["2^31+5", "2^53+7"])
def test_r79_moves_of_waiting_jobs_keep_big_numbers(database: Server, number: int) -> None:
    """R79: setting aside, promotion, snooze, rescue, release and expiry count on from there."""
    from django_jobs.domain.retry import Counters
    from tests.scenes import held, loss

    aside = JobFactory(job_type="gone.away", revision=number)
    store.defer(["default"], runnable=[], using="default")
    late = JobFactory(revision=number, useful_until=clock.now() - timedelta(seconds=1))
    store.expire(using="default")
    due = JobFactory(scheduled=True, revision=number, available_at=clock.now() - timedelta(seconds=1))
    store.promote(["default"], using="default")
    moved = [JobFactory(running=True, fence=number, revision=number) for _ in range(3)]
    store.snooze(held(moved[0]), delay=timedelta(hours=1), counters=Counters(), message="later")
    store.release(held(moved[1]), message="stopping")
    store.rescue(held(moved[2]), loss=loss())

    found = Job.objects.in_bulk([job.pk for job in (aside, late, due, *moved)])
    assert {job.revision for job in found.values()} == {number + 1}
