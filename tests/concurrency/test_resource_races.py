"""Many claim what uses one resource: its limit holds, nobody is refused, and room that came free is found."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt, Job
from django_jobs.store.resources import Lane, stands
from tests.crowd import programs, together
from tests.databases import Server
from tests.factories import JobFactory, WorkerFactory
from tests.scenes import BUDGET, QUEUE, held, loss, new_job, request

pytestmark = pytest.mark.django_db(transaction=True)

SHARED = "shared"
LANES = [Lane(QUEUE, SHARED)]


@pytest.fixture(autouse=True)
def limit(settings: Any) -> Any:
    """Return what sets the resource's bounds; a limit of three at first."""

    def bound(**bounds: Any) -> None:
        settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "RESOURCES": {SHARED: bounds}}

    bound(limit=3)
    return bound


def claim(room: int = 4, **changes: Any) -> list[store.Claimed]:
    """Claim with so much room."""
    return store.claim(request(room, lanes=LANES, **changes), using="default")


def enqueue(many: int) -> None:
    """Store jobs that use the resource."""
    store.enqueue_many([new_job(resource=SHARED) for _ in range(many)], using="default")


def test_r19_threads_never_exceed_the_limit_and_nobody_gets_an_error(server: Server) -> None:
    """R19: twelve threads, 300 jobs of one resource, one more due in an hour: all others run, without any error."""
    many = 300 if server.vendor == "postgresql" else 60  # there one writer at a time
    enqueue(many)
    store.enqueue(new_job(resource=SHARED, delay=timedelta(hours=1)), using="default")
    most = [0]

    def work() -> None:
        while Job.objects.filter(state__in=["queued", "running"]).exists():
            found = claim()
            most[0] = max(most[0], Job.objects.filter(state="running").count())
            for job in found:
                store.succeed(job, result=None, budget=BUDGET)

    assert [error for error in together(*[work] * 12) if error is not None] == []
    assert most[0] <= 3
    assert sorted(set(Job.objects.values_list("state", flat=True))) == ["scheduled", "succeeded"]
    assert Attempt.objects.count() == many


@pytest.mark.slow
def test_limit_of_a_resource_is_never_exceeded_by_processes(server: Server, database_url: str) -> None:
    """Six processes with room for four each: never more than three of the resource run, all run once, none is stuck."""
    enqueue(150)

    outputs = programs("tests.concurrency.programs.work", [["crowd", QUEUE, SHARED]] * 6, database_url)

    assert max(map(int, outputs)) <= 3
    assert Attempt.objects.filter(outcome="succeeded").count() == Attempt.objects.count() == 150
    spans = Attempt.objects.values_list("started_at", "finished_at")
    moves = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    assert max(itertools.accumulate(change for _, change in moves)) <= 3


def test_rate_is_never_exceeded_by_threads(server: Server, limit: Any) -> None:
    """Eight threads at one moment share one bucket: together they get what it holds, and no more."""
    limit(rate="1/h", burst=5)
    enqueue(40)

    found = together(*[claim] * 8)

    assert [error for error in found if isinstance(error, Exception)] == []
    assert sum(len(jobs) for jobs in found) == 5
    assert claim() == []


@pytest.mark.parametrize("rounds", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_r11_job_that_comes_while_another_ends_finds_its_room(server: Server, limit: Any, rounds: int) -> None:
    """R11: a limit of one, B is enqueued while A ends: in every round the next claim gets B at once."""
    limit(limit=1)
    enqueue(1)
    (running,) = claim()
    for _ in range(rounds):
        came = together(lambda job=running: store.succeed(job, result=None, budget=BUDGET), lambda: enqueue(1))
        assert [error for error in came if isinstance(error, Exception)] == []
        (running,) = claim()


def test_r10_late_holder_changes_no_count(server: Server, limit: Any) -> None:
    """R10: both places of a worker that stood still are given to others; when it wakes, nothing is freed twice."""
    limit(limit=2)
    enqueue(6)
    frozen = claim(worker_id=WorkerFactory(silent=True).pk)
    assert len(frozen) == 2
    with clock.override(lambda moment=clock.now() + timedelta(hours=1): moment):
        for job in frozen:
            assert store.rescue(held(Job.objects.get(pk=job.job_id)), loss=loss(LossCause.SILENT))
        others = claim()
        assert len(others) == 2
        for job in frozen:
            with pytest.raises(LeaseLostError):
                store.succeed(job, result=None, budget=BUDGET)
        assert claim() == []
        assert stands([SHARED], using="default")[SHARED].standing.running == 2
        for job in others:
            store.succeed(job, result=None, budget=BUDGET)
        assert stands([SHARED], using="default")[SHARED].standing.running == 0


def test_r25_place_of_a_dead_holder_is_free_when_the_job_is_taken_back(server: Server, limit: Any) -> None:
    """R25: with a limit of one and its holder killed, the next job starts without any flush, and the lost one later."""
    limit(limit=1)
    enqueue(2)
    (dead,) = claim()
    assert claim() == []
    assert store.rescue(held(Job.objects.get(pk=dead.job_id)), loss=loss(LossCause.EXIT, delay=timedelta(hours=1)))
    (following,) = claim()
    assert following.job_id != dead.job_id


def test_lanes_of_other_queues_are_left_alone(server: Server) -> None:
    """A claim for one queue takes nothing of another, although both use the resource."""
    JobFactory(queue_name="other", resource=SHARED, lane=SHARED)
    assert claim() == []
    assert len(store.claim(request(1, queues=["other"], lanes=[Lane("other", SHARED)]), using="default")) == 1
