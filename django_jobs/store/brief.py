"""Transactions of our own that hold a lock for moments: whoever stands still inside one must not hold it for longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_jobs.store.statements import is_inside

IDLE = 5000  # milliseconds; the server ends a session that idles in such a transaction for as long
NOT_IDLE = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"  # until the transaction ends


@contextmanager
def briefly(using: str) -> Iterator[None]:
    """Run the block inside the transaction that is open, or in one of its own in which the session may not idle.

    A process that is frozen, or a host that vanishes, keeps its session. Without a limit the row that it has locked
    would be locked for as long, and every reaper would pass it by. On SQLite a frozen writer blocks all others anyway.
    """
    connection = connections[using]
    if is_inside(connection):
        yield
        return
    with transaction.atomic(using=using):
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(NOT_IDLE, [str(IDLE)])
        yield


@contextmanager
def afresh(using: str) -> Iterator[None]:
    """Do as :func:`briefly`, and see what was committed before its locks, whatever the project's isolation is."""
    connection = connections[using]
    if is_inside(connection) or connection.vendor != "postgresql":
        with briefly(using):
            yield
        return
    with transaction.atomic(using=using):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # before the first snapshot, or too late
            cursor.execute(NOT_IDLE, [str(IDLE)])
        yield
