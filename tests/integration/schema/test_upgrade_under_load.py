"""R78: a database full of jobs is migrated from every earlier state while code of that state goes on working."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.db import connection

from tests.architecture.sources import ROOT
from tests.clusters import Cluster
from tests.integration.schema.traffic import ATTEMPT, JOB, PAYLOAD, Traffic, inserting
from tests.old_rows import Columns, columns_now, migrate_to, names

pytestmark = pytest.mark.postgres

LONGEST = 1.0  # seconds that a statement of the old code may take
FEW, MILLION = 20_000, 1_000_000
UNFINISHED = """
    SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid
    UNION ALL SELECT conname FROM pg_constraint WHERE NOT convalidated"""
MIGRATION_WAITS = """
    SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND query ~* '^(ALTER TABLE|CREATE INDEX|DROP INDEX)' AND pid <> pg_backend_pid()"""
SIZES = [pytest.param(FEW, 2.0, marks=pytest.mark.slow), pytest.param(MILLION, 5.0, marks=pytest.mark.long)]


def fill(session: psycopg.Connection[Any], columns: Columns, many: int) -> None:
    """Store so many finished jobs, each with its payload and an attempt, by three statements."""
    number = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
    ids = {JOB: {"id": number}, PAYLOAD: {"job_id": number}, ATTEMPT: {"id": number, "job_id": number}}
    for table, made in ids.items():
        statement, values = inserting(table, columns[table])
        session.execute(statement, values)
        names_of = ", ".join(columns[table])
        chosen = ", ".join(made.get(column, column) for column in columns[table])
        first = f"(SELECT * FROM {table} LIMIT 1) template"
        session.execute(
            f"INSERT INTO {table} ({names_of}) SELECT {chosen} FROM {first}, generate_series(1, {many}) n"  # type: ignore[arg-type]
        )
    session.execute("VACUUM ANALYZE")


@dataclass(slots=True, kw_only=True)
class Report:
    """A transaction that has read every table, and stays open until a migration has stood behind it for so long."""

    url: str
    tables: list[str]
    seconds: float
    was_in_the_way: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _running: threading.Thread | None = None

    def __enter__(self) -> Report:
        session = psycopg.connect(self.url)
        session.execute(f"LOCK TABLE {', '.join(self.tables)} IN ACCESS SHARE MODE")  # type: ignore[arg-type]
        self._running = threading.Thread(target=self._hold, args=[session], daemon=True)
        self._running.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._running is not None
        self._running.join(60)

    def _hold(self, session: psycopg.Connection[Any]) -> None:
        with session, psycopg.connect(self.url, autocommit=True) as watch:
            while not self._over.wait(0.02):
                if watch.execute(MIGRATION_WAITS).fetchone():
                    self.was_in_the_way = True
                    self._over.wait(self.seconds)
                    return


def migrate(url: str, target: str) -> float:
    """Migrate by the command, in a process of its own, and return how many seconds that took."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "django_jobs", target],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - began


def unfinished() -> list[str]:
    """Return the indexes that were not built and the constraints that were not checked to the end."""
    with connection.cursor() as cursor:
        cursor.execute(UNFINISHED)
        return [name for (name,) in cursor.fetchall()]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("many", "seconds"), SIZES)
@pytest.mark.parametrize(
    ("start", "targets"), [(names()[0], names()[1:]), (names()[8], names()[-1:])], ids=["each", "from-0009"]
)
def test_r78_nobody_waits_for_a_migration(
    own_server: Cluster, start: str, targets: list[str], many: int, seconds: float
) -> None:
    """While each migration runs, and a long transaction is in its way, no statement of the old code takes a second."""
    url = own_server.url()
    migrate_to(start)
    columns = columns_now()
    with psycopg.connect(url, autocommit=True) as session:
        fill(session, columns, many)
        session.execute("ALTER ROLE postgres SET lock_timeout = '1s'")  # R78; it would end a build that waits

    delayed = []
    for target in targets:
        report = Report(url=url, tables=list(columns), seconds=seconds)
        with Traffic(url=url, columns=columns) as traffic, report:
            took = migrate(url, target)
        delayed += [target] if report.was_in_the_way else []
        print(f"{many:,} jobs, {target}: {took:.1f} s, {traffic.statements} statements, longest {traffic.longest}")
        assert traffic.errors == []
        assert traffic.done > 20
        assert traffic.longest[0] < LONGEST, traffic.longest
        assert unfinished() == []

    assert delayed, "the long transaction was never in the way"
    assert columns_now() != columns
