"""Canonical payload text and the way back."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, NewType, Optional, Union
from uuid import UUID

import pytest
from django.db.models import TextChoices
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.identity import canonical, restore
from django_jobs.exceptions import PayloadError

ID = UUID("018f3c5e-7d2a-7cc0-8f11-0123456789ab")
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not 2**53 <= abs(x) < 1e21)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(2**53 - 1), max_value=2**53 - 1) | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    """A text enum."""

    RED = "red"


class Status(TextChoices):
    """What Django users declare."""

    PAID = "paid", "Paid"


class Level(IntEnum):
    """A number enum."""

    HIGH = 3


class Rate(Enum):
    """An enum whose values are stored in another form; one can never be stored."""

    ODD = object()
    FULL = Decimal("20.00")
    DAY = date(2026, 3, 1)


class Access(Flag):
    """A flag, built from numbers."""

    READ = 1
    WRITE = 2


class FakeModel:
    """What a model instance looks like from here."""

    _meta = "options"
    pk = 7


@dataclass
class Line:
    """A dataclass, which is refused with the mend."""

    price: int


Point = namedtuple("Point", "x y")
OrderId = NewType("OrderId", UUID)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.0, "é"]}, '{"a":[true,null,1,"é"],"b":1}'),
        (OrderedDict(x=1), '{"x":1}'),
        (MappingProxyType({"x": 1}), '{"x":1}'),
        ((1, (2,)), "[1,[2]]"),
        (Point(1, 2), "[1,2]"),
        (Decimal("10.00"), '"10.00"'),
        (Decimal("1E+3"), '"1000"'),
        (Decimal("-1.5E-7"), '"-0.00000015"'),
        (date(2026, 3, 1), '"2026-03-01"'),
        (datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))), '"2026-02-28T23:30:00.000000Z"'),
        (datetime(900, 1, 1, microsecond=5, tzinfo=UTC), '"0900-01-01T00:00:00.000005Z"'),
        (ID, f'"{ID}"'),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5), '"P1DT02H03M04.000005S"'),
        (timedelta(seconds=-1), '"-P0DT00H00M01.000000S"'),
        (Colour.RED, '"red"'),
        ({Colour.RED: Status.PAID}, '{"red":"paid"}'),
        (Level.HIGH, "3"),
        (Rate.FULL, '"20.00"'),
        (mark_safe("<b>"), '"<b>"'),
        (2**53 - 1, "9007199254740991"),
        (1e21, "1e+21"),
        (-0.0, "0"),
    ],
)
def test_canonical_writes_each_type_in_one_form(value: object, text: str) -> None:
    """Each type that is allowed has exactly one text, whatever the order, time zone or subclass."""
    assert canonical(value) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"order": {"lines": [1, 2, {"price": {1}}]}}, "order.lines[2].price is of type set"),
        ({"tags": {"a", "b"}}, "pass sorted(...)"),
        ({"odd key": b"x"}, "['odd key'] is of type bytes"),
        ({1: "x"}, "the value has a key of type int; only text can be a key"),
        ({"a": {None: 1}}, "a has a key of type NoneType"),
        ((number for number in ()), "the value is of type generator, which is read only once"),
        ({"order": FakeModel()}, "order is a model instance (FakeModel); pass its pk"),
        ([Line(1)], "[0] is a dataclass (Line); pass dataclasses.asdict"),
        (Line, "is of type type, which JSON cannot say; pass its name"),
        (time(1, 2), "is of type time, which cannot be stored"),
        (1j, "is of type complex"),
        (float("nan"), "NaN or infinite"),
        ({"x": float("-inf")}, "x is NaN or infinite"),
        (Decimal("sNaN"), "Decimal that is NaN"),
        (Decimal("1E+100000"), "more than 1000 digits"),
        (2**53, "beyond ±(2^53 - 1)"),
        ({"id": -(2**60)}, "id is beyond"),
        ({"x": 2.0**53}, "x is a float beyond ±(2^53 - 1)"),
        (-1e20, "come back as an integer"),
        (datetime(2026, 3, 1), "datetime without a time zone"),  # noqa: DTZ001
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "no form in UTC"),
        ({"name": "a\x00b"}, "name has a NUL character"),
        ({"a\x00": 1}, "the value has a NUL character"),
        ({"name": "\ud800"}, "name has half a character"),
    ],
)
def test_canonical_refuses_with_place_and_mend(value: object, words: str) -> None:
    """What cannot be stored on every database is refused with its place and a mend."""
    with pytest.raises(PayloadError) as refused:
        canonical(value)
    assert words in str(refused.value)


def test_canonical_never_shows_a_refused_value() -> None:
    """The message names the place, not the content: it may be a secret."""
    with pytest.raises(PayloadError) as refused:
        canonical({"card": "4111111111111111\x00"})
    assert "4111" not in str(refused.value)


def test_canonical_limits_size_depth_and_count() -> None:
    """Too many bytes, levels or values are refused, also when a value contains itself."""
    assert canonical("é" * 5, max_bytes=12) == '"ééééé"'
    with pytest.raises(PayloadError, match="13 bytes of JSON are more than 12"):
        canonical("a" + "é" * 5, max_bytes=12)
    assert canonical([[1]], max_depth=2) == "[[1]]"
    with pytest.raises(PayloadError, match="deeper than 2 levels"):
        canonical([[[1]]], max_depth=2)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(PayloadError, match="contains itself"):
        canonical(loop)
    bomb: list[object] = [1]
    for _ in range(18):
        bomb = [bomb, bomb]
    with pytest.raises(PayloadError, match="more than 65536 values"):
        canonical(bomb)


@given(JSON_VALUES)
def test_canonical_text_is_equal_exactly_for_equal_values(value: Any) -> None:
    """The text reads back as the same JSON value, so two values with one text are equal; and writing is stable."""
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text


@given(st.dictionaries(TEXTS, JSON_VALUES, min_size=2, max_size=5), st.randoms())
def test_canonical_text_does_not_depend_on_order(value: dict[str, Any], random: Any) -> None:
    """Two dicts with the same members have the same text in whatever order they were built."""
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert canonical(dict(shuffled)) == canonical(value)


@given(
    st.one_of(
        st.tuples(st.just(Decimal), st.decimals(allow_nan=False, allow_infinity=False, places=4)),
        st.tuples(st.just(UUID), st.uuids()),
        st.tuples(st.just(date), st.dates()),
        st.tuples(st.just(datetime), st.datetimes(timezones=st.just(UTC))),
        st.tuples(st.just(timedelta), st.timedeltas()),
        st.tuples(st.just(float), FLOATS),
        st.tuples(st.just(list[Decimal]), st.lists(st.decimals(-9, 9, places=2), max_size=3)),
        st.tuples(st.just(tuple[UUID, ...]), st.lists(st.uuids(), max_size=3).map(tuple)),
        st.tuples(st.just(dict[str, date]), st.dictionaries(TEXTS, st.dates(), max_size=3)),
    )
)
def test_restore_is_the_way_back_from_canonical(pair: tuple[Any, Any]) -> None:
    """A value that was stored comes back equal and in its type under its annotation."""
    annotation, value = pair
    restored = restore(json.loads(canonical(value)), annotation)
    assert restored == value
    assert type(restored) is type(value)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("10.00", Decimal | None, Decimal("10.00")),
        (None, Optional[Decimal], None),  # noqa: UP045  the old spelling too
        (None, Decimal, None),
        (5, Decimal, Decimal(5)),
        ("10.00", Annotated[Decimal, "euros"], Decimal("10.00")),
        (str(ID), OrderId, ID),
        ("2026-03-01T12:00:00+02:00", datetime, datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("red", Colour, Colour.RED),
        ("paid", Status, Status.PAID),
        (3, Level, Level.HIGH),
        (3, Access, Access.READ | Access.WRITE),
        ("20.00", Rate, Rate.FULL),
        ("2026-03-01", Rate, Rate.DAY),
        (["1.0"], Sequence[Decimal], [Decimal("1.0")]),
        ([1, "2026-03-01"], tuple[int, date], (1, date(2026, 3, 1))),
        ([1, 2], tuple, (1, 2)),
        ([1], list, [1]),
        ({"a": "1.0"}, Mapping[str, Decimal], {"a": Decimal("1.0")}),
        ({"a": 1}, dict, {"a": 1}),
        ("7", int, "7"),
        (7, str, 7),
        ("7", "Decimal", "7"),
        ("7", Any, "7"),
        ("7", Literal["7"], "7"),
        ("7", Union[Decimal, str], "7"),  # noqa: UP007
        ("7", ["unhashable"], "7"),
        ({"price": 1}, Line, {"price": 1}),
    ],
)
def test_restore_follows_the_annotation(value: Any, annotation: Any, expected: Any) -> None:
    """Known annotations restore their type, also inside others; any other leaves the value as it is."""
    restored = restore(value, annotation)
    assert restored == expected
    assert type(restored) is type(expected)


def test_restore_looks_through_a_type_alias() -> None:
    """A ``type X = ...`` alias of newer Python means what it stands for."""
    alias = type("TypeAliasType", (), {"__value__": Decimal})()
    assert restore("1.5", alias) == Decimal("1.5")


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        (1.5, Decimal, "price should be a Decimal (digits as text), but the payload holds a number"),
        (True, Decimal, "a boolean"),
        ("1e5", Decimal, "a Decimal"),
        ("nonsense", UUID, "a UUID"),
        (7, UUID, "a UUID"),
        ("2026-03-01T12:00:00", datetime, "a datetime with a time zone"),
        ("0001-01-01T00:00:00+05:00", datetime, "a datetime with a time zone"),
        ("2026-02-30", date, "a date"),
        ("1 day", timedelta, "a duration"),
        ("P999999999DT99H00M00.000000S", timedelta, "a duration"),
        ("x", float, "a float"),
        (True, float, "a float"),
        ("blue", Colour, "a member of Colour"),
        ([], Level, "a member of Level"),
        ("x", list[int], "a list"),
        ("x", tuple[int, ...], "a list"),
        ([1], tuple[int, int], "price should have 2 members, but the payload holds 1"),
        ([], dict[str, int], "an object"),
        ({"a": ["x"]}, dict[str, list[Decimal]], "price.a[0] should be a Decimal"),
        ((1,), float, "a tuple"),
    ],
)
def test_restore_refuses_what_does_not_fit(value: Any, annotation: Any, words: str) -> None:
    """A value that does not fit its annotation is refused with its place and what was expected."""
    with pytest.raises(PayloadError) as refused:
        restore(value, annotation, path="price")
    assert words in str(refused.value)
