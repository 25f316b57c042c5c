"""Where a handler may be interrupted, told from the modules and names of its frames."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from django_jobs.worker.places import may_interrupt, may_refuse_statement

MINE, LIBRARY = "shop.jobs", "requests.sessions"


def entry(function: Callable[[], Any]) -> Any:
    """Call the handler, as the worker does."""
    return function()


def frame_of(*calls: tuple[str, str]) -> FrameType:
    """Return the innermost frame of calls into (module, function), which are made one by the other."""

    def called(left: tuple[tuple[str, str], ...]) -> FrameType:
        if not left:
            return sys._getframe(1)
        (module, name), *rest = left
        space: dict[str, Any] = {"__name__": module, "call": called, "rest": tuple(rest)}
        exec(f"def {name}():\n    return call(rest) if rest else frame()", space)
        space["frame"] = lambda: sys._getframe(1)
        found: FrameType = space[name]()
        return found

    result: FrameType = entry(lambda: called(calls))
    return result


# The frames of the lambda and of called() are of this module, as a handler's would be.
@pytest.mark.parametrize(
    ("calls", "interrupted", "refused"),
    [
        ([(MINE, "work")], True, True),
        ([(MINE, "work"), (LIBRARY, "get")], True, True),
        ([("django_jobs.backends.task_declared", "run"), (MINE, "work")], True, True),
        ([("django_jobs.backends.task_declared", "run")], False, True),
        ([(MINE, "work"), ("django_jobs.enqueue.enqueue", "enqueue")], False, False),
        ([("django_jobs.jobs", "send"), ("smtplib", "send")], False, False),
        ([("django_jobs.effects.record", "perform"), (LIBRARY, "get")], False, False),
        ([(MINE, "work"), ("django.db.models.query", "get")], False, True),
        ([(MINE, "work"), ("django.db", "connect"), (MINE, "receiver")], False, True),
        ([(MINE, "work"), ("django.dbx", "get")], True, True),
        ([(MINE, "work"), ("psycopg.cursor", "execute")], False, True),
        ([(MINE, "work"), ("sqlite3.dbapi2", "execute")], False, False),
        ([(MINE, "work"), ("django.db.transaction", "__exit__")], False, False),
        ([(MINE, "__enter__"), (LIBRARY, "lock")], False, False),
        ([(MINE, "__del__")], False, False),
        ([(MINE, "work"), ("logging", "handle")], False, False),
        ([(MINE, "work"), ("importlib._bootstrap", "_load")], False, False),
    ],
)
def test_only_what_need_not_stay_whole_is_interrupted(
    calls: list[tuple[str, str]], interrupted: bool, refused: bool
) -> None:
    """By an exception out of nowhere, and by one in place of a statement."""
    frame = frame_of(*calls)

    assert may_interrupt(frame, entry.__code__) is interrupted
    assert may_refuse_statement(frame, entry.__code__) is refused


def test_outside_of_a_handler_nothing_is_interrupted() -> None:
    """Neither before it is called, nor in what calls it."""
    frame = sys._getframe()

    assert not may_interrupt(frame, entry.__code__)
    assert not may_interrupt(frame, frame.f_code)
    assert not may_refuse_statement(frame, frame.f_code)
