"""Renewal: only growing progress extends a lease, and only up to the end of the total run time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from django_jobs import clock, store
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Job
from tests.databases import Server
from tests.factories import LEASE, JobFactory
from tests.scenes import NOON, held

FAR = NOON + timedelta(days=1)


def _renew(job: Job, progress: int, *, at: datetime, ends_at: datetime = FAR, total: int | None = None) -> datetime:
    with clock.override(lambda: at):
        return store.renew(held(job), progress=progress, total=total, lease=LEASE, ends_at=ends_at)


def _running(**values: object) -> Job:
    job: Job = JobFactory(running=True, now=NOON, **values)
    return job


def test_growing_progress_extends_the_lease_from_now(database: Server) -> None:
    """The lease is counted from the renewal, and progress is kept on the job and its attempt."""
    job = _running()
    moment = NOON + timedelta(seconds=30)

    expires = _renew(job, 5, at=moment, total=10)

    job.refresh_from_db()
    assert expires == job.lease_expires_at == moment + LEASE
    assert (job.progress, job.progress_total, job.attempts.get().progress) == (5, 10, 5)
    assert (job.state, job.revision) == ("running", 1)


@pytest.mark.parametrize("value", [4, 5])
def test_f14_progress_that_does_not_grow_is_refused(database: Server, value: int) -> None:
    """A handler that reports the same again has not moved on: its lease must be able to end."""
    job = _running(progress=5)
    before = Job.objects.values().get()

    with pytest.raises(LeaseLostError):
        _renew(job, value, at=NOON)
    assert Job.objects.values().get() == before


def test_first_progress_may_be_anything(database: Server) -> None:
    """Nothing was reported since the claim, so zero and negative values grow too."""
    job = _running()

    assert _renew(job, -3, at=NOON) == NOON + LEASE


def test_lease_never_passes_the_end_of_the_run_time(database: Server) -> None:
    """However often it is renewed, it ends when the attempt has run long enough."""
    job = _running()
    ends_at = NOON + timedelta(seconds=90)

    assert _renew(job, 1, at=NOON + timedelta(seconds=60), ends_at=ends_at) == ends_at
    assert _renew(job, 2, at=NOON + timedelta(seconds=80), ends_at=ends_at) == ends_at


def test_renewal_never_shortens_a_lease(database: Server) -> None:
    """A clock that steps back does not take away what was promised."""
    job = _running()
    long = job.lease_expires_at

    assert _renew(job, 1, at=NOON - timedelta(hours=1)) == long


def test_expired_lease_that_nobody_took_may_be_renewed(database: Server) -> None:
    """Until somebody takes the job its holder owns it, and may go on."""
    job = _running()
    moment = NOON + LEASE + timedelta(seconds=5)

    assert _renew(job, 1, at=moment) == moment + LEASE
