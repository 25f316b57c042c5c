"""Databases into which the tables do not belong: there a migration has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import override_settings

from tests.databases import Server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("migrated_again")]


class Elsewhere:
    """Keeps the tables of jobs out of every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Refuse them, and say nothing about others."""
        return False if app_label == "django_jobs" else None


def migrate(to: str = "") -> None:
    """Migrate, as a deploy does."""
    call_command("migrate", "django_jobs", *([to] if to else []), verbosity=0, interactive=False, skip_checks=True)


@pytest.fixture
def elsewhere(migrated_again: None, server: Server) -> Iterator[None]:
    """Begin without tables; in the end nothing is said to be migrated."""
    migrate("zero")
    with override_settings(DATABASE_ROUTERS=["tests.integration.schema.test_router.Elsewhere"]):
        yield
        migrate("zero")


def tables() -> list[str]:
    """Return the package's tables that are there."""
    return [name for name in connection.introspection.table_names() if name.startswith("django_jobs_")]


def test_migrations_pass_by_where_the_router_keeps_the_tables_out(elsewhere: None) -> None:
    """Every migration is recorded, and no table is made or asked for, as with Django's own migrations."""
    migrate()

    assert tables() == []


@pytest.mark.postgres
def test_migrations_pass_by_in_a_transaction_of_the_caller_too(elsewhere: None) -> None:
    """There all steps run in one transaction; each asks the router all the same."""
    with transaction.atomic():
        migrate()

    assert tables() == []


def test_sql_is_not_written_for_tables_of_other_databases(elsewhere: None) -> None:
    """What is printed for such a database changes nothing."""
    out = StringIO()

    call_command("sqlmigrate", "django_jobs", "0011", stdout=out)

    assert [line for line in out.getvalue().splitlines() if line.startswith(("CREATE", "ALTER", "DROP"))] == []
