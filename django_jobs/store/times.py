"""The database's clock as an expression, and as a value."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.db import connections
from django.db.models import Value
from django.db.models.expressions import RawSQL

from django_jobs import clock
from django_jobs.models.fields import InstantField, as_instant


def database_now(using: str) -> Any:
    """Return an expression for the present in a statement: the database's clock, or the injected one."""
    if connections[using].vendor == "postgresql" and clock.injected() is None:
        return RawSQL("clock_timestamp()", (), output_field=InstantField())
    return Value(clock.now(), output_field=InstantField())


def read_now(using: str) -> datetime:
    """Ask the database what time it is."""
    connection = connections[using]
    if connection.vendor != "postgresql" or clock.injected() is not None:
        return clock.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", as_instant(cursor.fetchone()[0], connection))
