"""Stored arguments under the code of today: older rows, new parameters, and what upcasters make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from django_jobs import job
from django_jobs.define import registry
from django_jobs.define.definition import JobDefinition
from django_jobs.exceptions import PayloadError

ID = UUID("12345678-1234-5678-1234-567812345678")


class Colour(Enum):
    """A choice of colours."""

    RED = "red"


DEFAULTS: dict[str, tuple[Any, Any]] = {
    "Decimal": (Decimal, Decimal("0.50")),
    "Decimal or None": (Decimal | None, Decimal("0.50")),
    "UUID": (UUID, ID),
    "date": (date, date(2026, 3, 1)),
    "datetime": (datetime, datetime(2026, 3, 1, tzinfo=UTC)),
    "timedelta": (timedelta, timedelta(minutes=5)),
    "enum": (Colour, Colour.RED),
    "tuple": (tuple[int, ...], (1, 2)),
    "list of decimals": (list[Decimal], [Decimal("0.50")]),
    "dict of dates": (dict[str, date], {"from": date(2026, 3, 1)}),
    "float of no JSON": (float, float("inf")),
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forget what a test declared."""
    before = dict(registry._jobs)
    yield
    registry._jobs.clear()
    registry._jobs.update(before)


def with_default(kind: Any, default: Any, **options: Any) -> JobDefinition:
    """Declare a handler whose second parameter came with a later release."""

    def handler(order_id: int, added: Any = default) -> None:
        """Take an order, and what was added."""

    handler.__annotations__["added"] = kind
    handler.__annotations__["order_id"] = int
    return job(type="tests.added", **options)(handler).definition


@pytest.mark.parametrize("name", DEFAULTS)
def test_new_parameter_with_a_default_leaves_older_jobs_alone(name: str) -> None:
    """What a payload does not name is the default as the code has it: no JSON, so nothing is restored."""
    kind, default = DEFAULTS[name]
    definition = with_default(kind, default)

    assert definition.restore({"order_id": 7}) == {"order_id": 7, "added": default}


@pytest.mark.parametrize("name", DEFAULTS)
def test_new_parameter_with_a_default_leaves_upcast_jobs_alone(name: str) -> None:
    """The same where an upcaster knows nothing of the parameter."""
    kind, default = DEFAULTS[name]
    definition = with_default(kind, default, version=2, upcasters={1: dict})

    assert definition.restore({"order_id": 7}, since=1) == {"order_id": 7, "added": default}


@pytest.mark.parametrize("name", [name for name in DEFAULTS if name != "float of no JSON"])
def test_upcaster_may_return_values_as_python_has_them(name: str) -> None:
    """They are what the producer of such a job would pass: they reach the handler, and give the same text."""
    kind, value = DEFAULTS[name]
    upcaster: Callable[[dict[str, Any]], dict[str, Any]] = lambda arguments: {**arguments, "added": value}  # noqa: E731
    definition = with_default(kind, None, version=2, upcasters={1: upcaster})

    restored = definition.restore({"order_id": 7}, since=1)
    assert restored == {"order_id": 7, "added": value}
    assert type(restored["added"]) is type(value)


def test_upcaster_that_returns_what_no_payload_can_hold_is_named() -> None:
    """The operator reads which argument it is, and of which upcaster."""
    definition = with_default(Any, None, version=2, upcasters={1: lambda arguments: {**arguments, "added": {1}}})

    with pytest.raises(PayloadError, match=r"tests\.added for version 1 .*added is of type set"):
        definition.restore({"order_id": 7}, since=1)


def test_upcaster_may_return_more_than_a_payload_may_hold() -> None:
    """The limits are those of what is stored, and this is not."""
    text = "x" * 100_000
    definition = with_default(str, "", version=2, upcasters={1: lambda arguments: {**arguments, "added": text}})

    assert definition.restore({"order_id": 7}, since=1)["added"] == text


def test_extra_arguments_are_still_those_of_the_payload() -> None:
    """A handler that takes any name gets what is stored, and its defaults."""

    def handler(day: date = date(2026, 3, 1), **rest: Any) -> None:
        """Take anything."""

    definition = job(type="tests.any")(handler).definition
    assert inspect.Parameter.VAR_KEYWORD in {one.kind for one in definition.signature.parameters.values()}
    assert definition.restore({"colour": "red"}) == {"day": date(2026, 3, 1), "colour": "red"}
    assert definition.restore({"day": "2026-03-02"}) == {"day": date(2026, 3, 2)}
