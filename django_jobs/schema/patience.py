"""How long a step of a migration may stand in front of others, and how it gives way and comes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.core.management import CommandError
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock
from django_jobs.conf import get_settings

LOCK_WAIT = 500  # milliseconds; whoever comes while a step waits for its lock waits behind it, so no longer than this
PATIENCE = 600.0  # seconds of tries for one step
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0  # seconds between tries, in which those who stood behind go on
_GIVES_WAY = {"55P03", "40P01"}  # lock not available, deadlock detected
_HOLDER = """
    SELECT a.pid, coalesce(nullif(a.application_name, ''), a.usename, '?'),
        extract(epoch FROM clock_timestamp() - a.xact_start)::bigint
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.granted AND l.pid <> pg_backend_pid() AND a.datname = current_database() AND a.xact_start IS NOT NULL
        AND c.relname LIKE 'django!_jobs!_%' ESCAPE '!'
    ORDER BY a.xact_start LIMIT 1"""

logger = logging.getLogger("django_jobs.schema")


def pause(seconds: float) -> None:
    """Let the others go on for so long."""
    time.sleep(seconds)


def patiently(connection: BaseDatabaseWrapper, what: str, act: Callable[[], None]) -> None:
    """Run ``act`` until it gets its locks in time; it must leave nothing behind when it does not.

    Args:
        what: The operation in words, for the message.

    Raises:
        CommandError: Others held the locks for all of ``PATIENCE``.
    """
    deadline, wait = clock.boot_seconds() + PATIENCE, FIRST_PAUSE
    while True:
        try:
            return act()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) not in _GIVES_WAY:
                raise
            holder = _holder(connection)
            if clock.boot_seconds() + wait > deadline:
                raise CommandError(_gave_up(what, holder)) from error
        logger.warning("%s: the tables are held%s; trying again in %g s", what, holder, wait)
        pause(wait)
        wait = min(wait * 2, LONGEST_PAUSE)


@contextmanager
def unhurried(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Lift the session's time-outs for one statement that waits for others and lets everybody pass meanwhile.

    Behind a pooler in transaction mode a session has no settings of its own; there the time-outs stay.
    """
    if get_settings().transaction_pooler:
        yield
        return
    names = ("lock_timeout", "statement_timeout")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s), current_setting(%s)", names)
        before = cursor.fetchone()
        cursor.execute("SELECT set_config(%s, '0', false), set_config(%s, '0', false)", names)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for name, value in zip(names, before, strict=True):
                cursor.execute("SELECT set_config(%s, %s, false)", [name, value])


def _holder(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute(_HOLDER)
        row = cursor.fetchone()
    if row is None:
        return ""
    return f" by process {row[0]} of the server ({row[1]}), whose transaction has been open for {row[2]} s"


def _gave_up(what: str, holder: str) -> str:
    return (
        f"{what}: other transactions kept the tables locked for {PATIENCE:.0f} s, at last held{holder or ' briefly'}. "
        "This step has changed nothing, and the steps before it are kept. End what is open for so long "
        "('manage.py jobs doctor' names it), then run 'manage.py migrate' again: it goes on here."
    )
