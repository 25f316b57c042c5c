"""Rows of workers: register, beat, stop."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django_jobs.conf import get_settings
from django_jobs.domain.served import Served
from django_jobs.models import Worker
from django_jobs.store.times import database_now, read_now


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """What a worker tells about itself when it starts."""

    worker_id: uuid.UUID
    name: str
    host: str
    pid: int
    queues: Sequence[str]
    job_types: Sequence[str]
    threads: int
    processes: int
    code_version: str
    coroutines: int = 0  # beside the threads
    excluded: Sequence[str] = ()  # queues that it leaves out
    kinds: Sequence[str] = ()  # job types with their payload versions


def register(record: WorkerRecord, *, using: str) -> None:
    """Announce a worker and what it can run; the first heartbeat."""
    now = database_now(using)
    Worker.objects.using(using).update_or_create(
        id=record.worker_id,
        defaults={
            "name": record.name[:128],
            "host": record.host[:255],
            "pid": record.pid,
            "queues": Served(names=tuple(record.queues), excluded=tuple(record.excluded)).to_text(),
            "job_types": json.dumps(list(record.job_types)),
            "kinds": json.dumps(list(record.kinds)),
            "threads": record.threads,
            "coroutines": record.coroutines,
            "processes": record.processes,
            "code_version": record.code_version[:64],
            "started_at": now,
            "heartbeat_at": now,
            "stopping_at": None,
            "stopped_at": None,
        },
    )


def beat(worker_id: uuid.UUID, *, using: str) -> bool:
    """Say that the worker lives; False when its row is gone and it must register again."""
    rows = Worker.objects.using(using).filter(pk=worker_id).update(heartbeat_at=database_now(using))
    return rows == 1


def ask_to_drain(worker_id: uuid.UUID, *, using: str) -> bool:
    """Ask a worker to take no more jobs and stop; False when it has stopped."""
    asked = Worker.objects.using(using).filter(pk=worker_id, stopped_at__isnull=True)
    return asked.update(drain_asked_at=database_now(using)) == 1


def is_asked_to_drain(worker_id: uuid.UUID, *, using: str) -> bool:
    """Say whether somebody asked this worker to stop."""
    return Worker.objects.using(using).filter(pk=worker_id, drain_asked_at__isnull=False).exists()


def note_stopping(worker_id: uuid.UUID, *, using: str) -> None:
    """Record that the worker takes no more jobs."""
    Worker.objects.using(using).filter(pk=worker_id, stopping_at__isnull=True).update(stopping_at=database_now(using))


def note_stopped(worker_id: uuid.UUID, *, using: str) -> None:
    """Record that the worker has ended; what it still held can be taken at once."""
    Worker.objects.using(using).filter(pk=worker_id).update(stopped_at=database_now(using))


def announced(*, using: str) -> set[str]:
    """Return the kinds that a live worker can run."""
    alive = Worker.objects.using(using).filter(
        stopped_at__isnull=True, heartbeat_at__gt=read_now(using) - get_settings().silent_after
    )
    return {kind for kinds in alive.values_list("kinds", flat=True) for kind in json.loads(kinds)}
