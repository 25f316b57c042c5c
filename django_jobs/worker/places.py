"""Where a handler may be interrupted: in code of its own, and never in the middle of what has to stay whole."""

from __future__ import annotations

from types import CodeType, FrameType

_OURS = "django_jobs"
# What calls the function that somebody wrote: the handler of a stock task, and of a test.
_ENTRANCES = frozenset({"django_jobs.backends.task_declared", "django_jobs.testing.running"})
# asgiref has Django's connections; an import that breaks off leaves half a module; a lock of logging is lost for good.
# What waits in threading and queue may have got what it waits for, and have woken nobody else for it.
_WHOLE = frozenset(
    {_OURS, "asgiref", "importlib", "_frozen_importlib", "_frozen_importlib_external", "logging", "sqlite3"}
    | {"threading", "queue", "multiprocessing"}
)
_DRIVERS = ("psycopg", "psycopg_c", "psycopg_binary", "psycopg_pool")
# What enters and leaves blocks, and what collects garbage, where an exception is lost.
_EDGES = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__del__", "enter_context"})
# Between such a call and the try that gives back what it took, nothing can be seen of it from outside.
_TAKES = frozenset({"acquire", "flock", "lockf"})


def may_interrupt(frame: FrameType, entry: CodeType) -> bool:
    """Say whether an exception may come out of ``frame``, all of whose callers up to ``entry`` are code of a handler.

    Not in a statement: the connection would be left in the middle of an answer. Nor in a function that takes a lock by
    its own hand.
    """
    takes = not _TAKES.isdisjoint(frame.f_code.co_names)
    return not takes and not _is_ours(frame) and _is_open(frame, entry, database=False)


def may_refuse_statement(frame: FrameType, entry: CodeType) -> bool:
    """Say whether the statement that ``frame`` is about to make is the handler's own: an error may stand for it.

    What the package stores has to stay whole, and so has the end of a block: its errors are not what Django expects.
    """
    return _is_open(frame, entry, database=True)


def _is_open(frame: FrameType, entry: CodeType, *, database: bool) -> bool:
    at: FrameType | None = frame
    while at is not None and at.f_code is not entry:
        if _is_closed(at, database=database):
            return False
        at = at.f_back
    return at is not None and at is not frame


def _is_closed(frame: FrameType, *, database: bool) -> bool:
    module = _module(frame)
    root = module.partition(".")[0]
    if frame.f_code.co_name in _EDGES or (root in _WHOLE and module not in _ENTRANCES):
        return True
    return not database and (root in _DRIVERS or f"{module}.".startswith("django.db."))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] == _OURS


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")
