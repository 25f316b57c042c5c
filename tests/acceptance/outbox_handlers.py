"""The event type, the subscriber and the handlers of workers that deliver events; loaded through ``JOBS_IMPORTS``."""

from __future__ import annotations

from django_jobs import Event, event_type, subscribe
from tests.acceptance.handlers import FAST, insert_row, tell

HAPPENED = "acceptance.happened"

event_type(HAPPENED, fields={"order_id": int})


@subscribe(HAPPENED, type="acceptance.on_happened", retry=FAST)
def on_happened(event: Event) -> None:
    """Write the business row of an event, in one transaction with the success."""
    insert_row(event.data["order_id"])
    tell("happened", event.data["order_id"], event=str(event.id))
