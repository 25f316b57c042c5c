"""Connections of the worker: kept for its life whatever the project says, clean between jobs, replaced when broken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.conf import get_settings
from django_jobs.store.statements import prepare_statements

logger = logging.getLogger("django_jobs.worker")

LOST: tuple[type[DatabaseError], ...] = (OperationalError, InterfaceError)


def keep_connections(using: str) -> None:
    """Make this process keep one connection per thread on ``using``: reconnecting for each job costs more than the job."""
    settings = connections.settings[using]
    settings["CONN_MAX_AGE"] = None
    settings["CONN_HEALTH_CHECKS"] = False
    options = settings.setdefault("OPTIONS", {})
    options.pop("pool", None)
    if connections[using].vendor == "postgresql" and not get_settings().transaction_pooler:
        # The plans of the store's statements do not depend on their values, and planning one costs more than running it.
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
        connection.close()
    except Exception:  # noqa: BLE001  the socket is gone; what matters is that the wrapper forgets it
        connection.connection = None


def is_broken(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the connection cannot be used any more; asks the server only if an error happened on it."""
    return connection.connection is not None and connection.errors_occurred and not connection.is_usable()


def clean(using: str) -> None:
    """Leave nothing of one job to the next: open transactions, switched autocommit, query logs, broken connections."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None and not connection.in_atomic_block:
            continue
        if connection.in_atomic_block or not connection.get_autocommit() or is_broken(connection):
            if connection.in_atomic_block or not connection.get_autocommit():
                logger.warning("A handler left a transaction open on %r; it was rolled back", connection.alias)
            drop(connection.alias)
        elif connection.alias != using:
            connection.close_if_unusable_or_obsolete()
        else:
            connection.errors_occurred = False


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

    def first(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
        nonlocal sent
        if not sent:
            sent = True
            milliseconds = str(max(1000, int(limit.total_seconds() * 1000)))
            context["connection"].connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [milliseconds]
            )
        return execute(sql, params, many, context)

    with connection.execute_wrapper(first):
        yield
