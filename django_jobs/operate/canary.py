"""A look for texts that must not have got out of where they belong: into an error, an event, the audit.

Plant a text that occurs nowhere else (a canary) in arguments or credentials, let things go wrong, and look for it in
every text column of the package's tables. Like ``verify`` this imports nothing of the code whose work it judges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SHORTEST = 6  # a shorter text is found by chance

# Where programs put content on purpose: it is shown masked, and pruning removes it.
CONTENT = frozenset(
    {
        ("django_jobs_batch", "callback"),
        ("django_jobs_chainlink", "call"),
        ("django_jobs_jobpayload", "arguments"),
        ("django_jobs_jobpayload", "context"),
        ("django_jobs_jobpayload", "result"),
        ("django_jobs_jobstep", "result"),
        ("django_jobs_sideeffect", "request"),
        ("django_jobs_sideeffect", "result"),
        ("django_jobs_outboxevent", "data"),
        ("django_jobs_quarantine", "data"),
    }
)
_TEXT = ("char", "text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A column outside of :data:`CONTENT` in which a canary was found, with the keys of the rows."""

    table: str
    column: str
    rows: tuple[str, ...]


def sweep(canaries: Sequence[str], *, using: str) -> tuple[Leak, ...]:
    """Look for each text, as it is and as JSON writes it, in every text column outside of :data:`CONTENT`.

    Raises:
        ValueError: A text is so short that it would be found by chance.
    """
    for canary in canaries:
        if len(canary.strip()) < SHORTEST:
            msg = f"A canary needs {SHORTEST} signs or more, or it is found by chance; one has {len(canary.strip())}."
            raise ValueError(msg)
    forms = sorted({form for canary in canaries for form in (canary, json.dumps(canary)[1:-1])})
    connection = connections[using]
    return tuple(
        leak for table, column in text_columns(using=using) for leak in _found(connection, table, column, forms)
    )


def text_columns(*, using: str) -> tuple[tuple[str, str], ...]:
    """Return table and name of every column that is looked at, as the database itself lists them."""
    connection = connections[using]
    return tuple(place for place in _columns(connection) if place not in CONTENT)


def _columns(connection: BaseDatabaseWrapper) -> Iterator[tuple[str, str]]:
    with connection.cursor() as cursor:
        tables = sorted(t for t in connection.introspection.table_names(cursor) if t.startswith("django_jobs_"))
        for table in tables:
            if connection.vendor == "sqlite":
                cursor.execute("SELECT name, type FROM pragma_table_info(%s) ORDER BY cid", [table])
            else:
                cursor.execute(
                    "SELECT column_name, data_type FROM information_schema.columns"
                    " WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
                    [table],
                )
            yield from ((table, name) for name, kind in cursor.fetchall() if any(t in kind.lower() for t in _TEXT))


def _found(connection: BaseDatabaseWrapper, table: str, column: str, forms: Sequence[str]) -> Iterator[Leak]:
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        key = connection.introspection.get_primary_key_column(cursor, table) or "id"
        place = "INSTR({0}, %s)" if connection.vendor == "sqlite" else "POSITION(%s IN {0}::text)"
        holds = " OR ".join(f"{place.format(quote(column))} > 0" for _ in forms)
        cursor.execute(f"SELECT {quote(key)} FROM {quote(table)} WHERE {holds} ORDER BY 1", list(forms))
        rows = tuple(str(row[0]) for row in cursor.fetchall())
    if rows:
        yield Leak(table=table, column=column, rows=rows)
