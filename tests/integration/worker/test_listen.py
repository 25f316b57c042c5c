"""The worker's ear: what wakes its children, what does not, and that it mends itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection
from django.test import override_settings

from django_jobs.store.notify import EVENTS, announce_sleep, wake
from django_jobs.worker import line, listen
from django_jobs.worker.bell import Bell, BellEnd
from django_jobs.worker.line import NAME, opened
from django_jobs.worker.listen import Listener, wants_to_listen
from django_jobs.worker.wake import Wake
from tests.acceptance.workers import wait_for
from tests.databases import Server
from tests.factories import QUEUE
from tests.poolers import Pooler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

SESSIONS = """
SELECT pid, xact_start IS NULL AND backend_xmin IS NULL FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s
"""


class Listening:
    """A listener whose rings are counted."""

    def __init__(self, *queues: str) -> None:
        self.rang = threading.Semaphore(0)
        self.events = threading.Semaphore(0)
        self.listener = Listener("default", queues, self.rang.release, self.events.release)
        self.listener.start()

    def works(self) -> bool:
        """Wait until it hears, and forget the ring that says so."""
        return bool(wait_for(lambda: self.listener.works, what="an ear")) and self.rings()

    def rings(self, seconds: float = 20) -> bool:
        """Wait for the next ring."""
        return self.rang.acquire(timeout=seconds)

    def end(self) -> None:
        self.listener.stop()
        self.listener._thread.join(timeout=20)


@pytest.fixture
def listening(server: Server, transactional_db: None) -> Iterator[Callable[..., Listening]]:
    """Make listeners that are gone after the test."""
    made: list[Listening] = []

    def make(*queues: str) -> Listening:
        made.append(Listening(*queues))
        return made[-1]

    yield make
    for one in made:
        one.end()
        assert not one.listener._thread.is_alive(), "a listener ends at once when told to"


def sessions(name: str = NAME) -> list[tuple[int, bool]]:
    """Return the server's sessions of this name: the process, and whether it holds neither transaction nor snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS, [name])
        return list(cursor.fetchall())


def notify(queue: str = QUEUE) -> None:
    """Wake whoever sleeps for this queue."""
    announce_sleep([queue], using="default")
    assert wake([queue], using="default") == [queue]


def test_notification_rings_and_the_connection_holds_no_snapshot(listening: Callable[..., Listening]) -> None:
    """One dedicated session hears it, and it holds back no vacuum."""
    ear = listening()
    assert ear.works()

    notify()

    assert ear.rings()
    assert [idle for _, idle in sessions()] == [True]


def test_worker_is_not_woken_for_another_queue(listening: Callable[..., Listening]) -> None:
    """A worker of some queues hears for those alone; one of all queues hears everything."""
    mail, everything = listening("mail"), listening()
    assert mail.works()
    assert everything.works()

    notify("payments")
    assert everything.rings()
    notify("mail")

    assert mail.rings()
    assert not mail.rings(0), "only the second notification was for it"


def test_events_wake_a_dispatcher_and_no_loop_of_jobs(listening: Callable[..., Listening]) -> None:
    """What was notified for events rings the bell of events alone, whatever queues the worker serves."""
    ear = listening("mail")
    assert ear.works()
    assert ear.events.acquire(timeout=20), "what was notified before it heard was missed"

    notify(EVENTS)

    assert ear.events.acquire(timeout=20)
    assert not ear.rings(0)


def test_killed_connection_is_made_again_and_tested(
    listening: Callable[..., Listening], caplog: pytest.LogCaptureFixture
) -> None:
    """It listens and tests itself anew, rings for what it may have missed, and hears the next notification."""
    caplog.set_level(logging.INFO, "django_jobs.worker")
    ear = listening()
    assert ear.works()
    (before,) = [pid for pid, _ in sessions()]

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [before])

    assert ear.rings(), "whatever was notified meanwhile was missed"
    (after,) = wait_for(lambda: [pid for pid, _ in sessions() if pid != before], what="a new session")
    notify()
    assert ear.rings()
    assert after != before
    told = [record.message for record in caplog.records]
    assert len([text for text in told if "is away" in text]) == 1
    assert told[-1] == "Notifications are heard again"


def test_silently_dead_connection_is_found(
    listening: Callable[..., Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that says nothing any more looks like a quiet one; the regular test tells them apart."""
    monkeypatch.setattr(listen, "TEST_EVERY", 0.2)
    monkeypatch.setattr(line, "PATIENCE", 0.5)
    ear = listening()
    assert ear.works()
    (before,) = [pid for pid, _ in sessions()]
    monkeypatch.setattr(line.Line, "wait", _deaf_to(before))  # as behind a firewall that forgot the connection

    wait_for(lambda: [pid for pid, _ in sessions() if pid != before], what="a new session")
    assert ear.rings()
    assert ear.listener.works


def _deaf_to(pid: int) -> Callable[..., None]:
    real = line.Line.wait

    def wait(self: line.Line, seconds: float, *, also: int = -1) -> None:
        if self._raw.info.backend_pid != pid:
            real(self, seconds, also=also)
        else:
            threading.Event().wait(min(seconds, 0.05))

    return wait


def test_listen_dsn_is_where_it_listens(server: Server, listening: Callable[..., Listening]) -> None:
    """It connects as that says, and as the database's settings say otherwise."""
    dsn = psycopg.conninfo.make_conninfo(server.url, options="-c work_mem=123kB")
    with override_settings(DJANGO_JOBS={"LISTEN_DSN": dsn}):
        assert listening().works()
        with opened("default") as other:
            assert other._raw.execute("SHOW work_mem").fetchone() == ("123kB",)
    with opened("default") as plain:
        assert plain._raw.execute("SHOW work_mem").fetchone() != ("123kB",)


def test_unreachable_listen_dsn_is_told_once_and_tried_again(
    listening: Callable[..., Listening], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker polls meanwhile; the password in it is not told."""
    monkeypatch.setattr(listen, "FIRST_PAUSE", 0.01)
    tries = threading.Semaphore(0)
    real = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", lambda *args, **kwargs: (tries.release(), real(*args, **kwargs))[1])
    with override_settings(DJANGO_JOBS={"LISTEN_DSN": "postgres://x:topsecret@127.0.0.1:1/none"}):
        ear = listening()
        assert all(tries.acquire(timeout=20) for _ in range(3))
        ear.end()

    assert not ear.listener.works
    assert len(caplog.records) == 1
    assert "idle workers look for jobs every 1 s" in caplog.text
    assert "topsecret" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"NOTIFY": False}, False),
        ({"TRANSACTION_POOLER": True}, False),
        ({"TRANSACTION_POOLER": True, "LISTEN_DSN": "dbname=x"}, True),
    ],
)
def test_worker_listens_unless_it_cannot(
    server: Server, settings: dict[str, object], expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a declared pooler it warns once, at the start; switched off it says nothing."""
    with override_settings(DJANGO_JOBS=settings):
        assert wants_to_listen("default") is expected

    assert len(caplog.records) == (1 if settings == {"TRANSACTION_POOLER": True} else 0)


@pytest.mark.pgbouncer
def test_self_test_fails_through_a_transaction_pooler(
    through_pooler: Pooler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warns once however often it tries, and leaves no LISTEN in a session that others use next."""
    monkeypatch.setattr(listen, "DEAF_PAUSE", 0.01)
    tries = threading.Semaphore(0)
    real = line.Line.problem
    monkeypatch.setattr(line.Line, "problem", lambda self: (real(self), tries.release())[0])
    ear = Listening()
    assert all(tries.acquire(timeout=20) for _ in range(3))
    ear.end()

    assert not ear.listener.works
    assert len(caplog.records) == 1
    assert "pooler in transaction mode" in caplog.text
    assert through_pooler.left_behind() == []


@pytest.mark.pgbouncer
def test_notification_that_does_not_arrive_is_a_failed_self_test(
    through_pooler: Pooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a pooler cannot be recognized by its sessions, the test itself shows that nothing is heard."""
    monkeypatch.setattr(line.Line, "_is_pooled", lambda self, sender: False)
    monkeypatch.setattr(line, "PATIENCE", 0.3)

    with opened("default") as behind:
        assert "did not arrive" in behind.problem()


@pytest.mark.pgbouncer
def test_direct_connection_hears_what_was_sent_through_the_pooler(server: Server, through_pooler: Pooler) -> None:
    """LISTEN_DSN names the server itself, while producers and workers use the pooler."""
    with override_settings(DJANGO_JOBS={"LISTEN_DSN": server.url, "TRANSACTION_POOLER": True}):
        ear = Listening()
        try:
            assert ear.works()
            notify()
            assert ear.rings()
        finally:
            ear.end()


def test_bell_wakes_a_child_and_tells_whether_asking_makes_sense() -> None:
    """Rings and states arrive in one wait; a state alone wakes nobody; the supervisor's end is no ring."""
    bell, wake = Bell(), Wake()
    end = BellEnd(bell._read_end)
    wake.watch(end.descriptor, end.read)

    bell.tell(heard=True)
    assert (wake.wait(0), end.heard) == (False, True)
    bell.ring()
    bell.tell(heard=False)
    assert (wake.wait(0), end.heard) == (True, False)
    bell._read_end = -1
    bell.close()
    assert (wake.wait(0), end.over) == (False, True)
    wake.forget(end.descriptor)
    wake.close()


def test_bell_of_events_calls_the_dispatcher_and_wakes_no_loop() -> None:
    """The loop of jobs reads the bell and sleeps on; whoever delivers events is called."""
    bell, wake, called = Bell(), Wake(), []
    end = BellEnd(bell._read_end)
    end.on_events = lambda: called.append(1)
    wake.watch(end.descriptor, end.read)

    bell.ring_for_events()

    assert not wake.wait(0)
    assert called == [1]
    bell.tell(heard=True)
    assert not wake.wait(0)
    assert called == [1, 1], "it can ask to be notified now"
    bell.close()
    wake.close()


def test_full_bell_never_blocks_and_state_gets_through_later() -> None:
    """A child that stands still reads nothing: ringing goes on at once, and what it must know is told again."""
    bell = Bell()
    end = BellEnd(bell._read_end)
    for _ in range(100_000):
        bell.ring()
    bell.tell(heard=True)
    assert bell._told != b"+"
    while end.read():
        pass
    bell.tell(heard=True)

    assert not end.read()
    assert end.heard
    bell.close()
