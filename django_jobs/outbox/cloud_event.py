"""An event as a CloudEvents 1.0 document in JSON, with the stored data in it as it was stored."""

from __future__ import annotations

import json
from datetime import UTC

from django_jobs.domain.events import Event

CONTENT_TYPE = "application/cloudevents+json"


def attributes(event: Event) -> dict[str, str]:
    """Return the context attributes; what the event does not have is left out, as the specification wants it."""
    found = {
        "specversion": "1.0",
        "id": str(event.id),
        "source": event.source,
        "type": event.cloud_type,
        "time": event.created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "subject": event.subject,
        "datacontenttype": "application/json" if event.data_text else "",
        # Extensions; their names may have lower-case letters and digits only.
        "dataref": event.dataref,
        "partitionkey": event.ordering_key,
        "sequence": event.sequence,
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "traceparent": event.traceparent,
        "tenant": event.tenant,
    }
    return {name: value for name, value in found.items() if value}


def document(event: Event) -> bytes:
    """Return the whole document. The data is not parsed and written anew: its digest stays what it was."""
    text = json.dumps(attributes(event), ensure_ascii=False, separators=(",", ":"))
    if event.data_text:
        text = f'{text[:-1]},"data":{event.data_text}}}'
    return text.encode()
