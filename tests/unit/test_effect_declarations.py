"""Declarations of operations: what is accepted, and what is refused with which mend."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_jobs import Confirmed, RetryPolicy, effect
from django_jobs.domain.effects import Dedupe, Guarantees, Outcome, Verdict
from django_jobs.effects.adapter import declared_effects, effect_named, resolve
from django_jobs.exceptions import DefinitionError


def plain(call: Any, *, order_id: int, amount: Decimal = Decimal("1.00")) -> Outcome:
    """Do nothing and confirm it."""
    return Confirmed("x")


def declare(**changes: Any) -> Any:
    """Declare the plain function, with changes."""
    return effect(**({"name": "decl.plain", "dedupe": "none"} | changes))(plain)


def test_declaration_says_what_was_declared() -> None:
    """All that was declared can be read, and the provider is the name up to its first dot."""
    operation = declare(requires_key=True, owner="billing", timeout=timedelta(seconds=3))

    assert (operation.name, operation.provider) == ("decl.plain", "decl")
    assert operation.guarantees == Guarantees(dedupe=Dedupe.NONE)
    declared = resolve(operation)
    assert (declared.requires_key, declared.owner, declared.timeout) == (True, "billing", timedelta(seconds=3))
    assert declared_effects()["decl.plain"] is operation


def test_operation_can_be_called_in_tests() -> None:
    """Called directly it is the plain function."""
    assert declare()(None, order_id=7) == Confirmed("x")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "name"),
        ({"name": "chargé"}, "printable ASCII"),
        ({"name": 7}, "name"),
        ({"provider": "x" * 201}, "provider"),
        ({"dedupe": "maybe"}, "dedupe"),
        ({"dedupe": "key"}, "key_lifetime"),
        ({"dedupe": "none", "key_lifetime": timedelta(hours=1)}, "key_lifetime"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": 10}, "timeout"),
        ({"retry": 3}, "RetryPolicy"),
        ({"owner": "x" * 101}, "owner"),
        ({"key_alphabet": "klingon"}, "key_alphabet"),
        ({"key_max_length": 8}, "too short"),
        ({"settle": timedelta(seconds=-1)}, "settle"),
    ],
)
def test_wrong_declaration_is_refused(changes: dict[str, Any], said: str) -> None:
    """A declaration that cannot work is refused where it stands, and the message names what is wrong."""
    with pytest.raises(DefinitionError, match=said):
        declare(**changes)


async def asynchronous(call: Any) -> Outcome:
    """Be a coroutine."""
    return Confirmed("x")


def positional(call: Any, *lines: int) -> Outcome:
    """Take what has no name."""
    return Confirmed("x")


def without_call(order_id: int) -> Outcome:
    """Forget the call."""
    return Confirmed("x")


def with_key(call: Any, *, key: str) -> Outcome:
    """Take a name that is taken."""
    return Confirmed("x")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (asynchronous, "async"),
        (positional, "lines"),
        (without_call, "call"),
        (with_key, "key"),
        (Confirmed, "plain function"),
    ],
)
def test_wrong_function_is_refused(function: Callable[..., Any], said: str) -> None:
    """A function that cannot be called with a stored request is refused."""
    with pytest.raises(DefinitionError, match=said):
        effect("decl.wrong", dedupe="none")(function)


def test_name_that_is_taken_is_refused() -> None:
    """Two functions under one name would share their effects."""
    declare()

    def other(call: Any) -> Outcome:
        return Confirmed("x")

    with pytest.raises(DefinitionError, match="declared twice"):
        effect("decl.plain", dedupe="none")(other)


def test_former_name_belongs_to_one_operation() -> None:
    """It is found by each of its names, and no other function may have one of them."""
    operation = effect("decl.new", dedupe="none", aliases=["decl.former"])(_sent)

    def other(call: Any) -> Outcome:
        return Confirmed("x")

    assert effect_named("decl.former") is effect_named("decl.new") is operation
    assert effect_named("decl.none") is None
    for names in ({"name": "decl.former"}, {"name": "decl.other", "aliases": ["decl.new"]}):
        with pytest.raises(DefinitionError, match="former name"):
            effect(dedupe="none", **names)(other)  # type: ignore[arg-type]


@pytest.mark.parametrize("aliases", ["decl.former", 5, [""], [7]])
def test_former_names_that_are_none_are_refused(aliases: Any) -> None:
    """They are a list of names."""
    with pytest.raises(DefinitionError):
        effect("decl.new", dedupe="none", aliases=aliases)(_sent)


def _sent(call: Any) -> Outcome:
    return Confirmed("x")


def test_reconcile_makes_the_provider_askable() -> None:
    """Declaring how to ask says that the provider can be asked."""
    operation = declare()

    @operation.reconcile
    def find(call: Any, *, order_id: int, amount: Decimal) -> Verdict:
        return Verdict.PENDING

    assert operation.guarantees.can_reconcile
    assert resolve(operation).ask is find
    with pytest.raises(DefinitionError, match="twice"):
        operation.reconcile(find)


def test_reconcile_with_other_parameters_is_refused() -> None:
    """The question is asked with the request's values, so it must take them."""
    operation = declare()

    def find(call: Any, *, number: int) -> Verdict:
        return Verdict.PENDING

    with pytest.raises(DefinitionError, match="same parameters"):
        operation.reconcile(find)


def test_bare_function_is_refused_with_the_decorator() -> None:
    """A bare function says nothing about repetitions; the message shows how to declare it."""
    with pytest.raises(DefinitionError, match=r'@effect\("plain", dedupe="none"\)'):
        resolve(plain)


def test_object_with_the_protocol_is_accepted() -> None:
    """A name, guarantees and send() are enough; the rest has defaults."""

    class Adapter:
        name = "crm.create"
        guarantees = Guarantees(dedupe=Dedupe.NATURAL)
        retry = RetryPolicy()

        def send(self, call: Any, **request: Any) -> Outcome:
            return Confirmed("x")

    found = resolve(Adapter())

    assert (found.name, found.provider, found.timeout) == ("crm.create", "crm", timedelta(seconds=10))
    assert (found.ask, found.requires_key) == (None, False)


@pytest.mark.parametrize("guarantees", [None, Guarantees(dedupe=Dedupe.NONE, can_reconcile=True)])
def test_object_without_the_protocol_is_refused(guarantees: Any) -> None:
    """Without guarantees, or with a promise that no method keeps, an object is no operation."""

    class Adapter:
        name = "crm.create"

        def send(self, call: Any) -> Outcome:
            return Confirmed("x")

    adapter = Adapter()
    adapter.guarantees = guarantees  # type: ignore[attr-defined]

    with pytest.raises(DefinitionError):
        resolve(adapter)
    with pytest.raises(DefinitionError):
        resolve("charge")


def test_request_is_bound_with_its_defaults() -> None:
    """What is stored is whole: a default that changes later changes no stored request."""
    declared = resolve(declare())

    assert declared.bind({"order_id": 7}) == {"order_id": 7, "amount": Decimal("1.00")}
    assert declared.restored({"order_id": 7, "amount": "2.50"}) == {"order_id": 7, "amount": Decimal("2.50")}
    with pytest.raises(DefinitionError, match="order_id"):
        declared.bind({})
    with pytest.raises(DefinitionError, match="surprise"):
        declared.bind({"order_id": 7, "surprise": 1})
