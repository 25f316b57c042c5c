"""An exception raised in another thread: only where that thread was seen, and never left behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from django_jobs.worker.strike import _raise_in, can_strike, strike, take

pytestmark = pytest.mark.usefixtures("untraced")


class BlowError(Exception):
    """What is raised."""


class Sleeper:
    """A thread that waits twice, at two places, and notes what reached it."""

    def __init__(self) -> None:
        self.first, self.second, self.arrived = threading.Lock(), threading.Lock(), threading.Event()
        self.caught: list[str] = []
        self.first.acquire()
        self.second.acquire()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for name, lock in (("first", self.first), ("second", self.second)):
            try:
                self.arrived.set()
                lock.acquire()
            except BlowError:
                self.caught.append(name)

    def frame(self) -> FrameType:
        """Return where it waits, once it does."""
        while True:
            assert self.arrived.wait(10)
            frame = sys._current_frames()[self.thread.ident or 0]
            if frame.f_code is Sleeper._run.__code__:
                return frame


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Yield a thread that waits, and let it go in the end."""
    made = Sleeper()
    yield made
    for lock in (made.first, made.second):
        if lock.locked():
            lock.release()
    made.thread.join(10)
    assert not made.thread.is_alive()


def test_thread_is_struck_where_it_was_seen(sleeper: Sleeper) -> None:
    """The exception comes out of the call in which the thread waits, when that returns."""
    frame = sleeper.frame()

    assert strike(sleeper.thread.ident or 0, frame, frame.f_lasti, BlowError)
    sleeper.first.release()
    sleeper.second.release()
    sleeper.thread.join(10)

    assert sleeper.caught == ["first"]


@pytest.mark.parametrize("elsewhere", ["instruction", "frame"])
def test_thread_that_went_on_is_left_alone(sleeper: Sleeper, elsewhere: str) -> None:
    """Another instruction of the frame, or another frame, is another place."""

    def stands() -> Iterator[None]:
        yield

    suspended = stands()
    next(suspended)
    seen = sleeper.frame() if elsewhere == "instruction" else suspended.gi_frame  # type: ignore[attr-defined]
    at = seen.f_lasti + 2 if elsewhere == "instruction" else seen.f_lasti

    assert not strike(sleeper.thread.ident or 0, seen, at, BlowError)
    sleeper.first.release()
    sleeper.second.release()
    sleeper.thread.join(10)

    assert sleeper.caught == []


@contextmanager
def _struck() -> Iterator[None]:
    """Have an exception on its way into this thread when the block begins."""
    _raise_in(threading.get_ident(), BlowError)
    yield


def test_what_is_on_its_way_is_taken() -> None:
    """It arrives where it is waited for, once; where nothing is, nothing happens."""
    assert take(BlowError) is False
    taken = []
    try:
        with _struck():
            taken.append(take(BlowError))
    except BlowError:
        taken.append(True)

    assert taken == [True]
    assert take(BlowError) is False


def test_nobody_is_struck_where_that_would_stop_traced_threads() -> None:
    """A debugger on Python 3.11 rules it out; elsewhere, and without one, it goes on."""
    assert can_strike()

    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        found = can_strike()
    finally:
        sys.settrace(before)
    assert found == (sys.version_info >= (3, 12))
