"""django-tasks-db and django-ox: the same task of Django's own framework."""

from __future__ import annotations

from django.tasks import task

from recovery_site import work


@task
def effect(key: str) -> None:
    """The job."""
    work.perform(key, work.orm_row)


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""
    for key in keys:
        effect.enqueue(key)
