"""Code of an earlier version goes on writing on the tables of the new one."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from tests.databases import Server
from tests.old_rows import Columns, columns_now, insert, migrate_to, names

pytestmark = pytest.mark.django_db(transaction=True)


def _columns_of_each_state() -> dict[str, Columns]:
    migrate_to(None)
    found = {}
    for name in names():
        migrate_to(name)
        found[name] = columns_now()
    return found


def _refused(table: str, columns: list[str]) -> str:
    """Return why a row of these columns cannot be stored, or nothing; it is not kept."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table}")
            insert(table, columns)
            transaction.set_rollback(True)
    except DatabaseError as error:
        return str(error).splitlines()[0]
    return ""


def test_rows_of_every_earlier_version_are_stored(server: Server, migrated_again: None) -> None:
    """A row that names only the columns of an earlier state is accepted now, in every table and for every state."""
    states = _columns_of_each_state()
    tables = {name: len(columns) for name, columns in states.items()}

    refused = {
        f"{name}: {table}": why
        for name, columns in states.items()
        for table in columns
        if (why := _refused(table, columns[table]))
    }

    assert refused == {}
    assert min(tables.values()) == tables["0001_initial"] > 10, "states without tables were looked at"
    assert connection.vendor == server.vendor
