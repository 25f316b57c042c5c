"""Coroutines as handlers: their loop, the thread of their queries, and the twins of the context's methods."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection
from django.utils import translation

from django_jobs import Confirmed, JobContext, effect, telemetry
from django_jobs.models import Attempt, Job, JobStep
from django_jobs.observe.metrics import Metrics
from django_jobs.worker import blocked
from django_jobs.worker.async_context import _in_thread
from django_jobs.worker.bench import Bench
from django_jobs.worker.loops import EventLoop
from tests.integration.worker.conftest import Declare, run_one, the_job, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]


@effect("tests.awaited_provider", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def provider(call: Any) -> Confirmed:
    """Confirm everything, from the thread that it is called in."""
    return Confirmed(str(threading.get_ident()))


def run_with(declare: Declare, work: Callable[[JobContext], Any], **options: Any) -> Attempt:
    """Run a coroutine with a context once."""

    async def handler(context: JobContext) -> Any:
        return await work(context)

    declare(handler, takes_context=True, **options).enqueue()
    return run_one()


def result() -> Any:
    """Return what the one job left."""
    return json.loads(the_job().payload.result)


def test_what_is_set_in_the_thread_of_the_attempt_is_seen(declare: Declare) -> None:
    """The language that a decorator of the handler activates holds in the coroutine, and in what it calls in threads."""

    async def work() -> list[str | None]:
        return [translation.get_language(), await sync_to_async(translation.get_language)()]

    @functools.wraps(work)
    def in_german() -> Any:
        translation.activate("de")
        return work()

    declare(in_german).enqueue()
    run_one()

    assert result() == ["de", "de"]


@pytest.mark.parametrize("fails", [False, True])
def test_no_thread_outlives_its_coroutine(declare: Declare, fails: bool) -> None:
    """The loop's thread ends with the attempt, also when the error is never collected."""
    before = set(threading.enumerate())

    async def work(context: JobContext) -> None:
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no")

    gc.disable()
    try:
        attempt = run_with(declare, work)
        left = {
            thread for thread in threading.enumerate() if thread not in before and thread.name != "django_jobs-watch"
        }
    finally:
        gc.enable()
    assert attempt.outcome == ("failed" if fails else "succeeded")
    assert left == set()


def test_queries_run_in_the_thread_of_the_attempt(declare: Declare) -> None:
    """The loop has a thread of its own; what it calls as sync code runs in the attempt's, from its tasks too."""
    here: list[int] = []

    async def work(context: JobContext) -> list[int]:
        ask = sync_to_async(threading.get_ident)
        threads = [await ask(), *(await asyncio.gather(ask(), ask()))]
        threads.append(await sync_to_async(async_to_sync(ask))())  # from sync code called by a coroutine
        here.append(threading.get_ident())
        return threads

    run_with(declare, work)

    assert len(set(result())) == 1
    assert here[0] not in {*result(), threading.get_ident()}


def test_error_of_the_loop_ends_the_attempt(declare: Declare) -> None:
    """What ends the whole loop, as SystemExit in a task of it, is recorded like any other error."""

    async def leaves() -> None:
        raise SystemExit(3)

    async def work(context: JobContext) -> None:
        await asyncio.gather(leaves(), asyncio.Event().wait())

    attempt = run_with(declare, work)
    assert (attempt.outcome, attempt.error_type) == ("failed", "SystemExit")


async def _complete(context: JobContext) -> None:
    with context.complete():
        pass


@pytest.mark.parametrize("method", ["progress", "step", "effect", "complete"])
def test_method_that_blocks_is_refused_in_a_coroutine(declare: Declare, method: str) -> None:
    """The error names the twin to await, and trying again would not help."""
    arguments = {"progress": (1,), "step": ("one", lambda: None), "effect": ("one", provider)}

    async def work(context: JobContext) -> None:
        if method == "complete":
            await _complete(context)
        getattr(context, method)(*arguments[method])

    attempt = run_with(declare, work)

    assert (attempt.outcome, attempt.error_type) == ("failed", "django_jobs.exceptions.CalledOnLoopError")
    assert f"context.a{method}()" in attempt.message
    assert the_job().state == "dead_lettered"


def test_awaited_completion_commits_rows_result_and_success_together(declare: Declare, table: Table) -> None:
    """What the block wrote and its result are there when the job has succeeded, and the next statement is outside."""

    async def work(context: JobContext) -> None:
        async with context.acomplete() as done:
            await sync_to_async(write)(1)
            done.result = "kept"
        assert not await sync_to_async(lambda: connection.in_atomic_block)()

    assert run_with(declare, work).outcome == "succeeded"
    assert (table(), result()) == ([1], "kept")


def test_failed_completion_leaves_nothing(declare: Declare, table: Table) -> None:
    """An error in the block, a time-out included, takes its rows back and is the error of the attempt."""

    async def work(context: JobContext) -> None:
        async with asyncio.timeout(None) as limit, context.acomplete():
            await sync_to_async(write)(1)
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    attempt = run_with(declare, work)
    assert (attempt.outcome, attempt.error_type) == ("failed", "TimeoutError")
    assert table() == []


def test_awaited_steps_run_once_and_give_their_result(declare: Declare, table: Table) -> None:
    """Plain functions and coroutine functions are steps; a step that has finished gives what it stored."""

    async def later() -> dict[str, int]:
        await sync_to_async(write)(2)
        return {"n": 2}

    def now() -> int:
        write(1)
        return 1

    async def work(context: JobContext) -> list[Any]:
        return [
            await context.astep("now", now),
            await context.astep("later", later),
        ]

    assert run_with(declare, work).outcome == "succeeded"
    assert (result(), sorted(table())) == ([1, {"n": 2}], [1, 2])
    assert set(JobStep.objects.values_list("name", flat=True)) == {"now", "later"}


def test_failed_step_leaves_nothing(declare: Declare, table: Table) -> None:
    """A step's error takes back what it wrote, and no step is recorded."""

    async def fails() -> None:
        await sync_to_async(write)(1)
        raise ValueError("no")

    async def work(context: JobContext) -> None:
        await context.astep("one", fails)

    assert run_with(declare, work).outcome == "failed"
    assert (table(), JobStep.objects.count()) == ([], 0)


def test_awaited_progress_and_effect(declare: Declare) -> None:
    """Progress is stored, and the provider is called in the thread of the attempt."""

    async def work(context: JobContext) -> bool:
        await context.aprogress(3, total=4)
        confirmed = await context.aeffect("one", provider)
        return confirmed.provider_ref == str(await sync_to_async(threading.get_ident)())

    assert run_with(declare, work).outcome == "succeeded"
    assert result() is True
    assert list(Job.objects.values_list("progress", "progress_total")) == [(3, 4)]


def test_what_was_entered_is_left_when_the_coroutine_is_cancelled_meanwhile() -> None:
    """A transaction that was being opened when its task was cancelled is closed again, with the cancellation."""
    may_go_on, steps = threading.Event(), list[Any]()

    @contextmanager
    def slow() -> Iterator[None]:
        steps.append("entering")
        may_go_on.wait(10)
        try:
            yield
        except BaseException as error:
            steps.append(type(error))
            raise

    async def use() -> None:
        async with _in_thread(slow()):
            steps.append("inside")

    async def main() -> None:
        task = asyncio.create_task(use())
        while not steps:  # noqa: ASYNC110  another thread fills it
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    async_to_sync(main)()
    assert steps == ["entering", asyncio.CancelledError]


def test_blocking_call_in_a_coroutine_is_named(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that keeps the loop from turning is told once, with its line, and counted."""
    monkeypatch.setattr(blocked, "BLOCKED_AFTER", 0.05)
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.01)
    told, places = threading.Event(), list[Any]()

    def hear(event: str, fields: dict[str, Any]) -> None:
        if event == "coroutine.blocked":
            places.append(fields["where"])
            told.set()

    async def work(context: JobContext) -> None:
        told.wait(30)

    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    telemetry.subscribe(Metrics(registry))
    telemetry.subscribe(hear)
    with caplog.at_level(logging.WARNING, "django_jobs.worker"):
        assert run_with(declare, work).outcome == "succeeded"

    line = work.__code__.co_firstlineno + 1
    assert places == [f"{__file__}:{line}"]
    assert "told.wait(30)" in caplog.text
    assert "sync_to_async" in caplog.text
    assert (
        sum(s.value for m in registry.collect() for s in m.samples if s.name.endswith("coroutines_blocked_total")) == 1
    )


def test_coroutine_that_awaits_is_not_told(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is what a loop is for, however long; what sync code does in the attempt's thread blocks no loop."""
    monkeypatch.setattr(blocked, "BLOCKED_AFTER", 0.0)
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.001)
    looks, look = threading.Semaphore(0), blocked.Blocked.look

    def look_and_let_it_turn(self: blocked.Blocked) -> None:
        look(self)
        turned = threading.Event()
        if self._loop.call_soon(turned.set):
            turned.wait(1)
        looks.release()

    monkeypatch.setattr(blocked.Blocked, "look", look_and_let_it_turn)

    async def work(context: JobContext) -> None:
        for _ in range(20):
            await asyncio.to_thread(looks.acquire, timeout=10)

    assert run_with(declare, work).outcome == "succeeded"
    assert telemetry.counts["coroutine.blocked"] == 0


def test_loop_that_is_closed_is_not_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look after the end of the loop is no question that stays without an answer."""
    monkeypatch.setattr(blocked, "BLOCKED_AFTER", 0.0)
    loop = EventLoop()
    loop.start()
    loop.close()

    for _ in range(5):
        loop.blocked.look()

    assert telemetry.counts["coroutine.blocked"] == 0
    assert not loop.call_soon(lambda: None)
