"""The payments provider as operations of jobs: with its keys, without keys, and as if it could not even be asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django_jobs import Confirmed, Rejected, Unknown, effect
from django_jobs.domain.effects import Outcome, Reconciliation, Verdict
from django_jobs.domain.retry_after import parse_retry_after
from django_jobs.effects.call import EffectCall
from testproject.payments.client import Answer, LookupFailed, MaybeSent, NotSent, configured_client

TIMEOUT = timedelta(seconds=5)
DOCS = "testproject/payments/server.py"


@effect(
    "payments.charge",
    dedupe="key",
    key_lifetime=timedelta(hours=24),
    requires_key=True,
    caches_failures=True,
    timeout=TIMEOUT,
    settle=timedelta(seconds=30),
    owner="billing",
    docs=DOCS,
)
def charge(call: EffectCall, *, order_id: int, amount: Decimal, currency: str = "EUR") -> Outcome:
    """Charge an order's card once; the provider remembers the key for a day, rejections included."""
    return _charge(call, order_id=order_id, amount=amount, currency=currency, key=call.key)


@charge.reconcile
def find_charge(call: EffectCall, *, order_id: int, **_rest: object) -> Reconciliation:
    """Ask by the operation that was sent with the charge; the order alone could have been charged by others.

    A decline counts only under the key in question: one under an earlier key says nothing about this request.
    """
    return _find(call, order_id=order_id, operation=call.operation_id, key=call.key)


@charge.compensation
def refund(call: EffectCall, confirmed: Confirmed, **_request: object) -> Outcome:
    """Refund the charge as a whole, once; the provider's keys work for refunds as they do for charges."""
    call.check_deadline()
    return _answered(
        lambda: configured_client().refund(
            charge=confirmed.provider_ref, key=call.key, operation=call.operation_id, timeout=call.remaining
        )
    )


@refund.reconcile
def find_refund(call: EffectCall, confirmed: Confirmed, **_request: object) -> Reconciliation:
    """Ask by the charge and the operation: a refund that somebody made by hand is not ours."""
    return _looked_up(
        lambda: configured_client().find_refunds(
            charge=confirmed.provider_ref, operation=call.operation_id, timeout=call.remaining
        ),
        key=call.key,
    )


@effect("payments.charge_without_key", dedupe="none", timeout=TIMEOUT, owner="billing", docs=DOCS)
def charge_without_key(call: EffectCall, *, order_id: int, amount: Decimal, currency: str = "EUR") -> Outcome:
    """Charge without an idempotency key: a second request is a second charge, but the provider can be asked."""
    return _charge(call, order_id=order_id, amount=amount, currency=currency, key=None)


@charge_without_key.reconcile
def find_charge_without_key(call: EffectCall, *, order_id: int, **_rest: object) -> Reconciliation:
    """Ask by the order, which is charged once at most."""
    return _find(call, order_id=order_id)


@effect("payments.charge_blind", dedupe="none", timeout=TIMEOUT, owner="billing", docs=DOCS)
def charge_blind(call: EffectCall, *, order_id: int, amount: Decimal, currency: str = "EUR") -> Outcome:
    """Charge without a key at a provider that cannot be asked: what is unclear is for a human."""
    return _charge(call, order_id=order_id, amount=amount, currency=currency, key=None)


def _charge(call: EffectCall, *, order_id: int, amount: Decimal, currency: str, key: str | None) -> Outcome:
    call.check_deadline()
    return _answered(
        lambda: configured_client().charge(
            order_id=order_id,
            amount=amount,
            currency=currency,
            key=key,
            operation=call.operation_id,
            timeout=call.remaining,
        )
    )


def _answered(request: Callable[[], Answer]) -> Outcome:
    try:
        answer = request()
    except NotSent as error:
        return Rejected(f"not sent: {error}", permanent=False, key_is_burnt=False)
    except MaybeSent as error:
        return Unknown(str(error))
    return _outcome(answer)


def _outcome(answer: Answer) -> Outcome:
    if answer.status in (200, 201) and isinstance(answer.json, dict) and "id" in answer.json:
        return Confirmed(
            str(answer.json["id"]),
            provider_request_id=answer.request_id,
            status=answer.status,
            replayed=answer.replayed,
            result=answer.json,
        )
    if answer.status == 402:  # declined: remembered under the key, so that only another key can bring another answer
        return Rejected(_code(answer), permanent=True, key_is_burnt=True, **_request(answer))
    if answer.status == 429:  # refused before the key was looked at
        wish = parse_retry_after(answer.headers.get("retry-after", ""), now=datetime.now(UTC))
        return Rejected(_code(answer), permanent=False, key_is_burnt=False, retry_after=wish, **_request(answer))
    if answer.status in (400, 404, 422):
        return Rejected(_code(answer), permanent=True, key_is_burnt=False, **_request(answer))
    return Unknown(f"answered {answer.status}: {_code(answer)}", **_request(answer))


def _request(answer: Answer) -> dict[str, Any]:
    return {"provider_request_id": answer.request_id, "status": answer.status}


def _code(answer: Answer) -> str:
    error = answer.json.get("error") if isinstance(answer.json, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return str(code or f"status {answer.status}")


def _find(call: EffectCall, *, order_id: int, operation: str | None = None, key: str | None = None) -> Reconciliation:
    return _looked_up(
        lambda: configured_client().find(order_id=order_id, operation=operation, timeout=call.remaining), key=key
    )


def _looked_up(question: Callable[[], list[dict[str, Any]]], *, key: str | None) -> Reconciliation:
    try:
        found = question()
    except (NotSent, MaybeSent, LookupFailed) as error:
        return Reconciliation(Verdict.UNAVAILABLE, evidence={"error": str(error)})
    for movement in found:
        if movement["status"] == "succeeded":
            return Reconciliation(Verdict.SUCCEEDED, provider_ref=movement["id"], evidence={"found": found})
    declined = [movement for movement in found if key is None or movement["key"] == key]
    if declined:
        return Reconciliation(Verdict.FAILED, provider_ref=declined[-1]["id"], evidence={"found": found})
    return Reconciliation(Verdict.NOT_FOUND, evidence={"found": found})
