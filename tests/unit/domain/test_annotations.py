"""Annotations before anything is stored: unions, what surely fits, and what has two answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest

from django_jobs.domain.annotations import ambiguous, surely
from django_jobs.domain.canonical import canonical
from django_jobs.domain.restore import restore
from django_jobs.exceptions import PayloadError

ID = UUID("12345678-1234-5678-1234-567812345678")
DAY = date(2026, 3, 1)
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPAN = timedelta(minutes=5)


class Colour(Enum):
    """Colours, one of which is a status too."""

    RED = "red"
    OPEN = "open"


class Status(Enum):
    """States, one of which is a colour too."""

    OPEN = "open"


class Level(IntEnum):
    """Numbers with names."""

    HIGH = 3


class Deadline(Enum):
    """A date under a name."""

    FIRST = "2026-03-01"


class Line(TypedDict):
    """An object that nothing is known of."""

    price: int


class Alias:
    """Stands for a type alias of newer Python, which may name itself."""

    def __init__(self) -> None:
        self.__value__: Any = None


Alias.__name__ = "TypeAliasType"
JSON = Alias()
JSON.__value__ = list[JSON] | dict[str, JSON] | str | int | None  # type: ignore[valid-type]
NAMED = Alias()
NAMED.__value__ = Decimal | int

# What a producer gives, under which annotation, and what the handler gets: the same.
SAME: list[tuple[Any, Any]] = [
    (Decimal("12.50"), Decimal | int),
    (5, Decimal | int),
    (5, int | Decimal),
    (Decimal(5), int | Decimal),
    (True, bool | Decimal),
    (1.5, float | Decimal),
    (Decimal("1.5"), float | Decimal),
    (DAY, date | datetime),
    (MOMENT, date | datetime),
    (SPAN, timedelta | date | None),
    (ID, Decimal | UUID),
    (Decimal("1" * 32), UUID | Decimal),
    (Decimal(20260301), date | Decimal),
    (Level.HIGH, Level | Decimal),
    (Colour.RED, Colour | date),
    (DAY, Colour | date),
    ([Decimal("1.5")], list[Decimal] | Decimal),
    (Decimal("1.5"), list[Decimal] | Decimal),
    ([1], list[Decimal] | list[int]),
    ([Decimal(1)], list[Decimal] | list[int]),
    ([Decimal(1), 2, DAY], list[Decimal | int | date]),
    ({"a": DAY, "b": 1}, dict[str, date | int]),
    ("none", Decimal | Literal["none"]),
    (Decimal(1), Decimal | Literal["none"]),
    ({"price": 1}, Decimal | Line),
    (Decimal(1), Decimal | Line),
    ("text", Decimal | str),
    ("2026-03-01", date | Any),
    (None, Decimal | int),
    (Decimal(1), Annotated[Decimal, "euros"] | int),
    ([1, {"a": "b"}], JSON),
    (Decimal(1), NAMED),
    ([(Decimal(1), 2)], list[tuple[Decimal, int]]),
]


@pytest.mark.parametrize(("value", "annotation"), SAME)
def test_union_gives_back_what_was_given(value: Any, annotation: Any) -> None:
    """Each member of a union takes what is written in its form, whatever the order."""
    restored = restore(json.loads(canonical(value)), annotation, strict=True)
    assert restored == value
    assert type(restored) is type(value)
    assert repr(restored) == repr(value)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (Decimal("1.5"), Decimal | str, "1.5"),
        (Colour.RED, Colour | str, "red"),
        (Level.HIGH, int | Level, 3),
        ("20260301", date | UUID, DAY),
        (1, float | Decimal, 1.0),
        ((1, 2), list[int] | tuple[int, ...], [1, 2]),
    ],
)
def test_union_with_a_plain_member_gives_what_json_has(value: Any, annotation: Any, expected: Any) -> None:
    """Text stays text where the union has str; else a text that has no member's own form goes to the first reader."""
    restored = restore(json.loads(canonical(value)), annotation, strict=True)
    assert restored == expected
    assert type(restored) is type(expected)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        ("much", Decimal | date, "price should be Decimal or date, but the payload holds a text that is none"),
        ([], Decimal | None | date, "price should be Decimal or date, but the payload holds a list"),
        (["x"], list[Decimal | date], "price[0] should be Decimal or date"),
        (7, UUID | Colour, "price should be UUID or Colour"),
        ("x", list[Decimal] | Decimal, "price should be list[decimal.Decimal] or Decimal"),
    ],
)
def test_union_refuses_what_no_member_takes(value: Any, annotation: Any, words: str, strict: bool) -> None:
    """The message has the place and every member."""
    with pytest.raises(PayloadError) as refused:
        restore(value, annotation, path="price", strict=strict)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        ("7", int, "price should be a whole number, but the payload holds a text"),
        (1.5, int, "price should be a whole number, but the payload holds a number"),
        ([7], int, "price should be a whole number"),
        ("7", int | None, "price should be a whole number"),
        (["7"], list[int], "price[0] should be a whole number"),
        ({"a": "7"}, dict[str, int], "price.a should be a whole number"),
        (["7", "8"], tuple[int, int], "price[0] should be a whole number"),
        ("0", bool, "price should be True or False"),
        ("12.50", float | int, "price should be float or int"),
        ([], int | str, "price should be int or str"),
    ],
)
def test_numbers_refuse_what_is_none_before_it_is_stored(value: Any, annotation: Any, words: str) -> None:
    """What is stored already reaches the handler as it did; what is about to be stored is refused."""
    with pytest.raises(PayloadError) as refused:
        restore(value, annotation, path="price", strict=True)
    assert words in str(refused.value)
    assert restore(value, annotation, path="price") in (value, tuple(value) if isinstance(value, list) else value)


FITS: list[tuple[Any, Any]] = [
    *SAME,
    (7, int),
    (True, int),
    (False, bool),
    (1, bool),
    (7, float),
    (7, Decimal),
    (Decimal(7), Decimal),
    (ID, UUID),
    (DAY, date),
    (MOMENT, datetime),
    (SPAN, timedelta),
    (Colour.RED, Colour),
    ([1, True, None], list[int]),
    ((1, 2), Sequence[int]),
    ((1, 2), tuple[int, ...]),
    ([1, "a"], list),
    ({"a": DAY}, dict[str, date]),
    ({"a": DAY}, Mapping[str, date | None]),
    ({"a": [1]}, dict),
]


@pytest.mark.parametrize(("value", "annotation"), FITS)
def test_what_surely_fits_can_be_taken_back(value: Any, annotation: Any) -> None:
    """The quick look is never wrong: what it lets pass comes back equal."""
    sure = surely(annotation)
    if sure is None or sure.fits(value):
        restored = restore(json.loads(canonical(value)), annotation, strict=True)
        assert restored == value or list(restored) == list(value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("7", int),
        (Decimal(7), int),
        (1.5, int),
        ("0", bool),
        (12.5, Decimal),
        (True, float),
        (DAY, datetime),
        (MOMENT, date),
        ("2026-03-01", datetime),
        ("red", Colour),
        ([1, "2"], list[int]),
        ([Decimal(1)], list[int]),
        ({"a": 1.5}, dict[str, int]),
        ("ab", list[str]),
        ("12", list[int]),
        ([1], tuple[int, int]),
        ([[1]], list[list[int]]),
        ("x", Decimal | int),
        ([], dict),
    ],
)
def test_what_may_not_fit_is_looked_at(value: Any, annotation: Any) -> None:
    """Any other type than the annotation's own is tried before it is stored."""
    sure = surely(annotation)
    assert sure is not None
    assert not sure.fits(value)


@pytest.mark.parametrize(
    "annotation", [str, Any, object, str | None, Line, Literal["a"], "Decimal", ["unhashable"], type]
)
def test_annotations_without_a_rule_take_everything(annotation: Any) -> None:
    """Nothing is looked at under them."""
    assert surely(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "pair"),
    [
        (Colour | Status, "a Colour and a Status"),
        (Status | Decimal | Colour | None, "a Status and a Colour"),
        (Deadline | date, "a Deadline and a date"),
        (date | Deadline, "a date and a Deadline"),
        (list[Colour | Status], "a Colour and a Status"),
        (dict[str, tuple[int, Colour | Status]], "a Colour and a Status"),
        (list[Colour] | list[Status], "a list[tests"),
        (tuple[Colour, ...] | list[Status], "a tuple[tests"),
        (Annotated[Colour, "main"] | Status, "a Colour and a Status"),
    ],
)
def test_union_of_which_one_value_is_two_things_is_found(annotation: Any, pair: str) -> None:
    """Two enums that share a stored value cannot be told apart, nor an enum and what it looks like."""
    assert ambiguous(annotation).startswith(pair)


@pytest.mark.parametrize(
    "annotation",
    [
        *(annotation for _, annotation in SAME),
        Colour | str,
        Colour | Status | str,
        Level | int,
        Level | str,
        Colour | Level,
        Deadline | datetime,
        tuple[int, Colour] | tuple[Status, int],
        list[Colour] | dict[str, Status],
        list[Colour] | list[Decimal],
        Literal["open"] | Colour,
        Any,
        list,
        "Colour",
    ],
)
def test_other_unions_are_no_riddle(annotation: Any) -> None:
    """Each stored value has one answer."""
    assert ambiguous(annotation) == ""
