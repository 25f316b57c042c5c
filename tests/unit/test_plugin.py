"""The choice of the PostgreSQL that a test run uses."""

from __future__ import annotations

import pytest

from tests import plugin


def test_run_without_any_postgres_fails_and_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that can find no server ends with a sentence about the ways out, it does not skip."""
    monkeypatch.setattr(plugin, "find_binaries", list)

    with pytest.raises(pytest.UsageError, match="--without-postgres"):
        plugin._choose()


def test_given_server_that_does_not_answer_fails() -> None:
    """A URL that was given is used or the run fails: no other server takes its place in silence."""
    with pytest.raises(pytest.UsageError, match="does not answer"):
        plugin._choose("postgres://postgres@127.0.0.1:1/postgres")


def test_test_url_wins_over_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """TEST_POSTGRES_URL comes before DATABASE_URL, and a URL of another database is no candidate."""
    monkeypatch.setenv("TEST_POSTGRES_URL", "postgres://first/a")
    monkeypatch.setenv("DATABASE_URL", "postgresql://second/b")
    assert plugin._given_urls() == ["postgres://first/a", "postgresql://second/b"]

    monkeypatch.setenv("TEST_POSTGRES_URL", "")
    monkeypatch.setenv("DATABASE_URL", "sqlite:////somewhere/c.sqlite3")
    assert plugin._given_urls() == []
