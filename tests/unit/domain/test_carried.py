"""What a job carries: one canonical object, bounded, and an error that names who made it too large."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from django_jobs.domain.canonical import canonical
from django_jobs.domain.carried import carried_text, carried_values
from django_jobs.exceptions import HookError, PayloadError


def text(values: dict[str, Any], *, max_bytes: int = 4096) -> str | None:
    """Write values with the default bounds."""
    return carried_text(values, max_bytes=max_bytes, max_depth=20)


def test_values_make_one_canonical_object() -> None:
    """The text does not depend on the order of the propagators, and what JSON lacks is written as in arguments."""
    user = uuid.UUID(int=7)

    one = text({"user": user, "language": "de", "tenant": {"b": 2, "a": "é"}})
    other = text({"tenant": {"a": "é", "b": 2}, "user": str(user), "language": "de"})

    assert one == other == canonical({"language": "de", "tenant": {"a": "é", "b": 2}, "user": user})
    assert one == f'{{"language":"de","tenant":{{"a":"é","b":2}},"user":"{user}"}}'
    assert carried_values(one) == {"language": "de", "tenant": {"a": "é", "b": 2}, "user": str(user)}


@pytest.mark.parametrize("values", [{}, {"language": None}, {"language": None, "tenant": None}])
def test_nothing_is_no_text(values: dict[str, Any]) -> None:
    """None means nothing; a job that carries nothing has no text at all."""
    assert text(values) is None
    assert carried_values(None) == {}


@pytest.mark.parametrize("value", [False, 0, "", [], {}])
def test_what_is_empty_is_carried(value: Any) -> None:
    """Only None means nothing."""
    assert carried_values(text({"tenant": value, "user": None})) == {"tenant": value}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "tenant is of type object"),
        ({"id": {1, 2}}, "tenant.id is of type set"),
        (2**60, "tenant is beyond"),
        ("\x00", "tenant has a NUL"),
        ("x" * 70_000, "70013 bytes"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(value: Any, said: str) -> None:
    """The message names the propagator and the place, never the value."""
    with pytest.raises(HookError) as caught:
        text({"language": "de", "tenant": value})

    assert caught.value.hook == "tenant"
    assert "propagator 'tenant'" in str(caught.value)
    assert said in str(caught.value)
    assert "xxxx" not in str(caught.value)


def test_deep_values_are_refused() -> None:
    """A value may be as deep as a payload; it stands one level below the whole."""
    fits: Any = "x"
    for _ in range(20):
        fits = [fits]

    assert text({"tenant": fits})
    with pytest.raises(HookError, match="nested deeper"):
        text({"tenant": [fits]})


def test_the_largest_is_named_when_all_are_too_large() -> None:
    """The bound holds for the whole in bytes, exactly, and the error says who takes most of it."""
    values = {"language": "de", "tenant": "é" * 20, "user": 7}
    size = len((text(values) or "").encode())

    assert text(values, max_bytes=size)
    with pytest.raises(HookError, match=rf"{size} bytes, more than CONTEXT_MAX_BYTES \({size - 1}\)") as caught:
        text(values, max_bytes=size - 1)
    assert caught.value.hook == "tenant"


@pytest.mark.parametrize("stored", ["", "{", "[]", '"de"', "null", "[" * 100_000])
def test_other_texts_are_no_context(stored: str) -> None:
    """What no producer stores is an error of the payload, whatever it is."""
    with pytest.raises(PayloadError, match="stored context"):
        carried_values(stored)
