"""Upcasters: which are refused, and what becomes of arguments of older versions."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError

from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.upcasting import checked_upcasters, upcast
from django_jobs.exceptions import DefinitionError, PayloadError, SoftTimeoutError, TransientError


def cents(arguments: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had euros."""
    return {"cents": arguments["euros"] * 100}


def currency(arguments: dict[str, Any]) -> dict[str, Any]:
    """Version 2 knew no currency."""
    return {**arguments, "currency": "EUR"}


def test_arguments_go_through_every_version() -> None:
    """Each upcaster makes the arguments of the next version, and what was given stays as it is."""
    stored = {"euros": 3}
    known = checked_upcasters("shop.charge", 3, {2: currency, 1: cents})
    assert list(known) == [1, 2]
    assert upcast("shop.charge", known, stored, since=1, version=3) == {"cents": 300, "currency": "EUR"}
    assert upcast("shop.charge", known, {"cents": 5}, since=2, version=3) == {"cents": 5, "currency": "EUR"}
    assert stored == {"euros": 3}


@pytest.mark.parametrize(
    ("version", "given", "why"),
    [
        (1, {1: cents}, "reads a version from 1 to 0"),
        (3, {3: cents}, "reads a version from 1 to 2"),
        (3, {0: cents}, "reads a version from 1 to 2"),
        (3, {True: cents}, "reads a version from 1 to 2"),
        (3, {"1": cents}, "reads a version from 1 to 2"),
        (3, {1: cents}, "version 2 has no upcaster"),
        (2, {1: "cents"}, "must be a function"),
        (2, [cents], "must be a dict"),
    ],
)
def test_upcasters_that_cannot_work_are_refused(version: int, given: Any, why: str) -> None:
    """A gap or a wrong version is found when the job type is declared."""
    with pytest.raises(DefinitionError, match=why):
        checked_upcasters("shop.charge", version, given)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda arguments: arguments["nothing"], "for version 1 failed: KeyError: 'nothing'"),
        (lambda _: None, "returned no dict of arguments but NoneType"),
        (lambda _: {1: 2}, "returned no dict of arguments but dict"),
    ],
)
def test_failures_of_an_upcaster_name_it(function: Any, why: str) -> None:
    """An operator reads which upcaster failed, and of which version."""
    with pytest.raises(PayloadError, match=why):
        upcast("shop.charge", {1: function}, {}, since=1, version=2)
    with pytest.raises(PayloadError, match="no upcaster for version 1"):
        upcast("shop.charge", {}, {}, since=1, version=2)


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("server closed the connection"),
        InterfaceError("connection already closed"),
        TransientError("later"),
        TimeoutError(),
        ConnectionResetError(),
        SoftTimeoutError(),
        ExceptionGroup("both", [OperationalError(), TimeoutError()]),
    ],
)
def test_outage_in_an_upcaster_is_no_fault_of_the_arguments(error: Exception) -> None:
    """An error that is worth another try stays what it is, so that no outage dead-letters a queue."""

    def ask(arguments: dict[str, Any]) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)) as raised:
        upcast("shop.charge", {1: ask}, {}, since=1, version=2)
    assert raised.value is error


@pytest.mark.parametrize("error", [DataError("too long"), PayloadError("wrong"), KeyError("x"), RuntimeError()])
def test_other_error_of_an_upcaster_says_that_the_arguments_are_wrong(error: Exception) -> None:
    """Trying again would not mend them."""

    def ask(arguments: dict[str, Any]) -> dict[str, Any]:
        raise error

    with pytest.raises(PayloadError, match=r"upcaster of shop\.charge for version 1 failed"):
        upcast("shop.charge", {1: ask}, {}, since=1, version=2)


def test_policy_of_the_job_type_says_what_is_worth_another_try() -> None:
    """It is asked first, as for errors of the handler."""

    def ask(arguments: dict[str, Any]) -> dict[str, Any]:
        raise LookupError

    with pytest.raises(LookupError):
        upcast("shop.charge", {1: ask}, {}, since=1, version=2, retry=RetryPolicy(transient=(LookupError,)))
