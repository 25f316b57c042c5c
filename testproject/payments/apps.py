"""The payments provider as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    """The provider's side of the shop."""

    name = "testproject.payments"
    label = "payments"
    default_auto_field = "django.db.models.BigAutoField"
