"""A connection of its own that listens on PostgreSQL. It is never inside a transaction, so it holds no snapshot."""

from __future__ import annotations

import secrets
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.store.notify import CHANNEL

PROBE = "django_jobs_probe"
NAME = "django_jobs listener"
CONNECT_TIMEOUT = 10  # seconds, unless the project says otherwise
PATIENCE = 3.0  # seconds in which a notification to oneself must arrive
ERRORS = (psycopg.Error, OSError)


class Line:
    """Listens once :meth:`problem` found none."""

    def __init__(self, using: str) -> None:
        dsn = get_settings().listen_dsn
        self._sender = _parameters(using)
        given = {"conninfo": dsn} if dsn else self._sender
        timeout = {} if "connect_timeout" in (dsn or given) else {"connect_timeout": CONNECT_TIMEOUT}
        self._raw = psycopg.connect(**{**given, **timeout, "application_name": NAME}, autocommit=True)
        self._listens = False
        self._heard: list[str] = []
        self._tokens: set[str] = set()

    def close(self) -> None:
        """Close without waiting for the server."""
        self._raw.close()

    def problem(self) -> str:
        """Send a notification from another connection, made as workers and producers make theirs, and wait for it.

        Returns:
            Why nothing is heard here; empty if all is well.
        """
        with psycopg.connect(**self._sender, autocommit=True) as sender:
            if not self._listens:
                if self._is_pooled(sender):
                    return "the connection goes through a pooler in transaction mode"
                self._raw.execute(f"LISTEN {CHANNEL}")
                self._raw.execute(f"LISTEN {PROBE}")
                self._listens = True
            token = secrets.token_hex(8)
            sender.execute("SELECT pg_notify(%s, %s)", [PROBE, token])
        deadline = clock.boot_seconds() + PATIENCE
        while token not in self._tokens:
            left = deadline - clock.boot_seconds()
            if left <= 0:
                return f"a notification did not arrive within {PATIENCE:.0f} s"
            self.wait(left)
        self._tokens.clear()
        return ""

    def _is_pooled(self, sender: psycopg.Connection[Any]) -> bool:
        """Say whether two connections share one session of the server by turns.

        Asked before LISTEN: in a shared session that would stay behind, for whoever uses it next.
        """
        first = _session(self._raw)
        if first == self._raw.info.backend_pid:
            return False  # the server itself answers; what a pooler tells at the start is a number of its own
        with sender.transaction():
            return _session(sender) == first or _session(self._raw) != first

    def wait(self, seconds: float, *, also: int = -1) -> None:
        """Wait until something comes here or on the descriptor ``also``; keep it."""
        poll = select.poll()
        poll.register(self._raw.fileno(), select.POLLIN)
        if also >= 0:
            poll.register(also, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)  # a negative time would mean for ever
        self._raw.pgconn.consume_input()
        while (found := self._raw.pgconn.notifies()) is not None:
            if found.relname == PROBE.encode():
                self._tokens.add(found.extra.decode())
            else:
                self._heard.append(found.extra.decode())

    def heard(self) -> list[str]:
        """Return the queues that were notified since the last time."""
        found, self._heard = self._heard, []
        return found


def _parameters(using: str) -> dict[str, Any]:
    given: dict[str, Any] = connections[using].get_connection_params()
    return {name: value for name, value in given.items() if name not in {"cursor_factory", "context"}}


def _session(raw: psycopg.Connection[Any]) -> int:
    row = raw.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0


@contextmanager
def opened(using: str) -> Iterator[Line]:
    """Open a line for the block."""
    line = Line(using)
    try:
        yield line
    finally:
        line.close()
