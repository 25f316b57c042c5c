"""What a job leaves behind in its thread, kind by kind, and the next job, which finds nothing of it."""

from __future__ import annotations

import contextlib
import decimal
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from asgiref.local import Local
from django.contrib.auth.models import Group
from django.db import connection, connections, reset_queries, transaction
from django.db.backends.signals import connection_created
from django.db.utils import ConnectionHandler
from django.test import override_settings
from django.utils import timezone, translation
from psycopg._preparing import PrepareManager
from pytest_django import DjangoDbBlocker

from django_jobs.models import Attempt
from django_jobs.store import statements
from testproject.databases import database_from_url
from tests.integration.worker.conftest import TABLE, Declare, run, take, write
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

OTHER = "other"
LANGUAGE = "de"

variable: ContextVar[str] = ContextVar("hygiene", default="clean")
local = Local()
kept: list[Any] = []


def ask(sql: str, using: str = "default") -> Any:
    """Return the first column of the first row."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def do(sql: str, using: str = "default") -> None:
    """Run a statement on the connection of this thread."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql)


def empty_kept() -> None:
    """Close what was kept: the collector would tell of each that it fails."""
    for item in kept:
        with contextlib.suppress(Exception):
            item.close()
    kept.clear()


def keep_iterating(using: str = "default") -> None:
    """Read the first of many rows and keep the rest for later."""
    rows = Group.objects.using(using).iterator(chunk_size=1)
    next(rows)
    kept.append(rows)


def keep_cursor() -> None:
    """Leave a cursor open in the middle of its rows."""
    cursor = connection.cursor()
    cursor.execute(f"SELECT n FROM {TABLE}")
    cursor.fetchone()
    kept.append(cursor)


def hold_generator() -> None:
    """Leave a generator suspended inside a transaction."""

    def rows() -> Iterator[int]:
        with transaction.atomic():
            write(1)
            yield 1

    kept.append(rows())
    next(kept[-1])


def leave_hook() -> None:
    """Leave something to be run on a commit that never came."""
    transaction.set_autocommit(False)
    write(1)
    transaction.on_commit(lambda: kept.append("ran"))


def drop_table() -> str:
    """Drop a table that an open cursor would keep."""
    do("CREATE TABLE hygiene_copy (n integer)")
    do("DROP TABLE hygiene_copy")
    with transaction.atomic():
        do(f"ALTER TABLE {TABLE} RENAME TO hygiene_renamed")
        do(f"ALTER TABLE hygiene_renamed RENAME TO {TABLE}")
    return "free"


def keep_wrapper(using: str = "default") -> None:
    """Install a wrapper around statements and leave it there."""
    connections[using].execute_wrappers.append(lambda execute, *rest: execute(*rest))


@dataclass(frozen=True, slots=True)
class Kind:
    """Something that a job may leave: how it does that, and what the next job looks at."""

    leave: Callable[[], Any]
    look: Callable[[], Any]
    fails: bool = False  # an open transaction: what was written in it is rolled back, so the job cannot succeed


def sql(statement: str, look: str) -> Kind:
    """Return a kind that one statement leaves and another sees."""
    return Kind(lambda: do(statement), lambda: ask(look))


def on_driver(statement: str, look: str) -> Kind:
    """Return the same for a statement that goes past Django."""
    return Kind(lambda: connection.connection.execute(statement), lambda: ask(look))


def _driver(name: str, value: Any) -> Kind:
    return Kind(lambda: setattr(connection.connection, name, value), lambda: getattr(connection.connection, name))


EVERYWHERE: dict[str, Kind] = {
    "language": Kind(lambda: translation.activate(LANGUAGE), translation.get_language),
    "time-zone": Kind(lambda: timezone.activate("Asia/Tokyo"), timezone.get_current_timezone_name),
    "context-variable": Kind(lambda: variable.set("dirty"), variable.get),
    "asgiref-local": Kind(lambda: setattr(local, "value", "dirty"), lambda: getattr(local, "value", "clean")),
    "decimal-context": Kind(lambda: setattr(decimal.getcontext(), "prec", 3), lambda: decimal.getcontext().prec),
    "autocommit": Kind(lambda: transaction.set_autocommit(False), transaction.get_autocommit, fails=True),
    "atomic": Kind(lambda: transaction.atomic().__enter__(), lambda: connection.in_atomic_block, fails=True),
    "generator": Kind(hold_generator, lambda: (connection.in_atomic_block, connection.savepoint_ids), fails=True),
    "begin": Kind(lambda: do("BEGIN"), lambda: connection.get_autocommit(), fails=True),
    "on-commit": Kind(leave_hook, lambda: (write(2), "ran" in kept), fails=True),
    "wrapper": Kind(keep_wrapper, lambda: len(connection.execute_wrappers)),
    "debug-cursor": Kind(
        lambda: setattr(connection, "force_debug_cursor", True), lambda: (connection.queries_logged, connection.queries)
    ),
    "other-database-atomic": Kind(
        lambda: transaction.atomic(using=OTHER).__enter__(), lambda: connections[OTHER].in_atomic_block, fails=True
    ),
    "other-database-begin": Kind(
        lambda: do("BEGIN", OTHER), lambda: do("BEGIN", OTHER) or do("ROLLBACK", OTHER), fails=True
    ),
    "other-database-session": Kind(lambda: do("PRAGMA cache_size = 7", OTHER), lambda: ask("PRAGMA cache_size", OTHER)),
    "other-database-wrapper": Kind(lambda: keep_wrapper(OTHER), lambda: len(connections[OTHER].execute_wrappers)),
}
ON_POSTGRESQL: dict[str, Kind] = {
    "search-path": sql("SET search_path TO pg_catalog", "SHOW search_path"),
    "session-time-zone": sql("SET TIME ZONE 'Asia/Tokyo'", "SHOW TimeZone"),
    "statement-timeout": sql("SELECT set_config('statement_timeout', '7s', false)", "SHOW statement_timeout"),
    "after-a-comment": sql("/* why */ -- and how\n set lock_timeout = '7s'", "SHOW lock_timeout"),
    "second-statement": sql("SELECT 1; SET lock_timeout = '7s'", "SHOW lock_timeout"),
    "do-block": sql("DO $$ BEGIN PERFORM set_config('work_mem', '1MB', false); END $$", "SHOW work_mem"),
    "in-a-function": sql("SELECT hygiene_zone()", "SHOW TimeZone"),
    "role": sql("SET ROLE pg_monitor", "SELECT current_user"),
    "session-authorization": sql("SET SESSION AUTHORIZATION pg_monitor", "SELECT session_user"),
    "advisory-lock": sql("SELECT pg_advisory_lock(7)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
    "temporary-table": sql("CREATE TEMPORARY TABLE leak (n int)", "SELECT to_regclass('leak')::text"),
    "listen": sql("LISTEN leak", "SELECT count(*) FROM pg_listening_channels()"),
    "prepared": sql("PREPARE leak AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements WHERE name = 'leak'"),
    "held-cursor": sql("DECLARE leak CURSOR WITH HOLD FOR SELECT 1", "SELECT count(*) FROM pg_cursors"),
    "iterator": Kind(keep_iterating, lambda: ask("SELECT count(*) FROM pg_cursors")),
    "driver": on_driver("SET lock_timeout = '7s'", "SHOW lock_timeout"),
    "driver-literal": on_driver(psycopg.sql.SQL("SET lock_timeout = '7s'"), "SHOW lock_timeout"),  # type: ignore[arg-type]
    "driver-rows": _driver("row_factory", psycopg.rows.dict_row),
    "driver-isolation": _driver("isolation_level", psycopg.IsolationLevel.SERIALIZABLE),
}
ON_SQLITE: dict[str, Kind] = {
    "foreign-keys": sql("PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys"),
    "busy-timeout": sql("PRAGMA busy_timeout = 7", "PRAGMA busy_timeout"),
    "attached": sql("ATTACH ':memory:' AS leak", "SELECT count(*) FROM pragma_database_list"),
    "temporary-table": sql("CREATE TEMP TABLE leak (n int)", "SELECT count(*) FROM sqlite_temp_master"),
    "cursor": Kind(keep_cursor, drop_table),
    "iterator": Kind(keep_iterating, drop_table),
    "driver-rows": _driver("row_factory", tuple),
    "driver-text": _driver("text_factory", bytes),
}
OF_VENDOR = {"postgresql": ON_POSTGRESQL, "sqlite": ON_SQLITE}


@pytest.fixture(scope="module", autouse=True)
def other_database(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Give the project a second database."""
    entry = database_from_url(f"sqlite:///{tmp_path_factory.mktemp('other') / 'other.sqlite3'}")
    connections.settings[OTHER] = ConnectionHandler({"default": {}, OTHER: entry}).settings[OTHER]
    yield
    with django_db_blocker.unblock():
        connections[OTHER].close()
    del connections[OTHER]
    del connections.settings[OTHER]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Close what a test kept."""
    yield
    empty_kept()


def outcomes_of(declare: Declare, kinds: dict[str, Kind]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Run a looking job in a fresh thread, then for each kind a leaving and a looking one, all in one thread."""
    seen: list[tuple[str, Any]] = []

    def handler(name: str, leave: bool) -> None:
        if leave:
            kinds[name].leave()
        else:
            kept_before = len(kept)
            seen.append((name, kinds[name].look()))
            del kept[kept_before:]

    job = declare(handler, atomic=False)

    def claimed(*moves: tuple[str, bool]) -> list[Any]:
        attempts = []
        for name, leave in moves:
            job.enqueue(name=name, leave=leave)
            attempts.append(take())
        return attempts

    run(*claimed(*[(name, False) for name in kinds]))
    before = dict(seen)
    seen.clear()
    leaving = claimed(*[(name, leave) for name in kinds for leave in (True, False)])
    run(*leaving)
    told = {row.pk: f"{row.outcome} {row.error_type} {row.message}" for row in Attempt.objects.all()}
    return before, dict(seen), [told[attempt.attempt_id] for attempt in leaving]


@pytest.mark.filterwarnings("ignore:Exception ignored in. <generator object cursor_iter")  # what a job kept
def test_next_job_finds_nothing(declare: Declare, table: Callable[[], list[int]], vendor: str, settings: Any) -> None:
    """Each kind of thing that a job can leave is gone, or its connection is, when the next job of the thread starts."""
    for n in range(3):
        Group.objects.create(name=f"{n}")
        write(n)
    if vendor == "postgresql":
        do(
            "CREATE OR REPLACE FUNCTION hygiene_zone() RETURNS text LANGUAGE sql AS "
            "$$ SELECT set_config('TimeZone', 'Asia/Tokyo', false) $$"
        )
    kinds = EVERYWHERE | OF_VENDOR[vendor]

    before, after, told = outcomes_of(declare, kinds)

    assert after == before
    for place, (name, kind) in enumerate(kinds.items()):
        leaving, looking = told[2 * place], told[2 * place + 1]
        assert leaving.startswith("failed" if kind.fails else "succeeded"), f"{name}: {leaving}"
        assert looking.startswith("succeeded"), f"{name}: {looking}"


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "/* no */ END"])
@pytest.mark.parametrize("more", [True, False], ids=["and-on", "last"])
def test_handler_that_ends_the_transaction_itself_is_no_success(
    declare: Declare, table: Callable[[], list[int]], statement: str, more: bool
) -> None:
    """Its rows would not commit together with the success, whatever follows: the attempt fails and says why."""

    def ending() -> None:
        write(1)
        do(statement)
        if more:
            do("BEGIN")
            write(2)

    declare(ending).enqueue()
    attempt = take()

    run(attempt)

    row = Attempt.objects.get()
    assert row.outcome == "failed"
    assert "ended the transaction" in row.message
    assert 2 not in table()


def test_generator_of_an_earlier_job_cannot_end_a_later_transaction(
    declare: Declare, table: Callable[[], list[int]]
) -> None:
    """Collected inside a later job, it makes Django roll that one's block back: nothing is written outside of it."""

    def handler(place: str) -> None:
        if place == "leave":
            hold_generator()
        else:
            write(1)
            empty_kept()
            write(2)

    job = declare(handler)
    attempts = []
    for place in ("leave", "collect"):
        job.enqueue(place=place)
        attempts.append(take())

    run(*attempts)

    row = Attempt.objects.get(pk=attempts[1].attempt_id)
    assert row.outcome == "failed"
    assert "an earlier job left behind" in row.message
    assert table() == []


def test_changed_session_is_reset_in_place(declare: Declare, table: object, vendor: str) -> None:
    """It costs no new connection on PostgreSQL, and is done once."""
    backends: list[Any] = []

    def handler(leave: bool) -> None:
        connection.ensure_connection()
        backends.append(connection.connection.info.backend_pid if vendor == "postgresql" else 0)
        if leave:
            do("SET lock_timeout = '7s'" if vendor == "postgresql" else "PRAGMA busy_timeout = 7")

    job = declare(handler, atomic=False)
    attempts = []
    for leave in (True, False, False):
        job.enqueue(leave=leave)
        attempts.append(take())

    with Told() as told:
        run(*attempts)

    assert len(told.named("session.changed")) == 1
    assert len(backends) == 3
    assert len(set(backends)) == 1


@pytest.mark.postgres
def test_reset_session_has_no_prepared_statement_that_the_driver_believes_in(
    declare: Declare, table: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers before psycopg 3.3 do not see that DISCARD ALL took them: the next job's success would fail."""
    monkeypatch.setattr(statements, "_prepare", True)
    monkeypatch.setattr(PrepareManager, "_should_discard", lambda self, prep, results: False)

    def handler(n: int) -> None:
        write(n)
        do("SET lock_timeout = '7s'")

    job = declare(handler)
    attempts = []
    for n in (1, 2):
        job.enqueue(n=n)
        attempts.append(take())
    run(*attempts)

    assert [row.outcome for row in Attempt.objects.all()] == ["succeeded"] * 2
    assert table() == [1, 2]


@pytest.mark.postgres
def test_projects_own_session_settings_survive(declare: Declare, table: object) -> None:
    """What a receiver sets on each new connection is there for every job, also after a job that changed it."""
    seen: list[Any] = []

    def set_up(connection: Any, **_: Any) -> None:
        connection.connection.execute("SET lock_timeout = '3s'")
        connection.execute_wrappers.append(lambda execute, *rest: execute(*rest))

    def handler(leave: bool) -> None:
        seen.append((ask("SHOW lock_timeout"), len(connection.execute_wrappers)))
        if leave:
            do("SET lock_timeout = '7s'")

    job = declare(handler, atomic=False)
    attempts = []
    for leave in (False, True, False):
        job.enqueue(leave=leave)
        attempts.append(take())
    connection_created.connect(set_up)
    try:
        run(*attempts)
    finally:
        connection_created.disconnect(set_up)

    assert [timeout for timeout, _ in seen] == ["3s"] * 3
    assert seen[0][1] == seen[1][1] == 1


@pytest.mark.postgres
def test_session_behind_a_transaction_pooler_is_not_reset(declare: Declare, table: object, settings: Any) -> None:
    """A reset would hit whatever session comes next; the worker says so instead and relies on nothing."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "TRANSACTION_POOLER": True}
    seen: list[Any] = []

    def handler(leave: bool) -> None:
        seen.append(ask("SHOW lock_timeout"))
        if leave:
            do("SET lock_timeout = '7s'")

    job = declare(handler, atomic=False)
    attempts = []
    for leave in (True, False):
        job.enqueue(leave=leave)
        attempts.append(take())

    with Told() as told:
        run(*attempts)

    assert seen == ["0", "7s"]
    assert len(told.named("session.changed")) == 1


@override_settings(DEBUG=True)
def test_query_log_is_emptied_between_jobs(declare: Declare, table: object) -> None:
    """With DEBUG the queries of one job are not kept beside those of the next."""
    lengths: list[int] = []

    def handler() -> None:
        lengths.append(len(connection.queries))
        for n in range(5):
            write(n)

    job = declare(handler, atomic=False)
    attempts = []
    for _ in range(3):
        job.enqueue()
        attempts.append(take())
    reset_queries()

    run(*attempts)

    assert max(lengths) <= 1
