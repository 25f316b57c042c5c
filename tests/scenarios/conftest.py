"""Fixtures of the scenarios: those of the acceptance tests and the crash matrix, and a proxy before the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobs.testing.proxy import PostgresProxy
from tests.acceptance.conftest import make_worker, own_server, rows, witness
from tests.crash.conftest import make_matrix

__all__ = ["make_matrix", "make_worker", "own_server", "rows", "witness"]


@pytest.fixture
def proxy(database_url: str, rows: object) -> Iterator[PostgresProxy]:
    """A proxy before the current test database, for workers to go through."""
    with PostgresProxy(database_url) as started:
        yield started
