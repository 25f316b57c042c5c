"""What the database holds, read by plain SQL: the rows that a history is judged by.

This module and ``history`` import nothing of the code whose work they judge.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from django.db import connections

Row = SimpleNamespace

_STATEMENTS = {
    "jobs": "SELECT j.id, j.job_type, j.queue_name, j.state, j.generation, j.fence, j.available_at, j.lease_expires_at,"
    " j.lost_count, j.dead_reason, j.resolution, p.key, p.previous_job_id"
    " FROM django_jobs_job j LEFT JOIN django_jobs_jobpayload p ON p.job_id = j.id ORDER BY j.id",
    "attempts": "SELECT a.id, a.job_id, a.number, a.generation, a.started_at, a.finished_at, a.outcome,"
    " a.loss_cause, a.alone, j.queue_name FROM django_jobs_attempt a JOIN django_jobs_job j ON j.id = a.job_id"
    " ORDER BY a.job_id, a.number",
    "sends": "SELECT s.id, s.effect_id, s.job_id, s.number, s.provider_key, s.started_at, s.finished_at, s.outcome"
    " FROM django_jobs_send s ORDER BY s.effect_id, s.number",
    "effects": "SELECT e.id, e.job_id, e.name, e.provider, e.business_key, e.state, e.resolved_at"
    " FROM django_jobs_sideeffect e ORDER BY e.id",
    "events": "SELECT e.id, e.type, e.subject FROM django_jobs_outboxevent e ORDER BY e.id",
    "messages": "SELECT i.id, i.consumer, i.source, i.message_id, j.state FROM django_jobs_inboxmessage i"
    " LEFT JOIN django_jobs_job j ON j.id = i.job_id ORDER BY i.id",
    "pruned": "SELECT t.first_job_id, t.last_job_id FROM django_jobs_prunedstretch t WHERE t.kind = 'jobs'",
}
_IDS = frozenset(
    {"id", "job_id", "effect_id", "previous_job_id", "first_job_id", "last_job_id"}
)  # text without dashes on SQLite


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All rows, each list in the order of its ids; ``now`` is the time by which leases and due times are judged."""

    now: datetime
    jobs: list[Row]
    attempts: list[Row]
    sends: list[Row]
    effects: list[Row]
    events: list[Row]
    messages: list[Row]
    pruned: list[Row]

    def attempts_of(self, job_id: uuid.UUID) -> Iterator[Row]:
        """Yield the attempts of a job by number."""
        return (row for row in self.attempts if row.job_id == job_id)

    def was_pruned(self, job_id: uuid.UUID) -> bool:
        """Whether a job lies inside of a recorded batch of pruning."""
        return any(row.first_job_id <= job_id <= row.last_job_id for row in self.pruned)


def read_rows(*, using: str, now: datetime | None = None) -> Rows:
    """Read everything; ``now`` defaults to the present of this machine."""
    found = {name: _read(sql, using=using) for name, sql in _STATEMENTS.items()}
    return Rows(now=now or datetime.now(UTC), **found)


def _read(sql: str, *, using: str) -> list[Row]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql)
        names = [column[0] for column in cursor.description]
        return [
            Row(**{name: _value(name, value) for name, value in zip(names, row, strict=True)})
            for row in cursor.fetchall()
        ]


def _value(name: str, value: Any) -> Any:
    if value is not None and name in _IDS:
        return uuid.UUID(str(value))
    if isinstance(value, str | datetime) and name.endswith("_at"):
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return found if found.tzinfo else found.replace(tzinfo=UTC)  # SQLite's rows have UTC without saying so
    return value
