"""A coroutine in which the soft time-out arrives where it awaits, as a cancellation that can be caught by its name."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

from django_jobs.exceptions import SoftTimeoutError


class SoftCancelledError(SoftTimeoutError, asyncio.CancelledError):
    """The soft time-out as a cancellation: groups of tasks end theirs, and what may not break off is waited for."""


# What a handler logs, and what is stored, is the error that is documented.
SoftCancelledError.__module__ = SoftTimeoutError.__module__
SoftCancelledError.__name__ = SoftCancelledError.__qualname__ = SoftTimeoutError.__name__


class Driven:
    """One awaitable on its loop; ``is_due`` is asked on the loop whether to tell it now."""

    def __init__(self, awaitable: Awaitable[Any], *, is_due: Callable[[], bool]) -> None:
        self._awaitable = awaitable
        self._is_due = is_due
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_asked = self._is_telling = False

    def wake(self) -> None:
        """Ask on the loop, in its next turn, whether it is time; from any thread, and as often as one likes."""
        loop = self._loop
        if loop is None or self._is_asked:
            return
        self._is_asked = True
        with contextlib.suppress(RuntimeError):  # it was closed just now
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._is_asked = False
        if self._task is not None and not self._task.done() and self._is_due():
            self._is_telling = True
            self._task.cancel()

    @types.coroutine
    def run(self) -> Generator[Any, Any, Any]:
        """Await it; a cancellation that comes from here is turned into the error that says so."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        inner = _awaiting(self._awaitable)
        step: Callable[[], Any] = partial(inner.send, None)
        try:
            while True:
                try:
                    awaited = step()
                except StopIteration as end:
                    return end.value
                try:
                    value = yield awaited
                    self._forget()
                    step = partial(inner.send, value)
                except BaseException as error:  # noqa: BLE001  it is the coroutine's
                    step = partial(inner.throw, self._named(error))
        finally:
            self._task = self._loop = None
            inner.close()

    def _named(self, error: BaseException) -> BaseException:
        if not self._forget() or not isinstance(error, asyncio.CancelledError):
            return error
        return SoftCancelledError()

    def _forget(self) -> bool:
        """Say whether what was awaited has answered a cancellation from here, which is over then."""
        told, self._is_telling = self._is_telling, False
        if told and self._task is not None:
            self._task.uncancel()
        return told


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
