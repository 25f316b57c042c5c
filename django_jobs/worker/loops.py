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
from typing import Any

from asgiref.sync import AsyncToSync
from django.db import connections

from django_jobs.worker.blocked import Blocked
from django_jobs.worker.owned import (
    Benches,
    Owned,
    Threads,
    context_of,
    end_copy_of_nobody,
    own,
    owned,
    owner_of,
)

logger = logging.getLogger("django_jobs.worker")

THREADS = 32  # of asyncio.to_thread, for all coroutines of one loop


class _Loop(asyncio.SelectorEventLoop):
    """Knows whose its tasks and threads are, whatever a handler or a library sets up on it for everybody."""

    def __init__(self) -> None:
        super().__init__()
        super().set_default_executor(Threads(THREADS, thread_name_prefix="django_jobs-to_thread"))

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        by = asyncio.current_task(self)
        task = super().create_task(coro, **options)
        own(task, options.get("context"), by=by)
        return task

    def set_default_executor(self, executor: object) -> None:
        logger.warning(
            "A coroutine has set %r as the executor of its loop; all coroutines of this process keep the one that they "
            "had. Pass an executor of your own to run_in_executor().",
            executor,
        )


class _Nothing(deque[Any]):
    """What is left to do on the loop of a copy."""

    def append(self, _: Any) -> None:
        """Forget it."""


class EventLoop:
    """The loop and its thread, from its making until :meth:`close`."""

    def __init__(self) -> None:
        self._loop = _Loop()  # whatever the policy says: of this one a copy can be made to rest
        self._is_over = False
        self._copied_by: Owned | None = None
        self._pid = os.getpid()
        self.blocked = Blocked(self)
        # A daemon: a coroutine that never ends must not keep the process from ending.
        self.thread = threading.Thread(target=self._work, name="django_jobs-loop", daemon=True)
        AsyncToSync.loop_thread_executors[self._loop] = Benches()  # type: ignore[assignment]
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
        return owner_of(asyncio.current_task(self._loop))

    def close(self, *, seconds: float | None = None) -> None:
        """End the loop, and wait for its thread, for so many seconds at most: what is left there may never end."""
        was_over, self._is_over = self._is_over, True
        if was_over or self.call_soon(self._loop.stop):
            self.thread.join(seconds)

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
        except (SystemExit, KeyboardInterrupt) as error:  # of a task; whoever awaits it is told
            logger.debug("A task of the event loop was ended by %s", type(error).__name__)
        except BaseException:
            logger.exception("The event loop stopped; it goes on")
        finally:
            if self._pid != os.getpid():  # the coroutines of others must not run here too
                (self._copied_by.end_copy if self._copied_by else end_copy_of_nobody)()

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


def _own_generators() -> None:
    """Know from now on who begins an asynchronous generator, beside what the loop itself does with it."""
    hooks = sys.get_asyncgen_hooks()

    def begun(generator: AsyncGenerator[Any, Any]) -> None:
        owner = owned.get(None)
        if owner is not None:
            owner.add_generator(generator)
        if hooks.firstiter is not None:
            hooks.firstiter(generator)

    def collected(generator: AsyncGenerator[Any, Any]) -> None:
        if hooks.finalizer is not None:  # which closes it in a task of its own
            context_of(generator).run(hooks.finalizer, generator)

    sys.set_asyncgen_hooks(firstiter=begun, finalizer=collected)


def _forget_others() -> None:
    for loop in list(_open_loops):
        loop.forget_others()


os.register_at_fork(after_in_child=_forget_others)
