"""The two test databases of a run, and how the alias ``default`` is pointed at one of them.

Both are made once, on first use. A test sees one of them as ``default`` in every thread, and a program that it starts
finds the same one in the environment variable ``DATABASE_URL``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from asgiref.local import Local
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.utils import ConnectionHandler

from testproject.databases import database_from_url

VENDORS = ("sqlite", "postgresql")

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(slots=True, kw_only=True)
class Server:
    """One of the two test databases; ``url`` is what a program needs as ``DATABASE_URL``."""

    vendor: str
    url: str
    alias: str = DEFAULT_DB_ALIAS
    _migrated: Rows = field(default_factory=dict, repr=False)

    def activate(self) -> None:
        """Make this the database of the alias ``default``, in every thread and in programs started from now on."""
        point_default_at(self.url)

    def migrate(self) -> None:
        """Create the tables and remember the rows that migrations wrote."""
        call_command("migrate", verbosity=0, interactive=False, database=self.alias, run_syncdb=True)
        self._migrated = {table: _rows(table) for table in _filled(_tables())}

    def empty(self) -> None:
        """Bring every table back to what it was after the migrations.

        Tables without rows are not touched, which makes this cheap; rows that a migration wrote (permissions, for
        example) come back if a test changed them.
        """
        if self.vendor == "postgresql":
            _end_other_transactions()
        filled = set(_filled(_tables()))
        changed = {table for table, rows in self._migrated.items() if table not in filled or _rows(table) != rows}
        with transaction.atomic():
            _delete_all(sorted((filled - set(self._migrated)) | changed))
            for table, rows in self._migrated.items():
                if table in changed or not _filled([table]):
                    _insert(table, rows)
        ContentType.objects.clear_cache()


@dataclass(slots=True, kw_only=True)
class Servers:
    """Makes each test database on first use and removes them all at the end."""

    folder: Path
    postgres_url: Callable[[], str]
    _made: dict[str, Server] = field(default_factory=dict)
    _name: str = field(default_factory=lambda: f"test_django_jobs_{os.getpid()}_{uuid.uuid4().hex[:8]}")

    def use(self, vendor: str) -> Server:
        """Return the test database of this vendor, made and migrated if need be, as the alias ``default``."""
        if vendor in self._made:
            self._made[vendor].activate()
            return self._made[vendor]
        server = Server(vendor=vendor, url=self._create(vendor))
        server.activate()
        server.migrate()
        self._made[vendor] = server
        return server

    def remove(self) -> None:
        """Drop what was made."""
        connections.close_all()
        if "postgresql" in self._made:
            with psycopg.connect(self.postgres_url(), autocommit=True) as admin:
                admin.execute(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)')
        for path in self.folder.glob(f"{self._name}.sqlite3*"):
            path.unlink()
        self._made.clear()

    def _create(self, vendor: str) -> str:
        if vendor == "sqlite":
            # A file, not memory: threads and other processes share it.
            return f"sqlite:///{self.folder / self._name}.sqlite3"
        url = self.postgres_url()
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"""CREATE DATABASE "{self._name}" TEMPLATE template0 ENCODING 'UTF8'""")
        return urlunsplit(urlsplit(url)._replace(path=f"/{self._name}"))


def point_default_at(url: str) -> None:
    """Replace the settings of the alias ``default`` and forget every thread's connection to the former database."""
    connections.close_all()
    # A handler of its own fills in Django's defaults.
    entry = ConnectionHandler({DEFAULT_DB_ALIAS: database_from_url(url)}).settings[DEFAULT_DB_ALIAS]
    connections.settings[DEFAULT_DB_ALIAS] = entry  # the same mapping as settings.DATABASES
    # Threads that outlive a test (the one that asgiref keeps) hold a connection of the former database in here.
    connections._connections = Local(connections.thread_critical)  # type: ignore[attr-defined]
    os.environ["DATABASE_URL"] = url
    ContentType.objects.clear_cache()


def _tables() -> list[str]:
    return sorted(connection.introspection.table_names())


def _filled(tables: list[str]) -> list[str]:
    if not tables:
        return []
    quote = connection.ops.quote_name
    looks = [f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {quote(table)})" for table in tables]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks))
        return [row[0] for row in cursor.fetchall()]


def _rows(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY 1")
        return [tuple(row) for row in cursor.fetchall()]


def _insert(table: str, rows: list[tuple[Any, ...]]) -> None:
    signs = ", ".join(["%s"] * len(rows[0]))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {connection.ops.quote_name(table)} VALUES ({signs})", rows)


def _delete_all(tables: list[str]) -> None:
    if not tables:
        return
    quoted = [connection.ops.quote_name(table) for table in tables]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # CASCADE: the tables that refer to these are empty, or they are in the list.
            cursor.execute(f"TRUNCATE {', '.join(quoted)} CASCADE")
            return
        for table in quoted:  # in any order: Django's foreign keys are checked at the commit
            cursor.execute(f"DELETE FROM {table}")


def _end_other_transactions() -> None:
    """End transactions that killed programs or forgotten threads of a test left open: they would block for ever."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            " AND backend_type = 'client backend'"
        )
