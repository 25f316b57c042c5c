"""Orders, and the rows that their jobs write."""

from __future__ import annotations

from typing import Self

from django.db import models

from django_jobs import clock


class OrderQuerySet(models.QuerySet["Order"]):
    """What a reader asks of orders."""

    def decided(self) -> Self:
        """Orders that are paid or declined."""
        return self.exclude(status=Order.Status.PLACED)


class Order(models.Model):
    """One order of one customer, paid by card."""

    class Status(models.TextChoices):
        """Where an order stands."""

        PLACED = "placed"
        PAID = "paid"
        DECLINED = "declined"

    number = models.CharField(max_length=32, unique=True)
    customer = models.CharField(max_length=200)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    currency = models.CharField(max_length=3, default="EUR")
    card = models.CharField(max_length=32)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PLACED)
    provider_ref = models.CharField(max_length=255, default="", blank=True)
    decline_reason = models.CharField(max_length=255, default="", blank=True)
    placed_at = models.DateTimeField(default=clock.now)
    paid_at = models.DateTimeField(null=True, blank=True)

    objects = OrderQuerySet.as_manager()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.number} ({self.status})"

    def mark_paid(self, provider_ref: str) -> None:
        """Note the payment and write its receipt; call it inside the transaction that ends the job."""
        self.status = self.Status.PAID
        self.provider_ref = provider_ref
        self.paid_at = clock.now()
        self.save(update_fields=["status", "provider_ref", "paid_at"])
        Receipt.objects.create(order=self, provider_ref=provider_ref, amount=self.amount, currency=self.currency)

    def mark_declined(self, reason: str) -> None:
        """Note that the provider refused the card."""
        self.status = self.Status.DECLINED
        self.decline_reason = reason[:255]
        self.save(update_fields=["status", "decline_reason"])


class Receipt(models.Model):
    """What the customer gets for a payment. Nothing here forbids a second one: if a job wrote twice, it would show."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="receipts")
    provider_ref = models.CharField(max_length=255)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    currency = models.CharField(max_length=3)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"receipt of {self.order_id}: {self.amount} {self.currency}"


class JournalEntry(models.Model):
    """One line about an order. Nothing here forbids the same line twice either."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="journal")
    text = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "journal entries"

    def __str__(self) -> str:
        return self.text
