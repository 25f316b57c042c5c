"""What the databases of a test hold: how many rows, which values, and which events, so that two runs can be compared.

How many rows there are tells of a doubled INSERT, not of a doubled UPDATE. So the values are looked at too, column by
column and without regard to the row in which they stand: jobs of a run may take turns in another order after a fault,
and then the same numbers are given to other rows. A number that the database gives by itself says nothing, nor does a
reference to one: a sequence does not go back with its transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import OutboxEvent
from django_jobs.testing.lending import is_closed

_OURS = "django_jobs"
Values = Mapping[str, Counter[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a project: the rows of each, and how often each value stands in each of their columns."""

    rows: dict[str, int] = field(default_factory=dict)
    values: dict[str, Counter[str]] = field(default_factory=dict)


def databases_of(using: str) -> tuple[str, ...]:
    """Return the aliases that the test may use, the kit's first.

    Those that are not open yet are among them: a job may be the first to open one. A mirror of another one, and an
    alias without an engine, hold nothing of their own.
    """
    others = [connection.alias for connection in connections.all() if not is_closed(connection) and _is_own(connection)]
    return tuple(dict.fromkeys([using, *others]))


def _is_own(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor != "unknown" and not (connection.settings_dict.get("TEST") or {}).get("MIRROR")


def look_at_tables(using: str, databases: Collection[str]) -> Tables:
    """Return what the tables of the project's models hold in these databases; ours are left out.

    Args:
        using: The database whose tables are told by their name alone.
        databases: The aliases to look at.
    """
    found = Tables()
    for alias in databases:
        connection = connections[alias]
        existing = _tables_in(connection)
        for name, model in _models(existing):
            columns = _columns(model)
            told = _told(name, alias, using)
            rows = _read(connection, name, columns)
            found.rows[told] = len(rows)
            for number, column in enumerate(columns):
                found.values[f"{told}.{column}"] = Counter(_text(row[number]) for row in rows)
    return found


def look_at_events(using: str, databases: Collection[str]) -> Counter[str]:
    """Count the stored events of each type in these databases."""
    table = OutboxEvent._meta.db_table  # noqa: SLF001  Django's public door
    found: Counter[str] = Counter()
    for alias in databases:
        if table in _tables_in(connections[alias]):
            for kind in OutboxEvent.objects.using(alias).values_list("type", flat=True):
                found[_told(kind, alias, using)] += 1
    return found


def _told(name: str, alias: str, using: str) -> str:
    return name if alias == using else f"{name} ({alias})"


def _tables_in(connection: BaseDatabaseWrapper) -> set[str]:
    with connection.cursor() as cursor:
        return set(connection.introspection.table_names(cursor))


def _models(existing: set[str]) -> Iterator[tuple[str, type[models.Model]]]:
    seen: set[str] = set()  # proxies share a table with their model
    for model in apps.get_models(include_auto_created=True):
        meta = model._meta  # noqa: SLF001  Django's public door
        if meta.app_label != _OURS and meta.db_table in existing - seen and not meta.proxy:
            seen.add(meta.db_table)
            yield meta.db_table, model


def _columns(model: type[models.Model]) -> list[str]:
    fields = model._meta.local_concrete_fields  # noqa: SLF001  Django's public door
    return [str(found.column) for found in fields if not _is_numbered(found)]


def _is_numbered(found: Any) -> bool:
    """Say whether the database numbers this column by itself, or whether it refers to one that is numbered so."""
    while found.remote_field is not None:
        found = found.target_field
    return isinstance(found, models.AutoField)


def _read(connection: BaseDatabaseWrapper, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    """Read as the driver gives it: what a field of the project makes of a value may be another object each time."""
    quoted = ", ".join(map(connection.ops.quote_name, columns)) or "1"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {quoted} FROM {connection.ops.quote_name(table)}")
        return list(cursor.fetchall())


def _text(value: Any) -> str:
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(value) if isinstance(value, str | bytes) else str(value)
