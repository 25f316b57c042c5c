"""An event as the argument of a subscriber's job: JSON values, and back."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_jobs.domain.canonical import canonical
from django_jobs.domain.events import Event
from django_jobs.exceptions import PayloadError

ENVELOPE_BYTES = 8 * 1024  # what the columns beside the data can take at most
ENVELOPE_DEPTH = 2
_TEXTS = (
    *("type", "source", "subject", "tenant", "dataref", "ordering_key", "correlation_id", "causation_id"),
    "traceparent",
)


def to_payload(event: Event) -> dict[str, Any]:
    """Write an event as JSON values; empty ones are left out."""
    values: dict[str, Any] = {name: getattr(event, name) for name in _TEXTS if getattr(event, name)}
    values |= {"id": str(event.id), "version": event.version, "created_at": event.created_at.isoformat()}
    if event.key_seq is not None:
        values["key_seq"] = event.key_seq
    if event.data_text:
        values["data"] = event.data
    return values


def from_payload(stored: object) -> Event:
    """Read what :func:`to_payload` wrote; the data's canonical text is the one that was published.

    Raises:
        PayloadError: It is no event.
    """
    if not isinstance(stored, Mapping):
        msg = f"The stored event is a {type(stored).__name__}, not an object."
        raise PayloadError(msg)
    try:
        return Event(
            id=uuid.UUID(stored["id"]),
            version=int(stored["version"]),
            created_at=datetime.fromisoformat(stored["created_at"]),
            key_seq=stored.get("key_seq"),
            data_text=_text(stored["data"]) if "data" in stored else "",
            **{name: str(stored.get(name, "")) for name in _TEXTS},
        )
    except (KeyError, TypeError, ValueError) as error:
        msg = f"The stored event cannot be read: {type(error).__name__}: {error}."
        raise PayloadError(msg) from error


def _text(data: object) -> str:
    return canonical(data, max_bytes=2**31, max_depth=1000)
