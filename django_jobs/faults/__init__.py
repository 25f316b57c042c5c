"""Fault points: named moments at which a test ends, stops or disturbs this process. Outside of tests none is armed.

This room has the table of names (:mod:`django_jobs.faults.points`), what can happen there
(:mod:`django_jobs.faults.kinds`) and how that is armed. Other rooms call ``reached()`` with a name, which is one look
at a module attribute as long as nothing is armed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_jobs.faults.points import POINTS, STATEMENTS

Plan = Callable[[str, str], None]

# What to do at each point that is reached; None outside of tests.
plan: Plan | None = None


def reached(point: str, *, using: str) -> None:
    """Tell that this thread has come to a point; ``using`` is the database whose connection a fault there may hit."""
    if plan is not None:
        plan(point, using)


def before(statement: str, *, using: str) -> None:
    """Tell that a statement of the store is about to be sent."""
    if statement in STATEMENTS and (point := STATEMENTS[statement].before):
        reached(point, using=using)


def after(statement: str, *, using: str, committed: bool) -> None:
    """Tell that a statement of the store changed rows, inside an open transaction or for good."""
    if statement in STATEMENTS:
        names = STATEMENTS[statement]
        if point := names.after_commit if committed else names.after_update:
            reached(point, using=using)


def arm(wanted: Plan) -> None:
    """Have ``wanted(point, alias)`` called at every point of this process, for the rest of its life."""
    global plan
    plan = wanted


@contextmanager
def armed(point: str, action: Callable[[str], object], *, nth: int = 1) -> Iterator[Callable[[], bool]]:
    """Do something when this process comes to a point for the ``nth`` time during the block, in whichever thread.

    Args:
        point: A name of the table.
        action: Called with the database alias: a function of the test, or one of ``kinds.KINDS``.
        nth: How often the point must be reached.

    Yields:
        A function that says whether it was reached so often.

    Raises:
        ValueError: The table has no such point.
    """
    from django_jobs.faults.arming import Counted

    counted = Counted(checked(point), action, nth=nth)
    with _planned(counted):
        yield lambda: counted.fired


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Write down every point that this process reaches during the block, in its order."""
    seen: list[str] = []
    with _planned(lambda point, _: seen.append(checked(point))):
        yield seen


@contextmanager
def _planned(wanted: Plan) -> Iterator[None]:
    global plan
    outer, plan = plan, wanted
    try:
        yield
    finally:
        plan = outer


def checked(point: str) -> str:
    """Return the name of a point.

    Raises:
        ValueError: The table has no such point.
    """
    if point not in POINTS:
        msg = f"There is no fault point {point!r}; django_jobs/faults/points.py has {', '.join(sorted(POINTS))}."
        raise ValueError(msg)
    return point
