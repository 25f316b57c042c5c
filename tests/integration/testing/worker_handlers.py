"""What a real worker of the kit runs."""

from __future__ import annotations

from django.contrib.auth.models import Group

from django_jobs import job


@job(type="kit.worker_row")
def worker_row(name: str) -> None:
    """Write one row together with the success."""
    Group.objects.create(name=name)
