"""The shop as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Orders that are charged once."""

    name = "testproject.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
