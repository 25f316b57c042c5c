"""Resources as a child serves them: it asks only for what may have room, and heeds what a downstream asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from django_jobs import RetryPolicy, clock, telemetry
from django_jobs.exceptions import RateLimited
from django_jobs.models import Job, Resource
from django_jobs.store import claims, succeed
from django_jobs.store.pauses import pause, resume
from django_jobs.worker import claiming as module
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.heart import announce_resources
from django_jobs.worker.lanes import Lanes
from tests.factories import JobFactory, WorkerFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer, run, the_job
from tests.queries import asked
from tests.scenes import BUDGET

pytestmark = pytest.mark.django_db(transaction=True)

API = "payments-api"


@pytest.fixture
def bounded(settings: Any, declare: Declare) -> Callable[..., Any]:
    """Return what declares the test's job type as a user of a resource with these bounds."""

    def declared(func: Callable[..., Any] = lambda: None, *, retry: RetryPolicy | None = None, **bounds: Any) -> Any:
        settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "RESOURCES": {API: bounds}}
        return declare(func, atomic=False, resource=API, retry=retry)

    return declared


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the boot clock; change the one element to move it."""
    now = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: now[0])
    return now


def child(threads: int = 4) -> Claimer:
    """Return what claims for a child with so many threads."""
    return Claimer(replace(claimer().config, threads=threads))


def test_handler_runs_within_the_limit(bounded: Callable[..., Any]) -> None:
    """From the option of the job type to the claim: two of four, then the others."""
    job = bounded(limit=2)
    for _ in range(4):
        job.enqueue()
    assert set(Job.objects.values_list("resource", "lane")) == {(API, API)}

    found = child().take(4, 0)

    assert len(found) == 2
    run(*found)
    run(*child().take(4, 0))
    assert Job.objects.filter(state="succeeded").count() == 4


def test_full_resource_costs_the_next_claims_nothing(bounded: Callable[..., Any], seconds: list[float]) -> None:
    """A claim that found no room does not ask for the resource again before the next look."""
    job = bounded(limit=1)
    for _ in range(3):
        job.enqueue()
    one = child()
    assert len(one.take(4, 0)) == 1
    assert one.open_lanes() == []
    seconds[0] += 0.9
    with asked() as found:
        assert one.take(3, 1) == []
    assert found
    assert not [text for text in found if API in text]


def test_end_of_its_own_job_lets_a_child_ask_again(bounded: Callable[..., Any], seconds: list[float]) -> None:
    """What ends here makes room at once; what ends elsewhere is known at the next look, a second later."""
    job = bounded(limit=2)
    for _ in range(6):
        job.enqueue()
    one, other = child(), child()
    (first, _) = one.take(4, 0)
    one.lanes.note_running([first])
    assert other.take(4, 0) == []
    succeed(first.claimed, result=None, budget=BUDGET)

    one.lanes.note_running([])
    assert other.take(4, 0) == []
    assert len(one.take(4, 0)) == 1
    Job.objects.filter(state="running").first()
    seconds[0] += 1.0
    assert other.take(4, 0) == []
    Job.objects.filter(state="running").delete()
    seconds[0] += 1.0
    assert len(other.take(4, 0)) == 2


def test_child_sleeps_no_longer_than_until_the_next_token(bounded: Callable[..., Any], seconds: list[float]) -> None:
    """With a rate the next start is known, and is no poll away."""
    job = bounded(rate="4/s", burst=1)
    for _ in range(2):
        job.enqueue()
    one = child()
    assert len(one.take(4, 0)) == 1
    wait = one.seconds_to_next_due()
    assert 0 < wait <= 0.25
    with clock.override(lambda moment=clock.now(): moment + timedelta(seconds=0.3)):
        seconds[0] += 0.3
        assert len(one.take(3, 1)) == 1


def test_jobs_of_others_in_an_open_lane_are_not_asked_for_in_each_claim(
    bounded: Callable[..., Any], seconds: list[float]
) -> None:
    """Room that this child cannot use, because it knows none of the types that wait, costs one claim per look."""
    bounded(limit=9)
    JobFactory(job_type="tests.foreign", resource=API, lane=API)
    WorkerFactory(kinds='["tests.foreign 1"]')
    one = child()
    assert one.take(4, 0) == []
    assert one.open_lanes() == []
    seconds[0] += 1.0
    assert [lane.resource for lane in one.open_lanes()] == [API]


def test_rows_of_others_at_the_head_of_a_lane_are_walked_over(bounded: Callable[..., Any]) -> None:
    """A lane that is full of another worker's jobs does not hide those of this one."""
    job = bounded(limit=9)
    old = clock.now() - timedelta(hours=1)
    JobFactory.create_batch(
        250, job_type="tests.foreign", resource=API, lane=API, priority=9, available_at=old, created_at=old
    )
    WorkerFactory(kinds='["tests.foreign 1"]')
    job.enqueue()

    assert len(child().take(4, 0)) == 1


def test_unknown_types_are_set_aside_from_a_lane(bounded: Callable[..., Any]) -> None:
    """Nobody can run them: they leave the lane, as they leave a queue."""
    bounded(limit=9)
    JobFactory(job_type="tests.gone", resource=API, lane=API)
    assert child().take(4, 0) == []
    row = the_job()
    assert (row.state, row.lane) == ("scheduled", "!tests.gone 1")


def test_pause_holds_a_resource_and_resume_lets_it_go(bounded: Callable[..., Any], seconds: list[float]) -> None:
    """An operator's pause closes the lane within a second; a worker that drains does not wait for it."""
    bounded(limit=2).enqueue()
    pause("resource", API, actor="ann", reason="the provider asked", using="default")
    one = child()
    assert one.take(4, 0) == []
    assert one.is_nothing_left()
    resume("resource", API, actor="ann", using="default")
    seconds[0] += 1.0
    assert not one.is_nothing_left()
    assert len(one.take(4, 0)) == 1


def test_rate_limited_downstream_pauses_the_resource_for_everyone(bounded: Callable[..., Any]) -> None:
    """One job is told to wait, and no other job that uses the resource is tried before that time."""
    tried = []

    def limited() -> None:
        tried.append(clock.now())
        raise RateLimited(timedelta(seconds=30))

    job = bounded(limited, limit=5)
    job.enqueue()
    job.enqueue()
    told: list[dict[str, Any]] = []
    unsubscribe = telemetry.subscribe(
        lambda name, fields: told.append(dict(fields)) if name == "resource.held" else None
    )
    run(*child(1).take(1, 0))
    unsubscribe()

    assert child().take(4, 0) == []
    row = Resource.objects.get()
    assert row.paused_until is not None
    assert timedelta(seconds=29) < row.paused_until - tried[0] < timedelta(seconds=60)
    assert [(entry["resource"], entry["job_id"]) for entry in told] == [(API, row.paused_by)]
    with clock.override(lambda moment=row.paused_until: moment):
        assert len(child().take(1, 0)) == 1


def test_error_without_a_wish_pauses_nothing(bounded: Callable[..., Any]) -> None:
    """An ordinary failure is the job's own affair."""

    def fails() -> None:
        raise ValueError("no")

    bounded(fails, limit=5).enqueue()
    run(*child(1).take(1, 0))
    assert not Resource.objects.exists()


def test_failed_hold_does_not_change_the_end_of_the_attempt(
    bounded: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry is on record before the hold is written; an error there is logged."""

    def limited() -> None:
        raise RateLimited(timedelta(seconds=30))

    def breaks(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("django_jobs.worker.finish.hold_resource", breaks)
    bounded(limited, limit=5).enqueue()
    run(*child(1).take(1, 0))
    assert the_job().state == "failed"


def test_error_after_a_claim_does_not_lose_what_was_claimed(
    bounded: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is leased has to start, whatever happens to the look at resources behind it; without anything it is raised."""
    bounded(limit=5).enqueue()
    JobFactory(job_type=JOB_TYPE)
    JobFactory(job_type="tests.foreign", resource="other-api", lane="other-api")
    WorkerFactory(kinds='["tests.foreign 1"]')
    one = child()

    def breaks(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(one.lanes, "note_claim", breaks)
    assert len(one.take(4, 0)) == 2
    with pytest.raises(OperationalError, match="gone"):
        one.take(4, 0)
    assert module.claim is claims.claim


def test_worker_writes_a_row_for_each_declared_resource(bounded: Callable[..., Any]) -> None:
    """So that people find it before anybody has changed it; what a row says stays."""
    bounded(limit=5)
    Resource.objects.create(name="old-api", max_running=1)
    announce_resources(using="default")
    Resource.objects.filter(name=API).update(max_running=7)
    announce_resources(using="default")
    assert dict(Resource.objects.values_list("name", "max_running")) == {"old-api": 1, API: 7}


def test_queue_that_another_worker_serves_is_not_starved(bounded: Callable[..., Any], seconds: list[float]) -> None:
    """Of two workers that share a resource from different queues, the one that has its places leaves some to the other."""
    job = bounded(limit=1)
    for _ in range(30):
        job.using(queue_name="qa").enqueue()
    urgent = job.using(queue_name="qb", priority=100).enqueue().id
    a = Claimer(replace(claimer().config, threads=1, queues=("qa",)))
    b = Claimer(replace(claimer().config, threads=1, queues=("qb",)))
    running = a.take(1, 0)
    for _ in range(12):
        seconds[0] += 5.0
        a.lanes.note_running(running)
        assert b.take(1, 0) == []
        run(*running)
        a.lanes.note_running([])
        running = a.take(1, 0)
        if not running:
            break
    assert a.seconds_to_next_due() <= 1.5
    seconds[0] += 1.0
    assert [attempt.job_id for attempt in b.take(1, 0)] == [urgent]


def test_error_between_two_reads_leaves_a_child_that_can_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that breaks off half-way changes nothing of what is known."""
    lanes = Lanes(using="default")
    JobFactory(resource=API, lane=API)

    def away(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("django_jobs.worker.lanes.stands", away)
    with pytest.raises(OperationalError):
        lanes.open(["default"], paused=())
    assert lanes.seconds_to_next() == float("inf")


def test_last_attempt_that_was_asked_to_wait_holds_the_resource_too(bounded: Callable[..., Any]) -> None:
    """A job that ends as a dead letter was told to wait as well; and a person who knows better resumes the resource."""

    def limited() -> None:
        raise RateLimited(timedelta(hours=20))

    policy = RetryPolicy(transient_max_age=timedelta(minutes=1))
    bounded(limited, limit=5, retry=policy).enqueue()
    Job.objects.update(generation_started_at=clock.now() - timedelta(hours=1))
    run(*child(1).take(1, 0))
    assert the_job().state == "dead_lettered"
    assert Resource.objects.get().paused_until is not None
    assert resume("resource", API, actor="ann", using="default")
    assert Resource.objects.get().paused_until is None
