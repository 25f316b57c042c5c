"""What code of an earlier version does all day: its statements, at a steady pace, each with the time that it took."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql

from tests.old_rows import Columns, row

JOB, PAYLOAD, ATTEMPT = "django_jobs_job", "django_jobs_jobpayload", "django_jobs_attempt"
PACE = 0.01  # seconds between two rounds of a thread

_PROMOTE = """
    UPDATE django_jobs_job SET state = 'queued', revision = revision + 1 WHERE id IN (
        SELECT id FROM django_jobs_job WHERE queue_name = 'default' AND lane = '' AND state IN ('scheduled', 'failed')
            AND available_at <= now() ORDER BY available_at LIMIT 20 FOR NO KEY UPDATE SKIP LOCKED)"""
_CLAIM = """
    UPDATE django_jobs_job SET state = 'running', fence = fence + 1, attempt_id = %(attempt)s, lease_child = 1,
        lease_owner = %(attempt)s, lease_expires_at = now() + interval '1 minute' WHERE id = (
        SELECT id FROM django_jobs_job WHERE queue_name = 'default' AND lane = '' AND state = 'queued' AND isolation = ''
        ORDER BY priority DESC, available_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id"""
_FINISH = """
    UPDATE django_jobs_job SET state = 'succeeded', finished_at = now(), attempt_id = NULL, lease_owner = NULL,
        lease_child = NULL, lease_expires_at = NULL, revision = revision + 1
    WHERE id = %(job)s AND state = 'running' AND attempt_id = %(attempt)s"""
_CLOSE = "UPDATE django_jobs_attempt SET finished_at = now(), outcome = 'succeeded' WHERE id = %(attempt)s"


def inserting(table: str, columns: list[str], **told: Any) -> tuple[sql.Composed, dict[str, Any]]:
    """Return a statement that inserts a row of these columns, and its values."""
    values = row(table, columns, **told)
    names, signs = map(sql.Identifier, values), map(sql.Placeholder, values)
    text = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
    return text.format(sql.Identifier(table), sql.SQL(", ").join(names), sql.SQL(", ").join(signs)), values


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Threads that enqueue, promote, claim and finish, from the start of the block to its end."""

    url: str
    columns: Columns
    threads: int = 3
    longest: tuple[float, str] = (0.0, "")
    statements: int = 0
    done: int = 0
    errors: list[Exception] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Traffic:
        self._running = [threading.Thread(target=self._work, daemon=True) for _ in range(self.threads)]
        for thread in self._running:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._running:
            thread.join(60)

    def _work(self) -> None:
        try:
            with psycopg.connect(self.url, autocommit=True) as session:
                while not self._over.wait(PACE):
                    self._round(session)
        except Exception as error:
            self.errors.append(error)

    def _round(self, session: psycopg.Connection[Any]) -> None:
        job, attempt = uuid.uuid4(), uuid.uuid4()
        told: dict[str, Any] = {"state": "scheduled", "finished_at": None, "queue_name": "default"}
        self._take(session, "enqueue", *inserting(JOB, self.columns[JOB], id=job, **told))
        self._take(session, "payload", *inserting(PAYLOAD, self.columns[PAYLOAD], job=job))
        self._take(session, "promote", _PROMOTE, {})
        claimed = self._take(session, "claim", _CLAIM, {"attempt": attempt})
        if claimed:
            self._take(session, "attempt", *inserting(ATTEMPT, self.columns[ATTEMPT], id=attempt, job=claimed[0]))
            self._take(session, "finish", _FINISH, {"job": claimed[0], "attempt": attempt})
            self._take(session, "close", _CLOSE, {"attempt": attempt})
            self.done += 1

    def _take(self, session: psycopg.Connection[Any], name: str, text: Any, values: dict[str, Any]) -> Any:
        began = time.perf_counter()
        cursor = session.execute(text, values)
        taken = time.perf_counter() - began
        with self._lock:
            self.statements += 1
            self.longest = max(self.longest, (taken, name))
        return cursor.fetchone() if cursor.description else None
