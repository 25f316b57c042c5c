"""Losses: who is found, what must be proved in the statement itself, and what a rescue writes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone, DeadReason, LossCause
from django_jobs.models import Job, Worker
from django_jobs.store import workers
from tests.databases import Server
from tests.factories import JobFactory, WorkerFactory
from tests.scenes import BUDGET, NOON, Told, everything, held, loss, request

SECOND = timedelta(seconds=1)
SILENT = timedelta(seconds=20)
PATIENCE = timedelta(seconds=20)


def _running(worker: Worker, **values: object) -> Job:
    job: Job = JobFactory(running=True, lease_owner=worker.pk, **values)
    return job


def test_silent_and_stopped_and_unknown_workers_lose_their_jobs(database: Server) -> None:
    """A worker that beats keeps its jobs; silence, a stop and a missing row all prove that the holder is gone."""
    _running(WorkerFactory())
    lost = [
        _running(WorkerFactory(silent=True)),
        _running(WorkerFactory(stopped=True)),
        JobFactory(running=True),
    ]

    found = store.abandoned(using="default")

    assert {item.job_id for item in found} == {job.pk for job in lost}
    assert {item.cause for item in found} == {LossCause.SILENT}


@pytest.mark.parametrize(("ago", "lost"), [(SILENT - SECOND, False), (SILENT, True), (SILENT + SECOND, True)])
def test_silence_is_judged_by_the_setting(database: Server, ago: timedelta, lost: bool) -> None:
    """Below the limit a worker lives; at the limit it is taken for gone."""
    with clock.override(lambda: NOON):
        _running(WorkerFactory(heartbeat_at=NOON - ago))
        assert bool(store.abandoned(using="default")) is lost


@pytest.mark.parametrize(("ago", "lost"), [(PATIENCE, False), (PATIENCE + SECOND, True)])
def test_expired_lease_is_judged_after_the_patience(database: Server, ago: timedelta, lost: bool) -> None:
    """Under a worker that beats, a lease must have been over for a while; its holder may still finish."""
    with clock.override(lambda: NOON):
        _running(WorkerFactory(), lease_expires_at=NOON - ago)
        found = store.abandoned(using="default")

    assert [item.cause for item in found] == ([LossCause.EXPIRED] if lost else [])


def test_found_job_brings_all_that_a_verdict_needs(database: Server) -> None:
    """The reaper decides from what it read: counters, company, ages and whom to tell."""
    with clock.override(lambda: NOON):
        job = _running(
            WorkerFactory(silent=True),
            owner="shop",
            lost_count=1,
            exit_lost_count=1,
            unknown_count=2,
            generation_started_at=NOON - timedelta(hours=2),
            useful_until=NOON + timedelta(hours=3),
            last_attempt__alone="child",
            last_attempt__worker_name="w1",
        )
        (found,) = store.abandoned(using="default")

    assert (found.job_id, found.attempt_id, found.number) == (job.pk, job.attempt_id, 1)
    assert (found.owner, found.worker_name, found.alone) == ("shop", "w1", Alone.CHILD)
    assert (found.age, found.useful_left) == (timedelta(hours=2), timedelta(hours=3))
    assert found.counters == Counters(lost=1, exit_lost=1, unknown=2)


def test_job_without_its_attempt_row_is_still_found(database: Server) -> None:
    """A damaged row must not stay in running for ever."""
    job = _running(WorkerFactory(silent=True))
    job.attempts.all().delete()

    (found,) = store.abandoned(using="default")

    assert (found.worker_name, found.alone) == ("", Alone.NO)
    assert store.rescue(found, loss=loss(LossCause.SILENT)) is True


def test_dead_child_loses_its_own_jobs_only(database: Server) -> None:
    """The other children of the worker go on."""
    worker = WorkerFactory()
    mine = _running(worker, lease_child=7)
    _running(worker, lease_child=8)
    _running(WorkerFactory(), lease_child=7)
    JobFactory()

    found = store.held_by(worker_id=worker.pk, child=7, using="default")

    assert [(item.job_id, item.cause) for item in found] == [(mine.pk, LossCause.EXIT)]
    assert store.held_by(worker_id=worker.pk, child=9, using="default") == []


def test_rescue_is_refused_when_the_heartbeat_is_back(database: Server) -> None:
    """The silence is proved again by the statement: between look and rescue the worker may have come back."""
    worker = WorkerFactory(silent=True)
    _running(worker)
    (found,) = store.abandoned(using="default")
    workers.beat(worker.pk, using="default")
    before = everything()

    assert store.rescue(found, loss=loss(LossCause.SILENT)) is False
    assert everything() == before


def test_rescue_is_refused_when_the_lease_was_renewed(database: Server) -> None:
    """So is the end of the lease."""
    job = _running(WorkerFactory(), lease_expires_at=clock.now() - timedelta(minutes=1))
    (found,) = store.abandoned(using="default")
    store.renew(held(job), progress=1, total=None, lease=BUDGET, ends_at=clock.now() + timedelta(hours=1))
    before = everything()

    assert store.rescue(found, loss=loss(LossCause.EXPIRED)) is False
    assert everything() == before


def test_rescue_is_refused_when_the_job_has_a_new_attempt(database: Server) -> None:
    """A proof about one attempt says nothing about the next one."""
    worker = WorkerFactory(silent=True)
    job = _running(worker)
    (found,) = store.abandoned(using="default")
    store.release(held(job), message="stopping")
    store.claim(request(1, worker_id=worker.pk), using="default")

    assert store.rescue(found, loss=loss(LossCause.SILENT)) is False
    job.refresh_from_db()
    assert (job.state, job.fence) == ("running", 2)


@pytest.mark.parametrize("cause", list(LossCause))
def test_rescue_closes_the_attempt_as_lost_with_its_cause(database: Server, cause: LossCause) -> None:
    """The job is due again, and the attempt says how its end was found out."""
    worker = WorkerFactory(silent=cause is LossCause.SILENT)
    job = _running(worker, lease_expires_at=clock.now() - timedelta(minutes=1), waiting_since=NOON)
    counters = Counters(lost=1, exit_lost=1, free=2)
    verdict = loss(cause, counters=counters, exit_status=-9, message="Never observed.")
    with Told() as told:
        assert store.rescue(held(job), loss=verdict) is True

    job.refresh_from_db()
    attempt = job.attempts.get()
    assert (job.state, job.isolation, job.lost_count, job.free_count) == ("queued", "child", 1, 2)
    assert (attempt.outcome, attempt.loss_cause, attempt.exit_status) == ("lost", cause.value, -9)
    assert attempt.message == "Never observed."
    assert job.waiting_since == NOON
    assert [fields["cause"] for fields in told.named("job.rescue")] == [cause.value]


@pytest.mark.parametrize(("delay", "state"), [(1, "queued"), (2, "failed")])
def test_rescued_job_backs_off(database: Server, delay: float, state: str) -> None:
    """A loss that must wait is a failed job until it is due."""
    job = _running(WorkerFactory(), now=NOON)
    with clock.override(lambda: NOON):
        store.rescue(held(job), loss=loss(delay=timedelta(seconds=delay)))

    job.refresh_from_db()
    assert (job.state, job.available_at) == (state, NOON + timedelta(seconds=delay))


def test_job_that_is_due_at_once_keeps_its_place(database: Server) -> None:
    """What was in front of the queue before it was lost is in front of it again, and never due later than now."""
    job = _running(WorkerFactory(), now=NOON)
    due = job.available_at
    with clock.override(lambda: NOON + timedelta(minutes=5)):
        store.rescue(held(job), loss=loss(delay=timedelta(0)))

    job.refresh_from_db()
    assert (job.state, job.available_at) == ("queued", due)
    assert due <= NOON


def test_rescue_may_end_in_a_dead_letter(database: Server) -> None:
    """The last loss leaves the job to a human, with its reason, and tells of it."""
    job = _running(WorkerFactory())
    due = job.available_at
    with Told() as told:
        store.rescue(held(job), loss=loss(dead_reason=DeadReason.POISON))

    job.refresh_from_db()
    assert (job.state, job.dead_reason, job.available_at) == ("dead_lettered", "poison", due)
    assert job.dead_at is not None
    assert [(dead["job_id"], dead["reason"]) for dead in told.named("job.dead")] == [(job.pk, "poison")]


def test_limits_come_from_the_settings(database: Server) -> None:
    """A project that sets shorter times gets shorter times, in the look and in the proof."""
    rules = {"HEARTBEAT": 2 * SECOND, "SILENT_AFTER": 5 * SECOND}
    with override_settings(DJANGO_JOBS=rules), clock.override(lambda: NOON):
        _running(WorkerFactory(heartbeat_at=NOON - 6 * SECOND))
        (found,) = store.abandoned(using="default")
        assert store.rescue(found, loss=loss(LossCause.SILENT)) is True


def test_look_is_bounded(database: Server) -> None:
    """A whole fleet that died is taken back in parts."""
    for _ in range(3):
        JobFactory(running=True)

    assert len(store.abandoned(using="default", limit=2)) == 2
