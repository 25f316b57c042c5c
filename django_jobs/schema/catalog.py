"""What is in the database already: a step that an interrupted migration finished is not repeated."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

_VALID_INDEX = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(quote_ident(%s))"
_VALID_CONSTRAINT = (
    "SELECT convalidated FROM pg_constraint WHERE conname = %s AND conrelid = to_regclass(quote_ident(%s))"
)


def has_table(connection: BaseDatabaseWrapper, table: str) -> bool:
    """Say whether the table is there."""
    return table in connection.introspection.table_names()


def has_column(connection: BaseDatabaseWrapper, table: str, column: str) -> bool:
    """Say whether the table has the column."""
    with connection.cursor() as cursor:
        return column in {found.name for found in connection.introspection.get_table_description(cursor, table)}


def has_named(connection: BaseDatabaseWrapper, table: str, name: str) -> bool:
    """Say whether the table has an index or a constraint of this name, finished or not."""
    with connection.cursor() as cursor:
        return name in connection.introspection.get_constraints(cursor, table)


def index_is_valid(connection: BaseDatabaseWrapper, name: str) -> bool | None:
    """Say on PostgreSQL whether the index was built to its end; None when there is none."""
    return _looked_up(connection, _VALID_INDEX, name)


def constraint_is_valid(connection: BaseDatabaseWrapper, table: str, name: str) -> bool | None:
    """Say on PostgreSQL whether all rows were checked against the constraint; None when there is none."""
    return _looked_up(connection, _VALID_CONSTRAINT, name, table)


def is_done(
    connection: BaseDatabaseWrapper, label: str, operation: Operation, before: ProjectState, after: ProjectState
) -> bool:
    """Say whether the database is as this operation leaves it; operations that may be repeated are never done."""
    if isinstance(operation, operations.CreateModel):
        made = _options(after, label, operation.name)
        return bool(made.proxy) or has_table(connection, made.db_table)
    if isinstance(operation, operations.AddField):
        wider = _options(after, label, operation.model_name)
        return has_column(connection, wider.db_table, wider.get_field(operation.name).column)
    if isinstance(operation, operations.AddIndex | operations.AddConstraint):
        added = operation.index if isinstance(operation, operations.AddIndex) else operation.constraint
        return has_named(connection, _options(after, label, operation.model_name).db_table, added.name)
    if isinstance(operation, operations.RemoveIndex | operations.RemoveConstraint):
        return not has_named(connection, _options(before, label, operation.model_name).db_table, operation.name)
    return False


def _options(state: ProjectState, label: str, name: str) -> Any:
    return state.apps.get_model(label, name)._meta  # noqa: SLF001  Django's public door


def _looked_up(connection: BaseDatabaseWrapper, query: str, *names: str) -> bool | None:
    with connection.cursor() as cursor:
        cursor.execute(query, names)
        row = cursor.fetchone()
    return bool(row[0]) if row else None
