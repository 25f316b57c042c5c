"""What one job may not leave to the next in its thread, on the side of Django's connection objects.

A connection is watched from the first job of its thread on. What a job changed is undone; a connection that nobody can
bring back in place is replaced, which costs far more, and therefore only then.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.exceptions import JobsError
from django_jobs.worker.session import Session

logger = logging.getLogger("django_jobs.worker")

OWN_END = (
    "A statement of the handler ended the transaction that was to commit its rows together with the success. Declare "
    "atomic=False to use transactions of your own."
)
LOST_BLOCK = (
    "The transaction that was to commit with the success was ended by something that an earlier job left behind, most "
    "likely a generator inside atomic(). Close generators in the handler that opens them."
)
POOLED = (
    "A handler changed its database session behind a transaction pooler, where others get that session. Use SET LOCAL "
    "and transaction-scoped locks."
)


class Watch:
    """The state of one connection object that a job has to leave as it was."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.wrappers = list(connection.execute_wrappers)
        self.force_debug_cursor = connection.force_debug_cursor
        self.session: Session | None = None
        self.others_too = False  # the other connections of this thread are watched too
        self.block: object = None  # the transaction that is to commit together with the success
        if connection.connection is not None:
            self._connected()
        for name in ("connect", "create_cursor"):
            setattr(connection, name, functools.partial(getattr(self, name), getattr(connection, name)))

    def connect(self, original: Any) -> None:
        """Connect; wrappers that a project installs on each new connection stay."""
        before = list(self.connection.execute_wrappers)
        original()
        self.wrappers += [wrapper for wrapper in self.connection.execute_wrappers if wrapper not in before]
        self._connected()

    def create_cursor(self, original: Any, name: str | None = None) -> Any:
        """Make a cursor that the session knows.

        Raises:
            JobsError: What it would write could not commit together with the success.
        """
        if self.has_lost_block:
            raise JobsError(LOST_BLOCK)
        cursor = original(name) if name else original()
        if (session := self.current) is not None:
            session.opened(cursor, named=name is not None)
        return cursor

    def _connected(self) -> None:
        self.session = Session(self.connection)

    @property
    def current(self) -> Session | None:
        """The session of the connection that is open now."""
        if self.session is None or self.connection.connection is None:
            return None
        return self.session if self.session.raw is self.connection.connection else None

    @property
    def has_lost_block(self) -> bool:
        """Whether the transaction that is to commit with the success was ended by somebody else."""
        return self.block is not None and self.block not in self.connection.atomic_blocks

    def restore(self) -> None:
        """Take back what was put on the connection object: wrappers, the forced query log, hooks of no transaction."""
        connection = self.connection
        if connection.execute_wrappers != self.wrappers:
            connection.execute_wrappers = list(self.wrappers)
        connection.force_debug_cursor = self.force_debug_cursor
        connection.run_on_commit = []
        connection.run_commit_hooks_on_set_autocommit_on = False


def watch_all(using: str) -> None:
    """Watch every connection of this thread, also those that the job may open; cheap when repeated."""
    watch = _of(connections[using])
    if watch.others_too:
        return
    for alias in connections:
        with contextlib.suppress(Exception):  # an alias that cannot be used is told about when somebody uses it
            _of(connections[alias])
    watch.others_too = True


def _of(connection: BaseDatabaseWrapper) -> Watch:
    found: Watch | None = getattr(connection, "_django_jobs_watch", None)
    if found is None:
        found = connection._django_jobs_watch = Watch(connection)  # type: ignore[attr-defined]  # noqa: SLF001
    return found


def watched(connection: BaseDatabaseWrapper) -> Watch | None:
    """Return the watch of a connection; None in threads that run no jobs."""
    return getattr(connection, "_django_jobs_watch", None)


def has_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the driver has a transaction open that Django does not know of."""
    watch = watched(connection)
    return watch is not None and watch.current is not None and watch.current.has_transaction


def is_changed(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the session of a connection would be missed: settings, locks, open cursors; true where none knows."""
    watch = watched(connection)
    if watch is None or watch.current is None:
        return True
    return watch.current.must_go() or watch.current.look()


def begin_transaction(connection: BaseDatabaseWrapper, block: object) -> None:
    """Begin to look for what ends this block behind its back.

    A statement of the handler can. And so can a generator that an earlier job left suspended inside ``atomic()``: when
    it is collected, Django takes the innermost block of the thread for the generator's and rolls it back.
    """
    watch = watched(connection)
    if watch is not None:
        watch.block = block
        if watch.current is not None:
            watch.current.kept.begin()


def end_transaction(connection: BaseDatabaseWrapper) -> None:
    """Stop looking; what follows is the COMMIT or the rollback of the block."""
    watch = watched(connection)
    if watch is not None:
        watch.block = None
        if watch.current is not None:
            watch.current.kept.end()


def is_untouched(connection: BaseDatabaseWrapper) -> bool:
    """Say whether there is nothing to commit: the block that was begun has sent no statement, and none waits for it."""
    watch = watched(connection)
    if watch is None or watch.current is None or connection.run_on_commit or connection.needs_rollback:
        return False
    return watch.current.kept.is_untouched


def check_block(connection: BaseDatabaseWrapper) -> None:
    """Refuse to go on when the block was ended by somebody else.

    Raises:
        JobsError: It was.
    """
    watch = watched(connection)
    if watch is None:
        return
    if watch.has_lost_block:
        raise JobsError(LOST_BLOCK)
    if watch.current is not None and watch.current.kept.is_lost():
        raise JobsError(OWN_END)


def restore(connection: BaseDatabaseWrapper, *, keep: bool) -> bool:
    """Bring a connection back to what it was before the job.

    Args:
        connection: One that is idle.
        keep: Whether it is one of those that the worker keeps, so that a reset pays.

    Returns:
        False when it has to be replaced instead.
    """
    watch = watched(connection)
    if watch is None:
        return True
    watch.restore()
    session = watch.current
    if session is None:
        return True
    if session.must_go():
        return False
    if not session.look():
        session.is_new()
        return True
    telemetry.emit("session.changed", alias=connection.alias)
    return keep and _reset(connection, session)


def _reset(connection: BaseDatabaseWrapper, session: Session) -> bool:
    """Reset in place where that restores everything that opening a new connection would.

    A project that sets its sessions up with a receiver of ``connection_created`` gets a new connection: a reset would
    undo the receiver's work too.
    """
    if connection.vendor != "postgresql" or connection_created.has_listeners(type(connection)):
        return False
    if get_settings().transaction_pooler:
        logger.warning(POOLED)
        session.is_new()
        return True
    try:
        session.raw.execute("DISCARD ALL")
        session.raw._prepared.clear()  # noqa: SLF001  psycopg before 3.3 goes on believing in what is gone
        connection.init_connection_state()
    except Exception:  # noqa: BLE001  a connection that cannot be reset is replaced
        return False
    session.is_new()
    return True
