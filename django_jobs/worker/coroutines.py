"""Running what a coroutine handler returns, on an event loop in another thread.

What ``sync_to_async`` runs by default, the ORM above all, runs in the thread of the attempt: it has the connection, and
perhaps a transaction open. That thread serves those calls while it waits for the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref import local

from django_jobs.worker.loops import EventLoop
from django_jobs.worker.owned import Owned, owned

LEAVE = 5.0  # seconds that a coroutine has to put things away when the thread that waits for it has to go
CANCELLED = (
    "The coroutine was cancelled, by code of its own or by another job on the loop: by a task of that job for which "
    "this one waited, or by cancelling asyncio.all_tasks()."
)
# Since 3.12, what asgiref's Local holds says of which thread it is, and others do not see it: language, time zone.
_OF_A_THREAD: type | tuple[()] = getattr(local, "_Storage", ())


def run(
    awaitable: Awaitable[Any],
    *,
    owner: Owned | None = None,
    look: Callable[[Run, bool], object] = lambda *_: None,
    on: EventLoop | None = None,
) -> Any:
    """Run an awaitable to its end and return what it returns, or raise what it raises.

    Args:
        awaitable: What the handler returned.
        owner: Keeps what it starts.
        look: Called in this thread a few times a second, between two calls that it serves; told whether none came.
        on: The loop to run it on; without one it gets a loop of its own.

    Raises:
        BaseException: Also what is raised in this thread while it waits, as Ctrl-C is; the coroutine is cancelled then.
    """
    if on is not None:
        return Run(awaitable, on, owner or Owned()).outcome(look, leave=None)
    loop = EventLoop()
    loop.start()
    try:
        return Run(awaitable, loop, owner or Owned()).outcome(look, leave=LEAVE)
    finally:
        loop.close()


class Run:
    """One awaitable on a loop."""

    def __init__(self, awaitable: Awaitable[Any], loop: EventLoop, owner: Owned) -> None:
        self.loop = loop
        self._owner = owner
        self._awaitable: Awaitable[Any] | None = awaitable
        self._context = contextvars.copy_context()
        self._context.run(owned.set, owner)
        self._task: asyncio.Task[Any] | None = None
        self._is_unwanted = self._is_begun = False
        self._value: Any = None
        self._error: BaseException | None = None

    def outcome(self, look: Callable[[Run, bool], object], *, leave: float | None) -> Any:
        """Wait for the end, serving its calls; return or raise what came of it.

        ``leave`` is how long it is waited for when something is raised here; None: until it ends, because the loop goes
        on, and what was left on it would act although its attempt is over.
        """
        bench = self._owner.bench
        try:
            if not self.loop.call_soon(self._begin, self._context):
                bench.end()
                msg = "The event loop of this process is closed."
                raise RuntimeError(msg)
            bench.serve(lambda idle: look(self, idle))
        except BaseException:
            self.cancel()
            bench.serve(until=None if leave is None else time.monotonic() + leave)
            raise
        finally:
            bench.close()
        value, error = self._value, self._error
        self._value = self._error = None  # so that no error holds itself through its traceback
        if error is None:
            return value
        try:
            raise error
        finally:
            del error

    def cancel(self) -> None:
        """Cancel what runs, or is about to; from any thread. Once: it may have to wait for something on its way out."""
        if not self._is_unwanted:
            self._is_unwanted = True
            self.loop.call_soon(lambda: self._is_begun and self._task and self._task.cancel())

    def _begin(self) -> None:
        self._task = self.loop.create_task(self._main(), self._context)
        self._task.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        if not self._is_begun:  # somebody cancelled every task that there was
            self._error = asyncio.CancelledError()
        if isinstance(self._error, asyncio.CancelledError) and not self._error.args and not self._is_unwanted:
            self._error.args = (CANCELLED,)
        self._task = None
        self._owner.bench.end()

    async def _main(self) -> None:
        awaitable, self._awaitable = self._awaitable, None
        assert awaitable is not None  # noqa: S101  for the type checker
        self._is_begun = True
        try:
            _take_over()
            if self._is_unwanted:
                self._task.cancel()  # type: ignore[union-attr]  # a task runs this
            self._value = await awaitable
        except BaseException as error:  # noqa: BLE001  raised through the loop, it would be held by frames that hold it
            self._error = error
        await self._owner.end()


def _take_over() -> None:
    """Make this thread the owner of what the attempt's thread had set, as asgiref does where it changes threads."""
    for variable, value in contextvars.copy_context().items():
        if isinstance(value, _OF_A_THREAD):
            variable.set(local._rehome(value))  # type: ignore[arg-type]  # noqa: SLF001
