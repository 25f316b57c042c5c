"""Fixtures of every test: the database, once as SQLite and once as PostgreSQL.

A test with ``@pytest.mark.django_db`` runs on both, each time as the alias ``default``, and is rolled back; with
``@pytest.mark.django_db(transaction=True)`` it commits, and the tables are emptied after it. ``@pytest.mark.postgres`` and
``@pytest.mark.sqlite`` keep a test to one of them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator

import pytest
from coverage import Coverage
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from tests.clusters import Binaries, Cluster, find_binaries
from tests.databases import VENDORS, Server, Servers, point_default_at, quick_folder
from tests.plugin import NO_POSTGRES, POSTGRES, left_out
from tests.poolers import NO_PGBOUNCER, Pooler, find_pgbouncer
from tests.process import kept


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Make the marker ``django_db`` ask for ``server``, so that it alone runs a test on each database."""
    marks = [*getattr(obj, "pytestmark", []), *collector.iter_markers("django_db")]
    if inspect.isfunction(obj) and any(mark.name == "django_db" for mark in marks):
        pytest.mark.usefixtures("server")(obj)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every database test once on each database of this run."""
    if "server" not in metafunc.fixturenames:
        return
    wanted = [vendor for vendor in VENDORS if _may_run_on(vendor, metafunc.definition)]
    vendors = [vendor for vendor in wanted if vendor not in left_out(metafunc.config)]
    # A test with no database left is shown as skipped: it must not vanish.
    metafunc.parametrize("server", vendors or [_skipped(vendor) for vendor in wanted], indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse Django's test classes: they would run on one database alone, and nobody would notice."""
    for item in items:
        if issubclass(getattr(item, "cls", None) or object, TransactionTestCase):
            raise pytest.UsageError(
                f"{item.nodeid}: write a function with @pytest.mark.django_db, it runs on both databases."
            )


def _may_run_on(vendor: str, item: pytest.Item) -> bool:
    only = {name for name, mark in (("sqlite", "sqlite"), ("postgresql", "postgres")) if item.get_closest_marker(mark)}
    return not only or vendor in only


def _skipped(vendor: str) -> object:
    return pytest.param(vendor, marks=pytest.mark.skip(reason=f"runs on {vendor} alone, which was left out"))


@pytest.fixture(autouse=True)
def _same_process_for_all() -> Iterator[None]:
    """Take back what the test changed in the package's memory: a clock, a declared handler, that the process stops."""
    with kept():
        yield


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[Servers]:
    """Take the place of pytest-django's set-up: two test databases instead of one."""
    postgres = request.config.stash[POSTGRES]
    with quick_folder() as folder:
        servers = Servers(folder=folder, postgres_url=postgres.url if postgres else str)
        yield servers
        with django_db_blocker.unblock():
            servers.remove()


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, django_db_setup: Servers, django_db_blocker: DjangoDbBlocker
) -> Iterator[Server]:
    """The database of the tests in this group, as the alias ``default``."""
    with django_db_blocker.unblock():
        current = django_db_setup.use(request.param)
    with pytest.MonkeyPatch.context() as patch:
        # Emptying by Django's flush costs more than most tests here.
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: current.empty())
        yield current


@pytest.fixture
def db(server: Server, db: None) -> None:
    """Open the current test database, rolled back: pytest-django's fixture on each server."""


@pytest.fixture
def transactional_db(server: Server, transactional_db: None) -> None:
    """Open the current test database for commits: pytest-django's fixture on each server."""


@pytest.fixture
def database(request: pytest.FixtureRequest, server: Server) -> Server:
    """The current test database, opened for this test: rolled back unless the test's marker says otherwise."""
    if request.node.get_closest_marker("django_db") is None:
        request.getfixturevalue("db")
    return server


@pytest.fixture
def database_url(server: Server) -> str:
    """URL of the current test database, which a program can use as ``DATABASE_URL``; it sees committed rows only."""
    return server.url


@pytest.fixture
def vendor(server: Server) -> str:
    """``sqlite`` or ``postgresql``."""
    return server.vendor


@pytest.fixture(scope="session")
def postgres_binaries(request: pytest.FixtureRequest) -> Binaries:
    """The server programs for tests that start a PostgreSQL of their own."""
    if "postgresql" in left_out(request.config):
        pytest.skip("starts a PostgreSQL of its own, and --without-postgres was given")
    found = find_binaries()
    if not found:
        pytest.fail(NO_POSTGRES)
    return found[0]


@pytest.fixture
def cluster(postgres_binaries: Binaries) -> Iterator[Cluster]:
    """A PostgreSQL of this test's own, running, to restart, freeze or kill at will."""
    with Cluster(binaries=postgres_binaries) as started:
        yield started


@pytest.fixture
def own_server(cluster: Cluster, django_db_blocker: DjangoDbBlocker) -> Iterator[Cluster]:
    """A PostgreSQL whose log is this test's alone, as the alias ``default``."""
    before = os.environ["DATABASE_URL"]
    with django_db_blocker.unblock():
        current = Server(vendor="postgresql", url=cluster.url())
        current.activate()
        try:
            current.migrate()
            yield cluster
        finally:
            point_default_at(before)


@pytest.fixture
def pooler(server: Server) -> Iterator[Pooler]:
    """A PgBouncer in transaction mode before the current PostgreSQL test database; for tests marked ``pgbouncer``."""
    if find_pgbouncer() is None:
        pytest.fail(NO_PGBOUNCER)
    with Pooler(server.url) as started:
        yield started


@pytest.fixture
def through_pooler(server: Server, pooler: Pooler, transactional_db: None) -> Iterator[Pooler]:
    """The alias ``default`` goes through the pooler during the test."""
    point_default_at(pooler.url)
    yield pooler
    server.activate()


@pytest.fixture(scope="module")
def untraced() -> Iterator[None]:
    """Measure no coverage meanwhile.

    A search through a million worlds would take ten times as long, and no thread is struck where others are traced.
    """
    measuring = Coverage.current()
    if measuring is not None:
        measuring.stop()
    yield
    if measuring is not None:
        measuring.start()
