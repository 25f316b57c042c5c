"""Declaring a handler for one test, claiming its job, and running the attempt in a thread of its own."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs import job
from django_jobs.define.definition import DurableJob
from django_jobs.define.registry import unregister
from django_jobs.models import Attempt, Job
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.execute import execute
from django_jobs.worker.soft_timeout import SoftTimeout

JOB_TYPE = "tests.handler"
TABLE = "handler_rows"
AGAIN = {"failed", "queued"}  # another attempt comes; one that is due within a second is queued at once

Declare = Callable[..., DurableJob[..., Any]]


@pytest.fixture
def declare() -> Iterator[Declare]:
    """Make a function the handler of the test's job type."""

    def declared(func: Callable[..., Any], **options: Any) -> DurableJob[..., Any]:
        return job(type=JOB_TYPE, **options)(func)

    yield declared
    unregister(JOB_TYPE)


@pytest.fixture
def table(transactional_db: None) -> Iterator[Callable[[], list[int]]]:
    """A plain table for what handlers write; call it to read what is committed."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(f"CREATE TABLE {TABLE} (n integer)")
    yield written
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def write(n: int) -> None:
    """Write a row on the connection of this thread."""
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (n) VALUES (%s)", [n])


def written() -> list[int]:
    """Return the committed rows."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT n FROM {TABLE} ORDER BY n")
        return [n for (n,) in cursor.fetchall()]


def claimer() -> Claimer:
    """Return what claims for a child with the types that are declared now."""
    config = WorkerConfig(
        worker_id=str(uuid.uuid4()), name="test", database="default", queues=(), threads=1, processes=1, grace=5, poll=1
    )
    return Claimer(config)


def take() -> RunningAttempt:
    """Claim the one job that is due."""
    found = claimer().take(1, 0)
    assert len(found) == 1, "a job is due"
    return found[0]


@dataclass(slots=True)
class Thread:
    """A thread that runs attempts one after the other, as one of a pool does."""

    attempts: list[RunningAttempt]
    after: Callable[[], Any] = lambda: None
    seen: list[Any] = field(default_factory=list)

    def __call__(self) -> None:
        try:
            for attempt in self.attempts:
                execute(attempt)
                self.seen.append(self.after())
        finally:
            connections.close_all()


def run(*attempts: RunningAttempt, after: Callable[[], Any] = lambda: None) -> list[Any]:
    """Run attempts in one thread; returns what ``after`` returned in it after each."""
    work = Thread(list(attempts), after)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive(), "the attempt ended"
    assert len(work.seen) == len(attempts), "no attempt ended its thread"
    return work.seen


def run_one() -> Attempt:
    """Claim and run the one job that is due; returns the attempt's row."""
    attempt = take()
    run(attempt)
    return Attempt.objects.get(pk=attempt.attempt_id)


def the_job() -> Job:
    """Return the one job."""
    return Job.objects.select_related("payload").get()


class Looks:
    """Counts the looks at a handler, so that one can wait until it was looked at."""

    def __init__(self) -> None:
        self.many = 0
        self._more = threading.Condition()

    def looked(self) -> None:
        """Note one."""
        with self._more:
            self.many += 1
            self._more.notify_all()

    def wait(self, more: int = 3) -> None:
        """Wait until so many looks have come and gone."""
        with self._more:
            until = self.many + more
            assert self._more.wait_for(lambda: self.many >= until, timeout=30), "somebody looks"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Return what counts the looks of the watching thread."""
    counted, look = Looks(), SoftTimeout.look

    def looking(soft: SoftTimeout) -> None:
        look(soft)
        counted.looked()

    monkeypatch.setattr(SoftTimeout, "look", looking)
    return counted
