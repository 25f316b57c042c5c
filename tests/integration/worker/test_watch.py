"""Calls of the worker's loops end although the server does not end them: behind a lock, or frozen."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs import telemetry
from django_jobs.worker import watch as module
from django_jobs.worker.connection import drop
from django_jobs.worker.watch import Watch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch that grants a cancellation a short time only."""
    monkeypatch.setattr(module, "CANCEL_TIME", 0.5)
    monkeypatch.setattr(module, "HURRIED", 0.3)
    return Watch()


@pytest.fixture
def frozen_backend() -> Iterator[int]:
    """This thread's server process, standing still until the test is over."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = int(cursor.fetchone()[0])
    os.kill(pid, signal.SIGSTOP)
    yield pid
    os.kill(pid, signal.SIGCONT)


def ask() -> None:
    """Ask the server something."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_jobs_job")


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Run something in a thread with a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_call_behind_a_lock_is_cancelled_and_its_connection_kept(quick: Watch) -> None:
    """The server is asked to cancel: the statement fails, nothing of it waits on, and the connection serves the next."""
    locked, over = threading.Event(), threading.Event()
    ask()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE django_jobs_job IN ACCESS EXCLUSIVE MODE")
            locked.set()
            over.wait(30)

    holder = in_thread(hold)
    assert locked.wait(20)
    kept = connection.connection
    try:
        with pytest.raises(OperationalError, match="canceling statement"), quick.over("default", 0.3):
            ask()
    finally:
        over.set()
        holder.join(timeout=20)

    ask()
    assert connection.connection is kept


def test_call_to_a_frozen_backend_is_left(quick: Watch, frozen_backend: int) -> None:
    """No answer to the cancellation either: the connection is ended from here, and a new one works."""
    before, began = telemetry.counts["database.cut"], time.monotonic()

    with pytest.raises(OperationalError), quick.over("default", 0.3):
        ask()

    assert time.monotonic() - began < 10
    assert telemetry.counts["database.cut"] == before + 1
    drop("default")
    ask()


def test_hurried_process_waits_for_statements_of_handlers(quick: Watch) -> None:
    """A worker that drains cancels no statement of a handler that still has time."""
    quick.hurry()
    with quick.over("default", 30, hurries=False) as call, connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.8)")  # more than a hurried call may take, and two looks

    assert call is not None
    assert call.cancelling is None


def test_hurried_process_waits_for_no_call(quick: Watch, frozen_backend: int) -> None:
    """Once the process has to end, a call that could take minutes ends in moments, also one that is under way."""
    hurry = threading.Timer(0.1, quick.hurry)
    hurry.start()

    with pytest.raises(OperationalError), quick.over("default", 300):
        ask()
    drop("default")

    hurry.join()


def test_call_in_time_is_left_alone(quick: Watch) -> None:
    """What ends in its time is neither cancelled nor cut, and the watch forgets it."""
    before = telemetry.counts.copy()

    for _ in range(20):
        with quick.over("default", 30):
            ask()
    quick.look()

    told = telemetry.counts - before
    assert not told["database.cancelled"] + told["database.cut"]
    assert quick._calls == {}


def next_statement() -> None:
    """Run a statement that is still under way when a late cancellation arrives."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.6)")


def test_late_cancellation_hits_no_later_statement(quick: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that ends while its cancellation is on the way waits for it: the next one on the connection is not hit."""
    sent, cancel = threading.Event(), module._cancel

    def late(raw: object) -> None:
        sent.wait(0.2)
        cancel(raw)

    monkeypatch.setattr(module, "_cancel", late)
    with quick.over("default", 0):
        ask()
        quick.look()
    kept = connection.connection

    next_statement()

    assert connection.connection is kept


def test_connection_whose_cancellation_hangs_is_ended(quick: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows when such a cancellation arrives, so nothing may run on that connection any more."""
    over = threading.Event()
    monkeypatch.setattr(module, "_cancel", lambda raw: over.wait(30))
    before = telemetry.counts["database.cut"]
    with quick.over("default", 0):
        ask()
        quick.look()

    with pytest.raises(OperationalError):
        ask()

    over.set()
    assert telemetry.counts["database.cut"] == before + 1
    drop("default")
    ask()
