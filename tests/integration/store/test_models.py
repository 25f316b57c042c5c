"""What readers ask of the rows."""

from __future__ import annotations

from django_jobs import clock
from django_jobs.models import Attempt, EffectAdoption, EffectStake, Installation, Job, JobStep, Reconciliation
from tests.databases import Server
from tests.factories import (
    AttemptFactory,
    DuplicateEnqueueFactory,
    IdempotencyKeyFactory,
    JobFactory,
    SendFactory,
    SideEffectFactory,
    WorkerFactory,
)

UNFINISHED = ("queued", "scheduled", "running", "failed", "dead_lettered")
FINISHED = ("succeeded", "cancelled", "discarded")


def test_unfinished_jobs_are_those_that_still_need_somebody(database: Server) -> None:
    """A dead letter counts until it has a resolution; succeeded and cancelled jobs do not."""
    jobs = {state: JobFactory(**{state: True}) for state in (*UNFINISHED, *FINISHED)}

    assert set(Job.objects.unfinished()) == {jobs[state] for state in UNFINISHED}


def test_dead_letters_are_those_without_a_resolution(database: Server) -> None:
    """Settled ones wait for nobody."""
    JobFactory(discarded=True)
    dead = JobFactory(dead_lettered=True)

    assert Job.objects.dead().get() == dead


def test_jobs_are_found_by_state_and_subject(database: Server) -> None:
    """All jobs about one thing, in the states that matter."""
    JobFactory(subject="order:1", succeeded=True)
    JobFactory(subject="order:2")
    wanted = JobFactory(subject="order:1")

    assert Job.objects.about("order:1").in_state("queued", "running").get() == wanted


def test_lost_attempts_are_found(database: Server) -> None:
    """Their end was never observed, so somebody will look for them."""
    AttemptFactory(failed=True)
    lost = AttemptFactory(lost=True)

    assert Attempt.objects.lost().get() == lost


def test_every_row_says_what_it_is(database: Server) -> None:
    """In the admin and in logs a row is known by its text, and none shows a payload."""
    now = clock.now()
    job = JobFactory(running=True, payload__arguments='{"secret":1}')
    send = SendFactory(effect__job=job, attempt=job.attempts.get(), confirmed=True)
    effect = send.effect
    attempt = job.attempts.get()
    rows = {
        job: f"tests.work {job.pk} (running)",
        job.payload: f"payload of {job.pk}",
        attempt: f"attempt 1 of {job.pk}",
        effect: f"charge {effect.business_key} (planned)",
        send: f"send 1 of {effect.pk}",
        JobStep(job=job, name="mail"): f"mail of {job.pk}",
        Reconciliation(effect=effect, verdict="found", created_at=now): f"found for {effect.pk}",
        EffectAdoption(effect=effect, job=job): f"{job.pk} adopted {effect.pk}",
        EffectStake(effect=effect, job=job): f"{job.pk} asked for {effect.pk}",
        IdempotencyKeyFactory(job_id=job.pk): "/tests.work order:1",
        DuplicateEnqueueFactory(job_id=job.pk): f"duplicate of {job.pk}",
        WorkerFactory(name="w1"): "w1",
        Installation(namespace="shop"): "shop",
    }

    assert [str(row) for row in rows] == list(rows.values())


def test_factories_make_every_state_of_effects_and_sends(database: Server) -> None:
    """The rows that other tests stand on can be stored."""
    for state in ("planned", "in_flight", "ambiguous", "rejected", "succeeded", "abandoned"):
        assert SideEffectFactory(**{state: True}).state == state
    for outcome in ("confirmed", "rejected", "not_applied", "unknown"):
        assert SendFactory(**{outcome: True}).outcome == outcome
    for outcome in ("succeeded", "failed", "lost", "released", "snoozed", "cancelled"):
        assert AttemptFactory(**{outcome: True}).outcome == outcome
