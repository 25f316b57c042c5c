"""Public failure reports about recovery, maintenance and stops, as tests against real workers; the number is the report's."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.models import Attempt, Job, Worker
from django_jobs.testing.proxy import PostgresProxy
from django_jobs.worker.sweep import Sweep
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import row, steady, work
from tests.acceptance.workers import QUICK, Witness, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(900)]

Rows = Callable[[], Counter[int]]


@pytest.mark.postgres
def test_jobs_due_later_hold_no_lease_and_run_once_r04(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """50 jobs due later, all workers killed and started again meanwhile: no attempt before they are due, one each after."""
    due = clock.now() + timedelta(seconds=90)
    work.using(run_after=due).enqueue_many([{"n": n} for n in range(50)])
    first = [make_worker(threads=2).start().wait_ready() for _ in range(2)]
    assert (states(), Attempt.objects.count()) == ({"scheduled": 50}, 0)
    assert not Job.objects.exclude(lease_owner=None).exists()
    for worker in first:
        worker.kill_group()
    for _ in range(2):
        make_worker(threads=2).start().wait_ready()
    assert clock.now() < due, "the machine was too slow for this test"
    assert (states(), Attempt.objects.count()) == ({"scheduled": 50}, 0)

    wait_until_done(seconds=240)

    assert outcomes() == {"succeeded": 50}
    assert rows() == Counter(dict.fromkeys(range(50), 1))
    assert min(Attempt.objects.values_list("started_at", flat=True)) >= due


@pytest.mark.postgres
def test_a_reaper_without_a_pause_harms_no_finished_job_r08(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """5,000 short jobs finish while somebody looks for lost ones all the time: all succeed at their first attempt."""
    row.enqueue_many([{"n": n} for n in range(5000)])
    looks, over = [0], threading.Event()

    def look() -> None:
        try:
            while not over.wait(0.05):
                assert Sweep("default").go_on(lambda: True)
                looks[0] += 1
        finally:
            connections.close_all()

    looking = threading.Thread(target=look)
    looking.start()
    worker = make_worker(threads=4, arguments=("--drain",)).start()
    assert worker.wait(seconds=300) == 0
    over.set()
    looking.join(timeout=20)

    print(f"\n{looks[0]} looks")
    assert looks[0] > 10
    assert outcomes() == {"succeeded": 5000}
    assert states() == {"succeeded": 5000}


@pytest.mark.postgres
def test_progress_keeps_short_leases_on_a_slow_database_r13(
    make_worker: MakeWorker, witness: Witness, rows: Rows, database_url: str
) -> None:
    """16 jobs of 10 s, leases of 2 s, progress each 200 ms, 100 ms more per reply: no attempt expires, each needs one."""
    steady.enqueue_many([{"n": n, "seconds": 10.0} for n in range(16)])
    with PostgresProxy(database_url, delay=0.1) as proxy:
        worker = make_worker(threads=16, database_url=proxy.url).start()
        make_worker(threads=1).start()  # another one that would take back what expires

        wait_until_done(seconds=240)
        worker.term()
        worker.wait(seconds=60)

    assert outcomes() == {"succeeded": 16}
    assert rows() == Counter(dict.fromkeys(range(16), 1))


@pytest.mark.postgres
def test_any_worker_does_the_maintenance_also_with_no_free_thread_r17(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Two workers with every thread busy; the one that is killed is rescued by the other within its periods."""
    workers = [make_worker(threads=1).start().wait_ready() for _ in range(2)]
    work.enqueue_many([{"n": n, "seconds": 60} for n in range(2)])
    wait_for(lambda: len(witness.lines("start")) == 2, seconds=180, what="both starts")
    pid = workers[0].child_pids[0]
    (held,) = {line["job"] for line in witness.busy() if line["pid"] == pid}

    workers[0].kill_group()
    at = time.monotonic()

    wait_for(lambda: Job.objects.get(pk=held).state == "queued", seconds=60, what="the rescue")
    print(f"\nrescued after {time.monotonic() - at:.1f} s (silent after {QUICK['JOBS_SILENT_AFTER']} s)")
    assert len(witness.lines("start")) == 2, "no thread was free meanwhile"


@pytest.mark.postgres
def test_a_worker_with_the_name_of_a_dead_one_owns_nothing_of_it_r26(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Killed and started again under the same name: the job is not its own, and recovers with a new token, not at once."""
    job_id = work.enqueue(n=1, seconds=3).id
    name = ("--name", "fixed")
    first = make_worker(threads=1, arguments=name).start()
    wait_for(lambda: witness.lines("start"), seconds=180, what="the start")
    beat = Worker.objects.get().heartbeat_at
    first.kill_group()
    make_worker(threads=1, arguments=name).start()

    wait_until_done(seconds=240)

    one, two = Attempt.objects.filter(job_id=job_id).order_by("number")
    assert (one.outcome, one.loss_cause, two.outcome) == ("lost", "silent", "succeeded")
    assert (one.worker_name, two.worker_name) == ("fixed", "fixed")
    assert one.worker_id != two.worker_id
    assert one.pk != two.pk
    assert one.finished_at is not None
    assert one.finished_at - beat >= timedelta(seconds=float(QUICK["JOBS_SILENT_AFTER"]))
    assert rows() == {1: 1}


def test_a_killed_child_is_noticed_replaced_and_counted_r28(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """kill -9 of a child: within 5 s its job waits again as lost and the child is replaced; the supervisor tells it."""
    job_id = work.enqueue(n=1, seconds=3).id
    worker = make_worker(threads=1).start()
    start = wait_for(lambda: witness.lines("start"), seconds=180, what="the start")[0]
    worker.kill_child(start["pid"])
    at = time.monotonic()

    lost = wait_for(lambda: Attempt.objects.filter(job_id=job_id, outcome="lost").first(), what="the loss")
    wait_for(lambda: worker.child_pids and start["pid"] not in worker.child_pids, what="the replacement")
    seconds = time.monotonic() - at

    print(f"\nnoticed and replaced after {seconds:.2f} s")
    assert seconds <= 5
    assert (lost.loss_cause, lost.exit_status) == ("exit", -signal.SIGKILL)
    wait_until_done(seconds=240)
    assert outcomes() == {"lost": 1, "succeeded": 1}
    assert f"ended with status -{int(signal.SIGKILL)}" in worker.text


@pytest.mark.postgres
def test_thirty_stops_charge_nothing_r29(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A job longer than the grace, stopped 30 times: released each time, due at once, its error budgets untouched."""
    job_id = work.enqueue(n=1, seconds=600).id
    for number in range(1, 31):
        worker = make_worker(threads=1, arguments=("--grace", "1")).start()
        worker.wait_for(lambda i=number: witness.lines("start", number=i), seconds=180, what=f"start {number}")
        worker.term()
        assert worker.wait(seconds=60) == 3
        job = Job.objects.get(pk=job_id)
        assert (job.state, job.free_count, job.fence) == ("queued", number, number)
        assert job.available_at <= clock.now()

    job.refresh_from_db()
    assert outcomes() == {"released": 30}
    assert (job.unknown_count, job.transient_count, job.lost_count, job.isolation) == (0, 0, 0, "")
