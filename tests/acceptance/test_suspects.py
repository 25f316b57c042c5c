"""Suspects: who runs alone, who is convicted, and who never is; ends on purpose are no deaths."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import group_killer, killer, long_twice, row, spin, work
from tests.acceptance.workers import DEFAULTS, QUICK, Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


@contextlib.contextmanager
def locked_jobs(database_url: str) -> Iterator[None]:
    """Hold every job row, as a stuck session does: nothing can be given back meanwhile."""
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job FOR NO KEY UPDATE")
        yield
        other.rollback()


def ended(job_id: object) -> Attempt:
    """Wait until the attempt is closed and return it."""
    return wait_for(lambda: Attempt.objects.filter(job_id=job_id, outcome__isnull=False).first(), what="the end")


@pytest.mark.postgres
def test_a_stop_that_cannot_give_back_is_no_death(
    make_worker: MakeWorker, witness: Witness, rows: Rows, database_url: str
) -> None:
    """Stopped at once while the row is locked: the attempt says that its worker ended it, and nothing is charged."""
    job_id = work.enqueue(n=1, seconds=60).id
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), seconds=180, what="the start")
    with locked_jobs(database_url):
        worker.term()
        worker.term()
        wait_for(lambda: not worker.child_pids, what="the end of the child")

    attempt, job = ended(job_id), Job.objects.get()
    assert (attempt.outcome, attempt.loss_cause, attempt.exit_status) == ("lost", "ended", 3)
    assert (job.state, job.lost_count, job.isolation, job.free_count) == ("queued", 0, "", 1)
    assert worker.wait(seconds=20) == 3


@pytest.mark.postgres
def test_a_replaced_child_charges_the_overdue_job_alone(
    make_worker: MakeWorker, witness: Witness, rows: Rows, database_url: str
) -> None:
    """A handler past its lease, and rows that are locked meanwhile: it fails as overdue, its neighbour is only ended."""
    overdue = spin.enqueue(how="python").id
    neighbour = work.enqueue(n=1, seconds=60).id
    times = {**QUICK, "JOBS_EXPIRED_PATIENCE": "60"}  # the overdue one is the supervisor's to judge
    worker = make_worker(threads=2, arguments=("--grace", "1"), times=times).start()
    first = wait_for(lambda: len(witness.lines("start")) == 2 and worker.child_pids, seconds=180, what="both starts")
    with locked_jobs(database_url):
        wait_for(lambda: not set(first) & set(worker.child_pids), what="the end of the child")

    hard, soft = ended(overdue), ended(neighbour)
    assert (hard.outcome, hard.error_class, hard.error_type.rpartition(".")[2]) == (
        "failed",
        "unknown",
        "HardTimeoutError",
    )
    assert (soft.outcome, soft.loss_cause, soft.exit_status) == ("lost", "ended", 64)
    assert Job.objects.get(pk=overdue).dead_reason == "unknown_budget"
    job = Job.objects.get(pk=neighbour)
    assert (job.lost_count, job.isolation, job.free_count) == (0, "", 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_child_killed_by_its_supervisor_is_no_death(make_worker: MakeWorker, witness: Witness) -> None:
    """A child that stands still when its worker stops is killed in the end; its job is no suspect."""
    job_id = work.enqueue(n=1, seconds=60).id
    worker = make_worker(threads=1, arguments=("--grace", "1")).start()
    wait_for(lambda: witness.lines("start"), seconds=180, what="the start")
    os.kill(worker.child_pids[0], signal.SIGSTOP)

    worker.term()
    worker.term()

    assert worker.wait(seconds=40) == 3
    attempt, job = ended(job_id), Job.objects.get()
    assert (attempt.loss_cause, attempt.exit_status, job.lost_count, job.isolation) == ("ended", -9, 0, "")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_exit_code_of_a_replaced_child_deceives_nobody(make_worker: MakeWorker, witness: Witness) -> None:
    """A job that exits with the codes of ends on purpose is convicted at its third death like any other."""
    ids = [killer.enqueue(how=how).id for how in ("exit64", "exit3")]
    make_worker(threads=1, processes=2).start()

    wait_until_done(seconds=240)

    assert set(Job.objects.values_list("dead_reason", "exit_lost_count")) == {("poison", 3)}
    assert len(witness.lines("start")) == 6
    assert set(Attempt.objects.filter(job_id__in=ids).values_list("loss_cause", flat=True)) == {"exit"}


@pytest.mark.postgres
def test_a_worker_is_emptied_for_a_job_that_needs_it_alone(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Two children of two threads under load: while the suspect runs nobody else does, and then all go on."""
    work.enqueue_many([{"n": n, "seconds": 0.3} for n in range(1, 25)])
    lonely = work.using(run_after=timedelta(seconds=1)).enqueue(n=0, seconds=1.0).id
    Job.objects.filter(pk=lonely).update(isolation="worker", lost_count=2, silent_lost_count=2)

    make_worker(threads=2, processes=2).start()
    wait_until_done(seconds=300)

    mine = Attempt.objects.get(job_id=lonely)
    assert (mine.alone, mine.outcome) == ("worker", "succeeded")
    others = Attempt.objects.exclude(job_id=lonely)
    assert not others.filter(started_at__lt=mine.finished_at, finished_at__gt=mine.started_at).exists()
    later = set(others.filter(started_at__gte=mine.finished_at).values_list("worker_child", flat=True))
    assert len(later) == 2, "both children go on"
    assert rows() == Counter(dict.fromkeys(range(25), 1))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_a_job_that_kills_its_whole_worker_is_convicted_at_its_third_death(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Two children per worker, started again each time: the third death, alone on the worker, convicts it."""
    row.enqueue_many([{"n": n} for n in range(20)])
    job_id = group_killer.using(priority=5).enqueue().id

    for deaths in (1, 2, 3):
        worker = make_worker(threads=2, processes=2).start()
        wait_for(lambda d=deaths: len(witness.lines("start", how="group")) == d, seconds=180, what="a death")
        worker.process.wait(timeout=20)
    make_worker(threads=2, processes=2).start()
    wait_until_done(seconds=240)

    job, last = Job.objects.get(pk=job_id), Attempt.objects.filter(job_id=job_id).order_by("number").last()
    assert (job.state, job.dead_reason, job.fence) == ("dead_lettered", "poison", 3)
    assert last is not None
    assert (last.alone, last.loss_cause) == ("worker", "silent")
    assert rows() == Counter(dict.fromkeys(range(20), 1))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_f17_a_process_killer_among_200_takes_nobody_along(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """200 jobs, 4 threads, one killer in the middle: three deaths at most, poison with its status, all others succeed."""
    row.enqueue_many([{"n": n, "seconds": 0.02} for n in range(100)])
    job_id = killer.enqueue(how="sigkill").id
    row.enqueue_many([{"n": n, "seconds": 0.02} for n in range(100, 199)])

    make_worker(threads=4).start()
    wait_until_done(seconds=300)

    job, deaths = Job.objects.get(pk=job_id), Attempt.objects.filter(job_id=job_id).order_by("number")
    assert (job.state, job.dead_reason) == ("dead_lettered", "poison")
    assert [(attempt.outcome, attempt.exit_status) for attempt in deaths] == [("lost", -9)] * 3
    assert states() == {"succeeded": 199, "dead_lettered": 1}
    assert rows() == Counter(dict.fromkeys(range(199), 1))
    hit = Attempt.objects.filter(outcome="lost").exclude(job_id=job_id).count()
    print(f"\n3 deaths, {hit} attempts of neighbours were lost with them, none was convicted")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_sixteen_jobs_that_are_lost_together_twice_all_succeed(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """A worker with 16 running jobs is killed, and once more: each runs alone then, none is convicted for another."""
    long_twice.enqueue_many([{"n": n} for n in range(16)])

    for number in (1, 2):
        worker = make_worker(threads=16).start()
        wait_for(lambda i=number: len(witness.lines("start", number=i)) == 16, seconds=180, what="16 starts")
        worker.kill_group()
    make_worker(threads=16).start()
    wait_until_done(seconds=300)

    assert states() == {"succeeded": 16}
    assert rows() == Counter(dict.fromkeys(range(16), 1))
    causes = Counter(Attempt.objects.values_list("outcome", "loss_cause", "alone"))
    assert causes == {("lost", "silent", ""): 32, ("succeeded", "", "worker"): 16}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_each_of_three_workers_may_freeze_for_ever(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """At default times each of three workers is frozen in turn and never woken: its job runs elsewhere within 30 s."""
    figures = []
    for turn in range(3):
        workers = [make_worker(threads=2, times=DEFAULTS).start() for _ in range(3)]
        for worker in workers:
            worker.wait_ready()
        work.enqueue_many([{"n": 10 * turn + n, "seconds": 4.0} for n in range(6)])
        victim = workers[turn]
        pid = victim.child_pids[0]
        wait_for(lambda p=pid: [line for line in witness.busy() if line["pid"] == p], what="a busy victim")
        victim.freeze()
        at = time.monotonic()
        mine = {line["job"] for line in witness.busy() if line["pid"] == pid}
        wait_for(
            lambda m=mine, p=pid: m <= {line["job"] for line in witness.lines("end") if line["pid"] != p},
            seconds=60,
            what="recovery",
        )
        starts = [line for line in witness.lines("start") if line["job"] in mine and line["at"] > at]
        figures += [line["at"] - at for line in starts]
        for worker in workers:
            worker.kill_group()
    print(f"\nrecovered after {', '.join(f'{seconds:.1f}' for seconds in figures)} s")
    assert len(figures) >= 3
    assert max(figures) <= 30
