"""What the coroutine of one attempt has started on a loop that it shares: known as its own, and ended with it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import connections

from django_jobs.worker.bench import Bench

if TYPE_CHECKING:
    from django_jobs.worker.attempt import RunningAttempt

PASSES = 100  # of ending what is left, which may begin something on its way out; what begins later does not run


def end_copy_of_nobody() -> NoReturn:
    """End a copy of this process that was made by code of no attempt."""
    os._exit(os.EX_SOFTWARE)


class Owned:
    """Tasks, asynchronous generators and calls in threads.

    Args:
        attempt: The attempt; None where there is none, as in a test.
        end_copy: Ends a process that the coroutine has made by a fork.
    """

    def __init__(
        self, attempt: RunningAttempt | None = None, end_copy: Callable[[], NoReturn] = end_copy_of_nobody
    ) -> None:
        self.attempt = attempt
        self.end_copy = end_copy
        self.bench = Bench()
        self.is_over = False
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self._begun: dict[int, contextvars.Context] = {}  # by the id of a generator; its finalizer sees no more of it
        self._threads: set[Future[Any]] = set()

    def add_task(self, task: asyncio.Task[Any]) -> None:
        """Own a task; one that begins when all is over, from a timer for example, does not run."""
        self._tasks.add(task)
        if self.is_over:
            task.cancel()

    def add_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Own a generator that begins."""
        self._generators.add(generator)
        self._begun[id(generator)] = _contexts[id(generator)] = contextvars.copy_context()

    def add_thread(self, future: Future[Any]) -> None:
        """Own a call in a thread."""
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)

    async def end(self) -> None:
        """Cancel the tasks that are left, close the generators, and wait for the threads.

        Whoever cancels this meanwhile waits too: what is left would act although its attempt is over.
        """
        for _ in range(PASSES):
            if not await self._ended_some():
                break
        self.is_over = True
        for key, context in self._begun.items():
            if _contexts.get(key) is context:
                del _contexts[key]
        self._begun.clear()

    async def _ended_some(self) -> bool:
        this = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not this and not task.done()]
        for task in tasks:
            task.cancel()
        await _to_the_end(asyncio.gather(*tasks, return_exceptions=True))
        _tell_of_errors(tasks)
        generators = [generator for generator in self._generators if getattr(generator, "ag_frame", None) is not None]
        for generator in generators:
            await _to_the_end(_closed(generator))
        threads = [asyncio.wrap_future(future) for future in list(self._threads) if not future.done()]
        await _to_the_end(asyncio.gather(*threads, return_exceptions=True))
        return bool(tasks or generators or threads)


async def _to_the_end(awaitable: Awaitable[Any]) -> None:
    future = asyncio.ensure_future(awaitable)
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


def _tell_of_errors(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "A task that a coroutine handler had left running failed when it was cancelled"
            asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error, "task": task})


async def _closed(generator: AsyncGenerator[Any, Any]) -> None:
    try:
        await generator.aclose()
    except BaseException as error:  # noqa: BLE001  what is left of a handler that has ended
        text = "An asynchronous generator that a coroutine handler had left open failed when it was closed"
        asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error, "asyncgen": generator})


owned: contextvars.ContextVar[Owned] = contextvars.ContextVar("django_jobs_owned")
_owners: weakref.WeakKeyDictionary[asyncio.Task[Any], Owned] = weakref.WeakKeyDictionary()
_contexts: dict[int, contextvars.Context] = {}


def owner_of(task: asyncio.Task[Any] | None) -> Owned | None:
    """Return whose task it is; None for nobody's."""
    return None if task is None else _owners.get(task)


def own(task: asyncio.Task[Any], context: contextvars.Context | None, *, by: asyncio.Task[Any] | None) -> None:
    """Know whose a new task is: its context says it, or that of the code that makes it, or the task that does."""
    owner = (context.get(owned) if context is not None else None) or owned.get(None) or owner_of(by)
    if owner is not None:
        _owners[task] = owner
        owner.add_task(task)


def context_of(generator: AsyncGenerator[Any, Any]) -> contextvars.Context:
    """Return the context in which a generator that is collected began; no garbage is swept in somebody else's."""
    return _contexts.pop(id(generator), None) or contextvars.Context()


class Benches(Executor):
    """Where what ``sync_to_async`` calls on a loop goes: to the thread of the attempt that calls it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the attempt's thread call a function.

        Raises:
            RuntimeError: This is code of no attempt, or of one that has ended.
        """
        owner = owned.get(None)
        if owner is None:
            msg = "This code belongs to no attempt, so there is no thread in which it could ask the database."
            raise RuntimeError(msg)
        return owner.bench.submit(fn, *args, **kwargs)


class Threads(ThreadPoolExecutor):
    """Threads for ``asyncio.to_thread``, in which no call leaves a connection to the next."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread.

        Raises:
            RuntimeError: The attempt whose code this is has ended.
        """
        owner = owned.get(None)
        if owner is None:
            return super().submit(_cleanly, fn, *args, **kwargs)
        if owner.is_over:
            msg = "The attempt has ended; what its coroutine left running can begin nothing any more."
            raise RuntimeError(msg)
        future = super().submit(_cleanly, fn, *args, **kwargs)
        owner.add_thread(future)
        return future


def _cleanly(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    finally:
        connections.close_all()
