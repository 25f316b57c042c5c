"""Connections of the worker: kept for its life whatever the project says, clean between jobs, replaced when broken."""

from __future__ import annotations

import contextlib
import functools
import logging
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

from django.db import (
    InterfaceError,
    InternalError,
    OperationalError,
    connections,
    reset_queries,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import debug_transaction

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.enqueue.inside import in_transaction
from django_jobs.store.statements import prepare_statements
from django_jobs.worker import hygiene
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.worker")

# What says that the database could not do its work now, not that the statement was wrong. InternalError is the answer
# of a server that became read-only, or that ended an idle transaction.
LOST = (OperationalError, InterfaceError, InternalError)

REFUSED = ("23", "40")  # SQLSTATE classes of a COMMIT that was refused: certainly not committed
# What ends waiting for a host that is gone, where the project did not say: libpq alone would wait for minutes or hours.
NETWORK_LIMITS = {
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
SILENCE = 5.0  # seconds beyond the server's own limit that a call may stay without an answer
IDLE_CHECK = 30.0  # seconds without use after which a connection is asked before it is trusted


def keep_connections(using: str) -> None:
    """Make this process keep one connection per thread on ``using``: reconnecting per job costs more than the job."""
    settings = connections.settings[using]
    settings["CONN_MAX_AGE"] = None
    settings["CONN_HEALTH_CHECKS"] = False
    options = settings.setdefault("OPTIONS", {})
    options.pop("pool", None)
    if connections[using].vendor == "postgresql":
        for name, value in NETWORK_LIMITS.items():
            options.setdefault(name, value)
    if connections[using].vendor == "postgresql" and not get_settings().transaction_pooler:
        # The plans of the store's statements do not depend on their values; planning one costs more than running it.
        options["options"] = f"{options.get('options', '')} -c plan_cache_mode=force_generic_plan".strip()
        prepare_statements()


def drop(using: str) -> None:
    """Close this thread's connection, so that the next statement opens a new one; never raises."""
    connection = connections[using]
    try:
        connection.in_atomic_block = False
        connection.savepoint_ids = []
        connection.atomic_blocks = []
        connection.needs_rollback = False
        connection.closed_in_transaction = False
        connection.run_on_commit = []
        connection.execute_wrappers = [wrapper for wrapper in connection.execute_wrappers if wrapper is not _refuse]
        connection.close()
    except Exception:  # noqa: BLE001  the socket is gone; what matters is that the wrapper forgets it
        connection.connection = None


def cut(connection: BaseDatabaseWrapper) -> None:
    """End what another thread has open on its connection: its locks are freed and its statements fail from now on.

    For a thread whose attempt was taken back while it cannot be stopped. Inside ``atomic()`` Django opens no new
    connection, so nothing it still does can be written.
    """
    raw = connection.connection
    if raw is None:
        return
    with contextlib.suppress(Exception):
        if connection.vendor == "postgresql":
            # Closing the libpq connection here could free memory that the thread is using; the socket is safe to end.
            with socket.socket(fileno=raw.pgconn.socket) as line:
                try:
                    line.shutdown(socket.SHUT_RDWR)
                finally:
                    line.detach()
        else:
            # Closing it here would free statements that the thread may be in the middle of, and kill the process.
            connection.execute_wrappers.insert(0, _refuse)
            raw.interrupt()
            raw.rollback()


def release(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is not used now and on which nothing was changed; the next query opens a new one."""
    if connection.vendor != "postgresql" or connection.connection is None or connection.in_atomic_block:
        return
    if not hygiene.has_transaction(connection) and not hygiene.is_changed(connection):
        connection.close()


def keep_cut(connection: BaseDatabaseWrapper) -> None:
    """End the transaction that a statement opened which was already waiting for SQLite's lock when it was cut."""
    raw = connection.connection
    if raw is None or connection.vendor != "sqlite" or _refuse not in connection.execute_wrappers:
        return
    with contextlib.suppress(Exception):
        if raw.in_transaction:
            raw.rollback()


def _refuse(*_: object) -> NoReturn:
    msg = "This connection was taken away from a handler that ran past its lease."
    raise OperationalError(msg)


def commit_for_certain(using: str) -> None:
    """Make COMMIT on SQLite an error where nothing is left to commit; for the rest of the connection object's life.

    The driver's ``commit()`` does nothing without a transaction, so a handler whose transaction was cut away after its
    last statement would believe in a commit, and what it left to be run on commit would run.
    """
    connection = connections[using]
    if connection.vendor == "sqlite" and "_commit" not in vars(connection):
        connection._commit = functools.partial(_commit, connection)  # type: ignore[attr-defined]  # noqa: SLF001


def _commit(connection: BaseDatabaseWrapper) -> None:
    raw = connection.connection
    if raw is None:
        return
    with debug_transaction(connection, "COMMIT"), connection.wrap_database_errors:
        if raw.in_transaction:
            raw.execute("COMMIT")  # fails if another thread ended the transaction in between
        elif _refuse in connection.execute_wrappers:  # a cut refuses first and ends the transaction then
            _refuse()


def freshen(using: str) -> None:
    """Drop this thread's connection if the server ended it since its last use, so that no job pays for it."""
    connection = connections[using]
    if connection.connection is None:
        return
    now = clock.boot_seconds()
    idle = now - getattr(connection, "_django_jobs_used_at", now)
    if (idle > IDLE_CHECK or _has_news(connection)) and not connection.is_usable():
        drop(using)


def _has_news(connection: BaseDatabaseWrapper) -> bool:
    """Say whether an idle server sent something: the end of the connection, most often. Costs no round trip."""
    if connection.vendor != "postgresql":
        return False
    try:
        poll = select.poll()
        poll.register(connection.connection.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))
    except Exception:  # noqa: BLE001  closed already: is_usable() decides
        return True


def _must_go(connection: BaseDatabaseWrapper) -> bool:
    if _refuse in connection.execute_wrappers:
        return True
    return connection.connection is not None and connection.errors_occurred and not connection.is_usable()


def clean(using: str) -> list[str]:
    """Leave nothing of one job to the next: open transactions, changed sessions, query logs, broken connections.

    Returns:
        The aliases on which a transaction was left open; it was rolled back.
    """
    reset_queries()
    left = []
    for connection in connections.all(initialized_only=True):
        if in_transaction(connection) or hygiene.has_transaction(connection):
            left.append(connection.alias)
            replace(connection)
        elif _must_go(connection) or not hygiene.restore(connection, keep=connection.alias == using):
            replace(connection)
        elif connection.connection is None:
            continue
        elif connection.alias != using:
            connection.close_if_unusable_or_obsolete()
        else:
            connection.errors_occurred = False
            connection._django_jobs_used_at = clock.boot_seconds()  # type: ignore[attr-defined]  # noqa: SLF001
    return left


def replace(connection: BaseDatabaseWrapper) -> None:
    """Close a connection for good, so that neither this thread nor a pool of the project's gets it again.

    One that a test lent (see :mod:`django_jobs.testing.lending`) goes back instead.
    """
    raw = connection.connection
    if raw is not None and connection.vendor == "postgresql" and not getattr(connection, "is_lent", False):
        with contextlib.suppress(Exception):
            raw.close()
    drop(connection.alias)
    hygiene.restore(connection, keep=False)


def was_refused(error: BaseException) -> bool:
    """Say whether the server answered a COMMIT with a refusal, so that nothing is in doubt."""
    state = getattr(error.__cause__, "sqlstate", None)
    return isinstance(state, str) and state.startswith(REFUSED)


@contextmanager
def limited_idling(using: str, limit: timedelta) -> Iterator[None]:
    """Bound how long a vanished host can hold what this block's transaction locks, from its first query on.

    Nothing is sent before the block's own first query.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        yield
        return
    sent = False

    def first(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal sent
        if not sent:
            sent = True
            milliseconds = str(max(1000, int(limit.total_seconds() * 1000)))
            with connection.wrap_database_errors:
                connection.connection.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [milliseconds]
                )
        return execute(sql, params, many, context)

    with connection.execute_wrapper(first):
        yield


@contextmanager
def bounded(using: str, limit: timedelta) -> Iterator[None]:
    """Run the block in a transaction whose statements and waits for locks end after ``limit``; PostgreSQL only.

    It reads what is committed, whatever isolation level handlers are given: the guards of our statements need that.
    A server that stands still is left after a little longer.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        yield
        return
    milliseconds = str(int(limit.total_seconds() * 1000))
    outermost = not connection.in_atomic_block
    with watch.over(using, limit.total_seconds() + SILENCE), transaction.atomic(using=using):
        with connection.cursor() as cursor:
            if outermost:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),"
                " set_config('idle_in_transaction_session_timeout', %s, true)",
                [milliseconds, milliseconds, milliseconds],
            )
        yield


def busy_timeout(using: str) -> float:
    """Return how many seconds a writer waits on SQLite for another one."""
    return float(connections.settings[using].get("OPTIONS", {}).get("timeout", 5))
