"""What must become of jobs, in plain Python: no SQL, no row, and nothing of the package.

A run on the real database is compared with it after each step. It knows who owns each job by the guarantees alone: the
one whose attempt was claimed last, until somebody proved that it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

SILENT_AFTER = PATIENCE = timedelta(seconds=20)
KEY_TTL = timedelta(hours=1)
UNKNOWN_ATTEMPTS, LOSSES, SILENCES_BEFORE_ALONE = 3, 3, 2
AT_ONCE = timedelta(seconds=1)  # a job that is due so soon is ready without being promoted
WAITING = ("queued", "failed")
ENDED = ("succeeded", "cancelled", "dead_lettered")


@dataclass(slots=True, kw_only=True)
class Try:
    """One attempt."""

    attempt: Any
    worker: Any
    child: int
    alone: str
    outcome: str | None = None
    progress: int | None = None


@dataclass(slots=True, kw_only=True)
class Work:
    """One job."""

    job: Any
    key: str
    number: int
    due: datetime
    state: str = "queued"
    dead_reason: str = ""
    generation: int = 1
    lease_end: datetime | None = None
    finished: datetime | None = None
    cancel_wanted: bool = False
    unknown: int = 0
    transient: int = 0
    free: int = 0
    exits: int = 0
    silences: int = 0
    tries: list[Try] = field(default_factory=list)

    @property
    def isolation(self) -> str:
        """The company that its next attempt may not have."""
        if self.silences >= SILENCES_BEFORE_ALONE:
            return "worker"
        return "child" if self.exits else ""

    def owned_by(self, attempt: Any) -> bool:
        """Say whether this attempt may decide what becomes of the job."""
        return self.state == "running" and self.tries[-1].attempt == attempt

    def seen(self) -> tuple[Any, ...]:
        """Return all that is compared with the rows."""
        counters = (self.unknown, self.transient, self.free, self.exits + self.silences, self.exits, self.silences)
        tries = tuple((one.attempt, one.outcome, one.progress) for one in self.tries)
        return (self.state, self.dead_reason, self.generation, self.due, self.isolation, counters, tries)


class Reference:
    """All jobs and workers."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[Any, Work] = {}
        self.keys: dict[str, Any] = {}
        self.beats: dict[Any, datetime] = {}

    def answer(self, key: str, number: int) -> tuple[str, Any]:
        """Say what an enqueue must be told, and the job that answers for its key."""
        held = self.jobs.get(self.keys.get(key)) if key else None
        if held is None:
            return "created", None
        if held.finished is not None and self.now >= held.finished + KEY_TTL:
            return "created_after_expiry", None
        return ("duplicate" if held.number == number else "conflict"), held.job

    def add(self, job: Any, key: str, number: int) -> None:
        """Take in a job that was stored."""
        self.jobs[job] = Work(job=job, key=key, number=number, due=self.now)
        if key:
            self.keys[key] = job

    def promote(self) -> None:
        """Make ready what is due."""
        for work in self.jobs.values():
            if work.state == "failed" and work.due <= self.now:
                work.state = "queued"

    def ready(self, *, alone: str) -> list[Work]:
        """Return what somebody who promises so much loneliness may claim, first come first; none: all but suspects."""
        bearable = {"": {""}, "child": {"child"}, "worker": {"child", "worker"}}[alone]
        found = [w for w in self.jobs.values() if w.state == "queued" and w.isolation in bearable and w.due <= self.now]
        return sorted(found, key=lambda work: (work.due, work.job))

    def claimed(self, work: Work, *, attempt: Any, worker: Any, child: int, alone: str, lease: timedelta) -> None:
        """Give the job to an attempt."""
        work.state, work.lease_end = "running", self.now + lease
        work.tries.append(Try(attempt=attempt, worker=worker, child=child, alone=alone))

    def renewed(self, work: Work, value: int, *, lease: timedelta) -> bool:
        """Say whether progress extends the lease: only growth does."""
        last = work.tries[-1]
        if last.progress is not None and value <= last.progress:
            return False
        assert work.lease_end is not None
        last.progress, work.lease_end = value, max(work.lease_end, self.now + lease)
        return True

    def end(self, work: Work, outcome: str, state: str, *, dead_reason: str = "", due: datetime | None = None) -> None:
        """Close the open attempt, and put the job where it goes."""
        work.tries[-1].outcome = outcome
        work.state, work.dead_reason, work.lease_end = state, dead_reason, None
        work.due = due or work.due
        if outcome in ("succeeded", "failed"):
            work.exits = work.silences = 0
        if state == "succeeded":
            work.finished = self.now
        if state in WAITING and work.cancel_wanted:
            self.cancelled(work)

    def failed(self, work: Work, error: str, delay: timedelta) -> None:
        """Count a failure, and decide."""
        work.unknown += error == "unknown"
        work.transient += error == "transient"
        if error == "permanent":
            self.end(work, "failed", "dead_lettered", dead_reason="permanent")
        elif error == "unknown" and work.unknown >= UNKNOWN_ATTEMPTS:
            self.end(work, "failed", "dead_lettered", dead_reason="unknown_budget")
        else:
            self.end(work, "failed", "queued" if delay <= AT_ONCE else "failed", due=self.now + delay)

    def lost_now(self) -> dict[Any, str]:
        """Return the jobs that a reaper must take back now, and by what proof."""
        found = {}
        for work in self.jobs.values():
            if work.state == "running":
                assert work.lease_end is not None
                if self.beats[work.tries[-1].worker] <= self.now - SILENT_AFTER:
                    found[work.job] = "silent"
                elif work.lease_end < self.now - PATIENCE:
                    found[work.job] = "expired"
        return found

    def lost(self, work: Work, cause: str) -> bool:
        """Count a loss, and decide; returns whether the job is due at once."""
        alone = work.tries[-1].alone
        work.free += cause == "expired"
        work.exits += cause == "exit"
        work.silences += cause == "silent"
        guilty = (cause == "exit" and alone != "") or (cause == "silent" and alone == "worker")
        if guilty and work.exits + work.silences >= LOSSES:
            self.end(work, "lost", "dead_lettered", dead_reason="poison")
            return True
        at_once = (work.free if cause == "expired" else work.exits + work.silences) <= 1
        self.end(work, "lost", "queued", due=min(work.due, self.now) if at_once else None)
        return at_once

    def cancelled(self, work: Work) -> None:
        """End a waiting job."""
        work.state, work.finished = "cancelled", self.now

    def replayed(self, work: Work) -> None:
        """Begin a new generation of a dead letter."""
        work.state, work.dead_reason, work.due, work.cancel_wanted = "queued", "", self.now, False
        work.unknown = work.transient = work.free = work.exits = work.silences = 0
        work.generation += 1
