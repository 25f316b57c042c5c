"""Code that runs past its lease, and progress that renews it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, outcomes, wait_until_done
from tests.acceptance.handlers import bounded, frozen_call, late, short_lease, spin, spin_in_transaction, work
from tests.acceptance.workers import Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


def test_f17_code_that_never_returns_is_ended_and_its_process_replaced(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """A loop, a call and an open transaction end as HardTimeoutError, class unknown; neither they nor a neighbour is lost."""
    spinning = [spin.enqueue(how=how).id for how in ("python", "call")] + [spin_in_transaction.enqueue().id]
    make_worker(threads=4).start()
    first = wait_for(lambda: len(witness.lines("start")) == 3 and witness.lines("start"), what="the starts")[0]
    neighbour = work.enqueue(n=1, seconds=0.5).id

    wait_until_done(seconds=40)

    for attempt in Attempt.objects.filter(job_id__in=spinning):
        assert (attempt.outcome, attempt.error_class) == ("failed", "unknown")
        assert attempt.error_type.endswith("HardTimeoutError")
    assert Attempt.objects.filter(job_id__in=spinning).count() == 3
    assert set(Job.objects.filter(pk__in=spinning).values_list("lost_count", flat=True)) == {0}
    assert "lost" not in outcomes()
    assert Job.objects.get(pk=neighbour).state == "succeeded"
    assert rows() == {1: 1}, "what the ended transaction wrote is gone"
    work.enqueue(n=2)
    wait_until_done(seconds=30)
    assert witness.lines("start", n=2)[0]["pid"] != first["pid"], "a fresh process serves on"


@pytest.mark.slow
def test_late_thread_can_neither_finish_nor_write(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A handler that wakes after it was ended is refused, in a process that lets its neighbours finish first."""
    job_id = late.enqueue(n=1, seconds=3.0).id
    neighbour = work.enqueue(n=2, seconds=4.0).id
    make_worker(threads=2, arguments=("--grace", "20")).start()

    wait_until_done(seconds=40)
    wait_for(lambda: witness.lines("refused"), what="the late act")

    assert Job.objects.get(pk=job_id).state == "dead_lettered"
    assert Attempt.objects.get(job_id=job_id).outcome == "failed"
    assert Attempt.objects.get(job_id=neighbour).outcome == "succeeded"
    assert rows() == {2: 1}


def test_f14_progress_keeps_the_lease_r03(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A job of 5 s under a lease of 2 s that tells progress each half second needs one attempt among four threads."""
    job_id = short_lease.enqueue(n=1, seconds=5.0, report=True).id
    for _ in range(2):
        make_worker(threads=2).start()

    wait_until_done(seconds=40)

    assert outcomes() == {"succeeded": 1}
    attempt = Attempt.objects.get(job_id=job_id)
    assert attempt.progress is not None
    assert 5 <= attempt.progress <= 10
    assert rows() == {1: 1}


def test_f14_silence_loses_the_lease_and_the_late_finish_is_refused_r03(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """The same job without progress is ended before its lease is over, and a second attempt runs and succeeds."""
    job_id = frozen_call.enqueue(n=1, first=5.0).id
    workers = [make_worker(threads=2).start() for _ in range(2)]

    wait_until_done(seconds=40)

    attempts = list(Attempt.objects.filter(job_id=job_id).order_by("number"))
    assert [attempt.outcome for attempt in attempts] == ["failed", "succeeded"]
    assert rows() == {1: 1}
    assert any("ran past its lease" in worker.text for worker in workers)


@pytest.mark.slow
def test_progress_cannot_pass_the_total_run_time(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Progress without an end is ended at max_runtime."""
    job_id = bounded.enqueue(n=1).id
    worker = make_worker(threads=1).start()
    start = wait_for(lambda: witness.lines("start"), what="the start")[0]

    wait_for(lambda: Attempt.objects.filter(job_id=job_id, outcome="failed").exists(), what="the end")

    assert time.monotonic() - start["at"] < 8, worker.text
    assert Attempt.objects.filter(job_id=job_id).order_by("number").first().error_type.endswith("HardTimeoutError")
