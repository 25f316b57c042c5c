"""What the package remembers for a whole process; each test finds it as the first one did.

Workers live in processes of their own, so such memory is right for them. Tests share one process with each other.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections

from django_jobs import clock, faults, telemetry
from django_jobs.define import events, registry, schedules
from django_jobs.domain import ids
from django_jobs.effects import adapter
from django_jobs.enqueue import backpressure
from django_jobs.operate import schedule_arguments
from django_jobs.outbox import wake
from django_jobs.store import notify, statements
from django_jobs.worker import chores, hooked
from django_jobs.worker.failures import failures
from django_jobs.worker.outage import outage
from django_jobs.worker.patience import stopping
from django_jobs.worker.watch import watch

Restore = Callable[[], None]

CONTAINERS: tuple[Any, ...] = (
    telemetry._receivers,
    telemetry._failed,
    telemetry.counts,
    notify._notified,
    wake._listening,
    schedule_arguments._asked,
    hooked._told,
)
ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (clock, "_source"),
    (clock, "_skipped"),
    (faults, "plan"),
    (statements, "_prepare"),
    (backpressure._samples, "_taken"),
    (failures, "_told"),
    (failures, "_untold"),
    (outage, "_since"),
    (outage, "_told"),
    (outage, "_last"),
    (watch, "_hurried"),
)
# What stays: where it comes from, or what it says, is the same for every test.
HARMLESS = frozenset(
    {
        "django_jobs.admin.filters.ErrorClassFilter",  # a class
        "django_jobs.backends.task_declared._declared",  # what the code declares, as the registry of job types
        "django_jobs.observe.start._started",  # the app is ready once per process
        "django_jobs.signals.owner_alert",  # who is connected takes care of itself
        "django_jobs.telemetry.attempt_facts",  # a context variable
        "django_jobs.worker.outlet.port",  # opened by the command runworker alone
        "django_jobs.backends.email._sent",  # context variables
        "django_jobs.hooks._loaded",  # follows the settings
        "django_jobs.domain.ids._generator",  # ids go on rising, unless a test travelled
        "django_jobs.enqueue.inside.current",
        "django_jobs.enqueue.membership._open",
        "django_jobs.testing.life._here",  # for the length of a run, as the next one
        "django_jobs.testing.stage._here",
        "django_jobs.effects.adapters.storage.storage_put",  # without a state
        "django_jobs.store.new_jobs._columns",
        "django_jobs.store.new_jobs._shared",
        "django_jobs.worker.soft_watch.soft_watch",  # a handler that has ended is not looked at
        "django_jobs.worker.session._verdicts",  # what is remembered follows from the text alone
        "django_jobs.worker.session._classes",
        "django_jobs.worker.owned.owned",  # a context variable
        "django_jobs.worker.loops._open_loops",  # weak, as the next one
        "django_jobs.worker.owned._owners",
        "django_jobs.worker.owned._contexts",  # of generators of attempts that run
    }
)


@contextmanager
def kept() -> Iterator[None]:
    """Bring back what the package remembers for the process when the block ends."""
    with ExitStack() as stack:
        for container in CONTAINERS:
            stack.callback(_refill, container, copy.copy(container))
        for owner, name in ATTRIBUTES:
            stack.callback(setattr, owner, name, copy.copy(getattr(owner, name)))
        for declared in (registry._jobs, adapter._declared, chores._chores, schedules._schedules):
            stack.callback(_forget_declared, declared, set(declared), frozenset(sys.modules))
        stack.callback(_forget_event_types, set(events._types), frozenset(sys.modules))
        for alias, settings in connections.settings.items():
            stack.callback(_put_back, alias, copy.deepcopy(settings))
        if not stopping.is_set():
            stack.callback(stopping.clear)
        stack.callback(_come_back)
        yield


def _come_back() -> None:
    """Let ids of the present follow those that a test made in the future: rows are looked for by the time in their ids."""
    if ids._generator._millisecond > time.time() * 1000 + 1000:
        ids._generator.restart()


def _refill(container: Any, before: Any) -> None:
    if container != before:
        container.clear()
        (container.extend if isinstance(container, list) else container.update)(before)


def _forget_declared(declared: dict[str, Any], before: set[str], modules: frozenset[str]) -> None:
    """Forget what a test declared; what a module declares that was imported meanwhile stays with its module."""
    for name in set(declared) - before:
        if _module_of(declared[name]) in modules:
            del declared[name]


def _forget_event_types(before: set[tuple[str, int]], modules: frozenset[str]) -> None:
    """Forget what a test declared, unless a module was imported meanwhile that may have declared it."""
    if not any(name.endswith(".events") for name in set(sys.modules) - modules):
        for key in set(events._types) - before:
            del events._types[key]


def _module_of(item: Any) -> str:
    if isinstance(item, chores.Chore):
        return str(item.turn.__module__)
    item = item.job if isinstance(item, schedules.ScheduleDefinition) else item
    return str((item.definition.func if hasattr(item, "definition") else item).__module__)


def _put_back(alias: str, before: dict[str, Any]) -> None:
    now = connections.settings.get(alias)
    if now is not None and now != before:
        now.clear()
        now.update(before)
