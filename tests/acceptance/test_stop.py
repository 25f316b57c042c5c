"""Stopping: signals, grace, exit codes, and what becomes of running handlers."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job, Worker
from tests.acceptance.conftest import MakeWorker, outcomes, states
from tests.acceptance.handlers import open_call, row, work
from tests.acceptance.workers import Witness, group_members, wait_for, zombies_of

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


def test_f03_idle_worker_ends_within_a_second(make_worker: MakeWorker, vendor: str) -> None:
    """TERM and INT end an idle worker cleanly within a second, and its row says so."""
    number = signal.SIGTERM if vendor == "postgresql" else signal.SIGINT
    worker = make_worker().start().wait_ready()
    asked = time.monotonic()

    worker.signal(number)

    assert worker.wait(seconds=10) == 0
    assert time.monotonic() - asked <= 2.5, "one second, and some for a busy machine"
    row_of_it = Worker.objects.get(pid=worker.pid)
    assert row_of_it.stopping_at is not None
    assert row_of_it.stopped_at is not None
    assert group_members(worker.pid) == []


def test_f03_running_handler_may_finish_within_the_grace(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A stop lets a short handler finish, takes no other job, and exits 0, also when the whole group got the signal."""
    work.enqueue(n=1, seconds=1.5)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), what="the start")
    work.enqueue(n=2)

    for pid in worker.group():  # as an init system does that signals every process of a unit
        os.kill(pid, signal.SIGTERM)

    assert worker.wait(seconds=20) == 0
    assert states() == {"succeeded": 1, "queued": 1}
    assert rows() == {1: 1}


def test_f03_handler_longer_than_the_grace_is_given_back(
    make_worker: MakeWorker, witness: Witness, rows: Rows, vendor: str
) -> None:
    """After the grace the job is released and charged nothing, the worker exits 3, and nothing stays running.

    On SQLite the handler holds the only write lock meanwhile: its transaction is ended before the job is given back.
    """
    (row if vendor == "sqlite" else work).enqueue(n=1, seconds=60)
    worker = make_worker(threads=1, arguments=("--grace", "1")).start()
    wait_for(lambda: witness.lines("start"), what="the start")

    worker.term()

    assert worker.wait(seconds=20) == 3
    assert outcomes() == {"released": 1}
    job = Job.objects.get()
    assert (job.state, job.free_count) == ("queued", 1)
    assert (job.unknown_count, job.transient_count, job.lost_count, job.isolation) == (0, 0, 0, "")
    assert rows() == {}


@pytest.mark.sqlite
def test_f03_second_signal_stops_at_once(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A second TERM does not wait for the grace: the job is released and the worker exits 3."""
    work.enqueue(n=1, seconds=60)
    worker = make_worker(threads=1, arguments=("--grace", "60")).start()
    wait_for(lambda: witness.lines("start"), what="the start")
    for pid in worker.group():  # the first one reaches the child twice: from outside and from its supervisor
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: Worker.objects.filter(stopping_at__isnull=False).exists(), what="the first stop")
    asked = time.monotonic()

    worker.term()

    assert worker.wait(seconds=20) == 3
    assert time.monotonic() - asked <= 4
    assert outcomes() == {"released": 1}


def test_f03_job_is_not_given_back_while_a_request_is_open(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Even a second TERM waits for the answer of a provider before the job is released."""
    open_call.enqueue(n=1, seconds=2.0)
    worker = make_worker(threads=1, arguments=("--grace", "1")).start()
    wait_for(lambda: witness.lines("call"), what="the call")

    worker.term()
    worker.term()

    assert worker.wait(seconds=20) == 3
    answered = witness.lines("answered")
    assert len(answered) == 1, "the process waited for the answer"
    released = Attempt.objects.get()
    assert released.outcome == "released"
    assert Job.objects.get().free_count == 1


@pytest.mark.postgres
def test_f03_children_of_a_killed_supervisor_drain_and_end(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """kill -9 of the supervisor alone: the child finishes what it runs, takes no other job, and ends."""
    work.enqueue(n=1, seconds=1.0)
    worker = make_worker(threads=1).start()
    wait_for(lambda: witness.lines("start"), what="the start")

    worker.kill_supervisor()

    wait_for(lambda: not group_members(worker.pid), seconds=20, what="the end of the children")
    assert states() == {"succeeded": 1}
    assert rows() == {1: 1}


@pytest.mark.sqlite
def test_killed_child_is_reaped_and_replaced(make_worker: MakeWorker) -> None:
    """A killed child leaves no zombie, and another one takes its place."""
    worker = make_worker().start().wait_ready()

    killed = worker.kill_child()

    wait_for(lambda: worker.child_pids and killed not in worker.child_pids, what="the replacement")
    assert zombies_of(worker.pid) == []


@pytest.mark.slow
def test_frozen_child_does_not_keep_a_stopping_worker(make_worker: MakeWorker, witness: Witness) -> None:
    """A child that follows no order is killed after the stop's time, and the worker still ends."""
    worker = make_worker(threads=1, arguments=("--grace", "1")).start().wait_ready()
    os.kill(worker.child_pids[0], signal.SIGSTOP)

    worker.term()
    worker.term()

    assert worker.wait(seconds=25) == 3
    assert group_members(worker.pid) == []
