"""Arguments that the handler's own annotations could not take back are refused where they are enqueued."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import batch, chain, job
from django_jobs.define import registry
from django_jobs.define.definition import DurableJob
from django_jobs.exceptions import DefinitionError, PayloadError
from django_jobs.models import Job
from tests.databases import Server


class Colour(Enum):
    """A choice of colours."""

    RED = "red"


class Status(Enum):
    """A choice of states, one of which is a colour too."""

    STOPPED = "red"


DAY = date(2026, 3, 1)
MOMENT = datetime(2026, 3, 1, tzinfo=UTC)

REFUSED: dict[str, tuple[Any, Any]] = {
    "float for Decimal": (Decimal, 12.5),
    "exponent for Decimal": (Decimal, "1e5"),
    "word for Decimal": (Decimal | None, "much"),
    "date for datetime": (datetime, DAY),
    "text for datetime": (datetime, "2026-03-01"),
    "datetime for date": (date, MOMENT),
    "number for timedelta": (timedelta, 60),
    "word for UUID": (UUID, "7"),
    "wrong value for enum": (Colour, "blue"),
    "short tuple": (tuple[int, int], (1,)),
    "long tuple": (tuple[int, int], (1, 2, 3)),
    "Decimal for int": (int, Decimal(7)),
    "text for int": (int, "7"),
    "fraction for int": (int | None, 7.5),
    "Decimal for bool": (bool, Decimal(0)),
    "text among ints": (list[int], [1, "2"]),
    "float among decimals": (dict[str, Decimal], {"a": 1.5}),
    "text for list": (list[str], "abc"),
    "text for a union": (Decimal | int, "much"),
}

TAKEN: dict[str, tuple[Any, Any, Any]] = {
    "int for Decimal": (Decimal, 7, Decimal(7)),
    "digits for Decimal": (Decimal, "12.50", Decimal("12.50")),
    "text for date": (date, "2026-03-01", DAY),
    "text for datetime": (datetime, "2026-03-01T01:00:00+01:00", MOMENT),
    "text for UUID": (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    "value for enum": (Colour, "red", Colour.RED),
    "list for tuple": (tuple[int, int], [1, 2], (1, 2)),
    "whole float for int": (int, 7.0, 7),
    "bool for int": (int, True, True),
    "None for int": (int, None, None),
    "number for str": (str, 7, 7),
    "Decimal in a union": (Decimal | int, Decimal("12.50"), Decimal("12.50")),
    "int in a union": (Decimal | int, 7, 7),
}


@pytest.fixture
def declare() -> Iterator[Callable[[Any], DurableJob[..., Any]]]:
    """Declare a handler whose parameter has this annotation; forget it afterwards."""
    before = dict(registry._jobs)

    def declared(annotation: Any) -> DurableJob[..., Any]:
        def handler(amount: Any = None, note: str = "") -> None:
            """Do nothing."""

        handler.__annotations__["amount"] = annotation
        return job(type="tests.annotated")(handler)

    yield declared
    registry._jobs.clear()
    registry._jobs.update(before)


@pytest.mark.parametrize("name", REFUSED)
def test_argument_that_its_annotation_cannot_take_back_is_refused(database: Server, declare: Any, name: str) -> None:
    """The producer hears of it with the name of the argument, however it enqueues; no statement was run."""
    annotation, value = REFUSED[name]
    handler = declare(annotation)
    call = handler.prepare(amount=value)
    ways: list[Callable[[], object]] = [
        lambda: handler.enqueue(amount=value),
        lambda: handler.enqueue_many([{"amount": value}]),
        lambda: batch(callback=call),
        lambda: chain(call).enqueue(),
    ]
    for way in ways:
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(PayloadError, match=r"argument 'amount' does not fit its annotation in tests\.annotated"),
        ):
            way()
        assert len(queries) == 0
    assert not Job.objects.exists()


@pytest.mark.parametrize("name", TAKEN)
def test_argument_that_its_annotation_takes_back_is_stored(database: Server, declare: Any, name: str) -> None:
    """Texts and numbers that are read as what the annotation says are as good as before."""
    annotation, value, expected = TAKEN[name]
    handler = declare(annotation)

    handler.enqueue(amount=value)

    restored = handler.definition.restore(json.loads(Job.objects.get().payload.arguments))["amount"]
    assert restored == expected
    assert type(restored) is type(expected)


def test_message_of_a_refused_argument_does_not_show_it(database: Server, declare: Any) -> None:
    """It may be a secret."""
    with pytest.raises(PayloadError) as refused:
        declare(Decimal).enqueue(amount="4111-1111")
    assert "4111" not in str(refused.value)


def test_union_that_is_a_riddle_is_refused_when_declared(declare: Any) -> None:
    """One stored value would be two things, and nobody could say which."""
    with pytest.raises(DefinitionError, match="'amount' can be both a Colour and a Status"):
        declare(Colour | Status)
    assert registry.find("tests.annotated") is None


def test_riddle_whose_names_come_later_is_refused_by_the_worker(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An annotation that cannot be resolved when the function is declared is looked at when all is imported."""
    declare("Late | Status")
    monkeypatch.setitem(globals(), "Late", Colour)

    with pytest.raises(DefinitionError, match="'amount' can be both a Colour and a Status"):
        registry.autodiscover()


def test_annotation_that_names_nothing_refuses_no_argument(database: Server, declare: Any) -> None:
    """No worker starts with it, and the job waits for one that does."""
    assert declare("Nothing").enqueue(amount="7").created
