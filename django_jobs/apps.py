"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig


class DjangoJobsConfig(AppConfig):
    """Registers checks and finds the job types of the installed apps."""

    name = "django_jobs"
    label = "django_jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every app's ``jobs`` module, so that the registry is complete before the first request."""
        from django_jobs.define.registry import autodiscover

        autodiscover()
