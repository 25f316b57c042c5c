"""The breaker of each destination: while it is open nobody claims, then one dispatcher at a time tries."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F

from django_jobs import telemetry
from django_jobs.models import Destination
from django_jobs.store.brief import briefly
from django_jobs.store.times import read_now

ERROR_LIMIT = 2000


def note_down(name: str, *, pause: timedelta, seen: int, error: str, using: str) -> int:
    """Open the breaker for ``pause`` after another failure of the destination itself.

    Dispatchers that meet one outage together count it once: only who saw the present number of failures raises it.

    Returns:
        The failures in a row.
    """
    text = error.replace("\x00", "").encode("utf-8", "replace").decode()[:ERROR_LIMIT]
    with briefly(using):
        now = read_now(using)
        rows = Destination.objects.using(using)
        rows.bulk_create([Destination(name=name, failures=0, changed_at=now)], ignore_conflicts=True)
        raised = rows.filter(name=name, failures=seen).update(
            failures=F("failures") + 1, open_until=now + pause, last_error=text, changed_at=now
        )
    if raised:
        telemetry.emit("destination.down", destination=name, failures=seen + 1, pause=pause.total_seconds())
    return seen + bool(raised)


def note_up(name: str, *, using: str) -> None:
    """Close the breaker: the destination answered."""
    rows = Destination.objects.using(using).filter(name=name, failures__gt=0)
    if rows.update(failures=0, open_until=None, last_error="", changed_at=read_now(using)):
        telemetry.emit("destination.up", destination=name)


def take_probe(name: str, *, pause: timedelta, using: str) -> bool:
    """Say whether this dispatcher may try a destination that was down; others stay away for ``pause``."""
    now = read_now(using)
    rows = Destination.objects.using(using).filter(name=name, failures__gt=0, open_until__lte=now)
    return bool(rows.update(open_until=now + pause, changed_at=now))


def give_probe_back(name: str, *, using: str) -> None:
    """Let the next dispatcher try at once: the one that took the probe found nothing to send."""
    now = read_now(using)
    Destination.objects.using(using).filter(name=name, failures__gt=0, open_until__gt=now).update(
        open_until=now, changed_at=now
    )
