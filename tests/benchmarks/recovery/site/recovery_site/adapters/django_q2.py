"""django-q2: a function named by its path."""

from __future__ import annotations

from django_q.tasks import async_task

from recovery_site import work


def effect(key: str) -> None:
    """The job."""
    work.perform(key, work.orm_row)


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""
    for key in keys:
        async_task("recovery_site.adapters.django_q2.effect", key)
