"""Whether this code runs inside a handler, and whether what it writes commits together with the success."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.exceptions import CrossDatabaseError, OutsideCompletionError


@dataclass(slots=True, kw_only=True)
class InsideJob:
    """The handler that is running here; ``commits_with_success`` is switched by completion and step blocks.

    What a stock task of Django enqueues outside of such a block commits by itself, as its author expects.
    """

    job_id: uuid.UUID
    correlation_id: str
    traceparent: str
    commits_with_success: bool
    is_stock_task: bool = False
    database: str = "default"
    attempt_id: uuid.UUID | None = None
    number: int = 0  # of the attempt
    held_back: list[Any] | None = None  # events that are stored, in the order of their keys, when the block ends


current: ContextVar[InsideJob | None] = ContextVar("django_jobs_inside", default=None)


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Say whether a transaction of the caller is open; the block that a TestCase wraps around a test does not count."""
    if not connection.in_atomic_block:
        return connection.connection is not None and not connection.get_autocommit()
    return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def check_place(*, what: str, using: str, detached: bool) -> None:
    """Refuse to record something that would not commit together with what belongs to it.

    Raises:
        OutsideCompletionError: Inside a handler, outside of its completion.
        CrossDatabaseError: A transaction is open on another database.
    """
    if detached:
        return
    inside = current.get()
    if inside is not None and not inside.commits_with_success and not inside.is_stock_task:
        msg = (
            f"{what} inside a handler belongs into complete(), step() or an atomic handler: here a crash would repeat "
            "it. Pass detached=True to accept that it happens at least once."
        )
        raise OutsideCompletionError(msg)
    for connection in connections.all(initialized_only=True):
        if connection.alias != using and in_transaction(connection):
            msg = (
                f"{what} writes to database {using!r}, but a transaction is open on {connection.alias!r}: the two "
                "would not commit together. Pass detached=True to accept that."
            )
            raise CrossDatabaseError(msg)
