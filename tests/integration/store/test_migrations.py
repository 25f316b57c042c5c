"""The migrations build what the models say, forwards and backwards, on both databases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection, migrations
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState
from django.test import override_settings

from django_jobs.models import Installation
from django_jobs.schema import VendorSQL
from tests.databases import Server

TUNED = ("django_jobs_job", "django_jobs_attempt", "django_jobs_sideeffect", "django_jobs_send", "django_jobs_worker")


@pytest.fixture
def migrated_back(server: Server) -> Iterator[None]:
    """Leave the database fully migrated, however the test ended."""
    yield
    call_command("migrate", "django_jobs", verbosity=0, interactive=False)


def _migrate(target: str | None) -> None:
    executor = MigrationExecutor(connection)
    targets = [("django_jobs", target)] if target else executor.loader.graph.leaf_nodes("django_jobs")
    executor.migrate(targets)


def _tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if name.startswith("django_jobs_")}


def _options(table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
        return cursor.fetchone()[0] or []


@pytest.mark.django_db(transaction=True)
def test_migrations_run_backwards_and_forwards_again(server: Server, migrated_back: None) -> None:
    """Going back to nothing removes every table; going forward again brings all of them back, and a namespace."""
    before = _tables()
    MigrationExecutor(connection).migrate([("django_jobs", None)])
    assert _tables() == set()

    _migrate(None)

    assert _tables() == before
    assert Installation.objects.get().namespace


@pytest.mark.django_db(transaction=True)
def test_namespace_outlives_a_step_back(server: Server, migrated_back: None) -> None:
    """Provider keys must not change because somebody migrated one step back and forward."""
    namespace = Installation.objects.get().namespace
    _migrate("0001_initial")
    _migrate(None)

    assert Installation.objects.get().namespace == namespace


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_hot_tables_are_tuned_and_the_step_back_undoes_it(server: Server, migrated_back: None) -> None:
    """Rows that are updated in place have room on their pages, and only as long as the migration is applied."""
    tuned = {table: _options(table) for table in TUNED}
    _migrate("0001_initial")
    reset = {table: _options(table) for table in TUNED}

    assert all("fillfactor=70" in options for options in tuned.values()), tuned
    assert set(map(tuple, reset.values())) == {()}


@pytest.mark.parametrize("auto_field", ["django.db.models.BigAutoField", "django.db.models.SmallAutoField"])
def test_models_have_no_change_without_migration(database: Server, auto_field: str) -> None:
    """No migration is missing, whatever the project says about automatic primary keys."""
    with override_settings(DEFAULT_AUTO_FIELD=auto_field):
        call_command("makemigrations", "django_jobs", check_changes=True, dry_run=True, verbosity=0)


def test_vendor_sql_describes_itself(database: Server) -> None:
    """The operation can be written into a migration, and does nothing on another kind of database."""
    operation = VendorSQL(vendor="oracle", sql="NO SUCH STATEMENT", reverse_sql="NOR THIS ONE")
    state = ProjectState()
    editor = connection.schema_editor(collect_sql=True)
    operation.database_forwards("django_jobs", editor, state, state)
    operation.database_backwards("django_jobs", editor, state, state)
    assert editor.collected_sql == []

    name, args, kwargs = operation.deconstruct()
    assert (name, args) == ("VendorSQL", [])
    assert kwargs == {"vendor": "oracle", "sql": "NO SUCH STATEMENT", "reverse_sql": "NOR THIS ONE"}
    assert isinstance(VendorSQL(*args, **kwargs), migrations.RunSQL)


def test_vendor_sql_runs_on_its_database(database: Server, vendor: str) -> None:
    """On its own kind of database the operation is ``RunSQL``."""
    operation = VendorSQL(vendor=vendor, sql="SELECT 1", reverse_sql="SELECT 2")
    state = ProjectState()
    editor = connection.schema_editor(collect_sql=True)
    operation.database_forwards("django_jobs", editor, state, state)
    operation.database_backwards("django_jobs", editor, state, state)

    assert [line.strip(";") for line in editor.collected_sql] == ["SELECT 1", "SELECT 2"]


@pytest.mark.django_db(transaction=True)
def test_context_is_added_beside_rows_and_without_touching_them(server: Server, migrated_back: None) -> None:
    """A statement of the release before stores a job on the new tables, and its row is where it was on the disk."""
    _migrate("0012_serial")
    old = "INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, error_text) VALUES (%s, '{}', '', '', '')"
    with connection.cursor() as cursor:
        cursor.execute(old, [uuid.UUID(int=1).hex])
        file_before = _file_of("django_jobs_jobpayload")
        _migrate(None)
        cursor.execute(old, [uuid.UUID(int=2).hex])
        cursor.execute("SELECT context FROM django_jobs_jobpayload")
        found = cursor.fetchall()

    assert found == [(None,), (None,)]
    assert _file_of("django_jobs_jobpayload") == file_before


def _file_of(table: str) -> object:
    """Return where PostgreSQL keeps a table (another file after a rewrite), or the first page of SQLite's."""
    column = (
        "pg_relation_filenode(%s)" if connection.vendor == "postgresql" else "rootpage FROM sqlite_master WHERE name=%s"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column}", [table])
        return cursor.fetchone()
