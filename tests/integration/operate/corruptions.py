"""What may be done to rows past all constraints, and who registers a corruption for an invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connection, models

from django_jobs.models import Attempt, Job
from tests.integration.operate.stories import Story

Corruption = Callable[[], set[Any]]
CORRUPTIONS: dict[str, list[Corruption]] = {}


def corrupts(name: str) -> Callable[[Corruption], Corruption]:
    """Register a corruption for an invariant; it returns the ids that must be named."""

    def register(function: Corruption) -> Corruption:
        CORRUPTIONS.setdefault(name, []).append(function)
        return function

    return register


def unguard(*tables: type[models.Model]) -> None:
    """Rebuild tables without their constraints, as a broken index or a careless hand would leave them."""
    with connection.cursor() as cursor:
        for model in tables:
            table = model._meta.db_table
            cursor.execute(f"CREATE TABLE bare_copy AS SELECT * FROM {table}")
            cursor.execute(f"DROP TABLE {table}")
            cursor.execute(f"ALTER TABLE bare_copy RENAME TO {table}")


def set_job(story: Story, **columns: Any) -> set[Any]:
    """Change columns of a job past all constraints; returns its id."""
    unguard(Job)
    assert Job.objects.filter(pk=story.job.pk).update(**columns) == 1
    return {story.job.pk}


def set_last(story: Story, **columns: Any) -> Attempt:
    """Change columns of the newest attempt past all constraints."""
    unguard(Attempt)
    attempt = story.last
    assert Attempt.objects.filter(pk=attempt.pk).update(**columns) == 1
    return attempt
