"""The worker's own cursor: what it sends means the same as what the driver's cursors send."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection

from django_jobs.domain.states import JobState
from django_jobs.store.prepared import PreparedCursor, array_text, numbered
from tests.databases import Server

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

HOSTILE = [
    "",
    " ",
    "NULL",
    "null",
    "{}",
    "{a,b}",
    ",",
    '"',
    '\\"',
    "\\",
    "\\\\n",
    "a\nb",
    "'",
    "$1",
    "%(a)s",
    "ü€😀",
    None,
]
LISTS: list[tuple[str, list[Any]]] = [
    ("text", HOSTILE),
    ("text", [JobState.QUEUED, "queued"]),
    ("uuid", [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None]),
    ("int", [0, -1, 2**31 - 1, None]),
    ("bigint", [2**63 - 1, -(2**63)]),
    ("float8", [0.1, -0.0, 1e300, float("inf"), 3.0]),
    ("bool", [True, False, None]),
    (
        "timestamptz",
        [datetime(1, 1, 2, tzinfo=UTC), datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=2)))],
    ),
    ("text", []),
]


def ask(text: str, params: dict[str, Any]) -> Any:
    """Run a statement through the cursor and return its one value."""
    connection.ensure_connection()
    with PreparedCursor(connection.connection) as cursor:
        return cursor.execute(text, params).fetchone()[0]


@pytest.mark.parametrize(("kind", "items"), LISTS, ids=[f"{kind}-{len(items)}" for kind, items in LISTS])
def test_lists_arrive_as_they_are(server: Server, kind: str, items: list[Any]) -> None:
    """Quotes, backslashes, braces, nulls and the borders of numbers and times come back unchanged."""
    assert ask(f"SELECT %(items)s::{kind}[]", {"items": items}) == items


def test_text_without_end_is_refused(server: Server) -> None:
    """A zero byte is no text of the server's: the driver says so, as for a value that stands alone."""
    with pytest.raises(Exception, match="NUL"):
        ask("SELECT %(items)s::text[]", {"items": ["a\0b"]})


def test_item_of_no_known_type_is_refused() -> None:
    """A list of something that no statement takes is named instead of being spelled wrongly."""
    with pytest.raises(TypeError, match="list of object"):
        array_text([object()])


def test_parameter_that_comes_twice_is_sent_once(server: Server) -> None:
    """Names get numbers in the order of their first use."""
    text = "SELECT %(b)s::int + %(a)s::int * %(b)s::int"

    assert numbered(text) == (b"SELECT $1::int + $2::int * $1::int", ("b", "a"))
    assert ask(text, {"a": 3, "b": 5, "unused": 1}) == 20


def test_instant_is_read_whatever_the_sessions_time_zone(server: Server) -> None:
    """A session in another zone, also one that Python does not know, returns the same instant."""
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    for zone in ("Europe/Paris", "<+05>-05"):
        with connection.cursor() as cursor:
            cursor.execute(f"SET TIME ZONE '{zone}'")
        assert ask("SELECT %(at)s::timestamptz", {"at": noon}) == noon
    connection.close()
