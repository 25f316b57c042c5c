"""Jobs that charge orders at the payments provider; loaded by workers through ``JOBS_IMPORTS``."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django_jobs import JobContext, effect, job
from django_jobs.domain.effects import Outcome, Reconciliation
from testproject.payments import operations
from tests.acceptance.handlers import FAST, insert_row, take, tell

HOUR = timedelta(hours=1)
TIMEOUT = timedelta(seconds=3)
AMOUNT = Decimal("10.00")


@effect("soak.charge", dedupe="key", key_lifetime=HOUR, requires_key=True, timeout=TIMEOUT, settle=timedelta(seconds=0))
def charge(call: Any, *, order_id: int) -> Outcome:
    """Charge an order under its key."""
    return operations._charge(call, order_id=order_id, amount=AMOUNT, currency="EUR", key=call.key)


@charge.reconcile
def find_charge(call: Any, *, order_id: int) -> Reconciliation:
    """Ask for the order."""
    return operations._find(call, order_id=order_id)


# A request of a process that was killed may still lie in a socket: it is done or never by then, on a slow machine too.
@effect("soak.charge_asked", dedupe="none", timeout=TIMEOUT, settle=timedelta(seconds=5))
def charge_asked(call: Any, *, order_id: int) -> Outcome:
    """Charge without a key; the provider can be asked."""
    return operations._charge(call, order_id=order_id, amount=AMOUNT, currency="EUR", key=None)


@charge_asked.reconcile
def find_asked(call: Any, *, order_id: int) -> Reconciliation:
    """Ask for the order, which is charged once at most."""
    return operations._find(call, order_id=order_id)


@effect("soak.charge_blind", dedupe="none", timeout=TIMEOUT)
def charge_blind(call: Any, *, order_id: int) -> Outcome:
    """Charge without a key at a provider that cannot be asked."""
    return operations._charge(call, order_id=order_id, amount=AMOUNT, currency="EUR", key=None)


def _pay(context: JobContext, n: int, seconds: float, operation: Any) -> None:
    tell("start", n, number=context.attempt)
    take(seconds / 2)
    context.effect("charge", operation, key=f"order:{n}", order_id=n)
    take(seconds / 2)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="soak.keyed", retry=FAST, takes_context=True)
def keyed(context: JobContext, n: int, seconds: float) -> None:
    """A provider with keys."""
    _pay(context, n, seconds, charge)


@job(type="soak.asked", retry=FAST, takes_context=True)
def asked(context: JobContext, n: int, seconds: float) -> None:
    """A provider without keys that can be asked."""
    _pay(context, n, seconds, charge_asked)


@job(type="soak.blind", retry=FAST, takes_context=True)
def blind(context: JobContext, n: int, seconds: float) -> None:
    """A provider without keys that cannot be asked."""
    _pay(context, n, seconds, charge_blind)


@job(type="soak.plain", retry=FAST)
def plain(n: int, seconds: float) -> None:
    """No provider: a row in one transaction with the success."""
    tell("start", n)
    insert_row(n)
    take(seconds)
    tell("end", n)
