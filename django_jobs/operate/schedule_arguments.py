"""What a schedule's ``arguments`` makes of ticks: code of a project, asked outside of transactions, and not for long.

It runs in a thread of its own, with connections of its own. Code that never returns costs its schedule the tick, and
costs other schedules a moment; code that leaves a transaction open leaves it in a connection that is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connections

from django_jobs.define.schedules import ScheduleDefinition
from django_jobs.exceptions import JobsError

WITHIN = 10.0  # seconds for all ticks of one turn

Answer = Mapping[str, Any] | BaseException


class ScheduleArgumentsError(JobsError):
    """The ``arguments`` of a schedule did not return in time."""


_asked: dict[str, threading.Thread] = {}


def ask(declared: ScheduleDefinition, ticks: Sequence[datetime], *, within: float = WITHIN) -> dict[datetime, Answer]:
    """Return the bound arguments of the ticks, or what was raised instead; the first tick always has an answer.

    Ticks that there was no time for are left out.
    """
    if declared.arguments is None or not ticks:
        return _answers(declared, ticks, {}, lambda: False)
    before = _asked.get(declared.name)
    if before is not None and before.is_alive():
        return {ticks[0]: ScheduleArgumentsError("arguments= of an earlier tick has not returned yet.")}
    found: dict[datetime, Answer] = {}
    late = threading.Event()
    thread = threading.Thread(
        target=_answer_apart, args=(declared, ticks, found, late.is_set), name="django_jobs-arguments", daemon=True
    )
    _asked[declared.name] = thread
    thread.start()
    thread.join(timeout=within)
    late.set()
    answers = dict(found)
    if not thread.is_alive():
        _asked.pop(declared.name, None)
    return answers or {ticks[0]: ScheduleArgumentsError(f"arguments= did not return within {within:g} s.")}


def _answer_apart(
    declared: ScheduleDefinition,
    ticks: Sequence[datetime],
    found: dict[datetime, Answer],
    is_late: Callable[[], bool],
) -> None:
    try:
        _answers(declared, ticks, found, is_late)
    finally:
        connections.close_all()


def _answers(
    declared: ScheduleDefinition,
    ticks: Sequence[datetime],
    found: dict[datetime, Answer],
    is_late: Callable[[], bool],
) -> dict[datetime, Answer]:
    for tick in ticks:
        if is_late():
            break
        try:
            found[tick] = declared.job.definition.bind((), declared.arguments_at(tick))
        except BaseException as error:  # noqa: BLE001  foreign code may raise anything, even SystemExit
            found[tick] = error
    return found
