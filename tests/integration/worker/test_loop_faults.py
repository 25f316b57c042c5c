"""What may go wrong on a loop that many coroutines share, and stays with the one whose fault it is."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from django_jobs import JobContext, clock
from django_jobs.models import Attempt, Job
from django_jobs.worker import execute as execute_room
from django_jobs.worker.bench import Bench
from django_jobs.worker.blocked import Blocked
from django_jobs.worker.shutdown import Ending
from django_jobs.worker.wake import Wake
from tests.integration.worker.conftest import Declare, run_one, write
from tests.integration.worker.test_shared_loop import (
    WAIT,
    Crew,
    Meeting,
    declare_each,
    enqueue,
    outcomes,
)
from tests.integration.worker.test_shared_loop import crew as crew

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
PAST_THE_LEASE = (
    66,
    1.5,
    1,
)  # seconds, of 60 for the budget and 10 for the end; not at once, as a frozen process would


def pass_the_lease(ending: Ending) -> None:
    """Let the time of every attempt run out, and look."""
    for seconds in PAST_THE_LEASE:
        clock.skip(seconds)
        ending.end_overdue()


class Node:
    """Refers to itself, as what a traceback holds does, so that only the collector ends it."""


@pytest.mark.postgres
def test_generator_that_is_collected_acts_in_its_own_transaction(
    declare: Declare, crew: Callable[[int], Crew], table: Table
) -> None:
    """Whoever runs while the collector does, what a generator of a neighbour writes on its end is not in its rows."""
    dropped, over, wrote = threading.Event(), threading.Event(), threading.Event()

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await sync_to_async(write)(100)
            wrote.set()

    async def drop() -> None:
        node: Any = Node()
        node.me, node.generator = node, generate()
        await anext(node.generator)

    async def work(context: JobContext, n: int) -> None:
        if n == 0:
            async with context.acomplete():
                await drop()
                dropped.set()
                await asyncio.to_thread(over.wait, WAIT)
                raise ValueError("no")
        await asyncio.to_thread(dropped.wait, WAIT)
        async with context.acomplete():
            await sync_to_async(write)(1)
            gc.collect()
            assert await asyncio.to_thread(wrote.wait, WAIT), "what the collector ends has a task of its own"
        over.set()

    gc.disable()
    try:
        enqueue(declare_each(declare, work), 2)
        crew(2).run(2)
    finally:
        gc.enable()

    assert outcomes() == {0: "failed", 1: "succeeded"}
    assert table() == [1]


@pytest.mark.postgres
def test_place_that_runs_nothing_keeps_no_connection(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """However many coroutines have asked the database at once, a moment later the server has its sessions back."""
    meeting = Meeting(20)

    async def work(context: JobContext, n: int) -> None:
        await sync_to_async(Job.objects.count)()
        await meeting.reach()

    def sessions() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return int(cursor.fetchone()[0])

    enqueue(declare_each(declare, work), 20)
    crew(20).run(20)

    ends = time.monotonic() + WAIT
    while (many := sessions()) > 3 and time.monotonic() < ends:
        connections.close_all()
    assert many <= 3


def test_pool_stops_although_something_on_the_loop_never_ends(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """A thread that code of no attempt has begun keeps no process from being replaced."""
    go = threading.Event()

    async def work(context: JobContext, n: int) -> None:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()
        loop.call_soon(lambda: (loop.run_in_executor(None, go.wait, WAIT), begun.set()), context=contextvars.Context())
        await begun.wait()

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.run(1)
    began = time.monotonic()

    one.pool.stop(seconds=0.5)

    assert time.monotonic() - began < WAIT / 3
    go.set()


def test_coroutine_that_always_asks_is_cancelled_too(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call after the other keeps nobody from looking whether its lease is over."""
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.05)
    began = threading.Event()

    async def work(context: JobContext, n: int) -> None:
        began.set()
        while True:
            await sync_to_async(len)("")

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.begin(1)
    assert began.wait(WAIT)

    ending = Ending(one.pool, Wake(), grace=5)

    pass_the_lease(ending)

    one.finish(1)
    ending.end_overdue()
    assert "past its lease" in Attempt.objects.get().message


def test_coroutine_that_is_cancelled_before_it_began_ends(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """The loop was blocked from its claim to the end of its lease; its thread comes back all the same."""
    free, blocks = threading.Event(), threading.Event()

    async def work(context: JobContext, n: int) -> None:
        if n == 0:
            blocks.set()
            free.wait(WAIT)

    enqueue(declare_each(declare, work), 2)
    one = crew(2)
    one.begin(1)
    assert blocks.wait(WAIT)
    (second,) = one.begin(1)
    looked = threading.Semaphore(0)
    second.revoke("it ran past its lease")
    looked.acquire(timeout=0.6)  # two looks of its thread, which ask for the cancellation

    free.set()

    one.finish(2)
    assert one.pool.running == []


@pytest.mark.parametrize("name", ["django_jobs-loop", "django_jobs-1"], ids=["of the loop", "of a place"])
def test_thread_that_cannot_be_started_once(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A system that has no thread for a moment costs one attempt, or a moment; the process goes on."""

    async def work(context: JobContext, n: int) -> None:
        pass

    enqueue(declare_each(declare, work), 2)
    one = crew(2)
    start, fails = threading.Thread.start, [name]

    def refuse_once(self: threading.Thread) -> None:
        if self.name in fails:
            fails.remove(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    one.begin(1)
    one.pool.replace_dead()
    one.finish(1)
    one.run(1)

    expected = ["failed", "succeeded"] if name == "django_jobs-loop" else ["succeeded", "succeeded"]
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == expected


@pytest.mark.parametrize("how", ["a timer", "another context", "a thread", "a generator"])
def test_nothing_begins_after_the_end(declare: Declare, crew: Callable[[int], Crew], how: str) -> None:
    """Whatever makes a task when its attempt is over, or has it as its last act, the task does not act then."""
    acted: list[int] = []
    kept: list[Any] = []
    ended, made = threading.Event(), threading.Event()

    async def late() -> None:
        while not ended.is_set():  # noqa: ASYNC110  another thread sets it
            await asyncio.sleep(0)
        acted.append(0)  # as a request to a provider would
        acted.append(await asyncio.to_thread(Attempt.objects.filter(outcome="succeeded").count))

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            kept.append(asyncio.create_task(late()))

    async def work(context: JobContext, n: int) -> None:
        loop = asyncio.get_running_loop()
        if how == "a timer":
            loop.call_later(0.2, lambda: (kept.append(loop.create_task(late())), made.set()))
        elif how == "another context":
            kept.append(loop.create_task(late(), context=contextvars.Context()))
        elif how == "a generator":
            kept.append(generate())
            await anext(kept[-1])
        else:
            later = lambda: kept.append(asyncio.run_coroutine_threadsafe(late(), loop))  # noqa: E731
            kept.append(asyncio.create_task(asyncio.to_thread(later)))
            await asyncio.sleep(0)  # it begins

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.run(1)
    ended.set()
    if how == "a timer":
        assert made.wait(WAIT)
    turned = threading.Event()
    for _ in range(20):  # turns of the loop in which it would act
        turned.clear()
        one.pool._shared_loop().call_soon(turned.set)
        assert turned.wait(WAIT)

    assert acted == []
    assert outcomes() == {0: "succeeded"}


def test_thread_that_is_waited_for_counts_as_the_attempt(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that returned and has left a call in a thread has not ended, also when its lease is over."""
    monkeypatch.setattr("django_jobs.worker.attempt.LEAVE", 0.0)
    began, go = threading.Event(), threading.Event()

    async def work(context: JobContext, n: int) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(go.wait, WAIT), 0.01)
        began.set()

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.begin(1)
    assert began.wait(WAIT)
    ending = Ending(one.pool, Wake(), grace=5)

    pass_the_lease(ending)

    assert not one.ended.acquire(timeout=0.6)
    ending.end_overdue()
    assert ending.recycling
    go.set()
    one.finish(1)


def test_generator_that_fails_when_it_is_closed_spoils_no_result(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """The handler has returned; what its generator raises then, a cancellation for example, is logged."""
    kept: list[Any] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise asyncio.CancelledError

    async def work(context: JobContext, n: int) -> str:
        kept.append(generate())
        await anext(kept[-1])
        return "kept"

    enqueue(declare_each(declare, work), 1)
    crew(1).run(1)

    assert outcomes() == {0: "succeeded"}


def test_error_of_a_look_ends_nothing(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes wrong while somebody looks after a coroutine is logged, and the coroutine goes on."""
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.01)
    looked = threading.Event()

    def fail(self: Blocked) -> None:
        looked.set()
        raise TypeError("no float")

    monkeypatch.setattr(Blocked, "look", fail)

    async def work(context: JobContext, n: int) -> None:
        await asyncio.to_thread(looked.wait, WAIT)

    enqueue(declare_each(declare, work), 1)
    crew(1).run(1)

    assert outcomes() == {0: "succeeded"}
    assert "no float" in caplog.text


def test_coroutine_that_gave_up_costs_no_process_while_its_thread_tidies_up(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs after the handler, middleware for example, is no code that resists."""
    inside, go, began = threading.Event(), threading.Event(), threading.Event()
    tell_done = execute_room.tell_done
    monkeypatch.setattr(execute_room, "tell_done", lambda attempt: (inside.set(), go.wait(WAIT), tell_done(attempt)))

    async def work(context: JobContext, n: int) -> None:
        began.set()
        await asyncio.Event().wait()

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.begin(1)
    assert began.wait(WAIT)
    ending = Ending(one.pool, Wake(), grace=5)
    pass_the_lease(ending)
    assert inside.wait(WAIT)

    ending.end_overdue()

    assert not ending.recycling
    go.set()
    one.finish(1)


def test_neighbour_that_is_cancelled_says_what_may_have_been(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """A job that cancels all tasks hits its neighbour, whose message tells where to look."""
    meeting = Meeting(2)

    async def work(context: JobContext, n: int) -> None:
        await meeting.reach()
        if n == 1:
            await asyncio.Event().wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    enqueue(declare_each(declare, work), 2)
    crew(2).run(2)

    assert outcomes() == {0: "succeeded", 1: "failed"}
    assert "asyncio.all_tasks()" in Attempt.objects.get(outcome="failed").message


@pytest.mark.postgres
def test_handler_that_closes_the_connection_of_the_driver_ends(declare: Declare) -> None:
    """Its success is recorded on another one."""
    declare(lambda: (connection.ensure_connection(), connection.connection.close()), atomic=False).enqueue()

    assert run_one().outcome == "succeeded"
