"""Declarations of what takes an operation back: what is taken over, and what is refused with which mend."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_jobs import Confirmed, RetryPolicy, effect
from django_jobs.domain.effects import Dedupe, Outcome, Verdict
from django_jobs.effects.adapter import EffectOperation, declared_effects
from django_jobs.effects.receipts import receipt_as_request, receipt_from
from django_jobs.exceptions import DefinitionError, PayloadError

DAY = timedelta(hours=24)


def pay(call: Any, *, order_id: int, amount: Decimal = Decimal("1.00")) -> Outcome:
    """Confirm."""
    return Confirmed("ch_1")


def give_back(call: Any, confirmed: Confirmed, *, order_id: int, amount: Decimal) -> Outcome:
    """Confirm."""
    return Confirmed(f"re of {confirmed.provider_ref}")


def operation() -> EffectOperation:
    """A fresh charge with keys."""
    return effect("back.pay", dedupe="key", key_lifetime=DAY, requires_key=True, owner="billing", settle=DAY)(pay)


def test_bare_declaration_takes_the_promise_over() -> None:
    """The provider promises the same; only whether it can be asked has to be declared anew."""
    charge = operation()
    charge.reconcile(lambda_like_pay)
    refund = charge.compensation(give_back)

    assert charge.taken_back_by is refund
    assert (refund.name, refund.provider) == ("back.pay.compensation", "back")
    promise = refund.declared
    assert (promise.guarantees.key_lifetime, promise.guarantees.settle, promise.owner) == (DAY, DAY, "billing")
    assert (promise.requires_key, promise.compensates, promise.ask) == (True, "back.pay", None)
    assert promise.guarantees.can_reconcile is False
    assert declared_effects()["back.pay"].taken_back_by is refund


def lambda_like_pay(call: Any, *, order_id: int, amount: Decimal) -> Verdict:
    """Not found."""
    return Verdict.NOT_FOUND


def test_declaration_with_its_own_promise() -> None:
    """What is said counts; a key's lifetime goes with the keys."""
    refund = operation().compensation(
        dedupe="none", timeout=timedelta(seconds=3), owner="refunds", retry=RetryPolicy(), settle=timedelta(0)
    )(give_back)

    assert (refund.guarantees.dedupe, refund.guarantees.key_lifetime) == (Dedupe.NONE, None)
    assert (refund.declared.timeout, refund.declared.owner) == (timedelta(seconds=3), "refunds")


def test_compensation_can_be_asked_about() -> None:
    """Its own reconcile takes the receipt too."""
    refund = operation().compensation(give_back)

    @refund.reconcile
    def find(call: Any, confirmed: Confirmed, **request: Any) -> Verdict:
        """Not found."""
        return Verdict.NOT_FOUND

    assert refund.guarantees.can_reconcile
    assert refund.declared.ask is find


def test_compensation_can_be_called_in_tests() -> None:
    """Called directly it is the plain function."""
    refund = operation().compensation(give_back)

    assert refund(None, Confirmed("ch_1"), order_id=7, amount=Decimal(1)) == Confirmed("re of ch_1")


def test_stored_request_is_restored_by_its_annotations_and_its_receipt() -> None:
    """Amounts are decimals again, and the receipt is a confirmed outcome."""
    declared = operation().compensation(give_back).declared
    receipt = Confirmed("ch_1", provider_request_id="req_1", status=201, result={"id": "ch_1"})
    bound = declared.bind({"order_id": 7, "amount": "12.50", "confirmed": receipt_as_request(receipt)})

    found = declared.restored(bound)

    assert (found["order_id"], found["amount"]) == (7, Decimal("12.50"))
    assert found["confirmed"] == Confirmed("ch_1", provider_request_id="req_1", replayed=True, result={"id": "ch_1"})


@pytest.mark.parametrize("stored", [None, "ch_1", {}, {"provider_ref": 7}])
def test_request_without_a_receipt_is_refused(stored: object) -> None:
    """A handler that asks for a compensation as if it were an effect of its own learns why it cannot."""
    with pytest.raises(PayloadError, match="not by a handler"):
        receipt_from(stored)


async def asynchronous(call: Any, confirmed: Confirmed, **request: Any) -> Outcome:
    """Be a coroutine."""
    return Confirmed("x")


def without_receipt(call: Any, *, order_id: int, amount: Decimal) -> Outcome:
    """Forget the receipt."""
    return Confirmed("x")


def without_call(confirmed: Confirmed, *, order_id: int, amount: Decimal) -> Outcome:
    """Forget the call."""
    return Confirmed("x")


def with_less(call: Any, confirmed: Confirmed, *, order_id: int) -> Outcome:
    """Forget the amount."""
    return Confirmed("x")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (asynchronous, "async"),
        (without_receipt, "'confirmed'"),
        (without_call, "'call'"),
        (with_less, "same parameters"),
        ("refund", "plain function"),
    ],
)
def test_function_that_cannot_take_back_is_refused(function: Any, said: str) -> None:
    """Refused where it stands, and the message names what is wrong."""
    with pytest.raises(DefinitionError, match=said):
        operation().compensation(function)


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        ({"name": "refund"}, "no option 'name'"),
        ({"can_reconcile": True}, "no option 'can_reconcile'"),
        ({"key_lifetime": DAY}, 'dedupe="key"'),
        ({"dedupe": "key"}, "key_lifetime"),
        ({"dedupe": "none", "key_lifetime": DAY}, "key_lifetime"),
        ({"dedupe": "maybe"}, "dedupe"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"retry": 3}, "RetryPolicy"),
        ({"owner": "x" * 101}, "owner"),
        ({"key_max_length": 8}, "too short"),
    ],
)
def test_promise_that_cannot_be_kept_is_refused(promised: dict[str, Any], said: str) -> None:
    """As with ``@effect``."""
    with pytest.raises(DefinitionError, match=said):
        operation().compensation(**promised)(give_back)


def test_second_compensation_and_one_of_a_compensation_are_refused() -> None:
    """One per operation, and none of a compensation."""
    charge = operation()
    refund = charge.compensation(give_back)

    def other(call: Any, confirmed: Confirmed, **request: Any) -> Outcome:
        return Confirmed("x")

    with pytest.raises(DefinitionError, match="declared twice"):
        charge.compensation(other)
    with pytest.raises(DefinitionError, match="no compensation of a compensation"):
        refund.compensation(other)


def test_operation_with_a_parameter_of_that_name_is_refused() -> None:
    """The receipt would take its place."""

    def confusing(call: Any, *, confirmed: bool) -> Outcome:
        return Confirmed("x")

    charge = effect("back.confusing", dedupe="none")(confusing)

    with pytest.raises(DefinitionError, match="rename that one"):
        charge.compensation(lambda_with_rest)


def lambda_with_rest(call: Any, confirmed: Confirmed, **rest: Any) -> Outcome:
    """Confirm."""
    return Confirmed("x")


def test_question_without_the_receipt_is_refused() -> None:
    """What is asked about a compensation gets the receipt too."""
    refund = operation().compensation(lambda_with_rest)

    with pytest.raises(DefinitionError, match="'confirmed'"):

        @refund.reconcile
        def find(call: Any, **request: Any) -> Verdict:
            return Verdict.NOT_FOUND
