"""What the statements of the invariants use beside plain SQL, written for each database.

Like ``verify`` it imports nothing of the code whose work it judges.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_ONE = r"\(([\w.]+)\)"
_PATIENCE = re.compile(r"\bPATIENCE\b")

# SQLite gets these as functions of the same names.
_IN_POSTGRESQL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("SHA256_HEX" + _ONE), r"encode(sha256(convert_to(\1, 'UTF8')), 'hex')"),
    (re.compile(r"SECONDS_BETWEEN\(([\w.]+), ([\w.]+)\)"), r"EXTRACT(EPOCH FROM (\2 - \1))::float8"),
    (re.compile("SECONDS_UNTIL_NOW" + _ONE), r"EXTRACT(EPOCH FROM (clock_timestamp() - \1))::float8"),
    # ids are UUIDs of version 7: the first 48 bits are the milliseconds at which they were made
    (
        re.compile("SECONDS_OF_ID" + _ONE),
        r"(('x' || substr(replace(\1::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)::float8",
    ),
    (re.compile("SECONDS_OF" + _ONE), r"EXTRACT(EPOCH FROM \1)::float8"),
)


def adapted(sql: str, *, vendor: str, patience: float) -> str:
    """Return a statement as this database reads it; ``patience`` in seconds stands for the word ``PATIENCE``."""
    if vendor == "postgresql":
        for pattern, replacement in _IN_POSTGRESQL:
            sql = pattern.sub(replacement, sql)
    return _PATIENCE.sub(repr(float(patience)), sql)


def teach_sqlite(connection: BaseDatabaseWrapper) -> None:
    """Give a connection to SQLite the functions that the statements call."""
    connection.ensure_connection()
    for name, (arguments, function) in _FUNCTIONS.items():
        # the present is no constant; the others may be computed once per row
        fixed = name != "SECONDS_UNTIL_NOW"
        connection.connection.create_function(name, arguments, function, deterministic=fixed)


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _seconds_between(first: str, second: str) -> float:
    return (_instant(second) - _instant(first)).total_seconds()


def _seconds_until_now(text: str | None) -> float | None:
    return None if text is None else (datetime.now(UTC) - _instant(text)).total_seconds()


def _seconds_of(text: str) -> float:
    return _instant(text).timestamp()


def _seconds_of_id(text: str) -> float:
    return (uuid.UUID(text).int >> 80) / 1000


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "SHA256_HEX": (1, _sha256_hex),
    "SECONDS_BETWEEN": (2, _seconds_between),
    "SECONDS_UNTIL_NOW": (1, _seconds_until_now),
    "SECONDS_OF": (1, _seconds_of),
    "SECONDS_OF_ID": (1, _seconds_of_id),
}
