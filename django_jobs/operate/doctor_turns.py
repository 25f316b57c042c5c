"""Looks at serial keys: dead letters behind which other jobs wait."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.models import Job
from django_jobs.operate.finding import Finding, Look, Surroundings, some, warning

MOST = 20


def turn_looks() -> tuple[Look, ...]:
    """Return the looks at serial keys."""
    return (_blocked,)


def _blocked(around: Surroundings) -> Iterator[Finding]:
    jobs = Job.objects.using(around.using)
    dead = jobs.dead().exclude(serial_key="").filter(serial_skips=False).order_by("pk")[:MOST]
    waiting = jobs.filter(state__in=["scheduled", "queued", "failed"], available_at__lte=around.now)
    told = []
    for job in dead:
        many = waiting.filter(serial_key=job.serial_key).exclude(serial_key="").count()
        if many:
            told.append(f"{job.serial_key} ({many} behind {job.pk})")
    if told:
        yield warning(
            "serial-key-blocked",
            f"Jobs wait behind dead letters of their serial keys: {some(told)}.",
            "Replay or discard the dead letters; types that may go on without them declare serial_on_dead='skip'.",
        )
