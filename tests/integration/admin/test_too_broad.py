"""A look that takes too long is given up by the database, and the page says what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client

from django_jobs.admin.bounded import bounded
from django_jobs.models import Job, SideEffect
from tests.crowd import meanwhile
from tests.factories_pages import one_of_each
from tests.integration.admin.conftest import address

pytestmark = pytest.mark.django_db(transaction=True)

PAGES: dict[str, tuple[type[Any], Callable[[dict[Any, Any]], str]]] = {
    "list": (Job, lambda rows: address("job", "changelist")),
    "search": (Job, lambda rows: address("job", "changelist") + f"?q={rows[Job].pk}"),
    "groups": (Job, lambda rows: address("deadletter", "changelist")),
    "row": (Job, lambda rows: address("job", "change", rows[Job].pk)),
    "history": (Job, lambda rows: address("job", "history", rows[Job].pk)),
    "effects": (SideEffect, lambda rows: address("sideeffect", "changelist")),
    "decision": (SideEffect, lambda rows: address("job", "replay", rows[Job].pk)),
    "decision about many": (SideEffect, lambda rows: address("deadletter", "replay_many") + f"?ids={rows[Job].pk}"),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the database give up after a moment."""
    monkeypatch.setattr("django_jobs.admin.bounded.LONGEST", timedelta(milliseconds=50))


@contextmanager
def held(model: type[Any]) -> Iterator[None]:
    """Keep every reader of a table waiting."""

    def hold(pause: Callable[[], None]) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {model._meta.db_table} IN ACCESS EXCLUSIVE MODE")
            pause()

    with meanwhile(hold):
        yield


def limit() -> str:
    """Return how long a statement may take now."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def is_too_broad(answer: HttpResponse) -> bool:
    """Say whether a page was given up, and see that it says what to do."""
    page = answer.content.decode()
    if answer.status_code != 400:
        return False
    assert "This look was too broad: the database gave it up after 5 seconds. Add a filter" in page
    assert "Without filters" in page
    return True


@pytest.mark.postgres
@pytest.mark.parametrize("name", PAGES)
def test_page_that_takes_too_long_is_given_up(root: Client, name: str) -> None:
    """Every page that reads is bounded; the bound ends with it, and the page answers when nothing is in its way."""
    model, url = PAGES[name]
    rows = one_of_each()
    before = limit()

    with held(model):
        assert is_too_broad(root.get(url(rows)))
    assert limit() == before
    assert root.get(url(rows)).status_code == 200


@pytest.mark.postgres
def test_transaction_of_the_site_goes_on_after_it(root: Client) -> None:
    """With a transaction per request, what the site does besides is neither lost nor bounded."""
    rows = one_of_each()
    url = address("job", "change", rows[Job].pk)

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', '7s', true)")
        with held(SideEffect):
            assert is_too_broad(root.get(url))
        assert limit() == "7s"
        assert root.get(url).status_code == 200
        assert limit() == "7s"


@pytest.mark.sqlite
def test_nothing_bounds_a_look_on_sqlite(root: Client, django_assert_num_queries: Any) -> None:
    """A transaction would take the only write lock, so there is none, and the page answers."""
    rows = one_of_each()
    with django_assert_num_queries(0), bounded("default"):
        assert not connection.in_atomic_block
    assert root.get(address("job", "change", rows[Job].pk)).status_code == 200
