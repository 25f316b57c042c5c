"""Stock tasks as job types: what Django's decorator declared, run by workers with the default policy."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from django.apps import apps

from django_jobs.backends.durable_task import is_fit
from django_jobs.backends.task_names import Task, tasks
from django_jobs.define.django_task import AsTask, backend_alias
from django_jobs.define.module_runs import is_second, module_run
from django_jobs.exceptions import DefinitionError

_Declared = tuple[Any, Mapping[str, Any], object]  # with the execution of the module that declared it
_declared: dict[str, _Declared] = {}  # in the order of their declaration, until the apps are loaded
_lock = threading.Lock()


def remember(task: Any, policy: Mapping[str, Any]) -> None:
    """Note a task; it becomes a job type at once, or when the apps are loaded.

    A task is often declared while apps are loading, when no model can be imported yet.

    Raises:
        DefinitionError: Its module has another task of this name.
    """
    with _lock:
        if not is_known(task):
            _check_second(task)
            _declared[task.module_path] = (task, policy, module_run(task.func))
    if apps.models_ready:
        job_of(task.module_path)


def is_known(task: Any) -> bool:
    """Say whether this task's function was noted under its path; a copy of ``using()`` is no new declaration."""
    known = task_of(task.module_path)
    return known is not None and known.func is task.func


def _check_second(task: Any) -> None:
    path = task.module_path
    if path in _declared and is_second(_declared[path][0].func, _declared[path][2], task.func):
        msg = f"{path} is declared twice, and only one of the functions could be run. Give one of them another name."
        raise DefinitionError(msg)


def declare_all() -> None:
    """Make a job type of each task that was declared before the apps were loaded."""
    for path in tuple(_declared):
        job_of(path)


def adopt_all() -> None:
    """Make a job type of each task of other backends that every process imports: ``using(backend=…)`` may bring it."""
    from django_jobs.define.registry import discovered

    for module in set(discovered()) & set(sys.modules):
        for value in tuple(vars(sys.modules[module]).values()):
            if isinstance(value, Task) and not isinstance(value, AsTask) and not is_known(value) and is_fit(value.func):
                tasks.task_backends[backend_alias()].remember(value)


def task_of(path: str) -> Any:
    """Return the task that was declared under this path, or None."""
    return _declared[path][0] if path in _declared else None


def job_of(path: str) -> Any:
    """Return the job type of a task that was noted."""
    from django_jobs.define import registry

    with _lock:
        task, policy, _ = _declared[path]
    found = registry.find(path)
    if found is None or _task_behind(found.func).func is not task.func:
        _declare(path, task, policy)
    return registry.get(path)


def _task_behind(runner: Any) -> Any:
    return runner.task


def _declare(path: str, task: Any, policy: Mapping[str, Any]) -> None:
    from django_jobs.define.decorators import declare

    atomic = bool(policy.get("atomic", False))
    declare(
        _runner(task, with_context=not atomic),
        is_stock_task=True,
        **{**policy, "type": path, "atomic": atomic, "takes_context": not atomic},
        queue_name=task.queue_name,
        priority=task.priority,
    )


def _runner(task: Any, *, with_context: bool) -> Callable[..., Any]:
    """Return the handler: it calls the task's function with the arguments as Django's backends pass them."""
    if inspect.iscoroutinefunction(task.func):

        async def run_async(context: Any = None, *, args: Any, kwargs: Any) -> Any:
            from asgiref.sync import sync_to_async

            first = await sync_to_async(_context, thread_sensitive=True)(task, context)
            return _normal(await task.func(*first, *args, **kwargs))

        runner: Any = run_async
    else:

        def run(context: Any = None, *, args: Any, kwargs: Any) -> Any:
            return _normal(task.func(*_context(task, context), *args, **kwargs))

        runner = run
    wrapped: Any = functools.wraps(task.func)(runner)
    wrapped.__annotations__ = {}  # the function's own say nothing about these two parameters
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("args", "kwargs")]
    context = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if with_context else []
    wrapped.__signature__ = inspect.Signature([*context, *own])
    wrapped.task = task
    return wrapped  # type: ignore[no-any-return]


def _normal(value: Any) -> Any:
    from django_jobs.backends.task_names import normalize_json

    return normalize_json(value)


def _context(task: Any, context: Any) -> tuple[Any, ...]:
    """Return what the function gets before its arguments."""
    if not task.takes_context:
        return ()
    from django_jobs.backends.task_results import DurableTaskContext, result_of_running

    return (DurableTaskContext(task_result=result_of_running(task), job=context),)
