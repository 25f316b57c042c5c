"""Migrations give way, come back, go on after an interruption, and can be read before they run."""

from __future__ import annotations

from io import StringIO
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from django_jobs.schema import online, patience
from tests.databases import Server
from tests.old_rows import LABEL, columns_now, migrate_to, names

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("migrated_again")]

BEFORE_SERIAL, SERIAL = "0011_batches", "0012_serial"
INDEX = "django_jobs_job_serial"
CATALOG = """
    SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid FROM pg_index
    WHERE indrelid::regclass::text LIKE 'django!_jobs!_%' ESCAPE '!'
    UNION ALL
    SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint
    WHERE conrelid::regclass::text LIKE 'django!_jobs!_%' ESCAPE '!'"""


class Interrupted(BaseException):
    """The process is ended between two steps."""


def _forget(name: str) -> None:
    MigrationRecorder(connection).record_unapplied(LABEL, name)


def _catalog() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(CATALOG)
        return {name: rest for name, *rest in cursor.fetchall()}


def _hold(session: psycopg.Connection[Any]) -> int:
    session.execute("SELECT count(*) FROM django_jobs_job")
    return session.info.backend_pid


@pytest.mark.postgres
def test_migration_gives_way_and_comes_back(
    another: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction that has read a table delays the migration; others pass, the reason is told, and it goes on."""
    migrate_to(BEFORE_SERIAL)
    pid, passed = _hold(another), []

    def pause(seconds: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM django_jobs_job FOR UPDATE")
        passed.append(seconds)
        if len(passed) == 2:
            another.rollback()

    monkeypatch.setattr(patience, "pause", pause)
    migrate_to(SERIAL)

    assert passed == [1.0, 2.0]
    assert f"Add field serial_key to job: the tables are held by process {pid}" in caplog.text
    assert "serial_key" in columns_now()["django_jobs_job"]


@pytest.mark.postgres
def test_migration_gives_up_in_plain_words_and_goes_on_later(
    another: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten minutes it ends with who was in the way and what to do; the next run does the rest."""
    migrate_to(BEFORE_SERIAL)
    pid = _hold(another)
    waits: list[float] = []
    monkeypatch.setattr(patience, "pause", lambda seconds: (waits.append(seconds), patience.clock.skip(200)))

    with pytest.raises(CommandError, match=f"process {pid} of the server") as refused:
        migrate_to(SERIAL)

    assert waits == [1.0, 2.0, 4.0]
    assert "manage.py migrate' again: it goes on here" in str(refused.value)
    another.rollback()
    migrate_to(SERIAL)
    assert _catalog()[INDEX][-1]


@pytest.mark.postgres
def test_other_errors_of_the_database_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a lock that somebody else holds is worth another try."""
    tries: list[str] = []

    def act() -> None:
        tries.append("once")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5)")

    with pytest.raises(OperationalError):
        patience.patiently(connection, "a step", act)

    assert tries == ["once"]


@pytest.mark.postgres
@pytest.mark.parametrize(("pooler", "meanwhile"), [(False, "0"), (True, "777ms")])
def test_time_outs_of_the_session_are_lifted_and_put_back(pooler: bool, meanwhile: str) -> None:
    """A build that lets others pass may wait for them; behind a transaction pooler there is no session to change."""
    given = override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "TRANSACTION_POOLER": pooler})
    with connection.cursor() as cursor, given:
        cursor.execute("SET lock_timeout = '777ms'")
        with patience.unhurried(connection):
            cursor.execute("SHOW lock_timeout")
            told = cursor.fetchone()
        cursor.execute("SHOW lock_timeout")

        assert (told, cursor.fetchone()) == ((meanwhile,), ("777ms",))


@pytest.mark.postgres
def test_half_built_index_is_built_anew(another: psycopg.Connection[Any], server: Server) -> None:
    """What an interrupted build left behind is not taken for the index."""
    definition = _catalog()[INDEX][0]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX {INDEX}")
    _forget(SERIAL)
    another.execute("LOCK TABLE django_jobs_job IN ROW EXCLUSIVE MODE")
    with psycopg.connect(server.url, autocommit=True) as builder:
        builder.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            builder.execute(definition.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY"))
    another.rollback()
    assert not _catalog()[INDEX][-1], "nothing was left half-built"

    migrate_to(SERIAL)

    assert _catalog()[INDEX] == [definition, True]


@pytest.mark.postgres
@pytest.mark.slow
def test_interrupted_after_every_step_it_ends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step was the last before the process ended, the next run goes on, to the same tables."""
    whole, columns = _catalog(), columns_now()
    migrate_to(names()[0])
    seen: set[tuple[str, ...]] = set()

    def patiently(on: Any, what: str, act: Any) -> None:
        act()
        if (key := (what, act.args[0].act.__qualname__)) not in seen:
            seen.add(key)
            raise Interrupted

    monkeypatch.setattr(online, "patiently", patiently)
    runs = 0
    while MigrationRecorder(connection).migration_qs.filter(app=LABEL, name=names()[-1]).count() == 0:
        runs += 1
        try:
            migrate_to(names()[-1])
        except Interrupted:
            continue

    assert runs == len(seen) + 1 > 60
    assert (_catalog(), columns_now()) == (whole, columns)


@pytest.mark.slow
def test_migration_that_was_done_and_not_recorded_is_recorded(server: Server) -> None:
    """A process that ends between the last step and the record of it costs one more run, on both databases."""
    columns = columns_now()
    migrate_to(names()[0])
    for name in names()[1:]:
        migrate_to(name)
        _forget(name)
        migrate_to(name)

    assert columns_now() == columns


@pytest.mark.postgres
def test_migration_runs_in_a_transaction_of_the_caller() -> None:
    """A tool that wraps everything in one transaction gets the same tables, without what cannot be in a transaction."""
    migrate_to(SERIAL)
    whole = _catalog()
    migrate_to(BEFORE_SERIAL)

    with transaction.atomic():
        migrate_to(SERIAL)

    assert _catalog() == whole


def test_sql_can_be_read_beforehand(vendor: str) -> None:
    """``sqlmigrate`` shows each transaction with its limit on PostgreSQL, and plain statements on SQLite."""
    out = StringIO()
    call_command("sqlmigrate", LABEL, SERIAL, stdout=out)
    lines = out.getvalue().splitlines()

    is_online = vendor == "postgresql"
    assert any(line.startswith(f'CREATE INDEX CONCURRENTLY "{INDEX}"') for line in lines) is is_online
    assert ("SET LOCAL lock_timeout = '500ms';" in lines) is is_online
    assert lines.count("BEGIN;") == lines.count("COMMIT;") == (3 if is_online else 0)
    assert any("serial_skips" in line for line in lines)


@pytest.mark.postgres
def test_checks_are_added_before_rows_are_looked_at() -> None:
    """The SQL of a new column with a check, and of a wider check, holds nobody up while rows are read."""
    texts = {}
    for name in ("0007", "0011"):
        out = StringIO()
        call_command("sqlmigrate", LABEL, name, stdout=out)
        texts[name] = out.getvalue()

    assert texts["0007"].count("NOT VALID") == texts["0007"].count("VALIDATE CONSTRAINT") == 1
    assert 'ADD COLUMN "chain_position" smallint NULL;' in texts["0011"]
    assert texts["0011"].count("NOT VALID") == texts["0011"].count("VALIDATE CONSTRAINT") == 1
