"""The producer: an order and the jobs about it are written in one transaction, as a shop's view would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from django_jobs import EnqueueResult
from django_jobs.exceptions import IdempotencyConflictError
from testproject.demo.plan import OrderRow
from testproject.shop.jobs import charge_order, note_order
from testproject.shop.models import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A placed order and the job that charges it."""

    order: Order
    job: EnqueueResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The answer to a payload that was sent a second time."""

    number: str
    first: UUID
    second: UUID
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer to a key that was used with another payload; `holder` is the job named by the error, if one came."""

    key: str
    other_order: int
    first: UUID
    holder: object
    stored: bool


def place(
    row: OrderRow, *, priority: int | None = None, before_commit: Callable[[Order], None] | None = None
) -> Placed:
    """
    Write the order and enqueue its charge and its journal line; a `priority` lets the charge go first.

    `before_commit` is called when the order has its number and nobody else can see it yet.
    """
    charging = charge_order if priority is None else charge_order.using(priority=priority)
    with transaction.atomic():
        order = Order.objects.create(
            number=row.number, customer=row.customer, amount=row.amount, currency=row.currency, card=row.card
        )
        job = charging.enqueue(order_id=order.pk)
        note_order.enqueue(order_id=order.pk)
        if before_commit is not None:
            before_commit(order)
    return Placed(order=order, job=job)


def send_again(placed: Placed) -> Repeat:
    """Enqueue the same payload once more, as a client that lost the answer does."""
    with transaction.atomic():
        again = charge_order.enqueue(order_id=placed.order.pk)
    return Repeat(number=placed.order.number, first=placed.job.id, second=again.id, outcome=again.outcome)


def reuse_key(placed: Placed, *, other: Order) -> Refusal:
    """Enqueue another order's charge under the key of this one, as a broken client does."""
    key = f"order:{placed.order.pk}"
    holder: object = None
    stored = True
    try:
        with transaction.atomic():
            charge_order.using(key=key).enqueue(order_id=other.pk)
    except IdempotencyConflictError as error:
        holder, stored = error.job_id, False
    return Refusal(key=key, other_order=other.pk, first=placed.job.id, holder=holder, stored=stored)
