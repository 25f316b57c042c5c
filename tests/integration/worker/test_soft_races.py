"""A handler ends in the moment in which its time does: it is told inside, or not at all."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from django_jobs import clock
from django_jobs.exceptions import SoftTimeoutError
from django_jobs.worker import soft_timeout
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.soft_timeout import SoftTimeout
from tests.integration.worker.conftest import Declare, take

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("untraced")]


@pytest.fixture
def late(declare: Declare) -> RunningAttempt:
    """Return an attempt whose budget is over."""
    declare(lambda: None, soft_timeout=True).enqueue()
    attempt = take()
    clock.skip(61)
    return attempt


class Racing:
    """Looks at one handler after the other, without any pause."""

    def __init__(self) -> None:
        self.now: list[SoftTimeout] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Racing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.is_set():
            for soft in self.now:
                soft.look()


def turn(many: int) -> int:
    """Be a handler that computes a little."""
    for _ in range(many):
        pass
    return many


def innermost(error: BaseException) -> str:
    """Return the name of the function that an error came out of."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_name


def test_it_never_reaches_what_runs_next(late: RunningAttempt) -> None:
    """Of 1,000 handlers that end as their time does, each is told inside, or not at all; and its result is kept."""
    ended: list[Any] = []
    with Racing() as racing:
        for many in range(1000):
            soft = SoftTimeout(late)
            racing.now[:] = [soft]
            try:
                ended.append(soft.run(partial(turn, 20 * many)))
            except SoftTimeoutError as error:
                ended.append(error)
            turn(50)  # the next job: nothing may be left for it

    inside = [error for error in ended if isinstance(error, SoftTimeoutError)]
    assert 0 < len(inside) < 1000
    assert {innermost(error) for error in inside} == {"turn"}
    assert all(ended[many] == 20 * many for many in range(1000) if ended[many] not in inside)


class Blocked:
    """A thread whose handler is a function in C that blocks: what is raised meanwhile arrives when it has ended."""

    def __init__(self, attempt: RunningAttempt, handler: Callable[[], Any]) -> None:
        self.ended: list[Any] = []
        self._attempt, self._handler = attempt, handler
        self.soft: SoftTimeout | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        while not self._waits():
            assert self.thread.is_alive()

    def _run(self) -> None:
        self.soft = SoftTimeout(self._attempt)
        try:
            self.ended.append(self.soft.run(self._handler))
        except BaseException as error:
            self.ended.append(error)
        turn(50)  # the next job
        self.ended.append("went on")

    def _waits(self) -> bool:
        frame = sys._current_frames().get(self.thread.ident or 0)
        is_open = self.soft is not None and self.soft._is_open
        return is_open and frame is not None and frame.f_code is SoftTimeout.run.__code__


@pytest.fixture
def reset() -> Iterator[tuple[socket.socket, Callable[[], None]]]:
    """Yield an end of a connection, and what has a read from it fail."""
    mine, other = socket.socketpair()
    mine.send(b"unread")
    yield mine, other.close
    mine.close()


@pytest.mark.parametrize("raises", [False, True])
def test_what_arrives_when_the_handler_has_ended_is_dropped(
    late: RunningAttempt, reset: Any, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """Its result counts, and so does the error that it raised itself."""
    monkeypatch.setattr(soft_timeout, "may_interrupt", lambda *_: True)
    lock = threading.Lock()
    lock.acquire()
    connection, fail = reset
    blocked = Blocked(late, partial(connection.recv, 1) if raises else lock.acquire)

    assert blocked.soft is not None
    while blocked.soft.seconds_left <= 0:  # until it was seen at its place
        blocked.soft.look()
    fail() if raises else lock.release()
    blocked.thread.join(10)

    result, after = blocked.ended
    assert isinstance(result, ConnectionResetError) if raises else result is True
    assert after == "went on"
