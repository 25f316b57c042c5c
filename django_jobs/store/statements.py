"""Statements from files: load, adapt, run, and give rows the same Python types on every database."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from django.apps import apps
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock, faults
from django_jobs.models.fields import InstantField, as_instant, from_text, to_text
from django_jobs.store.contention import run_again

Row = dict[str, Any]
_prepare = False
THEN = "\n-- then\n"
_PART = re.compile(r"^ *-- part: (\w+)\n(.*?)^ *-- end\n", re.DOTALL | re.MULTILINE)
COMPUTED = ("now", "claimed_at", "renewed_at", "event_created_at", "suspect_at")  # instants that are no columns


@cache
def load(vendor: str, name: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Read ``sql/<vendor>/<name>.sql``; SQLite files may hold several statements, parted by ``-- then``.

    What stands between ``-- part: <one of without>`` and ``-- end`` is left out: the server would set up at each run
    what then finds nothing, which for a claim costs a third of its time.
    """
    text = resources.files("django_jobs.store").joinpath("sql", vendor, f"{name}.sql").read_text(encoding="utf-8")
    whole = _PART.sub(lambda found: "" if found[1] in without else found[2], text)
    return tuple(whole.split(THEN))


def names(vendor: str) -> set[str]:
    """Return the names of all statements written for ``vendor``."""
    folder = resources.files("django_jobs.store").joinpath("sql", vendor)
    return {item.name.removesuffix(".sql") for item in folder.iterdir() if item.name.endswith(".sql")}


def run(name: str, params: Mapping[str, Any], *, using: str, without: tuple[str, ...] = ()) -> list[Row]:
    """Run one named statement, on PostgreSQL ``without`` some of its parts, and return its rows.

    On PostgreSQL a transition is one statement. Outside a transaction it is run again when a serialization failure or a
    deadlock undid it, which happens where the server's default isolation level is a stricter one. On SQLite it is
    several in one transaction: when the first one has a RETURNING clause and returns nothing, its guard failed and the
    rest is not run.
    """
    if faults.plan is None:
        return _run(name, params, using=using, without=without)
    faults.before(name, using=using)
    rows = _run(name, params, using=using, without=without)
    if rows and not is_inside(connections[using]):
        faults.after(name, using=using, committed=True)
    return rows


def _run(name: str, params: Mapping[str, Any], *, using: str, without: tuple[str, ...]) -> list[Row]:
    connection = connections[using]
    statements = load(connection.vendor, name, without)
    if connection.vendor == "postgresql":
        given = {"now": clock.injected(), **params}
        if is_inside(connection):
            return _inside(name, _execute(connection, statements[0], given), using)
        return run_again(lambda: _execute(connection, statements[0], given))
    _prepare_sqlite(connection)
    if len(statements) == 1:
        rows = _execute(connection, statements[0], _for_sqlite(params))
        return _inside(name, rows, using) if is_inside(connection) else rows
    with joined(using):  # the time is read inside: the wait for the write lock may be long
        return _inside(name, _run_in_turn(connection, statements, _for_sqlite(params)), using)


def _inside(name: str, rows: list[Row], using: str) -> list[Row]:
    """Tell, if a fault is armed, that a statement changed rows in a transaction that is still open."""
    if rows and faults.plan is not None:
        faults.after(name, using=using, committed=False)
    return rows


def _for_sqlite(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _to_sqlite(value) for key, value in {"now": clock.now(), **params}.items()}


def _run_in_turn(connection: BaseDatabaseWrapper, statements: Sequence[str], given: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for place, text in enumerate(statements):
        found = _execute(connection, text, given)
        if place == 0 and "RETURNING" in text:
            if not found:
                return []
            given = {**given, "row_id": _to_sqlite(found[0]["id"])}
        rows = found or rows
    return rows


def is_inside(connection: BaseDatabaseWrapper) -> bool:
    """Say whether a statement joins what somebody else commits: an open block, or a connection without autocommit."""
    return connection.in_atomic_block or not connection.get_autocommit()


@contextlib.contextmanager
def joined(using: str) -> Iterator[None]:
    """Run inside the transaction that is open, or in one of its own; adds no savepoint to a caller's transaction."""
    if is_inside(connections[using]):
        yield
    else:
        with transaction.atomic(using=using):
            yield


def prepare_statements() -> None:
    """Keep this room's statements prepared on PostgreSQL connections of this process; for processes that keep them."""
    global _prepare
    _prepare = True


@contextlib.contextmanager
def _cursor(connection: BaseDatabaseWrapper) -> Iterator[Any]:
    if connection.vendor != "postgresql" or not _prepare:
        with connection.cursor() as cursor:
            yield cursor
        return
    from django_jobs.store.prepared import PreparedCursor  # psycopg is not there on a SQLite-only installation

    connection.ensure_connection()
    wrap: Any = connection._prepare_cursor  # type: ignore[attr-defined]  # noqa: SLF001  query logs and wrappers see it
    with connection.wrap_database_errors, wrap(PreparedCursor(connection.connection)) as cursor:
        yield cursor


def _execute(connection: BaseDatabaseWrapper, text: str, params: Mapping[str, Any]) -> list[Row]:
    with _cursor(connection) as cursor:
        cursor.execute(text, params)
        columns = _columns(cursor)
        found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()] if columns else []
    special = [column for column in columns if column in kinds()]
    for row in found:
        for column in special:
            row[column] = _from_database(column, row[column], connection)
    return found


def _columns(cursor: Any) -> list[str]:
    """Return the names of the columns of a result, empty when there is none.

    psycopg's ``description`` looks up the type of every column anew; for a claim that costs more than the rest.
    """
    result = getattr(cursor, "pgresult", None)
    if result is not None:
        return [result.fname(place).decode() for place in range(result.nfields)]
    return [column[0] for column in cursor.description or ()]


def _from_database(column: str, value: Any, connection: BaseDatabaseWrapper) -> Any:
    if value is None:
        return None
    kind = kinds().get(column)
    if kind is InstantField:
        return as_instant(value, connection)
    if kind is models.UUIDField and isinstance(value, str):
        return uuid.UUID(value)
    return bool(value) if kind is models.BooleanField else value


@cache
def kinds() -> dict[str, type[models.Field[Any, Any]]]:
    """Return the columns whose values drivers return in different types, by name: the models say what they are.

    A name means the same in every table; what a statement computes itself stands in ``COMPUTED``.
    """
    found: dict[str, type[models.Field[Any, Any]]] = dict.fromkeys(COMPUTED, InstantField)
    for model in apps.get_app_config("django_jobs").get_models():
        for field in model._meta.concrete_fields:  # noqa: SLF001  Django's public door
            target = field.target_field if isinstance(field, models.ForeignKey) else field
            for kind in (InstantField, models.UUIDField, models.BooleanField):
                if isinstance(target, kind) and field.column:
                    found[field.column] = kind
    return found


def _to_sqlite(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return json.dumps([_to_json(item) for item in value])
    return value


def _to_json(item: Any) -> Any:
    return [_to_sqlite(part) for part in item] if isinstance(item, tuple) else _to_sqlite(item)


def _prepare_sqlite(connection: BaseDatabaseWrapper) -> None:
    connection.ensure_connection()
    raw = connection.connection
    if getattr(connection, "_django_jobs_prepared", None) is not raw:
        raw.create_function("django_jobs_add", 2, _add, deterministic=True)
        connection._django_jobs_prepared = raw  # type: ignore[attr-defined]  # noqa: SLF001
    if not connection.get_autocommit() and not connection.in_atomic_block and not raw.in_transaction:
        # The driver begins a transaction for plain INSERTs and the like alone: anything else would commit at once.
        raw.execute("BEGIN")


def _add(text: str | None, seconds: float | None) -> str | None:
    if text is None or seconds is None:
        return None
    return to_text(from_text(text) + timedelta(seconds=seconds))
