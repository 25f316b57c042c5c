"""No page of the admin may keep the database busy for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import OperationalError, connections, transaction

LONGEST = timedelta(seconds=5)
_QUERY_CANCELLED = "57014"


class TooBroadError(Exception):
    """The database gave a look up after ``LONGEST``."""


@contextmanager
def bounded(using: str) -> Iterator[None]:
    """Let no statement of the block take longer than ``LONGEST`` on PostgreSQL; on SQLite nothing bounds a look.

    The bound ends with the block: it is part of a transaction, so that it holds behind a pooler too.

    Raises:
        TooBroadError: A statement took longer.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":  # a transaction would take SQLite's only write lock
        yield
        return
    try:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)",
                [f"{LONGEST / timedelta(milliseconds=1):.0f}ms"],
            )
            before = cursor.fetchone()[0]
            yield
            if connection.savepoint_ids:  # inside a transaction of somebody else, which goes on
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") == _QUERY_CANCELLED:
            raise TooBroadError from error
        raise
