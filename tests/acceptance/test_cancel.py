"""Cancelling what a real worker runs: heard soon, heeded after a kill, and too late for what was faster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from django_jobs.operate.cancel_requests import Fate, fates
from django_jobs.operate.history import history_of
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, states
from tests.acceptance.handlers import listening, row, work
from tests.acceptance.workers import Witness, wait_for
from tests.integration.operate.test_cancel import decided

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
HEARD_WITHIN = 3.0  # seconds on a busy machine; the child asks every 0.9 s and its loop turns every 0.5 s


def _fate() -> Fate:
    return fates(history_of(Job.objects.get(), using="default"))[0].fate


def test_running_handler_hears_it_within_moments(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Every thread is busy, and still the handler hears the request, ends, and the job is cancelled; its worker goes on."""
    listening.enqueue(n=1, seconds=60)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), what="the start")

    asked = time.monotonic()
    decided(Job.objects.get())
    wait_for(lambda: states()["cancelled"], seconds=20, what="the cancel")
    heard = witness.lines("heard")[0]["at"] - asked

    assert heard <= HEARD_WITHIN, f"heard after {heard:.2f} s"
    assert Attempt.objects.get().outcome == "cancelled"
    assert _fate() is Fate.HEARD
    assert rows() == {}
    work.enqueue(n=2)
    wait_for(lambda: states()["succeeded"], seconds=20, what="the next job")
    assert worker.process.poll() is None
    assert verify(using="default").violated == ()


def test_killed_worker_with_a_request(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """The whole worker dies before its handler hears: another one takes the job back and cancels it."""
    work.enqueue(n=1, seconds=60)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), what="the start")
    decided(Job.objects.get())

    worker.kill_group()
    make_worker(threads=1).start()
    wait_for(lambda: states()["cancelled"], seconds=60, what="the rescue")

    assert Attempt.objects.get().outcome == "lost"
    assert _fate() is Fate.HEEDED
    assert len(witness.lines("start")) == 1, "it never ran again"
    assert rows() == {}
    assert verify(using="default").violated == ()


@pytest.mark.postgres  # on SQLite an atomic handler holds the only write lock until its end
def test_plain_function_goes_on_and_wins(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A function without a context cannot hear: its success stands, and the request was too late."""
    row.enqueue(n=1, seconds=2.5)
    make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), what="the start")
    decided(Job.objects.get())
    wait_for(lambda: states()["succeeded"], seconds=20, what="the success")

    assert _fate() is Fate.TOO_LATE
    assert rows() == {1: 1}


def test_stopping_worker_with_a_request(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A handler that does not listen is given back at the end of the grace, and cancelled instead of run elsewhere."""
    work.enqueue(n=1, seconds=60)
    worker = make_worker(threads=1, arguments=("--grace", "1")).start()
    wait_for(lambda: witness.lines("start"), what="the start")
    decided(Job.objects.get())

    worker.term()

    assert worker.wait(seconds=20) == 3
    assert Attempt.objects.get().outcome == "released"
    assert states() == {"cancelled": 1}
    assert _fate() is Fate.HEEDED
