"""Looks at the database itself: how it really runs, whatever the settings say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

from django_jobs.operate.finding import Finding, Look, Surroundings, info, some, warning
from django_jobs.operate.wording import counted, duration

OLD = timedelta(minutes=5)  # an open transaction older than this keeps dead rows in the way of every claim
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_FULL = 2

_TRANSACTIONS = """
SELECT pid, state, EXTRACT(EPOCH FROM (clock_timestamp() - xact_start))::float8, application_name
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - %s::interval
    AND backend_type = 'client backend'
ORDER BY xact_start
"""
_PREPARED = """
SELECT gid, EXTRACT(EPOCH FROM (clock_timestamp() - prepared))::float8
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - %s::interval
ORDER BY prepared
"""
_SLOTS = """
SELECT slot_name FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL OR restart_lsn IS NOT NULL)
ORDER BY slot_name
"""


def database_looks(vendor: str) -> tuple[Look, ...]:
    """Return the looks that fit this kind of database."""
    if vendor == "sqlite":
        return (_journal, _synchronous)
    return (_reconnects, _transactions, _prepared, _slots, _notifications)


def _journal(around: Surroundings) -> Iterator[Finding]:
    mode = str(_rows(around, "PRAGMA journal_mode")[0][0]).lower()
    if mode not in {"wal", "memory"}:
        yield warning(
            "sqlite-journal",
            f"SQLite runs with journal_mode={mode}: readers and writers block one another.",
            "Put 'PRAGMA journal_mode=WAL' into OPTIONS['init_command'] of this database.",
        )


def _synchronous(around: Surroundings) -> Iterator[Finding]:
    level = int(_rows(around, "PRAGMA synchronous")[0][0])
    if level < _FULL:
        yield warning(
            "sqlite-synchronous",
            f"SQLite runs with synchronous={_SYNCHRONOUS[level]}: a power cut can forget an intent after its call.",
            "Put 'PRAGMA synchronous=FULL' into OPTIONS['init_command'] of this database.",
        )


def _reconnects(around: Surroundings) -> Iterator[Finding]:
    entry = connections.settings[around.using]
    if entry.get("CONN_MAX_AGE") == 0 and not entry.get("OPTIONS", {}).get("pool"):
        yield info(
            "reconnects",
            "CONN_MAX_AGE is 0: every web request opens a connection of its own. Workers keep theirs anyway.",
            "Set CONN_MAX_AGE and CONN_HEALTH_CHECKS, or use a pool.",
        )


def _transactions(around: Surroundings) -> Iterator[Finding]:
    found = _rows(around, _TRANSACTIONS, [OLD])
    if found:
        told = [
            f"pid {pid} ({state or 'state hidden'}, {duration(timedelta(seconds=age))}{f', {name}' if name else ''})"
            for pid, state, age, name in found
        ]
        yield warning(
            "long-transaction",
            f"{counted(len(found), 'transaction')} open for more than {duration(OLD)}: {some(told)}. Meanwhile no "
            "vacuum can clean the dead rows that finished jobs leave, and claims grow slow.",
            "End what forgot its transaction (pg_terminate_backend), and set idle_in_transaction_session_timeout.",
        )


def _prepared(around: Surroundings) -> Iterator[Finding]:
    found = _rows(around, _PREPARED, [OLD])
    if found:
        told = [f"{gid} ({duration(timedelta(seconds=age))})" for gid, age in found]
        yield warning(
            "prepared-transaction",
            f"Prepared transactions wait for their end: {some(told)}. They hold locks and keep dead rows in the way.",
            "COMMIT PREPARED or ROLLBACK PREPARED each of them.",
        )


def _slots(around: Surroundings) -> Iterator[Finding]:
    found = [row[0] for row in _rows(around, _SLOTS)]
    if found:
        yield warning(
            "idle-replication-slot",
            f"Replication slots that nobody reads: {some(found)}. They keep write-ahead log, and dead "
            "rows if they hold an old snapshot.",
            "Start their readers, drop the slots, or bound them with max_slot_wal_keep_size.",
        )


def _notifications(around: Surroundings) -> Iterator[Finding]:
    """Try what a worker tries at its start, with the settings of this process."""
    rules = around.rules
    if not rules.notify or (rules.transaction_pooler and not rules.listen_dsn):
        return  # not wanted, or told by a check
    from django_jobs.worker.line import ERRORS, opened  # psycopg may not be installed

    try:
        with opened(around.using) as line:
            problem = line.problem()
    except ERRORS as error:
        problem = f"no connection for it could be made ({type(error).__name__})"
    if problem:
        yield warning(
            "no-notifications",
            f"Workers cannot be woken: {problem}. Idle ones look for jobs every {duration(rules.poll)}.",
            "Set LISTEN_DSN to a connection straight to the server, or NOTIFY to False if polling is enough.",
        )


def _rows(around: Surroundings, sql: str, params: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    with connections[around.using].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())
