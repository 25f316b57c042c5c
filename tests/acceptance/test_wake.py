"""Workers that sleep: woken by a notification at once, by the poll at the latest, and only if it concerns them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_jobs import clock
from django_jobs.models import QueueControl
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import row
from tests.acceptance.workers import QUICK, Witness, WorkerProcess, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

RARELY = {**QUICK, "JOBS_POLL": "90"}  # what starts sooner was not found by a poll

Rows = Callable[[], Counter[int]]


def asleep(worker: WorkerProcess) -> WorkerProcess:
    """Wait until a worker has asked to be notified."""
    worker.wait_ready(seconds=120)
    wait_for(
        lambda: QueueControl.objects.filter(queue_name="default", idle_until__gt=clock.now()).exists(),
        what=f"an announced sleep: {worker.text}",
    )
    return worker


def test_sleeping_worker_starts_a_job_long_before_its_poll(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """With two children of one thread, each of two jobs that come one after the other finds the free one at once."""
    worker = asleep(make_worker(threads=1, processes=2, times=RARELY).start())

    row.enqueue(n=1, seconds=60)
    first = wait_for(lambda: witness.lines("start", n=1), seconds=40, what="the first start")[0]
    row.enqueue(n=2)
    second = wait_for(lambda: witness.lines("start", n=2), seconds=40, what="the second start")[0]

    assert first["pid"] != second["pid"]
    assert not witness.lines("end", n=1), "the first was still running"
    wait_for(lambda: rows() == {2: 1}, what="the end of the second")
    assert worker.is_running()


def test_r77_lost_notification_costs_one_poll(make_worker: MakeWorker, rows: Rows) -> None:
    """Nobody tells the sleeping worker; it looks by itself."""
    asleep(make_worker(times={**QUICK, "JOBS_POLL": "1"}).start())

    with override_settings(DJANGO_JOBS={"NOTIFY": False}):
        row.enqueue(n=1)
    wait_until_done(seconds=60)

    assert states() == {"succeeded": 1}


def test_job_of_a_long_transaction_is_found_by_the_poll(make_worker: MakeWorker, rows: Rows) -> None:
    """It was stored before anybody slept, so its commit notifies nobody; the worker that sleeps by then finds it."""
    with transaction.atomic():
        row.enqueue(n=1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_jobs_queuecontrol")
            assert cursor.fetchone() == (0,)
        worker = make_worker(times={**QUICK, "JOBS_POLL": "1"}).start()
        asleep(worker)
    wait_until_done(seconds=60)

    assert rows() == {1: 1}


def test_job_due_later_is_started_when_it_is_due(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """An idle worker sleeps until the next due time, not until its next poll."""
    row.using(run_after=timedelta(seconds=4)).enqueue(n=1)
    make_worker(times=RARELY).start().wait_ready()

    wait_for(lambda: witness.lines("start", n=1), seconds=50, what="the start")
    wait_until_done(seconds=60)

    assert rows() == {1: 1}
