"""One run of the matrix: the job begins, a fault hits it at a point, and the world goes on until nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django_jobs.define.definition import DurableJob
from django_jobs.enqueue.enqueue import decide
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import DuplicateJobError
from django_jobs.models import Job
from django_jobs.testing.faults import JobsFaults
from django_jobs.testing.kit import JobsKit, RestlessError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A kind of fault, at the ``nth`` time that the job comes to a point."""

    point: str
    nth: int
    kind: str

    @property
    def place(self) -> str:
        """The point as ``points=`` takes it."""
        return f"{self.point}:{self.nth}" if self.nth > 1 else self.point

    def __str__(self) -> str:
        return f"{self.kind} at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """How the job comes to be."""

    handler: DurableJob[..., Any]
    payload: Mapping[str, Any]
    key: str | None
    start: Callable[[], object] | None

    def begin(self) -> None:
        """Enqueue it, or do what it comes of."""
        if self.start is not None:
            self.start()
            return
        changes = {} if self.key is None else {"key": self.key}
        self.handler.using(**changes).enqueue(**self.payload)

    @property
    def has_key(self) -> bool:
        """Whether somebody who enqueues it twice gets the same job."""
        return bool(self.key or self.handler.options.key)

    def begin_again(self, using: str) -> None:
        """Do what a producer does that got no answer; what came of an event is stored again as its delivery does it."""
        if self.start is None:
            with suppress(DuplicateJobError):  # the answer of a job type that rejects duplicates
                self.begin()
        else:
            repeat_enqueues(self.handler, using)


def repeat_enqueues(handler: DurableJob[..., Any], using: str) -> None:
    """Store the jobs of a type again under their keys, as the delivery of an event does that is delivered twice."""
    kind = handler.definition.job_type
    for job in Job.objects.using(using).select_related("payload").filter(job_type=kind).exclude(payload__key=""):
        stored = job.payload
        decide(
            Prepared(
                options=handler.options,
                arguments=stored.arguments,
                fingerprint=job.payload_fingerprint,
                key=stored.key,
                key_scope=stored.key_scope,
                subject=job.subject,
                using=using,
                correlation_id=job.correlation_id,
                traceparent=job.traceparent,
            )
        )


def _kill(faults: JobsFaults, cell: Cell, plot: Plot, jobs: JobsKit) -> None:
    faults.crash_at(cell.point, nth=cell.nth)
    plot.begin()
    jobs.run_until_idle()


def _lost_commit(faults: JobsFaults, cell: Cell, plot: Plot, jobs: JobsKit) -> None:
    faults.drop_connection_at(cell.point, phase="reply", nth=cell.nth)
    plot.begin()
    jobs.run_until_idle()


def _zombie(faults: JobsFaults, cell: Cell, plot: Plot, jobs: JobsKit) -> None:
    pause = faults.pause_at(cell.point, nth=cell.nth)
    plot.begin()
    jobs.run_until_idle()
    if pause.is_paused:
        pause.resume()
    jobs.run_until_idle()


def _redeliver(faults: JobsFaults, cell: Cell, plot: Plot, jobs: JobsKit) -> None:
    """The producer asks again while the job is lost, and once more after its end."""
    faults.crash_at(cell.point, nth=cell.nth)
    plot.begin()
    jobs.drain()
    plot.begin_again(jobs.using)
    jobs.run_until_idle()
    plot.begin_again(jobs.using)
    jobs.run_until_idle()


KINDS: dict[str, Callable[[JobsFaults, Cell, Plot, JobsKit], None]] = {
    "kill": _kill,
    "lost_commit": _lost_commit,
    "zombie": _zombie,
    "redeliver": _redeliver,
}


def run_cell(cell: Cell, plot: Plot, jobs: JobsKit) -> bool:
    """Run it; False when the fault did not hit: the point was not reached this time, or nobody can ask twice."""
    if cell.kind == "redeliver" and plot.start is None and not plot.has_key:
        return False
    with JobsFaults(jobs, strict=False) as faults:
        with suppress(RestlessError):  # its jobs are unfinished, which is seen
            KINDS[cell.kind](faults, cell, plot, jobs)
        return faults.all_fired
