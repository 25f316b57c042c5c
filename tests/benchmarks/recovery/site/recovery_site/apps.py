"""Loads the adapter once all apps are there, in workers and in the feeder alike."""

from __future__ import annotations

import importlib
import os

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """The app that declares the job."""

    name = "recovery_site"

    def ready(self) -> None:
        """Declare the job of this run's system."""
        importlib.import_module(os.environ["RECOVERY_ADAPTER"])
