"""The backend of Django's tasks that makes every task a durable job.

Set ``TASKS = {"default": {"BACKEND": "django_jobs.backends.tasks.DurableBackend"}}``. A task that is declared with
Django's ``@task``, by any app, is then stored in the transaction that enqueues it and run by ``manage.py runworker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import checks
from django.utils import timezone

from django_jobs.backends.durable_task import POLICY, TEMPLATES, DurableTask, bound, check_function, check_templates
from django_jobs.backends.task_declared import is_known, job_of, remember
from django_jobs.backends.task_names import BaseTaskBackend, InvalidTask, InvalidTaskBackend, normalize_json
from django_jobs.define.django_task import AsTask
from django_jobs.domain.identity import format_key

if TYPE_CHECKING:
    from django_jobs.backends.task_results import DurableTaskResult
    from django_jobs.enqueue.outcome import EnqueueResult

_OPTIONS = {"ATOMIC", "DATABASE", "DEFAULTS"}


class DurableBackend(BaseTaskBackend):  # type: ignore[misc]
    """Stores tasks as durable jobs.

    ``OPTIONS``: ``ATOMIC`` (run tasks in one transaction with their success; default False, because their authors do
    not expect it), ``DATABASE`` (an alias; default: where the router writes) and ``DEFAULTS`` (a dict of what ``@job``
    takes, for tasks that do not say it themselves).
    """

    task_class = DurableTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := sorted(set(self.options) - _OPTIONS):
            msg = f"The task backend {alias!r} has no option {unknown[0]!r}; it takes {', '.join(sorted(_OPTIONS))}."
            raise InvalidTaskBackend(msg)
        if unknown := sorted(set(self.options.get("DEFAULTS", {})) - set(POLICY)):
            named = ", ".join(sorted(POLICY))
            msg = f"DEFAULTS of the task backend {alias!r} has no {unknown[0]!r}; it takes {named}."
            raise InvalidTaskBackend(msg)

    @property
    def database(self) -> str:
        """The alias on which tasks are stored."""
        from django.db import router

        from django_jobs.models import Job

        return self.options.get("DATABASE") or router.db_for_write(Job)

    def remember(self, task: Any) -> None:
        """Make a task known to workers under its path, with the policy of its declaration.

        Raises:
            DefinitionError: Its policy cannot work.
        """
        if is_known(task):
            return
        check_templates(task)
        # What is a template of the function's own parameters is filled in here, at each enqueue.
        policy = {name: value for name, value in self._policy(task).items() if name not in TEMPLATES}
        remember(task, policy)

    def _policy(self, task: Any) -> dict[str, Any]:
        declared = {name: getattr(task, name, None) for name in POLICY}
        said = {name: value for name, value in declared.items() if value is not None}
        return {"atomic": bool(self.options.get("ATOMIC", False)), **self.options.get("DEFAULTS", {}), **said}

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot be run.

        Raises:
            InvalidTask: The message says why.
        """
        if isinstance(task, AsTask):
            if self.queues and task.queue_name not in self.queues:
                msg = f"Queue '{task.queue_name}' is not valid for backend."
                raise InvalidTask(msg)
            return
        super().validate_task(task)
        check_function(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DurableTaskResult:
        """Store a job in the transaction that is open, or at once when none is.

        Raises:
            InvalidTask: The task cannot be run by this backend.
            TypeError: An argument is no JSON, or the arguments do not fit the function.
            PayloadError: An argument cannot be stored as it is; the message names the place.
            JobsError: As ``enqueue`` of a job type: a key with other arguments, a full queue.
        """
        from django_jobs.backends.task_results import enqueued_result

        self.validate_task(task)
        enqueued = self._stored(task, list(args), dict(kwargs))
        result = enqueued_result(enqueued, task=task, backend=self.alias, args=args, kwargs=kwargs)
        self._tell(result, using=enqueued.database)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DurableTaskResult:
        """Do what :meth:`enqueue` does, from async code."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def _stored(self, task: Any, args: list[Any], kwargs: dict[str, Any]) -> EnqueueResult:
        if isinstance(task, AsTask):
            durable: Any = task
            if self.options.get("DATABASE") and not task.options.database:
                durable = durable.using(database=self.options["DATABASE"])
            own: EnqueueResult = durable.enqueue(*args, **kwargs)
            return own
        arguments = bound(task, args, kwargs)
        self._check_known(task)
        changes = {"priority": task.priority, "queue_name": task.queue_name, **self._changes(task, arguments)}
        if task.run_after is not None:
            changes["run_after"] = _aware(task.run_after)
        if self.options.get("DATABASE"):
            changes["database"] = self.options["DATABASE"]
        stored = {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}
        enqueued: EnqueueResult = job_of(task.module_path).using(**changes).enqueue(**stored)
        return enqueued

    def _changes(self, task: Any, bound: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is given for this job, with the templates of its declaration filled in."""
        given = dict(getattr(task, "using_options", None) or {})
        policy = self._policy(task)
        for name in TEMPLATES:
            if policy.get(name) and name not in given:
                given[name] = format_key(policy[name], bound)
        return given

    def _check_known(self, task: Any) -> None:
        """Refuse a task that another backend declared, in a module that workers do not import."""
        if is_known(task):
            return
        from django_jobs.define.registry import discovered

        if task.func.__module__ not in discovered():
            msg = (
                f"{task.module_path} was not declared for the backend {self.alias!r}, so workers do not know it. "
                "Declare it with @task(backend=…), or name its module in DJANGO_JOBS['IMPORTS']."
            )
            raise InvalidTask(msg)
        self.remember(task)

    def _tell(self, result: DurableTaskResult, *, using: str) -> None:
        """Send Django's signal when the job is stored for good: a rollback takes the task back."""
        from django.db import transaction

        from django_jobs.backends.task_names import signals

        if result.outcome == "duplicate":
            return
        # Robust, so that a receiver that fails keeps no other one from hearing; Django logs its error.
        send = signals().task_enqueued.send_robust
        transaction.on_commit(lambda: send(type(self), task_result=result), using=using, robust=True)

    def get_result(self, result_id: str) -> DurableTaskResult:
        """Read what became of a task.

        Raises:
            TaskResultDoesNotExist: There is no such job, or it was pruned.
        """
        from django_jobs.backends.task_results import read_result

        return read_result(result_id, using=self.database, backend=self.alias)

    async def aget_result(self, result_id: str) -> DurableTaskResult:
        """Do what :meth:`get_result` does, from async code."""
        return await sync_to_async(self.get_result, thread_sensitive=True)(result_id)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:  # noqa: ARG002  Django's signature
        """Say what cannot work."""
        from django.apps import apps

        if not apps.is_installed("django_jobs"):
            yield checks.Error(
                f"The task backend {self.alias!r} stores jobs, but its app is not installed.",
                hint="Add 'django_jobs' to INSTALLED_APPS.",
                id="django_jobs.E030",
            )
        if problem := self._problem():
            yield checks.Error(f"The task backend {self.alias!r}: {problem}", id="django_jobs.E031")

    def _problem(self) -> str:
        from django.db import connections

        alias = self.options.get("DATABASE")
        if alias is not None and alias not in connections:
            return f"there is no database {alias!r}."
        return ""


def _aware(value: datetime) -> datetime:
    return timezone.make_aware(value) if not settings.USE_TZ and timezone.is_naive(value) else value
