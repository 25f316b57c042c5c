"""Job types by their stored name. Nothing is ever imported from a stored name."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from django_jobs.conf import get_settings
from django_jobs.define.definition import DurableJob, JobDefinition, refuse_ambiguous
from django_jobs.define.module_runs import is_second
from django_jobs.domain.lanes import kind_text
from django_jobs.exceptions import DefinitionError, UnknownJobTypeError

_MODULES = ("jobs", "tasks", "events", "schedules")

_jobs: dict[str, DurableJob[..., object]] = {}
_lock = threading.Lock()


def register(job: DurableJob[..., object]) -> None:
    """Make a job type known under its name and its aliases.

    Raises:
        DefinitionError: Another handler has one of the names.
    """
    definition = job.definition
    with _lock:
        for name in definition.names:
            other = _jobs.get(name)
            if other is not None and _are_two(other.definition, definition):
                msg = (
                    f"Job type {name!r} is declared twice: by {_place(other.definition)} and by {_place(definition)}. "
                    "Give one of them another type=."
                )
                raise DefinitionError(msg)
        for name in definition.names:
            _jobs[name] = job


def _place(definition: JobDefinition) -> str:
    return f"{definition.func.__module__}.{definition.func.__qualname__}"


def _are_two(one: JobDefinition, other: JobDefinition) -> bool:
    if _place(one) != _place(other):
        return True
    return not other.is_stock_task and is_second(one.func, one.module_run, other.func)


def unregister(job_type: str) -> None:
    """Forget a job type and its aliases; for tests that declare one."""
    with _lock:
        job = _jobs.get(job_type)
        for name in job.definition.names if job else ():
            _jobs.pop(name, None)


def get(job_type: str) -> DurableJob[..., object]:
    """Return the job type that is stored under this name.

    Raises:
        UnknownJobTypeError: No handler is registered for it.
    """
    try:
        return _jobs[job_type]
    except KeyError:
        msg = f"No handler is registered for job type {job_type!r} in this code."
        raise UnknownJobTypeError(msg) from None


def find(job_type: str) -> JobDefinition | None:
    """Return the definition that is stored under this name, or None."""
    job = _jobs.get(job_type)
    return job.definition if job else None


def definitions() -> Iterator[tuple[str, JobDefinition]]:
    """Yield every stored name with its definition, aliases included."""
    with _lock:
        known = sorted(_jobs.items())
    for name, job in known:
        yield name, job.definition


def has_coroutines() -> bool:
    """Say whether a handler is a coroutine function."""
    return any(definition.is_coroutine for _, definition in definitions())


def kinds() -> list[str]:
    """Return what this code can run: every stored name at each payload version, see ``domain/lanes.py``."""
    return [kind_text(name, version) for name, definition in definitions() for version in definition.versions]


def autodiscover() -> None:
    """Import ``jobs``, ``tasks``, ``events`` and ``schedules`` of every app, and what DJANGO_JOBS["IMPORTS"] names.

    Raises:
        DefinitionError: A module cannot be imported, or an annotation of a handler cannot be resolved or is ambiguous;
            the message has the name. A worker without some of its handlers would leave their jobs lying.
    """
    for module in discovered():
        _import(module)
    for _, definition in definitions():
        refuse_ambiguous(definition)


def discovered() -> Iterator[str]:
    """Yield the modules that every process imports: what they declare, workers know."""
    for config in apps.get_app_configs():
        for name in _MODULES:
            if module_has_submodule(config.module, name):
                yield f"{config.name}.{name}"
    yield from get_settings().imports


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        msg = f"The module {module!r} could not be imported: {type(error).__name__}: {error}"
        raise DefinitionError(msg) from error
