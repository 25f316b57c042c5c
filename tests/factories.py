"""Rows for tests, one trait per state and outcome; written directly, past the store that alone may do so outside of tests.

Times derive from ``now``: a job was created a minute before it, and what happened to it happened in between. A job that
had an attempt gets the row of its last one, and every job gets its payload.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.identity import fingerprint, scope_text
from django_jobs.domain.ids import uuid7
from django_jobs.models import (
    Attempt,
    DuplicateEnqueue,
    IdempotencyKey,
    Job,
    JobPayload,
    Pause,
    Send,
    SideEffect,
    Worker,
)

JOB_TYPE = "tests.work"
QUEUE = "default"
LEASE = timedelta(seconds=70)
ARGUMENTS = "{}"
ERROR = "v1:" + "e" * 64


def at(**ago: float) -> Any:
    """Return a declaration: the given time before ``now``; negative values lie ahead."""
    return factory.LazyAttribute(lambda row: row.now - timedelta(**ago))


class WorkerFactory(DjangoModelFactory):
    """A worker that beat just now; ``silent`` has not for an hour, ``stopped`` has ended."""

    class Meta:
        model = Worker

    class Params:
        now = factory.LazyFunction(clock.now)
        silent = factory.Trait(heartbeat_at=at(hours=1))
        stopped = factory.Trait(stopped_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    name = "worker"
    host = "host"
    pid = 4711
    started_at = at(hours=2)
    heartbeat_at = at(seconds=1)


class PauseFactory(DjangoModelFactory):
    """A job type that is held back until somebody resumes it."""

    class Meta:
        model = Pause

    class Params:
        now = factory.LazyFunction(clock.now)
        of_queue = factory.Trait(kind="queue", name="default")
        over = factory.Trait(paused_until=at(seconds=1))

    kind = "type"
    name = "shop.charge"
    actor = "ada"
    reason = "the provider asked for it"
    created_at = at(minutes=1)


class JobFactory(DjangoModelFactory):
    """A job that is due now, in the state of a trait: ``queued`` without one."""

    class Meta:
        model = Job
        skip_postgeneration_save = True

    class Params:
        now = factory.LazyFunction(clock.now)
        ran = factory.Trait(fence=1, code_version="test")
        errored = factory.Trait(ran=True, error_class="unknown", error_type="ValueError", error_fingerprint=ERROR)
        queued = factory.Trait(state="queued")
        scheduled = factory.Trait(state="scheduled", available_at=at(hours=-1))
        running = factory.Trait(
            ran=True,
            state="running",
            attempt_id=factory.LazyFunction(uuid.uuid4),
            lease_owner=factory.LazyFunction(uuid7),
            lease_child=1,
            lease_expires_at=factory.LazyAttribute(lambda row: row.now + LEASE),
        )
        failed = factory.Trait(errored=True, state="failed", available_at=at(hours=-1), unknown_count=1)
        succeeded = factory.Trait(ran=True, state="succeeded", finished_at=at(seconds=5))
        dead_lettered = factory.Trait(
            errored=True, state="dead_lettered", dead_at=at(seconds=5), dead_reason="permanent"
        )
        discarded = factory.Trait(dead_lettered=True, resolution="discarded", finished_at=at(seconds=1))
        cancelled = factory.Trait(state="cancelled", finished_at=at(seconds=5))
        suspect = factory.Trait(isolation="child", lost_count=1, exit_lost_count=1)
        group_suspect = factory.Trait(isolation="worker", lost_count=2, silent_lost_count=2)

    id = factory.LazyFunction(uuid7)
    job_type = JOB_TYPE
    queue_name = QUEUE
    payload_fingerprint = fingerprint(ARGUMENTS)
    state = "queued"
    created_at = at(minutes=1)
    generation_started_at = factory.SelfAttribute("created_at")
    available_at = factory.SelfAttribute("created_at")

    @factory.post_generation
    def last_attempt(job: Job, create: bool, extracted: Any, **values: Any) -> Attempt | None:  # noqa: N805
        """Open or close the row of the last attempt, as the job's state demands; ``last_attempt__…`` sets its columns."""
        if not create or not job.fence:
            return None
        traits = {
            "running": {"open": True},
            "succeeded": {"succeeded": True},
            "failed": {"failed": True},
            "dead_lettered": {"failed": True},
        }
        ids = {"id": job.attempt_id, "worker_id": job.lease_owner} if job.attempt_id else {}
        return AttemptFactory(
            job=job, number=job.fence, **{**traits.get(job.state, {"released": True}), **ids, **values}
        )

    @factory.post_generation
    def payload(job: Job, create: bool, extracted: Any, **values: Any) -> JobPayload | None:  # noqa: N805
        """Store the payload; ``payload__arguments`` and the like set its columns."""
        return JobPayloadFactory(job=job, **values) if create else None


class JobPayloadFactory(DjangoModelFactory):
    """The payload of a job."""

    class Meta:
        model = JobPayload

    job = factory.SubFactory(JobFactory)
    arguments = ARGUMENTS


class AttemptFactory(DjangoModelFactory):
    """One attempt, with a trait per outcome; ``open`` without one."""

    class Meta:
        model = Attempt

    class Params:
        now = factory.LazyFunction(clock.now)
        closed = factory.Trait(finished_at=at(seconds=5))
        open = factory.Trait(outcome=None, finished_at=None)
        succeeded = factory.Trait(closed=True, outcome="succeeded")
        failed = factory.Trait(
            closed=True, outcome="failed", error_class="unknown", error_type="ValueError", error_fingerprint=ERROR
        )
        lost = factory.Trait(closed=True, outcome="lost", loss_cause="exit", exit_status=-9)
        released = factory.Trait(closed=True, outcome="released")
        snoozed = factory.Trait(closed=True, outcome="snoozed")
        cancelled = factory.Trait(closed=True, outcome="cancelled")

    id = factory.LazyFunction(uuid.uuid4)
    job = factory.SubFactory(JobFactory)
    number = 1
    generation = 1
    worker_id = factory.LazyFunction(uuid7)
    worker_child = 1
    worker_name = "worker"
    code_version = "test"
    started_at = at(seconds=30)
    lease_seconds = LEASE.total_seconds()


class IdempotencyKeyFactory(DjangoModelFactory):
    """A key of no tenant, held by a job of the default type for seven days after its end."""

    class Meta:
        model = IdempotencyKey

    class Params:
        now = factory.LazyFunction(clock.now)

    job_id = factory.LazyFunction(uuid7)
    scope = scope_text("", JOB_TYPE)
    key = "order:1"
    payload_fingerprint = fingerprint(ARGUMENTS)
    ttl_seconds = 7 * 86400.0
    created_at = at(minutes=1)


class DuplicateEnqueueFactory(DjangoModelFactory):
    """A duplicate that was answered just now."""

    class Meta:
        model = DuplicateEnqueue

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    outcome = "duplicate"
    created_at = at(seconds=1)


class SideEffectFactory(DjangoModelFactory):
    """An effect of a job, with a trait per state."""

    class Meta:
        model = SideEffect

    class Params:
        now = factory.LazyFunction(clock.now)
        planned = factory.Trait(state="planned")
        in_flight = factory.Trait(state="in_flight")
        ambiguous = factory.Trait(state="ambiguous")
        rejected = factory.Trait(state="rejected")
        succeeded = factory.Trait(state="succeeded", resolved_by="send", resolved_at=at(seconds=1))
        abandoned = factory.Trait(state="abandoned", resolved_by="policy", resolved_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    job = factory.SubFactory(JobFactory)
    provider = "payments"
    business_key = factory.Sequence(lambda number: f"order:{number}")
    name = "charge"
    state = "planned"
    request = "{}"
    request_digest = fingerprint("{}")
    dedupe = "key"
    created_at = at(seconds=20)


class SendFactory(DjangoModelFactory):
    """A request that is open and inside its deadline; ``late`` is past it, the others are settled."""

    class Meta:
        model = Send

    class Params:
        now = factory.LazyFunction(clock.now)
        late = factory.Trait(deadline_at=at(seconds=1))
        confirmed = factory.Trait(outcome="confirmed", finished_at=at(seconds=1))
        rejected = factory.Trait(outcome="rejected", finished_at=at(seconds=1))
        not_applied = factory.Trait(outcome="not_applied", finished_at=at(seconds=1))
        unknown = factory.Trait(outcome="unknown", finished_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    effect = factory.SubFactory(SideEffectFactory)
    job = factory.SelfAttribute("effect.job")
    attempt = factory.SubFactory(AttemptFactory, job=factory.SelfAttribute("..job"))
    fence = 1
    number = 1
    epoch = 0
    provider_key = "dj1_" + "a" * 40
    request_digest = fingerprint("{}")
    started_at = at(seconds=5)
    deadline_at = at(seconds=-5)
    settled_at = factory.LazyAttribute(lambda row: row.deadline_at + timedelta(seconds=5))
