"""F12: a process whose clock is wrong: the database's alone decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection

from django_jobs import store
from django_jobs.models import Job
from tests.scenes import held, known, new_job, request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("hours", [-1, 1])
def test_f12_lease_is_the_database_s_whatever_the_process_believes(hours: int) -> None:
    """A process an hour off claims, renews and is refused as any other: the stored times are the database's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        truth = cursor.fetchone()[0]
    with time_machine.travel(datetime.now(UTC) + hours * HOUR, tick=True):
        store.enqueue(new_job(), using="default")
        (claimed,) = store.claim(request(types=[known(lease=timedelta(seconds=60))]), using="default")
        job = Job.objects.get(pk=claimed.job_id)
        assert abs(job.lease_expires_at - truth - timedelta(seconds=60)) < timedelta(seconds=20)
        ends = truth + timedelta(minutes=10)
        renewed = store.renew(held(job), progress=1, total=None, lease=timedelta(seconds=90), ends_at=ends)
        assert abs(renewed - truth - timedelta(seconds=90)) < timedelta(seconds=20)
