"""The rows against the invariants: SQL that must return nothing on every committed snapshot.

This module imports nothing of the code whose work it judges: an error in a rule cannot hide in the look for it. The
statements are in ``sql/invariants``, one file each; they are the same on every database. An invariant that compares
times also shows a database clock that was set back.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

_HEADER = ("-- invariant: ", "-- meaning: ", "-- about: ")
_IN_ORDER = re.compile(r"([A-Z]+)([0-9]+)")

# The two functions that the statements use beside plain SQL. SQLite gets them under these names.
_IN_POSTGRESQL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"SHA256_HEX\(([\w.]+)\)"), r"encode(sha256(convert_to(\1, 'UTF8')), 'hex')"),
    (re.compile(r"SECONDS_BETWEEN\(([\w.]+), ([\w.]+)\)"), r"EXTRACT(EPOCH FROM (\2 - \1))::float8"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One statement; ``about`` says of what it returns ids: job, attempt, effect, send, step, event, delivery, row."""

    name: str
    meaning: str
    about: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An invariant and the ids that violate it; none means that it holds."""

    invariant: Invariant
    ids: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing violates it."""
        return not self.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedSoFar:
    """What batches of one kind (such as ``content``, ``jobs`` or ``events``) took in all."""

    kind: str
    rows: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Every invariant on one snapshot of one database, relative to what was pruned."""

    database: str
    checked: tuple[Checked, ...]
    seconds: float
    pruned: tuple[PrunedSoFar, ...] = ()

    @property
    def violated(self) -> tuple[Checked, ...]:
        """The invariants that do not hold."""
        return tuple(item for item in self.checked if not item.holds)


@cache
def invariants() -> tuple[Invariant, ...]:
    """Read all statements, in the order of their names."""
    folder = resources.files("django_jobs.operate").joinpath("sql", "invariants")
    found = [_parse(item.read_text(encoding="utf-8")) for item in folder.iterdir() if item.name.endswith(".sql")]
    return tuple(sorted(found, key=_place))


def _parse(text: str) -> Invariant:
    first, second, third, sql = text.split("\n", 3)
    name, meaning, about = (
        line.removeprefix(start) for line, start in zip((first, second, third), _HEADER, strict=True)
    )
    return Invariant(name=name, meaning=meaning, about=about, sql=sql)


def _place(invariant: Invariant) -> tuple[int, int]:
    found = _IN_ORDER.fullmatch(invariant.name)
    if found is None:
        msg = f"The invariant {invariant.name!r} needs a name of capital letters and a number, for example J1."
        raise ValueError(msg)
    return "JAPKESONRC".index(found[1]), int(found[2])


def verify(*, using: str) -> Report:
    """Check every invariant on one snapshot; changes nothing and holds no lock that a worker waits for.

    Inside a transaction that is open already, that transaction's view is checked.
    """
    connection = connections[using]
    started = time.monotonic()
    with _snapshot(connection):
        checked = tuple(Checked(invariant=item, ids=_ids(connection, item)) for item in invariants())
        pruned = tuple(_pruned(connection))
    return Report(database=using, checked=checked, seconds=time.monotonic() - started, pruned=pruned)


def _pruned(connection: BaseDatabaseWrapper) -> Iterator[PrunedSoFar]:
    with connection.cursor() as cursor:
        cursor.execute('SELECT kind, SUM("rows"), COUNT(*) FROM django_jobs_prunedstretch GROUP BY kind ORDER BY kind')
        for kind, rows, batches in cursor.fetchall():
            yield PrunedSoFar(kind=kind, rows=int(rows), batches=batches)


@contextmanager
def _snapshot(connection: BaseDatabaseWrapper) -> Iterator[None]:
    if connection.vendor == "sqlite":
        _teach_sqlite(connection)
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "sqlite":
        # Not atomic(): an immediate transaction would hold the only write lock for the whole look.
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic(using=connection.alias):
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield


def _ids(connection: BaseDatabaseWrapper, invariant: Invariant) -> tuple[str, ...]:
    sql = invariant.sql
    if connection.vendor == "postgresql":
        for pattern, replacement in _IN_POSTGRESQL:
            sql = pattern.sub(replacement, sql)
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(sorted({str(uuid.UUID(str(row[0]))) for row in cursor.fetchall()}))


def _teach_sqlite(connection: BaseDatabaseWrapper) -> None:
    connection.ensure_connection()
    connection.connection.create_function("SHA256_HEX", 1, _sha256_hex, deterministic=True)
    connection.connection.create_function("SECONDS_BETWEEN", 2, _seconds_between, deterministic=True)


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _seconds_between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
