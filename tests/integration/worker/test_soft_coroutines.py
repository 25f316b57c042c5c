"""A coroutine is told that its budget is over where it awaits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_jobs import Confirmed, JobContext, clock, effect
from django_jobs.exceptions import SoftTimeoutError
from django_jobs.models import SideEffect
from django_jobs.worker.soft_timeout import SoftTimeout
from tests.integration.worker.conftest import Declare, Looks, run_one, the_job, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("untraced")]

Table = Callable[[], list[int]]


async def outlast() -> None:
    """Let the budget pass, and wait for what never comes."""
    clock.skip(61)
    await asyncio.Event().wait()


async def outlast_in_group() -> None:
    """Do the same in a group of tasks, each of which notes its end."""
    ended: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(waits(number))
            clock.skip(61)
    finally:
        assert sorted(ended) == [0, 1], "the tasks ended before the group"


async def outlast_gathered() -> None:
    """Do the same in two tasks at once, with a limit that is not reached."""
    async with asyncio.timeout(3600):
        await asyncio.gather(outlast(), asyncio.Event().wait())


@pytest.mark.parametrize("wait", [outlast, outlast_in_group, outlast_gathered])
def test_coroutine_that_heeds_it_succeeds(declare: Declare, table: Table, wait: Callable[[], Any]) -> None:
    """It is caught by its name, outside of groups and gatherings too, and what is awaited afterwards works."""

    async def handler() -> str:
        try:
            await wait()
        except SoftTimeoutError:
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # a task runs this
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                await sync_to_async(write)(1)
        return "in good order"

    declare(handler, soft_timeout=True).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [1]
    assert the_job().payload.result == '"in good order"'


def test_coroutine_that_lets_it_pass_fails(declare: Declare) -> None:
    """The stored error is the documented one, with the time that was spent."""

    async def handler() -> None:
        await outlast()

    declare(handler, soft_timeout=True).enqueue()
    attempt = run_one()

    assert (attempt.outcome, attempt.error_class) == ("failed", "unknown")
    assert attempt.error_type == "django_jobs.exceptions.SoftTimeoutError"
    assert "The attempt ran for 61." in attempt.message


def test_coroutine_is_told_once_in_a_budget(declare: Declare) -> None:
    """Who catches it can wait as long as the lease lasts."""

    async def handler() -> int:
        many = 0
        for _ in range(2):
            try:
                async with asyncio.timeout(1):
                    await outlast()
            except SoftTimeoutError:
                many += 1
            except TimeoutError:
                pass
        return many

    declare(handler, soft_timeout=True, cleanup=timedelta(hours=1)).enqueue()

    assert run_one().outcome == "succeeded"
    assert the_job().payload.result == "1"


@effect("tests.awaited_slow_provider", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def provider(call: Any) -> Confirmed:
    """Confirm after the loop was told that its time is up."""
    clock.skip(61)
    TOLD[0].wait()
    return Confirmed("done")


TOLD: list[Any] = []


def test_effect_is_whole(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that awaits an effect gets the time-out when the answer is recorded."""
    told, claim = threading.Event(), SoftTimeout._claim
    TOLD[:] = [told]

    def claiming(soft: SoftTimeout, where: str) -> bool:
        answer = claim(soft, where)
        told.set()
        return answer

    monkeypatch.setattr(SoftTimeout, "_claim", claiming)

    async def handler(context: JobContext) -> None:
        await context.aeffect("pay", provider)

    declare(handler, takes_context=True, soft_timeout=True).enqueue()

    assert run_one().error_type.endswith("SoftTimeoutError")
    assert SideEffect.objects.get().state == "succeeded"


def test_completion_is_whole(declare: Declare, table: Table, looks: Looks) -> None:
    """Inside of ``acomplete()`` a coroutine can await what lasts, and succeeds."""

    async def handler(context: JobContext) -> None:
        async with context.acomplete():
            clock.skip(61)
            await sync_to_async(write)(1)
            await asyncio.to_thread(looks.wait)  # each look would cancel it

    declare(handler, takes_context=True, soft_timeout=True).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [1]


def test_what_was_swallowed_renames_no_later_cancellation(declare: Declare) -> None:
    """A task that ends in good order has answered; a time-out of the handler's own is its own afterwards."""

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def handler() -> list[Any]:
        clock.skip(61)
        await asyncio.ensure_future(stubborn())
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError as error:
            return [type(error).__name__, asyncio.current_task().cancelling()]  # type: ignore[union-attr]
        return []

    declare(handler, soft_timeout=True).enqueue()
    run_one()

    assert the_job().payload.result == '["TimeoutError",0]'
