"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings


class DjangoJobsConfig(AppConfig):
    """Registers checks, begins to observe, and finds the job types of the installed apps."""

    name = "django_jobs"
    label = "django_jobs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, begin to observe, and import every app's ``jobs`` module: a request finds all job types.

        With wrong settings nothing is imported: the checks then say what is wrong, and so does every ``@job``.
        """
        from django_jobs import checks
        from django_jobs.conf import problems
        from django_jobs.define.django_task import durable_aliases
        from django_jobs.define.registry import autodiscover
        from django_jobs.observe.start import start

        checks.register()
        start()
        is_right = not problems(getattr(settings, "DJANGO_JOBS", {}))
        if is_right:
            autodiscover()
        if durable_aliases():
            from django_jobs.backends.task_declared import adopt_all, declare_all
            from django_jobs.backends.task_signals import connect

            if is_right:
                declare_all()
                adopt_all()
            connect()
