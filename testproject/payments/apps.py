"""The Django app of the payments provider's client side; it has no models."""

from __future__ import annotations

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    """Register the room, so that its `effects` and `jobs` modules can be discovered."""

    name = "testproject.payments"
    label = "payments"
    default_auto_field = "django.db.models.BigAutoField"
