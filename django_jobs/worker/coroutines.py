"""Running what a coroutine handler returns: one loop per attempt, in a thread that lives no longer than the attempt.

What ``sync_to_async`` runs by default, the ORM above all, runs in the thread of the attempt: it has the connection, and
perhaps a transaction open. That thread serves those calls while it waits for the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any

from asgiref import local
from asgiref.sync import AsyncToSync
from django.db import connections

LEAVE = 5.0  # seconds that a coroutine has to put things away when the thread that waits for it has to go
# Since 3.12, what asgiref's Local holds says of which thread it is, and others do not see it: language, time zone.
_OF_A_THREAD: type | tuple[()] = getattr(local, "_Storage", ())
_Call = tuple[Future[Any], Callable[[], Any]]


def run(
    awaitable: Awaitable[Any],
    *,
    at_end: Callable[[], object] = lambda: None,
    look: Callable[[Loop], object] = lambda _: None,
) -> Any:
    """Run an awaitable to its end and return what it returns, or raise what it raises.

    Args:
        awaitable: What the handler returned.
        at_end: Called in the loop's thread when the loop is closed.
        look: Called in this thread, between two calls that it serves, a few times a second.

    Raises:
        BaseException: Also what is raised in this thread while it waits, as Ctrl-C is; the coroutine is cancelled then.
    """
    loop = Loop(awaitable, at_end)
    try:
        loop.start()
        loop.bench.serve(lambda: look(loop))
    except BaseException:
        loop.cancel()
        loop.bench.serve(until=time.monotonic() + LEAVE)
        raise
    finally:
        loop.bench.close()
    loop.thread.join()
    return loop.outcome()


class Bench(Executor):
    """Runs calls in the thread that serves it."""

    LOOK_EVERY = 0.25  # seconds

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the serving thread call a function.

        Raises:
            RuntimeError: Nobody serves it any more.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                msg = "The attempt has ended; what its coroutine left running can call nothing in its thread any more."
                raise RuntimeError(msg)
            self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def serve(self, look: Callable[[], object] = lambda: None, *, until: float | None = None) -> None:
        """Make the calls until the loop has ended; ``until`` (of the monotonic clock) is the latest."""
        while until is None or time.monotonic() < until:
            try:
                call = self._calls.get(timeout=self.LOOK_EVERY)
            except queue.Empty:
                look()
                continue
            if call is None:
                return
            _make(*call)
            del call

    def end(self) -> None:
        """Let the serving thread go when it has made the calls that wait."""
        self._calls.put(None)

    def close(self) -> None:
        """Refuse further calls, and cancel those that wait."""
        with self._lock:
            self._closed = True
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call[0].cancel()


def _make(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001  it belongs to whoever awaits the call
        future.set_exception(error)
        del future  # the error's traceback holds this frame
    else:
        future.set_result(value)


class Loop:
    """An event loop in a thread of its own, with one awaitable to run."""

    def __init__(self, awaitable: Awaitable[Any], at_end: Callable[[], object]) -> None:
        self.bench = Bench()
        # A daemon: a coroutine that never ends must not keep the process from ending.
        self.thread = threading.Thread(target=self._work, name="django_jobs-loop", daemon=True)
        self._awaitable: Awaitable[Any] | None = awaitable
        self._context = contextvars.copy_context()
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_unwanted = False
        self._value: Any = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: The system has no more threads.
        """
        try:
            self.thread.start()
        except RuntimeError:
            self.bench.end()
            raise

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Call a function in the loop's next turn; False when there is none, not yet or not any more."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False  # it was closed just now
        return True

    def cancel(self) -> None:
        """Cancel what runs, or is about to."""
        self._is_unwanted = True
        self.call_soon(lambda: self._task and self._task.cancel())

    def outcome(self) -> Any:
        """Return or raise what came of it; once, so that no error holds itself through its traceback."""
        value, error = self._value, self._error
        self._value = self._error = None
        if error is None:
            return value
        try:
            raise error
        finally:
            del error

    def _work(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                AsyncToSync.loop_thread_executors[self._loop] = self.bench  # type: ignore[assignment]
                runner.run(self._main(), context=self._context)
        except BaseException as error:  # noqa: BLE001  Ctrl-C in another task of the loop, for example
            self._error = self._error or error
        finally:
            if self._loop is not None:
                AsyncToSync.loop_thread_executors.pop(self._loop, None)
            self._task = self._loop = None
            self._at_end()
            connections.close_all()  # with DJANGO_ALLOW_ASYNC_UNSAFE a coroutine can open some here
            self.bench.end()

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        awaitable, self._awaitable = self._awaitable, None
        assert awaitable is not None  # noqa: S101  for the type checker
        _take_over()
        try:
            if self._is_unwanted:
                self._task.cancel()  # type: ignore[union-attr]  # a task runs this
            self._value = await awaitable
        except BaseException as error:  # noqa: BLE001  raised through the loop, it would be held by frames that hold it
            self._error = error


def _take_over() -> None:
    """Make this thread the owner of what the attempt's thread had set, as asgiref does where it changes threads."""
    for variable, value in contextvars.copy_context().items():
        if isinstance(value, _OF_A_THREAD):
            variable.set(local._rehome(value))  # type: ignore[arg-type]  # noqa: SLF001
