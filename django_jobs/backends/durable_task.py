"""Django's task with the policy of its jobs, and what is checked when it is declared and when it is enqueued."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_jobs.backends.task_names import InvalidTask, Task
from django_jobs.domain.identity import key_fields
from django_jobs.exceptions import DefinitionError

# What @task(…) and OPTIONS["DEFAULTS"] may say beside Django's own words; @job has the same.
POLICY = (
    *("aliases", "key", "key_scope", "key_ttl", "on_duplicate", "subject", "owner"),
    *("budget", "cleanup", "max_runtime", "retry", "useful_for", "atomic", "soft_timeout", "replay_permission"),
    *("resource", "serial_key", "serial_on_dead"),
)
TEMPLATES = ("key", "subject", "serial_key")
_PER_ENQUEUE = ("key", "subject", "serial_key", "tenant", "detached")


@dataclass(frozen=True, kw_only=True)
class DurableTask(Task):  # type: ignore[misc]
    """Django's task with the policy of its jobs; None everywhere means the default.

    From Django 6.1 on, and with the backport, ``@task(key="order:{order_id}")`` takes these. ``key``, ``subject``
    and ``serial_key`` are templates of the function's parameters.
    """

    aliases: tuple[str, ...] | None = None
    key: str | None = None
    key_scope: str | None = None
    key_ttl: timedelta | None = None
    on_duplicate: str | None = None
    subject: str | None = None
    owner: str | None = None
    budget: timedelta | None = None
    cleanup: timedelta | None = None
    max_runtime: timedelta | None = None
    retry: Any = None
    useful_for: timedelta | None = None
    atomic: bool | None = None
    soft_timeout: bool | None = None
    replay_permission: str | None = None
    resource: str | None = None
    serial_key: str | None = None
    serial_on_dead: str | None = None
    using_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        remember = getattr(self.get_backend(), "remember", None)
        if remember is not None:
            remember(self)

    def using(self, **changes: Any) -> DurableTask:
        """Return a copy for one enqueue: as Django's, and with another key, subject, serial_key, tenant or detached."""
        own = {name: changes.pop(name) for name in _PER_ENQUEUE if name in changes}
        copied = Task.using(self, **changes)
        if own:
            copied = replace(copied, using_options={**(self.using_options or {}), **own})
        return copied  # type: ignore[no-any-return]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now."""
        return self.func(*args, **kwargs)

    def __hash__(self) -> int:
        return hash((self.module_path, self.priority, self.queue_name, self.run_after))  # a policy may have no hash


def check_function(task: Any) -> None:
    """Refuse a function that no worker could find or run.

    Raises:
        InvalidTask: The message says why.
    """
    if _is_generator(task.func):
        msg = "A generator function cannot be a task: nothing would run its body."
        raise InvalidTask(msg)
    if not is_fit(task.func):
        msg = "A lambda cannot be a task: it has no name by which a worker could find it. Write a function."
        raise InvalidTask(msg)


def is_fit(func: Any) -> bool:
    """Say whether a worker could find and run it."""
    return not _is_generator(func) and func.__name__ != "<lambda>"


def _is_generator(func: Any) -> bool:
    return inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func)


def check_templates(task: Any) -> None:
    """Refuse a template that names no parameter of the function, when the task is declared."""
    names = inspect.signature(task.func).parameters
    for what in TEMPLATES:
        template = getattr(task, what, None)
        missing = sorted(set(key_fields(template)) - set(names)) if template else []
        if missing:
            msg = f"The {what} of {task.module_path} uses {missing[0]!r}, which is no parameter of the function."
            raise DefinitionError(msg)


def bound(task: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Fit the arguments to the function, so that a call that cannot work is refused when it is enqueued."""
    signature = inspect.signature(task.func)
    if task.takes_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        msg = f"The arguments do not fit {task.module_path}{signature}: {error}."
        raise TypeError(msg) from None
    found.apply_defaults()
    return dict(found.arguments)
