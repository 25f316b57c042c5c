"""Where rooms of the worker meet: claims beside looks that fail, sleeps beside full pools, looks beside locked rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.store.claims import before_all
from django_jobs.worker import clearing
from django_jobs.worker.child import Child
from django_jobs.worker.link import Order, Word
from tests.factories import JobFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = 60.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What handlers wait for."""
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def child(declare: Declare, gate: threading.Event) -> Iterator[Callable[..., Child]]:
    """Make a child whose handlers wait for the gate."""
    declare(lambda: gate.wait(60) and None)
    made: list[Child] = []

    def make(**values: Any) -> Child:
        told = values.pop("tell", lambda *_: True)
        made.append(Child(replace(claimer().config, **values), told))
        return made[-1]

    yield make
    gate.set()
    for one in made:
        one.pool.stop(seconds=10)
    connections.close_all()


def _fails(*_: Any, **__: Any) -> Any:
    msg = "the server is gone"
    raise OperationalError(msg)


def test_claimed_jobs_start_although_the_look_behind_them_fails(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was claimed would wait for the end of its lease if an error of the next read threw it away."""
    one = child(threads=2)
    job = JobFactory(job_type=JOB_TYPE)
    monkeypatch.setattr(clearing, "look_at", _fails)

    one._turn()

    assert Job.objects.get(pk=job.pk).state == "running"
    assert [attempt.job_id for attempt in one.pool.running] == [job.pk]


@pytest.mark.parametrize("why", ["full", "held"])
def test_child_that_may_start_nothing_sleeps(child: Callable[..., Child], why: str) -> None:
    """A child that does not look because it may start nothing must not stay awake for the look."""
    one = child(threads=1)
    if why == "full":
        JobFactory(job_type=JOB_TYPE)
        assert one._turn() == 1
    else:
        one.seat.follow(Order.HOLD, 1)
    one.idle.note_news()
    one.idle._news_at -= 1.0  # its echoes are over

    one._turn(look_first=True)
    slept = [one.idle.seconds() for _ in range(3)]

    assert max(slept[1:]) > 0.5, slept


@pytest.mark.postgres
def test_due_rows_that_others_hold_are_no_busy_loop(declare: Declare) -> None:
    """While somebody holds what is due, a child asks for it about once a second."""
    declare(lambda: None)
    one = claimer()
    JobFactory(job_type=JOB_TYPE, scheduled=True, available_at=clock.now() - timedelta(seconds=5))
    statements: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with holding_all_jobs():
        one.take(1, 0)
        with connection.execute_wrapper(note):
            assert one.take(1, 0) == []
            sleeps = one.seconds_to_next_due()

    assert len(statements) < 10
    assert sleeps > 0.5
    one._clearing.next_due = 0.0
    assert len(one.take(1, 0)) == 1


@contextmanager
def holding_all_jobs() -> Iterator[None]:
    """Lock every job in a transaction of another thread."""
    locked, free = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                list(Job.objects.select_for_update())
                locked.set()
                free.wait(60)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(30)
    try:
        yield
    finally:
        free.set()
        thread.join(timeout=30)


def test_look_that_finds_something_due_looks_for_suspects_too(child: Callable[..., Child]) -> None:
    """A suspect that turned up just after a quiet look must not wait for the next poll, which may be a minute away."""
    one = child(poll=MINUTE)
    assert one._turn(look_first=True) == 0
    suspect = JobFactory(job_type=JOB_TYPE, isolation="child")

    assert one._turn(look_first=True) == 1
    assert [attempt.job_id for attempt in one.pool.running] == [suspect.pk]


def test_place_behind_the_jobs_of_others_is_forgotten_while_claims_are_full(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sorts in front of a remembered place is found again although every claim finds enough behind it."""
    declare(lambda: None)
    one = claimer()
    one._clearing.beyond["default"] = before_all("default")
    monkeypatch.setattr(clearing, "FORGET_PLACES_EVERY", 0.0)
    JobFactory(job_type=JOB_TYPE)

    assert len(one.take(1, 0)) == 1
    assert one._clearing.beyond == {}


def test_child_that_stops_keeps_the_room_while_its_suspect_runs(
    child: Callable[..., Child], gate: threading.Event
) -> None:
    """Its attempt was promised to be alone on the worker; the end of the process gives the room back."""
    told: list[tuple[Word, int]] = []
    one = child(tell=lambda word, number: told.append((word, number)) or True, processes=2)
    JobFactory(job_type=JOB_TYPE, isolation="worker")
    one.seat.follow(Order.HOLD, 1)
    one._turn()
    one.seat.follow(Order.GRANT, 1)
    assert one._turn() == 1
    one.stop(Order.DRAIN)
    at_the_end: list[bool] = []
    drain = one.ending.drain

    def drained(stops: Callable[[], int]) -> int:
        at_the_end.append((Word.DONE, 1) in told)
        gate.set()
        return drain(stops)

    one.ending.drain = drained  # type: ignore[method-assign]
    one.run()

    assert at_the_end == [False]


def test_suspect_that_needs_a_child_does_not_wait_for_one_that_needs_the_worker(child: Callable[..., Child]) -> None:
    """The room for the older one may be refused for long; this one needs only what there is."""
    one = child(processes=2)
    JobFactory(job_type=JOB_TYPE, isolation="worker", available_at=clock.now() - timedelta(days=50))
    small = JobFactory(job_type=JOB_TYPE, isolation="child")

    one._turn()

    assert [attempt.job_id for attempt in one.pool.running] == [small.pk]
