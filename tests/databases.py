"""The two test databases of a run, and how the alias ``default`` is pointed at one of them.

Both are made once, on first use. A test sees one of them as ``default`` in every thread, and a program that it starts
finds the same one in the environment variable ``DATABASE_URL``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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

# Bytes of a table on PostgreSQL. Truncating makes new files, which costs far more than deleting few rows; what deletions
# leave behind goes once it makes a table larger than this.
DELETED_UP_TO = 64 * 1024

ROOM_IN_MEMORY = 2 * 1024**3  # bytes that must be free
LEFT_FOR_LONG = 24 * 3600  # seconds
_PREFIX = "django-jobs-sqlite-"

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(slots=True, kw_only=True)
class Server:
    """One of the two test databases; ``url`` is what a program needs as ``DATABASE_URL``."""

    vendor: str
    url: str
    alias: str = DEFAULT_DB_ALIAS
    _migrated: Rows = field(default_factory=dict, repr=False)
    _signatures: dict[str, object] = field(default_factory=dict, repr=False)

    def activate(self) -> None:
        """Make this the database of the alias ``default``, in every thread and in programs started from now on."""
        point_default_at(self.url)

    def migrate(self) -> None:
        """Create the tables and remember the rows that migrations wrote."""
        call_command("migrate", verbosity=0, interactive=False, database=self.alias, run_syncdb=True)
        self._migrated = {table: rows for table in _used() if (rows := _rows(table))}
        self._signatures = _signatures(self._migrated)

    def empty(self, *, anew: bool = False) -> None:
        """Bring every table back to what it was after the migrations.

        Rows that a migration wrote (permissions, for example) come back if a test changed them. The cost is that of the
        tables that were written to, whatever their number in all. ``anew`` also takes what a deletion leaves behind, for
        tests that look at pages and plans.
        """
        if self.vendor == "postgresql":
            _end_other_transactions()
        used = {table: size for table, size in _used().items() if table not in self._migrated}
        with transaction.atomic():
            _delete_all(used, largest=0 if anew else DELETED_UP_TO)
            found = _signatures(self._migrated)
            changed = {table: rows for table, rows in self._migrated.items() if found[table] != self._signatures[table]}
            _delete_all(dict.fromkeys(changed, 0), largest=DELETED_UP_TO)
            for table, rows in changed.items():
                _insert(table, rows)
        if changed:
            self._signatures = _signatures(self._migrated)
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


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Make a folder for SQLite files, in memory where the machine has room: each commit waits until the disk has it."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM_IN_MEMORY
    for left in memory.glob(f"{_PREFIX}*") if roomy else ():  # by runs that were killed
        if time.time() - left.stat().st_mtime > LEFT_FOR_LONG:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=memory if roomy else None, ignore_cleanup_errors=True) as made:
        yield Path(made)


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


def _used() -> dict[str, int]:
    """Return the tables that may hold rows, with their size in bytes; on SQLite those that do, with no size."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relpersistence <> 't' "
                "AND relnamespace = current_schema()::regnamespace AND pg_relation_size(oid) > 0"
            )
            return dict(cursor.fetchall())
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%%' ESCAPE '!'")
        tables = [name for (name,) in cursor.fetchall()]
        looks = [f"SELECT '{table}', 0 WHERE EXISTS (SELECT 1 FROM {_quoted(table)})" for table in tables]
        cursor.execute(" UNION ALL ".join(looks) if looks else "SELECT '', 0 WHERE false")
        return dict(cursor.fetchall())


def _signatures(tables: Iterable[str]) -> dict[str, object]:
    """Return for each table what differs as soon as one of its rows was written, deleted or added."""
    if connection.vendor != "postgresql":
        return {table: _rows(table) for table in tables}
    # Each version of a row has a place and a transaction of its own.
    looks = [
        f"SELECT '{table}', (count(*), sum(hashtext(ctid::text || xmin::text)))::text FROM {_quoted(table)}"
        for table in tables
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks) if looks else "SELECT '', '' WHERE false")
        return dict(cursor.fetchall())


def _quoted(table: str) -> str:
    return str(connection.ops.quote_name(table))


def _rows(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {_quoted(table)} ORDER BY 1")
        return [tuple(row) for row in cursor.fetchall()]


def _insert(table: str, rows: list[tuple[Any, ...]]) -> None:
    signs = ", ".join(["%s"] * len(rows[0]))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {_quoted(table)} VALUES ({signs})", rows)


def _delete_all(sizes: Mapping[str, int], *, largest: int) -> None:
    if not sizes:
        return
    large = [_quoted(table) for table, size in sizes.items() if size > largest]
    small = [_quoted(table) for table, size in sizes.items() if size <= largest]
    # Deletions in any order: Django's foreign keys are checked at the commit. Truncation takes the tables along that refer
    # to these, and none of which rows were deleted before in the same transaction.
    texts = [f"TRUNCATE {', '.join(large)} CASCADE"] if large else []
    texts += [f"DELETE FROM {table}" for table in small]
    with connection.cursor() as cursor:
        for text in ["; ".join(texts)] if connection.vendor == "postgresql" else texts:
            cursor.execute(text)


def _end_other_transactions() -> None:
    """End transactions that killed programs or forgotten threads of a test left open: they would block for ever."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            " AND backend_type = 'client backend'"
        )
