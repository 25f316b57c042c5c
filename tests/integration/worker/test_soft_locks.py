"""Locks and the soft time-out: what a handler waits for when its time is up is taken whole, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from django_jobs import clock
from tests.integration.worker.conftest import Declare, Looks, run, take

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("untraced")]


def by_hand(lock: Any) -> None:
    """Take it, and give it back in the end."""
    lock.acquire()
    try:
        work()
    finally:
        lock.release()


def by_block(lock: Any) -> None:
    """Take it for a block."""
    with lock:
        work()


def by_stack(lock: Any) -> None:
    """Take it for a block that enters more than one thing."""
    with ExitStack() as stack:
        stack.enter_context(lock)
        work()


def work() -> None:
    """Compute for a moment."""
    for _ in range(100):
        pass


@pytest.mark.parametrize("make", [threading.Lock, threading.Semaphore], ids=["lock", "semaphore"])
@pytest.mark.parametrize("way", [by_hand, by_block, by_stack])
def test_what_a_handler_waited_for_is_given_back(
    declare: Declare, looks: Looks, way: Callable[[Any], None], make: Callable[[], Any]
) -> None:
    """Its time is over while it waits; the next one gets the lock all the same."""
    lock = make()
    lock.acquire()

    def handler() -> None:
        clock.skip(61)
        way(lock)

    declare(handler, soft_timeout=True).enqueue()
    attempt = take()
    other = threading.Thread(target=lambda: (looks.wait(3), lock.release()))
    other.start()
    run(attempt)
    other.join()

    assert lock.acquire(timeout=5)


def test_a_permit_that_is_freed_reaches_the_next_who_waits(declare: Declare, looks: Looks) -> None:
    """A handler that waits in front does not take the call that was meant for the one behind it with it."""
    permits, got = threading.Semaphore(0), threading.Event()

    def handler() -> None:
        clock.skip(61)
        by_block(permits)

    def second() -> None:
        looks.wait(2)
        permits.acquire()
        got.set()

    declare(handler, soft_timeout=True).enqueue()
    attempt = take()
    behind = threading.Thread(target=second, daemon=True)
    free = threading.Thread(target=lambda: (looks.wait(6), permits.release()))
    behind.start()
    free.start()
    run(attempt)
    free.join()

    assert got.wait(5)
