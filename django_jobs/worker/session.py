"""What a handler changed on its database session, seen on the way: asking the server after each job would cost more.

Seen is every statement that goes through Django or through a cursor of the driver's connection on PostgreSQL, and on
SQLite every statement that goes through Django. Not seen is what a function inside the database changes, except the
settings whose values PostgreSQL reports to its clients.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.worker.kept import Kept

T = TypeVar("T")

# Statements that outlive a transaction. CALL and DO run code that may do anything.
_CHANGING = frozenset(
    {
        *("ATTACH", "CALL", "DEALLOCATE", "DECLARE", "DETACH", "DISCARD", "DO", "EXECUTE", "LISTEN", "LOAD", "PRAGMA"),
        *("PREPARE", "RESET", "SET", "UNLISTEN"),
    }
)
_ENDING = frozenset({"ABORT", "COMMIT", "END", "ROLLBACK"})
_VERB = re.compile(r"(?:[\s;(]+|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
_FOLLOWING = re.compile(rf";\s*(?:{'|'.join(sorted(_CHANGING | {'CREATE'}))})\b", re.IGNORECASE)
_LOCAL_SET = re.compile(r"\s*SET\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)\b", re.IGNORECASE)
_LOCAL_CONFIG = re.compile(r",\s*true\s*\)")
_TEMPORARY = re.compile(r"\b(?:create|into)\s+(?:or\s+replace\s+)?(?:(?:global|local)\s+)?temp(?:orary)?\b|\bpg_temp\b")
_READ_PRAGMA = re.compile(
    r"\s*PRAGMA\s+(?:\w+\.)?(?:\w+\s*;?\s*$|(?:table_x?info|table_list|index_list|index_x?info|foreign_key_list|"
    r"foreign_key_check|integrity_check|quick_check|optimize|wal_checkpoint)\b)",
    re.IGNORECASE,
)
_PARTIAL_END = re.compile(
    r"\s*(?:ROLLBACK\s+(?:(?:WORK|TRANSACTION)\s+)?TO|(?:COMMIT|ROLLBACK)\s+PREPARED)\b", re.IGNORECASE
)

# What PostgreSQL tells its clients unasked (search_path from version 18 on).
_REPORTED = (
    *(b"TimeZone", b"search_path", b"DateStyle", b"IntervalStyle", b"client_encoding", b"standard_conforming_strings"),
    *(b"application_name", b"default_transaction_read_only", b"is_superuser", b"session_authorization"),
)
_CURSORS_MAX = 200  # cursors that are remembered before those that are gone or closed are forgotten
_TEXT_MAX, _TEXTS_MAX = 2000, 2000  # characters and number of the statements whose verdict is remembered
_ACTIVE, _IN_TRANSACTION = 1, (2, 3)  # libpq's PQTRANS_ACTIVE, PQTRANS_INTRANS and PQTRANS_INERROR


def changes_session(text: str) -> bool:
    """Say whether a statement changes something that outlives its transaction; in doubt it does."""
    verb = _verb(text)
    if verb in _CHANGING:
        return _LOCAL_SET.match(text) is None and _READ_PRAGMA.match(text) is None
    lowered = text.lower()
    if "set_config" in lowered and lowered.count("set_config") > len(_LOCAL_CONFIG.findall(lowered)):
        return True
    if "advisory_lock" in lowered or "advisory_unlock" in lowered:
        return True
    if "temp" in lowered and _TEMPORARY.search(lowered) is not None:
        return True
    return ";" in text and _FOLLOWING.search(text) is not None


def ends_transaction(text: str) -> bool:
    """Say whether a statement ends the whole transaction that is open."""
    return _verb(text) in _ENDING and _PARTIAL_END.match(text) is None


def _verb(text: str) -> str:
    found = _VERB.match(text)
    return found[1].upper() if found else ""


_verdicts: dict[str, tuple[bool, bool]] = {}


def _verdict(text: str) -> tuple[bool, bool]:
    """Return whether a statement changes the session, and whether it ends a transaction; remembered by its text."""
    found = _verdicts.get(text)
    if found is None:
        found = changes_session(text), ends_transaction(text)
        if len(text) <= _TEXT_MAX:
            if len(_verdicts) >= _TEXTS_MAX:
                _verdicts.clear()
            _verdicts[text] = found
    return found


class Session:
    """One connection of the driver, from its opening to its end."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.raw: Any = connection.connection
        self.is_changed = False
        self.kept = Kept(self.raw, vendor=connection.vendor)
        self._vendor = connection.vendor
        self._named: list[Any] = []  # server-side cursors: the server keeps them until somebody closes them
        self._cursors: list[weakref.ref[Any]] = []  # on SQLite an unfinished one holds its snapshot
        if self._vendor == "postgresql":
            self.raw._django_jobs_session = self  # noqa: SLF001  its cursors find it there
            self.raw.cursor_factory = _tracking(self.raw.cursor_factory)
            self._reported = self._report()
        self._driver = self._driver_state()

    def run(self, query: Any, cursor: Any, action: Callable[[], T]) -> T:
        """Look at a statement, run it by ``action``, and look whether the handler's transaction is still the same."""
        text = query if isinstance(query, str) else _as_text(query, cursor)
        changes, ends = _verdict(text)
        if changes:
            self.is_changed = True
        if ends:
            self.kept.note_end()
        return self.kept.run(text, action)

    def opened(self, cursor: Any, *, named: bool) -> None:
        """Remember a cursor that Django made."""
        if named:
            self._named.append(cursor)
            if len(self._named) > _CURSORS_MAX:
                self._named = [open_one for open_one in self._named if not open_one.closed]
        elif self._vendor == "sqlite":
            cursor.__class__ = _tracking(type(cursor))
            cursor._django_jobs_session = self  # noqa: SLF001
            self._cursors.append(weakref.ref(cursor))
            if len(self._cursors) > _CURSORS_MAX:
                self._cursors = [known for known in self._cursors if known() is not None]

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open that Django may know nothing of: somebody wrote BEGIN. Asks no server."""
        if self._vendor == "sqlite":
            return bool(self.raw.in_transaction)
        return self._vendor == "postgresql" and self.raw.pgconn.transaction_status in _IN_TRANSACTION

    def look(self) -> bool:
        """Say whether the next job would find this session changed; closes cursors on SQLite. Asks no server."""
        for known in self._cursors:
            if (cursor := known()) is not None:
                cursor.close()
        self._cursors.clear()
        if any(not cursor.closed for cursor in self._named):
            self.is_changed = True
        self._named.clear()
        if self._vendor == "postgresql" and not self.is_changed:
            self.is_changed = self._report() != self._reported
        return self.is_changed

    def must_go(self) -> bool:
        """Say whether the driver's connection itself was changed or is busy, so that no statement brings it back."""
        if self._vendor == "postgresql" and (self.raw.closed or self.raw.pgconn.transaction_status == _ACTIVE):
            return True
        return self._driver_state() != self._driver

    def is_new(self) -> None:
        """Forget what was seen: the session is as it was in the beginning."""
        self.is_changed = False

    def _report(self) -> list[bytes | None]:
        status = self.raw.pgconn.parameter_status
        return [status(name) for name in _REPORTED]

    def _driver_state(self) -> tuple[Any, ...]:
        raw = self.raw
        if self._vendor == "postgresql":
            return (
                *(raw.row_factory, raw.cursor_factory, raw.isolation_level, raw.read_only, raw.deferrable),
                *(raw.autocommit, raw.pgconn.pipeline_status),
            )
        return (raw.row_factory, raw.text_factory, raw.isolation_level) if self._vendor == "sqlite" else ()


def _as_text(query: Any, cursor: Any) -> str:
    if isinstance(query, bytes):
        return query.decode("utf-8", "replace")
    try:
        return str(query.as_string(cursor))
    except Exception:  # noqa: BLE001  the driver will say what is wrong with it
        return ""


class _Tracking:
    """A cursor that shows its statements to the session, which runs them."""

    _django_jobs_session: Session | None = None

    def _watched(self, query: Any, action: Callable[[], T]) -> T:
        session = self._django_jobs_session or getattr(getattr(self, "connection", None), "_django_jobs_session", None)
        return action() if session is None else session.run(query, self, action)

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        """Run one text, most often a single statement."""
        return self._watched(query, partial(super().execute, query, *args, **options))  # type: ignore[misc]

    def executemany(self, query: Any, *args: Any, **options: Any) -> Any:
        """Run one statement for many rows."""
        return self._watched(query, partial(super().executemany, query, *args, **options))  # type: ignore[misc]

    def executescript(self, script: str) -> Any:
        """Run several statements; SQLite only, whose driver commits what is open before them."""
        if (session := self._django_jobs_session) is not None:
            session.kept.note_end()
        return self._watched(script, partial(super().executescript, script))  # type: ignore[misc]


_classes: dict[type, type] = {}


def _tracking(base: type) -> type:
    """Return the tracking form of a cursor class, always the same one."""
    if issubclass(base, _Tracking):
        return base
    if base not in _classes:
        _classes[base] = type(base.__name__, (_Tracking, base), {"__module__": base.__module__})
    return _classes[base]
