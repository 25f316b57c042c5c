"""The rows against the invariants: SQL that must return nothing on every committed snapshot.

This module imports nothing of the code whose work it judges: an error in a rule cannot hide in the look for it. The
statements are in ``sql/invariants``, one file each; they are the same on every database. An invariant that compares
times also shows a database clock that was set back.

Three invariants, ``L1`` to ``L3``, are about operation: on a site without a running worker leases run out and nobody
judges them, and nobody closes batches, so they hold up to a patience that the caller sets.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import resources

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.operate.canary import Leak, sweep
from django_jobs.operate.verify_sql import adapted, teach_sqlite

_HEADER = ("-- invariant: ", "-- meaning: ", "-- about: ")
_IN_ORDER = re.compile(r"([A-Z]+)([0-9]+)")

PATIENCE = timedelta(hours=1)


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
    """Every invariant on one snapshot of one database, relative to what was pruned.

    ``canaries`` says how many texts were looked for, and ``leaks`` where one was found that it does not belong to.
    """

    database: str
    checked: tuple[Checked, ...]
    seconds: float
    patience: timedelta = PATIENCE
    pruned: tuple[PrunedSoFar, ...] = ()
    canaries: int = 0
    leaks: tuple[Leak, ...] = ()

    @property
    def violated(self) -> tuple[Checked, ...]:
        """The invariants that do not hold."""
        return tuple(item for item in self.checked if not item.holds)

    @property
    def clean(self) -> bool:
        """Whether every invariant holds and no canary got out."""
        return not self.violated and not self.leaks


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
    return "JAPKESONRCTBHL".index(found[1]), int(found[2])


def verify(*, using: str, patience: timedelta = PATIENCE, canaries: Sequence[str] = ()) -> Report:
    """Check every invariant on one snapshot; changes nothing and holds no lock that a worker waits for.

    Inside a transaction that is open already, that transaction's view is checked.

    Args:
        using: The database.
        patience: For how long a lease may be over before ``L1`` or ``L2`` names its holder, and a batch without
            an unfinished member be open before ``L3`` names it.
        canaries: Texts that must stand nowhere but in content, see :func:`django_jobs.operate.canary.sweep`.

    Raises:
        ValueError: ``patience`` is negative, or a canary too short.
    """
    if patience < timedelta(0):
        msg = f"The patience must not be negative, as {patience} is."
        raise ValueError(msg)
    connection = connections[using]
    started = time.monotonic()
    with _snapshot(connection):
        checked = tuple(Checked(invariant=item, ids=_ids(connection, item, patience)) for item in invariants())
        pruned = tuple(_pruned(connection))
        leaks = sweep(canaries, using=using) if canaries else ()
    return Report(
        database=using,
        checked=checked,
        seconds=time.monotonic() - started,
        patience=patience,
        pruned=pruned,
        canaries=len(canaries),
        leaks=leaks,
    )


def _pruned(connection: BaseDatabaseWrapper) -> Iterator[PrunedSoFar]:
    with connection.cursor() as cursor:
        cursor.execute('SELECT kind, SUM("rows"), COUNT(*) FROM django_jobs_prunedstretch GROUP BY kind ORDER BY kind')
        for kind, rows, batches in cursor.fetchall():
            yield PrunedSoFar(kind=kind, rows=int(rows), batches=batches)


@contextmanager
def _snapshot(connection: BaseDatabaseWrapper) -> Iterator[None]:
    if connection.vendor == "sqlite":
        teach_sqlite(connection)
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


def _ids(connection: BaseDatabaseWrapper, invariant: Invariant, patience: timedelta) -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(adapted(invariant.sql, vendor=connection.vendor, patience=patience.total_seconds()))
        return tuple(sorted({str(uuid.UUID(str(row[0]))) for row in cursor.fetchall()}))
