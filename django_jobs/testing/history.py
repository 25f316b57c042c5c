"""What no row can know: what clients were told, what a provider did, and when processes were killed.

The rows are read by SQL and held against a log of the clients, in the manner of Jepsen: each call ended
``ok``, ``fail`` or ``unknown``. Nothing of the code under test is imported. Rows by themselves are judged by
``manage.py jobs verify``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from django_jobs.testing import history_checks
from django_jobs.testing.history_rows import read_rows

Status = Literal["ok", "fail", "unknown"]
Kind = Literal["call", "lookup", "applied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What a client was told about one enqueue: the job's id if it got one, and what it asked for."""

    status: Status
    job_id: uuid.UUID | None = None
    key: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """One entry of the provider's own book, under the key that was sent to it."""

    key: str
    at: datetime
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken promise in plain English, under the name of its invariant."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True, kw_only=True)
class History:
    """What was seen from outside. Fill it while the system runs, then :meth:`check` it when nothing is due any more.

    Args:
        using: The database.
        patience: For how long a job may be due, or its lease be over, before it counts as stuck.
        recovery: Within which time after a kill the next attempt begins.
        losses: As many losses in a row as end a job that convicts itself.
        limits: How many jobs of a queue may run at once.
    """

    using: str = "default"
    patience: timedelta = timedelta(0)
    recovery: timedelta = timedelta(seconds=30)
    losses: int = 3
    limits: Mapping[str, int] = field(default_factory=dict)
    enqueued: list[Enqueued] = field(default_factory=list)
    book: list[Noted] = field(default_factory=list)
    kills: list[datetime] = field(default_factory=list)
    handled: list[tuple[str, str]] = field(default_factory=list)
    announced: dict[str, list[str]] = field(default_factory=dict)
    scrape: str = ""

    def told(self, status: Status, job_id: uuid.UUID | None = None, *, key: str = "", body: str = "") -> None:
        """Note what an enqueue told its client; ``unknown`` when the answer was lost."""
        self.enqueued.append(Enqueued(status=status, job_id=job_id, key=key, body=body))

    def noted(self, key: str, at: datetime, kind: Kind) -> None:
        """Note what the provider saw: a request, a question, or that it applied something."""
        self.book.append(Noted(key=key, at=at, kind=kind))

    def killed(self, at: datetime) -> None:
        """Note when a process of a worker was killed."""
        self.kills.append(at)

    def acted(self, consumer: str, message_id: str) -> None:
        """Note that the handling of a message had its effect."""
        self.handled.append((consumer, message_id))

    def committed(self, event_type: str, subjects: Iterable[str]) -> None:
        """Give the committed business rows that each announce themselves by one event of this type and subject."""
        self.announced.setdefault(event_type, []).extend(subjects)

    def check(self, *, now: datetime | None = None) -> list[Finding]:
        """Return every broken promise; ``now`` is the present of the clock that the rows were written by."""
        rows = read_rows(using=self.using, now=now)
        return [Finding(invariant=name, text=text) for name, look in history_checks.CHECKS for text in look(self, rows)]

    def assert_sound(self, *, now: datetime | None = None) -> None:
        """Check, and fail with every finding.

        Raises:
            AssertionError: Something was found.
        """
        found = self.check(now=now)
        if found:
            raise AssertionError("\n".join(map(str, found)))
