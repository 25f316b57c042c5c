"""A database that may be migrated back and forth, and a second session on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from tests.databases import Server
from tests.old_rows import migrate_to, names


@pytest.fixture
def migrated_again(server: Server) -> Iterator[None]:
    """Leave the database fully migrated, however the test ended."""
    yield
    connection.rollback()
    migrate_to(names()[-1])


@pytest.fixture
def another(migrated_again: None, server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A second session, in whose transaction locks are held; over before the database is put in order."""
    with psycopg.connect(server.url) as session:
        yield session
        session.rollback()
