"""A job as Django's ``TaskResult``: one error and one worker id per attempt."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from django_jobs.backends.task_alias import alias_of
from django_jobs.backends.task_names import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_jobs.backends.task_stored import local_time, task_as_stored
from django_jobs.domain.states import AttemptOutcome, JobState
from django_jobs.enqueue.inside import current
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.waiting import await_end, wait
from django_jobs.exceptions import ResultGoneError
from django_jobs.models import Attempt, Job

_STATUS = {
    JobState.RUNNING.value: TaskResultStatus.RUNNING,
    JobState.SUCCEEDED.value: TaskResultStatus.SUCCESSFUL,
    JobState.DEAD_LETTERED.value: TaskResultStatus.FAILED,
    JobState.CANCELLED.value: TaskResultStatus.FAILED,
}
_KEPT = {"task", "backend", "outcome"}  # by a refresh
_FAILED = {AttemptOutcome.FAILED.value, AttemptOutcome.LOST.value, AttemptOutcome.CANCELLED.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableTaskResult(TaskResult):  # type: ignore[misc]
    """Django's result with what it has no word for.

    ``outcome`` is what the enqueue did: created, duplicate or created_after_expiry; empty when it was read later.
    ``state`` is the job's own state; ``content_removed`` says that its arguments and its value are not kept any more.
    ``progress`` is what a running handler told last, out of ``progress_total``.
    """

    outcome: str = field(default="", compare=False)  # of the call, not of the job
    state: str = ""
    progress: int | None = None
    progress_total: int | None = None
    database: str = "default"
    content_removed: bool = False

    @property
    def return_value(self) -> Any:
        """What the task returned.

        Raises:
            ResultGoneError: It succeeded, but its value was removed with its content.
            ValueError: It failed, or has not finished yet.
        """
        if self.status == TaskResultStatus.SUCCESSFUL and self.content_removed:
            msg = f"Task {self.id} succeeded; its value was removed with its content."
            raise ResultGoneError(msg)
        return TaskResult.return_value.fget(self)

    def refresh(self) -> None:
        """Read it again, in place.

        Raises:
            TaskResultDoesNotExist: The job was pruned meanwhile.
        """
        fresh = read_result(self.id, using=self.database)
        for one in fields(self):
            if one.name not in _KEPT:
                object.__setattr__(self, one.name, getattr(fresh, one.name))

    async def arefresh(self) -> None:
        """Do what :meth:`refresh` does, from async code."""
        from asgiref.sync import sync_to_async

        await sync_to_async(self.refresh, thread_sensitive=True)()

    def get(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end and return the value; see ``EnqueueResult.get`` for the errors."""
        return wait(uuid.UUID(self.id), using=self.database, timeout=timeout)

    async def aget(self, timeout: float | timedelta | None = None) -> Any:  # noqa: ASYNC109  as get()
        """Do what :meth:`get` does, from async code."""
        return await await_end(uuid.UUID(self.id), using=self.database, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableTaskContext(TaskContext):  # type: ignore[misc]
    """Django's context; ``job`` is the :class:`~django_jobs.JobContext`, None where the task is atomic."""

    job: Any = None


def read_result(result_id: str, *, using: str, backend: str = "", is_new: bool = False) -> DurableTaskResult:
    """Read a job with its attempts; one that is new has none. ``backend`` is the alias of the backend that is asked.

    Raises:
        TaskResultDoesNotExist: There is none with this id.
    """
    try:
        job_id = uuid.UUID(str(result_id))
        job = Job.objects.using(using).select_related("payload").get(pk=job_id)
    except (ValueError, Job.DoesNotExist):
        raise TaskResultDoesNotExist(result_id) from None
    attempts = [] if is_new else list(Attempt.objects.using(using).filter(job_id=job_id).order_by("number"))
    return result_of(job, attempts, using=using, backend=backend)


def enqueued_result(
    enqueued: EnqueueResult, *, task: Any, backend: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> DurableTaskResult:
    """Tell what an enqueue did: the result of the task as it was enqueued, by this backend."""
    try:
        result = read_result(str(enqueued.id), using=enqueued.database, backend=backend, is_new=enqueued.created)
    except TaskResultDoesNotExist:
        result = _pruned(enqueued, task=task, backend=backend, args=args, kwargs=kwargs)
    for name, value in (("task", task), ("backend", backend), ("outcome", enqueued.outcome)):
        object.__setattr__(result, name, value)
    return result


def _pruned(enqueued: EnqueueResult, **fields: Any) -> DurableTaskResult:
    """Return what is left of a job that was pruned while its key goes on answering."""
    nothing: dict[str, Any] = dict.fromkeys(("enqueued_at", "started_at", "last_attempted_at", "finished_at"))
    return DurableTaskResult(
        id=str(enqueued.id),
        status=_STATUS.get(enqueued.state, TaskResultStatus.READY),
        state=enqueued.state,
        database=enqueued.database,
        content_removed=True,
        errors=[],
        worker_ids=[],
        **nothing,
        **fields,
    )


def result_of(job: Job, attempts: Sequence[Attempt], *, using: str, backend: str = "") -> DurableTaskResult:
    """Tell a job and its attempts as Django does."""
    alias = alias_of(job, using=using, asked=backend)
    args, kwargs = _arguments(job)
    status = _STATUS.get(job.state, TaskResultStatus.READY)
    result = DurableTaskResult(
        task=task_as_stored(job, alias),
        id=str(job.pk),
        status=status,
        enqueued_at=local_time(job.created_at),
        started_at=local_time(attempts[0].started_at) if attempts else None,
        last_attempted_at=local_time(attempts[-1].started_at) if attempts else None,
        finished_at=local_time(job.finished_at or job.dead_at),
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[_error(attempt) for attempt in attempts if attempt.outcome in _FAILED],
        worker_ids=[str(attempt.worker_id) for attempt in attempts],
        state=job.state,
        progress=job.progress,
        progress_total=job.progress_total,
        database=using,
        content_removed=job.content_removed_at is not None,
    )
    payload = getattr(job, "payload", None)
    if status == TaskResultStatus.SUCCESSFUL and payload is not None and payload.result is not None:
        object.__setattr__(result, "_return_value", json.loads(payload.result))
    return result


def result_of_running(task: Any) -> DurableTaskResult:
    """Read the result of the job that runs here, for the context of its task."""
    inside = current.get()
    if inside is None:
        raise LookupError(task.module_path)
    return read_result(str(inside.job_id), using=inside.database)


def _arguments(job: Job) -> tuple[list[Any], dict[str, Any]]:
    payload = getattr(job, "payload", None)
    try:
        stored = json.loads(payload.arguments) if payload is not None else {}
    except ValueError:
        return [], {}  # a damaged row is for the admin to show; a result must be readable all the same
    if not isinstance(stored, dict):
        return [], {}
    if set(stored) == {"args", "kwargs"} and isinstance(stored["args"], list) and isinstance(stored["kwargs"], dict):
        return stored["args"], stored["kwargs"]
    return [], stored


def _error(attempt: Attempt) -> Any:
    path = attempt.error_type if "." in attempt.error_type else f"builtins.{attempt.error_type}"
    told = attempt.traceback or attempt.message
    if not attempt.error_type:
        path = "django_jobs.exceptions.JobsError"
    return TaskError(exception_class_path=path, traceback=told)
