"""Handlers that leave something behind: a process that they forked, a thread that they started."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from django.db import connection

from django_jobs import JobContext, job
from tests.acceptance.handlers import answers, insert_row, tell
from tests.crash.handlers import FAST

_ended = threading.Event()


def _tried(what: str, n: int, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        tell(what, n, error=type(error).__name__)
    else:
        tell(what, n, error="")


@job(type="crash.forks", retry=FAST, takes_context=True)
def forks(context: JobContext, n: int, returns: bool) -> None:
    """Fork; the copy tries to act, then ends or comes back. The handler itself goes on as ever."""
    copy = os.fork()
    if not copy:
        _tried("forked", n, lambda: context.progress(1))
        _tried("forked", n, lambda: context.effect("ask", answers, n=n))
        _tried("forked", n, lambda: context.complete().__enter__())
        if returns:
            return
        os._exit(0)
    _, status = os.waitpid(copy, 0)
    tell("copy", n, code=os.waitstatus_to_exitcode(status))
    with context.complete():
        insert_row(n)


@job(type="crash.forks_atomic", retry=FAST)
def forks_atomic(n: int) -> None:
    """Fork inside the handler's transaction; the copy comes back from the handler."""
    insert_row(n)
    copy = os.fork()
    if copy:
        _, status = os.waitpid(copy, 0)
        tell("copy", n, code=os.waitstatus_to_exitcode(status))


@job(type="crash.leaves_thread", retry=FAST, takes_context=True)
def leaves_thread(context: JobContext, n: int) -> None:
    """Start a thread that goes on after the end, with the context and the connection of the handler."""
    of_handler = connection.connection and connection._connections[connection._alias]

    def go_on() -> None:
        _ended.wait(30)
        _tried("left", n, lambda: context.progress(1))
        _tried("left", n, lambda: context.effect("ask", answers, n=n))
        _tried("left", n, lambda: context.step("late", lambda: 1))
        _tried("left", n, lambda: context.complete().__enter__())
        _tried("connection", n, lambda: of_handler.cursor().execute("SELECT 1"))
        tell("thread over", n)

    with context.complete():
        insert_row(n)
    threading.Thread(target=go_on, daemon=True).start()


@job(type="crash.after_it", retry=FAST)
def after_it(n: int) -> None:
    """The next job of the process: from now on the one before has ended."""
    insert_row(n)
    _ended.set()
