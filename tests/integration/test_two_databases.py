"""One run covers both databases, and threads and programs of a test see the database that the test sees."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from tests.databases import Server, Servers

COUNT_USERS = """
import django
django.setup()
from django.contrib.auth.models import User
from django.db import connection
print(connection.vendor, User.objects.count())
"""


def in_thread(work: object) -> list[object]:
    """Run ``work`` in a new thread and return its result in a list, empty if it failed."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=30)
    return results


@pytest.mark.django_db
def test_database_marker_alone_runs_on_the_named_server(request: pytest.FixtureRequest) -> None:
    """A test with nothing but the marker finds the database that its id names."""
    assert connection.vendor in request.node.name

    User.objects.create(username="alone")

    assert User.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("turn", [1, 2])
def test_rollback_mode_leaves_no_row(database: Server, turn: int) -> None:
    """A test that is rolled back leaves nothing for the next one."""
    assert User.objects.count() == 0

    User.objects.create(username=f"turn-{turn}")

    assert connection.in_atomic_block
    assert connection.vendor == database.vendor


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_committed_mode_leaves_no_row(database: Server, turn: int) -> None:
    """A test that commits leaves nothing for the next one."""
    assert User.objects.count() == 0

    User.objects.create(username=f"turn-{turn}")

    assert not connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
def test_thread_sees_the_database_of_its_test(vendor: str) -> None:
    """A thread opens a connection of its own to the same database and reads what the test committed."""
    User.objects.create(username="seen-by-a-thread")

    results = in_thread(lambda: (connection.vendor, User.objects.get().username))

    assert results == [(vendor, "seen-by-a-thread")]


@pytest.mark.django_db(transaction=True)
def test_program_sees_committed_rows(vendor: str, database_url: str) -> None:
    """A program that is started with the test's database URL reads what the test committed."""
    User.objects.create(username="seen-by-a-program")

    done = subprocess.run(
        [sys.executable, "-c", COUNT_USERS],
        env={**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.split() == [vendor, "1"]


def test_database_fixture_alone_opens_the_database(database: Server) -> None:
    """The fixture without the marker opens the database too, rolled back."""
    assert connection.in_atomic_block
    assert User.objects.count() == 0
    assert os.environ["DATABASE_URL"] == database.url


@pytest.mark.django_db(transaction=True)
def test_empty_brings_back_what_migrations_wrote(server: Server) -> None:
    """Rows of a migration survive the emptying, changed or deleted ones come back."""
    before = sorted(Permission.objects.values_list("pk", "codename"))
    Permission.objects.all().delete()
    ContentType.objects.filter(model="user").update(model="changed")
    User.objects.create(username="goes-away")

    server.empty()

    assert sorted(Permission.objects.values_list("pk", "codename")) == before
    assert not ContentType.objects.filter(model="changed").exists()
    assert User.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("anew", [False, True])
def test_empty_leaves_nothing_whatever_refers_to_what(server: Server, anew: bool) -> None:
    """Rows that refer to each other go in one go, few and many, and rows of a table that the test made."""
    group = Group.objects.create(name="small")
    users = User.objects.bulk_create(User(username=f"{n}-{'x' * 100}") for n in range(1000))
    for user in users[:3]:
        user.groups.add(group)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_by_a_test (n integer)")
        cursor.execute("INSERT INTO made_by_a_test VALUES (1)")

    server.empty(anew=anew)

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM made_by_a_test")
        left = cursor.fetchone()[0]
        cursor.execute("DROP TABLE made_by_a_test")
    assert (left, Group.objects.count(), User.objects.count(), User.groups.through.objects.count()) == (0, 0, 0, 0)


@pytest.mark.django_db(transaction=True)
def test_empty_sends_the_same_for_any_number_of_tables(server: Server) -> None:
    """A table more costs no statement more."""
    with CaptureQueriesContext(connection) as before:
        server.empty()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_by_a_test (n integer)")

    with CaptureQueriesContext(connection) as after:
        server.empty()

    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE made_by_a_test")
    assert len(after) == len(before)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_empty_ends_transactions_that_were_left_open(server: Server) -> None:
    """A transaction that somebody forgot cannot block the emptying."""
    User.objects.create(username="locked")
    forgotten = connections.create_connection("default")
    forgotten.set_autocommit(False)
    with forgotten.cursor() as cursor:
        cursor.execute("SELECT * FROM auth_user FOR UPDATE")

    server.empty()

    assert User.objects.count() == 0
    forgotten.connection.close()


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_sqlite_runs_as_the_settings_promise() -> None:
    """SQLite runs with a write-ahead log and full synchronisation, the mode that is supported."""
    with connection.cursor() as cursor:
        modes = [cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert modes == ["wal", 2]


@pytest.mark.postgres
def test_switching_servers_reaches_threads_that_outlive_it(
    server: Server, django_db_setup: Servers, django_db_blocker: DjangoDbBlocker
) -> None:
    """A thread that lives through a switch of servers sees the new one."""
    first, second, seen = threading.Event(), threading.Event(), []

    def look_twice() -> None:
        seen.append(connection.vendor)
        first.set()
        second.wait(timeout=30)
        seen.append(connection.vendor)

    thread = threading.Thread(target=look_twice)
    thread.start()
    first.wait(timeout=30)
    with django_db_blocker.unblock():
        django_db_setup.use("sqlite")
    second.set()
    thread.join(timeout=30)
    server.activate()

    assert seen == ["postgresql", "sqlite"]
