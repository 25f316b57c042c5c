"""An event loop in a thread of its own, for the coroutines of many attempts: what each of them left is its own.

What a coroutine starts on the loop is known by a context variable, which tasks inherit. So tasks, generators and
threads that an attempt leaves behind are ended with it, though the loop goes on for others.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from asgiref.sync import AsyncToSync
from django.db import connections

from django_jobs.worker.bench import Bench
from django_jobs.worker.blocked import Blocked

if TYPE_CHECKING:
    from django_jobs.worker.attempt import RunningAttempt

logger = logging.getLogger("django_jobs.worker")

THREADS = 32  # of asyncio.to_thread, for all coroutines of one loop


def _end_copy() -> NoReturn:
    os._exit(os.EX_SOFTWARE)


class Owned:
    """What the coroutine of one attempt has started on its loop.

    Args:
        attempt: The attempt; None where there is none, as in a test.
        end_copy: Ends a process that the coroutine has made by a fork.
    """

    def __init__(self, attempt: RunningAttempt | None = None, end_copy: Callable[[], NoReturn] = _end_copy) -> None:
        self.attempt = attempt
        self.end_copy = end_copy
        self.bench = Bench()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self.threads: set[Future[Any]] = set()

    async def end(self) -> None:
        """End what is left: tasks are cancelled, generators closed, threads waited for."""
        this = asyncio.current_task()
        while left := [task for task in self.tasks if task is not this and not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            _tell_of_errors(left)
        for generator in list(self.generators):
            await _closed(generator)
        if threads := [asyncio.wrap_future(future) for future in list(self.threads) if not future.done()]:
            await asyncio.wait(threads)


def _tell_of_errors(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "A task that a coroutine handler had left running failed when it was cancelled"
            asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error, "task": task})


async def _closed(generator: AsyncGenerator[Any, Any]) -> None:
    try:
        await generator.aclose()
    except Exception as error:  # noqa: BLE001  what is left of a handler that has ended
        text = "An asynchronous generator that a coroutine handler had left open failed when it was closed"
        asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error, "asyncgen": generator})


owned: contextvars.ContextVar[Owned] = contextvars.ContextVar("django_jobs_owned")


class _Benches(Executor):
    """Where what ``sync_to_async`` calls on a loop goes: to the thread of the attempt that calls it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        owner = owned.get(None)
        if owner is None:
            msg = "This code belongs to no attempt, so there is no thread in which it could ask the database."
            raise RuntimeError(msg)
        return owner.bench.submit(fn, *args, **kwargs)


class _Threads(ThreadPoolExecutor):
    """Threads for ``asyncio.to_thread``, in which no call leaves a connection to the next."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(_cleanly, fn, *args, **kwargs)
        owner = owned.get(None)
        if owner is not None:
            owner.threads.add(future)
            future.add_done_callback(owner.threads.discard)
        return future


def _cleanly(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    finally:
        connections.close_all()


class _Nothing(deque[Any]):
    """What is left to do on the loop of a copy."""

    def append(self, _: Any) -> None:
        """Forget it."""


class EventLoop:
    """The loop and its thread, from its making until :meth:`close`."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()  # whatever the policy says: of this one a copy can be made to rest
        self._loop.set_task_factory(_owned_task)
        self._loop.set_default_executor(_Threads(THREADS, thread_name_prefix="django_jobs-to_thread"))
        self._is_over = False
        self._copied_by: Owned | None = None
        self._pid = os.getpid()
        self.blocked = Blocked(self)
        # A daemon: a coroutine that never ends must not keep the process from ending.
        self.thread = threading.Thread(target=self._work, name="django_jobs-loop", daemon=True)
        AsyncToSync.loop_thread_executors[self._loop] = _Benches()  # type: ignore[assignment]
        _open_loops.add(self)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: The system has no more threads.
        """
        try:
            self.thread.start()
        except RuntimeError:
            self._put_away()
            raise

    def call_soon(self, function: Callable[[], object], context: contextvars.Context | None = None) -> bool:
        """Call a function in the loop's next turn; False when it has been closed."""
        try:
            self._loop.call_soon_threadsafe(function, context=context)
        except RuntimeError:
            return False
        return True

    def create_task(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> asyncio.Task[Any]:
        """Begin a coroutine; only in the loop's thread."""
        return self._loop.create_task(coroutine, context=context)

    @property
    def owner_at_work(self) -> Owned | None:
        """Whose task runs now; None between two, and for any thread to ask."""
        task = asyncio.current_task(self._loop)
        return None if task is None else _owners.get(task)

    def close(self) -> None:
        """End the loop and wait for its thread."""
        self._is_over = True
        if self.call_soon(self._loop.stop):
            self.thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_over:
                self._turn()
        finally:
            self._put_away()

    def _turn(self) -> None:
        self._loop.call_soon(_own_generators)
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001  of a task; whoever awaits it is told
            logger.debug("A task of the event loop was ended by %s", type(error).__name__)
        finally:
            if self._pid != os.getpid():  # the coroutines of others must not run here too
                (self._copied_by.end_copy if self._copied_by else _end_copy)()

    def forget_others(self) -> None:
        """Let nothing more run on the loop: this process is a copy, which a coroutine has just made by a fork."""
        if threading.current_thread() is self.thread:
            self._copied_by = owned.get(None)
            self._loop.stop()
            self._loop._ready = _Nothing()  # type: ignore[attr-defined]  # noqa: SLF001  for the rest of this turn too

    def _put_away(self) -> None:
        _open_loops.discard(self)
        AsyncToSync.loop_thread_executors.pop(self._loop, None)
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        self._loop.close()
        connections.close_all()  # with DJANGO_ALLOW_ASYNC_UNSAFE a coroutine can open some here


_open_loops: weakref.WeakSet[EventLoop] = weakref.WeakSet()
_owners: weakref.WeakKeyDictionary[asyncio.Task[Any], Owned] = weakref.WeakKeyDictionary()


def _owned_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task that whoever made it is known to own."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    context: contextvars.Context | None = options.get("context")
    owner = owned.get(None) if context is None else context.get(owned)
    if owner is not None:
        owner.tasks.add(task)
        _owners[task] = owner
    return task


def _own_generators() -> None:
    """Know from now on who begins an asynchronous generator, beside what the loop itself does with it."""
    hooks = sys.get_asyncgen_hooks()

    def begun(generator: AsyncGenerator[Any, Any]) -> None:
        owner = owned.get(None)
        if owner is not None:
            owner.generators.add(generator)
        if hooks.firstiter is not None:
            hooks.firstiter(generator)

    sys.set_asyncgen_hooks(firstiter=begun, finalizer=hooks.finalizer)


def _forget_others() -> None:
    for loop in list(_open_loops):
        loop.forget_others()


os.register_at_fork(after_in_child=_forget_others)
