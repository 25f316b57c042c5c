"""The shop's jobs: charge an order once, note in its journal that it was placed, and mail the receipt of a payment."""

from __future__ import annotations

from datetime import timedelta

import environ
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage

from django_jobs import Event, JobContext, RetryPolicy, job, publish, subscribe
from django_jobs.effects.adapters.mail import send_mail
from django_jobs.effects.adapters.mail_message import encode
from django_jobs.exceptions import EffectRejected
from testproject.payments.operations import charge
from testproject.shop.models import JournalEntry, Order

env = environ.Env()


def _seconds(name: str, default: float) -> timedelta:
    return timedelta(seconds=env.float(name, default=default))


@job(
    type="shop.charge_order",
    version=1,
    queue_name="payments",
    priority=10,
    key="order:{order_id}",
    key_ttl=timedelta(days=7),
    subject="order:{order_id}",
    owner="billing",
    budget=_seconds("SHOP_CHARGE_BUDGET", 30),
    cleanup=_seconds("SHOP_CHARGE_CLEANUP", 10),
    retry=RetryPolicy(
        base=_seconds("SHOP_RETRY_BASE", 5), transient_max_age=timedelta(hours=6), permanent=(Order.DoesNotExist,)
    ),
    takes_context=True,
)
def charge_order(context: JobContext, order_id: int) -> None:
    """Charge an order once and mark it paid with its receipt, or declined; both together with the job's success."""
    order = Order.objects.get(pk=order_id)
    try:
        receipt = context.effect(
            "charge",
            charge,
            key=f"order:{order.pk}",
            required=False,  # the job has done its work also when the card is declined
            order_id=order.pk,
            amount=order.amount,
            currency=order.currency,
        )
    except EffectRejected as declined:  # known not applied: a business result, not a dead letter
        with context.complete() as done:
            order.mark_declined(declined.reason)
            done.result = {"declined": declined.reason}
        return
    with context.complete() as done:
        order.mark_paid(receipt.provider_ref)
        publish(
            "shop.order.paid",
            {"order_id": order.pk, "number": order.number, "ref": receipt.provider_ref},
            ordering_key=f"order:{order.pk}",
            subject=f"order:{order.pk}",
        )
        done.result = {"ref": receipt.provider_ref}


@job(type="shop.note_order", subject="order:{order_id}", owner="shop")
def note_order(order_id: int) -> None:
    """Write one line into the journal, in one transaction with the job's success; an order names its customer."""
    order = Order.objects.get(pk=order_id)
    if not order.customer:
        raise ValidationError(f"Order {order.number} names no customer.")
    JournalEntry.objects.create(order=order, text="Order placed")


@subscribe("shop.order.paid", version=1, type="shop.send_receipt", owner="shop")
def send_receipt(context: JobContext, event: Event) -> None:
    """Mail the receipt of a paid order; a second mail does less harm than none, so an unclear one is sent again."""
    order = Order.objects.get(pk=event.data["order_id"])
    mail = EmailMessage(
        subject=f"Receipt for order {order.number}",
        body=f"Thank you. We have received {order.amount} {order.currency} (reference {event.data['ref']}).",
        to=[f"customer-{order.pk}@example.com"],
    )
    context.effect("receipt", send_mail, key=f"receipt:{event.id}", on_ambiguous="resend", message=encode(mail))
    with context.complete():
        pass
