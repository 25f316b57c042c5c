"""The jobs that the benchmark drains."""

from __future__ import annotations

from django.contrib.auth.models import Group

from django_jobs import job


@job(type="bench.noop")
def noop(number: int) -> None:
    """Do nothing."""


@job(type="bench.insert")
def insert(number: int) -> None:
    """Insert one row through the ORM, committed with the success."""
    Group.objects.create(name=f"bench {number}")
