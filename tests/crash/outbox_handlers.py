"""Events, a subscriber and a consumer that come to every fault point of the outbox and the inbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import Event, event_type, job, subscribe
from tests.acceptance.handlers import insert_row
from tests.crash.handlers import FAST

REMOTE = "crash.happened_outside"
LOCAL = "crash.happened_here"
LEASE = timedelta(seconds=4)

event_type(REMOTE, fields={"n": int})
event_type(LOCAL, fields={"n": int})


# A process that stands still may hold the job of an event too: its lease is then over soon.
@subscribe(LOCAL, type="crash.on_happened_here", retry=FAST, budget=LEASE / 2, cleanup=LEASE / 2)
def on_happened_here(event: Event) -> None:
    """Write the business row of an event, in one transaction with the success."""
    insert_row(event.data["n"])


@job(type="crash.on_message", retry=FAST)
def on_message(data: Any, message_id: str) -> None:
    """What a message makes somebody do."""


@job(type="crash.kept", key="kept:{n}")
def kept(n: int) -> None:
    """Its key outlives it."""
