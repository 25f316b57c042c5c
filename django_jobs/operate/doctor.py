"""What will bite: settings, database, workers and stored rows, looked at together.

Each look is a function that yields findings. A ``warning`` asks for something to be done, an ``info`` only tells.
Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from django.core import checks
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from django_jobs.conf import get_settings
from django_jobs.operate.doctor_batches import batch_looks
from django_jobs.operate.doctor_database import database_looks
from django_jobs.operate.doctor_heartbeat import heartbeat_looks
from django_jobs.operate.doctor_jobs import job_looks
from django_jobs.operate.doctor_retention import retention_looks
from django_jobs.operate.doctor_schedules import schedule_looks
from django_jobs.operate.doctor_turns import turn_looks
from django_jobs.operate.doctor_workers import worker_looks
from django_jobs.operate.finding import Finding, Surroundings
from django_jobs.store.times import read_now

LONG = timedelta(seconds=10)

CHECKS = "django_jobs"  # the tag of the system checks, which are part of the look


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings about one database and this process's settings."""

    database: str
    read_at: datetime | None
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing asks for something to be done."""
        return all(finding.level == "info" for finding in self.findings)


def diagnose(*, using: str, long: timedelta = LONG, heartbeat_file: Path | None = None) -> Diagnosis:
    """Look at everything; ``long`` is how long an atomic handler may hold its transaction before it is named.

    Without up-to-date tables only the settings are looked at, and what ``heartbeat_file`` says. With such a file a
    database that does not answer is a finding too: then the file is all that there is.
    """
    told = [] if heartbeat_file is None else [*heartbeat_looks(heartbeat_file)]
    try:
        return _diagnose(using=using, long=long, told=told)
    except DatabaseError as error:
        if heartbeat_file is None:
            raise
        text = f"Database {using!r} cannot be read: {str(error).strip()}."
        away = Finding(id="database-away", level="warning", text=text, mend="Is it running, reachable and migrated?")
        return Diagnosis(database=using, read_at=None, findings=(*told, away))


def _diagnose(*, using: str, long: timedelta, told: list[Finding]) -> Diagnosis:
    findings = [*told, *_from_checks(using)]
    unapplied = _unapplied(using)
    if unapplied:
        return Diagnosis(database=using, read_at=None, findings=(*findings, unapplied))
    around = Surroundings(using=using, now=read_now(using), rules=get_settings(), long=long)
    looks = (*worker_looks(), *job_looks(), *schedule_looks(), *turn_looks(), *batch_looks(), *retention_looks())
    for look in (*database_looks(connections[using].vendor), *looks):
        findings.extend(look(around))
    return Diagnosis(database=using, read_at=around.now, findings=tuple(findings))


def _from_checks(using: str) -> Iterator[Finding]:
    for message in checks.run_checks(tags=[CHECKS], databases=[using]):
        if message.is_silenced():
            continue
        level: Literal["warning", "info"] = "warning" if message.level >= checks.WARNING else "info"
        yield Finding(id=str(message.id), level=level, text=str(message.msg), mend=str(message.hint or ""))


def _unapplied(using: str) -> Finding | None:
    executor = MigrationExecutor(connections[using])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "django_jobs"]
    missing = [str(migration) for migration, _ in executor.migration_plan(targets)]
    if not missing:
        return None
    return Finding(
        id="migrations",
        level="warning",
        text=f"Migrations are not applied to database {using!r}: {', '.join(missing)}.",
        mend=f"Run 'manage.py migrate --database {using} django_jobs'.",
    )
