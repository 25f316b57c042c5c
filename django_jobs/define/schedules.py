"""Declaring schedules: which job type, when, and with which arguments."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from django_jobs.define.definition import DurableJob
from django_jobs.define.module_runs import run_of
from django_jobs.domain.identity import check_name
from django_jobs.domain.schedules import GRACE, LEAST_GRACE, Cron, Every, Missed, Rule
from django_jobs.exceptions import DefinitionError

NAME_LIMIT = 200
Arguments = Callable[[datetime], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a schedule is declared: in which execution of which module, and whether by ``@job``."""

    module: str
    run: object
    by_decorator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """One declared schedule."""

    name: str
    job: DurableJob[..., Any]
    rule: Rule
    missed: Missed
    grace: timedelta
    arguments: Arguments | None
    place: Place

    @property
    def text(self) -> str:
        """The rule as it is stored: two releases with different texts do not serve each other's schedule."""
        return self.rule.text

    def arguments_at(self, tick: datetime) -> Mapping[str, Any]:
        """Return what the job of a tick gets: what ``arguments`` makes of it, or the tick itself as ``tick``, if taken.

        Raises:
            DefinitionError: ``arguments`` returned no dict.
        """
        if self.arguments is not None:
            made = self.arguments(tick)
            if not isinstance(made, Mapping):
                msg = f"arguments= of the schedule {self.name!r} must return a dict, not {made!r}."
                raise DefinitionError(msg)
            return made
        return {"tick": tick} if "tick" in self.job.definition.signature.parameters else {}


_schedules: dict[str, ScheduleDefinition] = {}
_lock = threading.Lock()


def schedule(
    job: DurableJob[..., Any],
    rule: Rule | str,
    *,
    name: str | None = None,
    missed: str = Missed.COALESCE,
    grace: timedelta = GRACE,
    arguments: Arguments | None = None,
) -> ScheduleDefinition:
    """Declare that a job type is enqueued again and again; in ``jobs.py`` or ``schedules.py`` of an app.

    Args:
        job: What ``@job`` left in place of the handler; ``.using(…)`` gives the queue, priority or tenant.
        rule: ``Cron("0 6 * * *", timezone="Europe/Berlin")``, ``Every(timedelta(minutes=5))``, or the text of a cron
            expression, which is meant in the project's time zone.
        name: What the schedule is called for ever; default: the job type's name, of its ``aliases`` the oldest, so that
            a rename keeps it. Two schedules of one job type need two names.
        missed: What becomes of ticks that passed while no worker ran: "skip", "coalesce" (default) or "catch_up".
        grace: How late a tick still counts as on time, for "skip"; ten seconds or more.
        arguments: Makes the job's arguments of the tick, an aware UTC datetime. Default: the tick as ``tick``, if the
            handler has such a parameter.

    Raises:
        DefinitionError: The declaration cannot work, or the name is that of another one; the message says why.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    caller = str(sys._getframe(1).f_globals.get("__name__", ""))  # noqa: SLF001  nothing else tells a reload
    place = Place(caller, run_of(caller))
    return declare_schedule(job, rule, place=place, name=name, missed=missed, grace=grace, arguments=arguments)


def declare_schedule(
    job: DurableJob[..., Any],
    rule: Rule | str,
    *,
    place: Place,
    name: str | None = None,
    missed: str = Missed.COALESCE,
    grace: timedelta = GRACE,
    arguments: Arguments | None = None,
) -> ScheduleDefinition:
    """Do what :func:`schedule` does, for a declaration at this place.

    Raises:
        DefinitionError: The declaration cannot work, or the name is that of another one; the message says why.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    if not isinstance(job, DurableJob):
        msg = f"A schedule enqueues a job type, what @job leaves in place of a function, not {job!r}."
        raise DefinitionError(msg)
    called = check_name(job.definition.oldest_name if name is None else name, what="schedule name", limit=NAME_LIMIT)
    declared = ScheduleDefinition(
        name=called,
        job=job,
        rule=_rule(rule),
        missed=_missed(called, missed),
        grace=_grace(called, grace),
        arguments=arguments,
        place=place,
    )
    _check_arguments(declared)
    with _lock:
        other = _schedules.get(called)
        if other is not None and _are_two(other, declared):
            msg = (
                f"The schedule {called!r} is declared twice, for {other.job!r} ({other.text}) and for {job!r} "
                f"({declared.text}); name= tells them apart."
            )
            raise DefinitionError(msg)
        _schedules[called] = declared
    return declared


def _are_two(one: ScheduleDefinition, other: ScheduleDefinition) -> bool:
    """Say whether one name was given to two schedules; a module that is executed once more declares its own again."""
    if one.place.module != other.place.module or not {*one.job.definition.names} & {*other.job.definition.names}:
        return True
    if one.place.run is not other.place.run:
        return False
    if one.place.run is None or one.job.definition is not other.job.definition:
        # Nobody knows, or the job type was made anew and has brought its schedule: then the rule has to tell.
        return one.text != other.text
    return one != other


def _rule(rule: object) -> Rule:
    if isinstance(rule, str):
        return Cron(rule, timezone=settings.TIME_ZONE)
    if isinstance(rule, Cron | Every):
        return rule
    msg = f"A schedule's rule is a Cron(), an Every() or the text of a cron expression, not {rule!r}."
    raise DefinitionError(msg)


def _missed(name: str, missed: str) -> Missed:
    try:
        return Missed(missed)
    except ValueError:
        msg = f"missed of the schedule {name!r} must be 'skip', 'coalesce' or 'catch_up', not {missed!r}."
        raise DefinitionError(msg) from None


def _grace(name: str, grace: object) -> timedelta:
    if not isinstance(grace, timedelta) or grace < LEAST_GRACE:
        least = f"{LEAST_GRACE.total_seconds():g} s"
        msg = (
            f"grace of the schedule {name!r} must be a timedelta of at least {least}, not {grace!r}: a worker may look "
            "some seconds after a tick."
        )
        raise DefinitionError(msg)
    return grace


def _check_arguments(declared: ScheduleDefinition) -> None:
    """Refuse a handler that no tick could be run with: it needs arguments that nobody makes."""
    if declared.arguments is not None:
        return
    parameters = declared.job.definition.signature.parameters.values()
    needed = [
        one.name for one in parameters if one.default is one.empty and one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    if missing := [name for name in needed if name != "tick"]:
        msg = (
            f"The schedule {declared.name!r} must say what {missing[0]!r} is: give arguments=, a function of the tick "
            "that returns a dict."
        )
        raise DefinitionError(msg)


def find_schedule(name: str) -> ScheduleDefinition | None:
    """Return the declaration of this name, or None."""
    return _schedules.get(name)


def declared_schedules() -> Iterator[ScheduleDefinition]:
    """Yield every declaration, by name."""
    with _lock:
        known = sorted(_schedules.items())
    for _, declared in known:
        yield declared


def forget_schedule(name: str) -> None:
    """Forget a declaration; for tests that make one."""
    with _lock:
        _schedules.pop(name, None)
