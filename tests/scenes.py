"""What tests of the store say again and again: who holds a job, what a worker asks for, how an attempt failed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django_jobs import telemetry
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.ids import uuid7
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import ErrorClass, LossCause
from django_jobs.models import Attempt, DuplicateEnqueue, IdempotencyKey, Job, JobPayload
from django_jobs.store import ClaimRequest, Failure, KnownType, Loss, NewJob
from django_jobs.store.completion import Given
from tests.factories import JOB_TYPE, LEASE, QUEUE

BUDGET = timedelta(seconds=60)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)

Rows = dict[str, list[dict[str, Any]]]


def held(job: Job, *, attempt_id: uuid.UUID | None = None) -> Given:
    """Return the proof of the given attempt, else of the one that owns the job, else of its last one."""
    last = Attempt.objects.filter(job_id=job.pk).order_by("-number").values_list("pk", flat=True).first()
    return Given(
        job_id=job.pk,
        attempt_id=attempt_id or job.attempt_id or last or uuid.uuid4(),
        number=job.fence,
        using="default",
    )


def known(job_type: str = JOB_TYPE, version: int = 1, lease: timedelta = LEASE) -> KnownType:
    """Return a type that a worker can run."""
    return KnownType(job_type=job_type, payload_version=version, lease=lease, code_version="test")


def request(room: int = 1, *, types: Sequence[KnownType] | None = None, **changes: Any) -> ClaimRequest:
    """Return what a worker with room for so many jobs asks for."""
    values: dict[str, Any] = {
        "queues": [QUEUE],
        "types": [known()] if types is None else types,
        "attempt_ids": [uuid.uuid4() for _ in range(room)],
        "worker_id": uuid7(),
        "worker_child": 1,
        "worker_name": "worker",
    }
    return ClaimRequest(**{**values, **changes})


def failure(**counters: int) -> Failure:
    """Return an unknown error, and the counters after it."""
    error = ErrorRecord(type="ValueError", message="no", traceback="Traceback …", fingerprint="v1:" + "f" * 64)
    return Failure(error=error, error_class=ErrorClass.UNKNOWN, counters=Counters(**counters))


def loss(cause: LossCause = LossCause.EXIT, **changes: Any) -> Loss:
    """Return the verdict that an attempt is gone and the job is due at once."""
    values: dict[str, Any] = {"cause": cause, "counters": Counters(), "delay": timedelta(0), "dead_reason": None}
    return Loss(**{**values, **changes})


def new_job(**changes: Any) -> NewJob:
    """Return a job without a key, due at once."""
    values: dict[str, Any] = {
        "job_id": uuid7(),
        "job_type": JOB_TYPE,
        "queue_name": QUEUE,
        "priority": 0,
        "tenant": "",
        "payload_version": 1,
        "payload_fingerprint": "v1:" + "0" * 64,
        "arguments": "{}",
        "key_scope": "",
        "key": "",
        "ttl_seconds": 60.0,
        "replaces": None,
        "run_after": None,
        "delay": None,
        "useful_for": None,
        "owner": "",
        "resource": "",
        "serial_key": "",
        "serial_skips": False,
        "correlation_id": "",
        "subject": "",
        "traceparent": "",
    }
    return NewJob(**{**values, **changes})


def everything() -> Rows:
    """Return every column of every row that a transition may write."""
    models = (Job, Attempt, JobPayload, IdempotencyKey, DuplicateEnqueue)
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


class Told:
    """The telemetry of a block, as a list of (event, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __enter__(self) -> Told:
        self._end = telemetry.subscribe(lambda event, fields: self.events.append((event, fields)))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def named(self, event: str) -> list[dict[str, object]]:
        """Return the fields of each event of this name."""
        return [fields for name, fields in self.events if name == event]
