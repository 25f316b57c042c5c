"""The two faults that need a hand at the right moment: a killed child and a frozen worker."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django_jobs.models import Attempt, Job
from django_jobs.store.times import read_now
from testproject.demo.errors import DemoError
from testproject.demo.ordering import Placed
from testproject.demo.waiting import Patience
from testproject.demo.workers import Worker, Workers
from testproject.payments.process import ProviderProcess

CALL_SECONDS = 60.0  # for the provider to hold a call, worker start included
LOSS_SECONDS = 30.0
TAKEOVER_SECONDS = 120.0
REFUSAL_SECONDS = 60.0
PAST_LEASE = timedelta(seconds=1)  # how far past its lease a worker stays frozen at least
PROBE_SECONDS = 0.5
FREEZES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A child process that was killed while the provider held its answer."""

    placed: Placed
    request: int
    worker: str
    child: int
    pid: int
    attempt_id: UUID
    attempt_number: int
    unanswered: bool  # the provider still held its answer when the process was gone, so nobody can have recorded it


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A worker that was stopped while the provider held its answer."""

    placed: Placed
    request: int
    worker: Worker
    processes: int
    attempt_id: UUID
    attempt_number: int
    frozen_at: datetime
    lease_ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """The same worker after it was let go on, and who had taken its job over meanwhile."""

    frozen: Frozen
    woken_at: datetime
    taken_over_by: str


def held_call(provider: ProviderProcess, placed: Placed, patience: Patience) -> dict[str, Any]:
    """Wait until the provider has applied the order's charge and holds the answer; return that event."""
    mine: list[dict[str, Any]] = []

    def look() -> dict[str, Any] | None:
        mine[:] = [event for event in provider.events() if event["order_id"] == placed.order.pk]
        return next((event for event in mine if event["kind"] == "held"), None)

    held = patience.until(f"the provider to hold the charge of {placed.order.number}", look, seconds=CALL_SECONDS)
    if not any(event["kind"] == "applied" and event["n"] == held["n"] for event in mine):
        raise DemoError(f"The provider holds the call of {placed.order.number}, but has not applied its charge.")
    return held


def kill_child(provider: ProviderProcess, workers: Workers, placed: Placed, patience: Patience) -> Killed:
    """Kill the child process that waits for the provider's answer about an order, and wait until its loss is known."""
    held = held_call(provider, placed, patience)
    attempt = _open_attempt(placed)
    worker = workers.named(attempt.worker_name)
    child = worker.child(attempt.worker_child)
    if child is None:
        raise DemoError(f"Child {attempt.worker_child} of {worker.name}, which charges {placed.order.number}, is gone.")
    os.kill(child.pid, signal.SIGKILL)
    patience.until(
        f"the loss of attempt {attempt.number} of {placed.order.number} to be recorded",
        lambda: Attempt.objects.filter(pk=attempt.pk, outcome__isnull=False).exists(),
        seconds=LOSS_SECONDS,
    )
    requests = provider.requests(placed.order.pk)
    unanswered = all(request["status"] is None for request in requests if request["n"] == held["n"])
    provider.release(placed.order.pk)
    return Killed(
        placed=placed,
        request=held["n"],
        worker=worker.name,
        child=attempt.worker_child,
        pid=child.pid,
        attempt_id=attempt.pk,
        attempt_number=attempt.number,
        unanswered=unanswered,
    )


def freeze_worker(
    provider: ProviderProcess, worker: Worker, placed: Placed, patience: Patience, *, sqlite_file: Path | None
) -> Frozen:
    """Stop a whole worker while the provider holds its call, outside of any transaction of its own."""
    held = held_call(provider, placed, patience)
    attempt = _open_attempt(placed)
    count = worker.freeze(patience)
    for _ in range(FREEZES):
        if sqlite_file is None or _may_write(sqlite_file):
            break
        # It stands inside a write and would hold the file's one lock from everybody: not the fault that is meant.
        worker.wake()
        count = worker.freeze(patience)
    else:
        raise DemoError(f"{worker.name} was inside a write each of the {FREEZES} times that it was frozen.")
    job = Job.objects.get(pk=placed.job.id)
    if job.attempt_id != attempt.pk or job.lease_expires_at is None:
        raise DemoError(f"{worker.name} had already lost {placed.order.number} when it was frozen.")
    return Frozen(
        placed=placed,
        request=held["n"],
        worker=worker,
        processes=count,
        attempt_id=attempt.pk,
        attempt_number=attempt.number,
        frozen_at=read_now("default"),
        lease_ends_at=job.lease_expires_at,
    )


def wake_worker(provider: ProviderProcess, frozen: Frozen, patience: Patience) -> Woken:
    """Let a frozen worker go on once its lease is over and another one has done its job; await its late write."""
    number = frozen.placed.order.number
    successor = patience.until(
        f"another worker to finish {number} in place of the frozen {frozen.worker.name}",
        lambda: Attempt.objects.filter(job_id=frozen.placed.job.id, outcome="succeeded").first(),
        seconds=TAKEOVER_SECONDS,
    )
    patience.until(
        f"the lease of the frozen attempt on {number} to end",
        lambda: read_now("default") > frozen.lease_ends_at + PAST_LEASE,
        seconds=TAKEOVER_SECONDS,
    )
    woken_at = read_now("default")
    provider.release(frozen.placed.order.pk)
    frozen.worker.wake()
    patience.until(
        f"the late write of {frozen.worker.name} about {number} to be refused",
        lambda: Attempt.objects.filter(pk=frozen.attempt_id, refused_count__gt=0).exists(),
        seconds=REFUSAL_SECONDS,
    )
    return Woken(frozen=frozen, woken_at=woken_at, taken_over_by=successor.worker_name)


def _open_attempt(placed: Placed) -> Attempt:
    attempt = Attempt.objects.filter(job_id=placed.job.id, outcome__isnull=True).first()
    if attempt is None:
        raise DemoError(f"The provider holds the charge of {placed.order.number}, but no attempt is open for it.")
    return attempt


def _may_write(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=PROBE_SECONDS, isolation_level=None)) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
    return True
