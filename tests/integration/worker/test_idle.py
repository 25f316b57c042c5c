"""What an idle child costs, how long it sleeps, and when it asks to be notified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs import clock
from django_jobs.store import notify
from django_jobs.worker import idle
from django_jobs.worker.bell import HEARD
from django_jobs.worker.child import Child
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.idle import ANNOUNCE_EVERY, ECHOES, SHORTEST, Idle
from django_jobs.worker.wake import Wake
from tests.databases import Server
from tests.ears import Ear
from tests.factories import QUEUE, JobFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer


class Looking:
    """In place of a claimer: it finds what the test says."""

    seconds: float | None = None

    def seconds_to_next(self) -> float | None:
        return self.seconds

    def seconds_to_next_due(self) -> float:
        return float("inf") if self.seconds is None else max(0.0, self.seconds)

    def known_queues(self) -> list[str]:
        return [QUEUE]


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    """The time of the process."""
    moved = Now()
    monkeypatch.setattr(clock, "boot_seconds", moved)
    return moved


@pytest.fixture
def rest(now: Now, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float | None], Idle]]:
    """Make the rest of a child with a bell, in whose jobs something is due after so many seconds."""
    monkeypatch.setattr(idle.random, "random", lambda: 1.0)
    ends = os.pipe()
    looking, wake = Looking(), Wake()

    def make(seconds: float | None) -> Idle:
        looking.seconds = seconds
        config: Any = replace(claimer().config, bell=ends[0], poll=10.0)
        made = Idle(config, looking, wake)  # type: ignore[arg-type]
        os.write(ends[1], HEARD)
        wake.wait(0)
        now.seconds += 60
        return made

    yield make
    wake.close()
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("due", "found", "sleeps"), [(None, False, 10), (4.5, False, 4.5), (0.0, True, 10), (-9.0, True, 10)]
)
def test_sleep_ends_with_the_next_poll_or_due_time(
    rest: Callable[[float | None], Idle], due: float | None, found: bool, sleeps: float
) -> None:
    """Something due now is a reason to claim; something due later bounds the sleep."""
    resting = rest(due)

    assert resting.may_find() is found
    assert resting.seconds() == pytest.approx(sleeps)


def test_news_has_echoes(rest: Callable[[float | None], Idle], now: Now) -> None:
    """After each news the child looks again soon, twice: what follows a notification closely comes without one."""
    resting = rest(None)
    resting.note_news()
    now.seconds += 5  # a slow claim must not swallow the look that tells how long to sleep
    assert resting.seconds() == pytest.approx(ECHOES[0])
    resting.may_find()
    assert resting.seconds() > 1

    resting.note_news()
    resting.may_find()
    slept = []
    for _ in range(3):
        slept.append(resting.seconds())
        now.seconds += slept[-1]

    assert slept[:2] == pytest.approx([ECHOES[0], ECHOES[1] - ECHOES[0]])
    assert slept[2] > 1
    assert ECHOES[0] > SHORTEST
    assert ECHOES[1] > notify.PACE, "the last look comes when producers may notify again"


def test_child_asks_seldom_and_only_where_it_is_heard(
    rest: Callable[[float | None], Idle], now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked just now must look once more; later sleeps are covered until the announcement nears its end."""
    asked: list[list[str]] = []
    monkeypatch.setattr(notify, "announce_sleep", lambda queues, *, using: asked.append(queues))
    resting = rest(None)

    assert resting.asks()
    assert not resting.asks()
    now.seconds += ANNOUNCE_EVERY
    assert resting.asks()
    assert resting._bell is not None
    resting._bell.heard = False
    now.seconds += ANNOUNCE_EVERY
    assert not resting.asks()
    assert asked == [[QUEUE], [QUEUE]]
    assert notify.SLEEP_LASTS.total_seconds() / 2 > ANNOUNCE_EVERY, "no gap between two announcements"


@pytest.mark.django_db(transaction=True)
def test_idle_look_is_one_statement_and_finds_what_comes(declare: Declare) -> None:
    """A child with nothing to do reads once per poll; what lies in a queue that nobody declared is found and claimed."""
    declare(lambda: None)
    child = Child(replace(claimer().config, threads=1))
    queries: list[str] = []  # a worker empties Django's own log of queries

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        queries.append(sql)
        return execute(sql, *rest)

    try:
        assert child._turn() == 0
        with connection.execute_wrapper(note):
            assert child._turn(look_first=True) == 0
        JobFactory(job_type=JOB_TYPE, queue_name="brand-new")
        child.claimer._looked_at_queues -= child.config.poll
        found = child._turn(look_first=True)
    finally:
        child.pool.stop(seconds=10)
        connections.close_all()

    assert len(queries) == 1
    assert found == 1


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_who_promotes_more_than_it_can_start_wakes_others(server: Server, declare: Declare) -> None:
    """Jobs that became due together are for every worker that sleeps."""
    declare(lambda: None)
    notify.announce_sleep([QUEUE], using="default")
    with Ear(server.url) as ear:
        for expected in ([], [QUEUE]):
            for _ in range(1 + len(expected)):
                JobFactory(job_type=JOB_TYPE, scheduled=True, available_at=JobFactory.build().available_at)
            assert len(Claimer(claimer().config).take(1, 0)) == 1
            assert ear.heard() == expected
