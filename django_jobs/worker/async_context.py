"""The context of a coroutine: the same methods, awaited, which run in the thread that has the connection."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from asgiref.sync import sync_to_async

from django_jobs.exceptions import CalledOnLoopError

if TYPE_CHECKING:
    from django_jobs.domain.providers import Confirmed
    from django_jobs.worker.context import Completion, Step

T = TypeVar("T")


class _Waiting(Protocol):
    """The methods whose twins these are."""

    def complete(self) -> AbstractContextManager[Completion]: ...
    def open_step(self, name: str) -> AbstractContextManager[Step]: ...
    def progress(self, value: int, total: int | None = None) -> None: ...
    def effect(self, name: str, operation: Any, **options: Any) -> Confirmed: ...


def refuse_on_loop(name: str) -> None:
    """Refuse a call that would block the event loop, and that has no connection in its thread.

    Raises:
        CalledOnLoopError: This is a coroutine; the message names what to await.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    begin = "async with" if name == "complete" else "await"
    msg = f"context.{name}() was called in a coroutine. Use its twin there: {begin} context.a{name}()."
    raise CalledOnLoopError(msg)


class AsyncTwins:
    """What a coroutine handler uses in place of the methods that ask the database."""

    @asynccontextmanager
    async def acomplete(self: _Waiting) -> AsyncIterator[Completion]:
        """Do what ``complete()`` does, in a coroutine: ``async with context.acomplete() as done``.

        Whatever else runs on the loop meanwhile, and asks the ORM, does so inside of the transaction.
        """
        async with _in_thread(self.complete()) as done:
            yield done

    async def astep(self: _Waiting, name: str, function: Callable[[], Any]) -> Any:
        """Do what ``step()`` does, in a coroutine; ``function`` may be a coroutine function too."""
        async with _in_thread(self.open_step(name)) as step:
            if step.stored is None:
                awaited = function if inspect.iscoroutinefunction(function) else sync_to_async(function)
                step.value = await awaited()
        return step.result

    async def aprogress(self: _Waiting, value: int, total: int | None = None) -> None:
        """Do what ``progress()`` does, in a coroutine."""
        await _to_the_end(self.progress, value, total)

    async def aeffect(self: _Waiting, name: str, operation: Any, **options: Any) -> Confirmed:
        """Do what ``effect()`` does, in a coroutine; the call to the provider runs in the thread of the attempt."""
        return await _to_the_end(lambda: self.effect(name, operation, **options))


@asynccontextmanager
async def _in_thread(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a manager in the thread that has the connection; what was entered is left, come what may."""
    entering = asyncio.ensure_future(sync_to_async(manager.__enter__, thread_sensitive=True)())
    try:
        value = await _waited(entering)
    except asyncio.CancelledError as error:
        if entering.done() and not entering.cancelled() and entering.exception() is None:
            await _to_the_end(manager.__exit__, type(error), error, error.__traceback__)
        raise
    try:
        yield value
    except BaseException as error:
        if not await _to_the_end(manager.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await _to_the_end(manager.__exit__, None, None, None)


async def _to_the_end(function: Callable[..., T], *args: Any) -> T:
    """Call a function in the thread that has the connection. A cancellation waits for its end: it goes on anyway."""
    return await _waited(asyncio.ensure_future(sync_to_async(function, thread_sensitive=True)(*args)))


async def _waited(task: asyncio.Future[T]) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # noqa: BLE001  told below
            break
    value = task.result()  # what it raised says more than a cancellation
    if cancelled is not None:
        raise cancelled
    return value
