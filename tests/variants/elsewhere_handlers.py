"""Handlers of the site whose jobs have a database of their own; loaded by its programs alone."""

from __future__ import annotations

from django.db import connections

from django_jobs import Event, JobContext, event_type, job, publish, subscribe

event_type("elsewhere.seen", version=1, fields={"n": int})


@job(type="elsewhere.work", takes_context=True)
def work(context: JobContext, n: int) -> None:
    """Write on the database of the jobs and tell others, together with the success."""
    with context.complete():
        with connections["jobs"].cursor() as cursor:
            cursor.execute("INSERT INTO elsewhere_rows (n) VALUES (%s)", [n])
        publish("elsewhere.seen", {"n": n})


@subscribe("elsewhere.seen", type="elsewhere.on_seen")
def on_seen(event: Event) -> None:
    """Write what was told."""
    with connections["jobs"].cursor() as cursor:
        cursor.execute("INSERT INTO elsewhere_rows (n) VALUES (%s)", [event.data["n"] + 100])
