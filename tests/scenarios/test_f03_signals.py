"""F3: what signals do to a worker: HUP drains, QUIT tells where it stands, KILL may come at any time."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job, Worker
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import spin, work
from tests.acceptance.workers import Witness, group_members, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


def is_stopping() -> bool:
    """Say whether a worker has told that it drains."""
    return Worker.objects.filter(stopping_at__isnull=False, stopped_at__isnull=True).exists()


@pytest.mark.long
def test_f03_hang_up_drains_and_never_stops_at_once(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """HUP to the whole group, as a terminal that closes sends it, and again after TERM: the handler may still finish."""
    work.enqueue(n=1, seconds=2.0)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), seconds=120, what="the start")
    work.enqueue(n=2)

    for pid in worker.group():
        os.kill(pid, signal.SIGHUP)
    wait_for(is_stopping, what="the stop")
    worker.signal(signal.SIGHUP)

    assert worker.wait(seconds=20) == 0
    assert states() == {"succeeded": 1, "queued": 1}
    assert rows() == {1: 1}


@pytest.mark.long
@pytest.mark.postgres
def test_f03_interrupt_of_a_busy_group_counts_once(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """INT to every process of the group, as Ctrl-C sends it: one request to stop, and the handler ends in the grace."""
    work.enqueue(n=1, seconds=1.5)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), seconds=120, what="the start")

    for pid in worker.group():
        os.kill(pid, signal.SIGINT)

    assert worker.wait(seconds=20) == 0
    assert (states(), rows()) == ({"succeeded": 1}, {1: 1})


@pytest.mark.long
def test_f03_kill_within_the_grace_loses_nothing(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """TERM, and KILL of the whole group before the grace is over: one lost attempt, and another worker runs the job."""
    job_id = work.enqueue(n=1, seconds=3.0).id
    worker = make_worker(threads=1, arguments=("--grace", "30")).start()
    wait_for(lambda: witness.lines("start"), seconds=120, what="the start")
    worker.term()
    wait_for(is_stopping, what="the stop")

    worker.kill_group()
    make_worker(threads=1).start()
    wait_until_done(seconds=120)

    assert outcomes() == {"lost": 1, "succeeded": 1}
    assert rows() == {1: 1}
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.unknown_count, job.transient_count) == ("succeeded", 0, 0)


@pytest.mark.long
@pytest.mark.postgres
def test_f03_stop_of_a_full_worker_is_over_in_its_grace_and_two_seconds(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Eight handlers that run for a minute: all are given back, none is charged, none is left running."""
    work.enqueue_many([{"n": n, "seconds": 60} for n in range(8)])
    worker = make_worker(threads=4, processes=2, arguments=("--grace", "2")).start()
    wait_for(lambda: len(witness.lines("start")) == 8, seconds=180, what="eight starts")
    asked = time.monotonic()

    worker.term()

    assert worker.wait(seconds=20) == 3
    took = time.monotonic() - asked
    print(f"\nended {took:.2f} s after TERM with a grace of 2 s")
    assert took <= 2 + 2
    assert (states(), outcomes()) == ({"queued": 8}, {"released": 8})
    assert set(Job.objects.values_list("unknown_count", "transient_count", "lost_count", "isolation")) == {
        (0, 0, 0, "")
    }
    assert not Attempt.objects.filter(outcome=None).exists()
    assert group_members(worker.pid) == []


@pytest.mark.long
def test_f03_quit_shows_the_stacks_of_every_process_and_goes_on(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """QUIT to the supervisor: its stacks and those of its children are in the log, also of a handler that hangs in C."""
    spin.using(priority=5).enqueue(how="call")
    worker = make_worker(threads=2, arguments=("--grace", "1")).start().wait_ready(seconds=180)
    wait_for(lambda: witness.lines("start", how="call"), what="the start of the handler that hangs")
    before = worker.group()

    worker.signal(signal.SIGQUIT)

    wait_for(lambda: "in spin" in worker.text, what=f"the handler's stack: {worker.text}")
    assert re.search(r"supervisor\.py\", line \d+ in run", worker.text)
    assert "in _follow_orders" in worker.text, "threads of the child"
    assert "in _beat_or_register" in worker.text or "heart.py" in worker.text, "threads of the supervisor"
    work.enqueue(n=1)
    wait_for(lambda: rows() == {1: 1}, what="the next job")
    assert worker.group() == before or "ran past its lease" in worker.text
    assert worker.is_running()
