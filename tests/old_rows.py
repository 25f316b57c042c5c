"""Rows as code of an earlier migration writes them: with the columns that were there then, and no others."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models.fields import InstantColumn

LABEL = "django_jobs"
Columns = dict[str, list[str]]

# What the checks of a table ask for, where a value of the right type is not enough.
_TOLD: dict[str, dict[str, Any]] = {
    "job": {"state": "succeeded", "finished_at": clock.now},
    "chainlink": {"call": "{}"},
    "delivery": {"state": "waiting"},
    "installation": {"id": 1},
}


def names() -> list[str]:
    """Return the migrations of the package, in order."""
    return sorted(name for label, name in MigrationLoader(None).graph.nodes if label == LABEL)


def migrate_to(name: str | None) -> None:
    """Bring the tables of the package to this migration; None removes them."""
    MigrationExecutor(connection).migrate([(LABEL, name)])


def columns_now() -> Columns:
    """Return the columns of each table of the package that the database has now."""
    with connection.cursor() as cursor:
        return {
            table: [column.name for column in connection.introspection.get_table_description(cursor, table)]
            for table in connection.introspection.table_names(cursor)
            if table.startswith(f"{LABEL}_")
        }


def model_of(table: str) -> Any:
    """Return the model of the present code for a table."""
    return next(model for model in apps.get_app_config(LABEL).get_models() if model._meta.db_table == table)


def row(table: str, columns: list[str], **told: Any) -> dict[str, Any]:
    """Return a value for each of these columns, as an older code would write them into a new row."""
    model = model_of(table)
    told = {**_TOLD.get(model._meta.model_name, {}), **told}
    found: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        value = told[field.name] if field.name in told else _value(field)
        prepared = field.get_db_prep_save(value() if callable(value) else value, connection)
        found[field.column] = prepared
    return {column: found[column] for column in columns}


def insert(table: str, columns: list[str]) -> None:
    """Store one row that names only these columns."""
    values = row(table, columns)
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(table)} ({', '.join(map(quote, values))}) VALUES ({', '.join(['%s'] * len(values))})",
            list(values.values()),
        )


def _value(field: Any) -> Any:
    if field.null:
        return None
    if field.primary_key and isinstance(field, models.UUIDField):
        return uuid7()
    if field.default is not models.NOT_PROVIDED:
        return field.get_default()
    if field.choices:
        return field.choices[0][0]
    if isinstance(field, InstantColumn):
        return clock.now()
    if isinstance(field, models.UUIDField | models.ForeignKey):
        return uuid7()
    return 1 if isinstance(field, models.IntegerField | models.FloatField) else uuid7().hex[: field.max_length]
