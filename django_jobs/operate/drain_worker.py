"""Asking one worker to drain: it takes no more jobs, lets what it runs end, and stops."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.states import JobState
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Job, Worker
from django_jobs.operate.action import Decision, Operator, Plan, Target
from django_jobs.operate.wording import counted, instant
from django_jobs.store.times import read_now
from django_jobs.store.workers import ask_to_drain


class WorkerNotFoundError(LookupError):
    """There is no such worker, or several have the name."""


def find_worker(text: str, *, using: str) -> Worker:
    """Return a worker by its id, or by its name if one alone has it that has not stopped.

    Raises:
        WorkerNotFoundError: Nothing fits, or several do; the message lists their ids.
    """
    workers = Worker.objects.using(using)
    try:
        found = list(workers.filter(pk=uuid.UUID(text)))
    except ValueError:
        found = list(workers.filter(name=text, stopped_at__isnull=True).order_by("-started_at")[:20])
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(worker.pk) for worker in found)
        msg = f"{len(found)} workers are called {text!r}; give one of their ids: {ids}."
        raise WorkerNotFoundError(msg)
    msg = f"There is no worker {text!r} that has not stopped; the admin's page Workers lists them."
    raise WorkerNotFoundError(msg)


class DrainWorker(Decision):
    """Have a worker stop in good order, as SIGTERM would, from wherever the database can be reached."""

    name = "drain_worker"
    permission = "drain_worker"

    def __init__(self, worker_id: uuid.UUID, *, using: str) -> None:
        super().__init__(using=using)
        self.worker_id = worker_id

    def row(self) -> Worker:
        """Read the worker.

        Raises:
            WorkerNotFoundError: There is none.
        """
        return find_worker(str(self.worker_id), using=self.using)

    def plan(self) -> Plan:
        """Say what would stop.

        Raises:
            WorkerNotFoundError: There is no such worker.
        """
        row = self.row()
        return Plan(
            action=self.name,
            title=f"Drain worker {row.name}",
            refused=self._refused(row),
            facts={"worker": str(row.pk), "name": row.name, "host": row.host, "pid": row.pid},
            lines=tuple(self._lines(row)),
        )

    def _refused(self, row: Worker) -> str:
        if row.stopped_at is not None:
            return f"It stopped at {instant(row.stopped_at)}."
        if row.stopping_at is not None or row.drain_asked_at is not None:
            return "It is stopping already."
        if read_now(self.using) - row.heartbeat_at > get_settings().silent_after:
            return f"Nothing was heard of it since {instant(row.heartbeat_at)}: nobody is there to be asked."
        return ""

    def _lines(self, row: Worker) -> Iterator[str]:
        held = Job.objects.using(self.using).filter(state=JobState.RUNNING, lease_owner=row.pk).count()
        yield f"It runs {counted(held, 'job')} now, on {row.host} as process {row.pid}."
        yield "It is told at its next heartbeat, takes no more jobs, and gives back what does not end within its grace."
        yield "Whatever started it may start another one: to keep it away, stop it there."

    def lock(self) -> None:
        """Lock the worker's row."""
        list(Worker.objects.using(self.using).filter(pk=self.worker_id).select_for_update().values_list("pk"))

    def target(self) -> Target:
        """Return nothing: the plan has the worker."""
        return Target()

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Ask it.

        Raises:
            ActionChangedError: It has stopped meanwhile.
        """
        if not ask_to_drain(self.worker_id, using=self.using):
            msg = "The worker stopped while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        return f"Worker {self.row().name} is asked to drain.", {}
