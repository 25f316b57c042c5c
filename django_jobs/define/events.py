"""Event types by name and version: what may be published, and with which fields."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django_jobs.domain.event_fields import check_kinds
from django_jobs.domain.identity import check_name
from django_jobs.domain.options import VERSION_BOUND
from django_jobs.exceptions import DefinitionError, EventError

_types: dict[tuple[str, int], EventType] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """One version of an event type; ``fields`` maps each field to its Python type."""

    name: str
    version: int
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


def event_type(name: str, *, version: int = 1, fields: Mapping[str, Any]) -> EventType:
    """Declare an event type in the ``events`` module of an app.

    Args:
        name: For example ``shop.order.paid``; stored with each event.
        version: Of the fields. A version whose fields change would mislead consumers: declare another one.
        fields: Field name to Python type, for example ``{"order_id": int, "note": str | None}``. A field that may be
            None may be left out.

    Raises:
        DefinitionError: The declaration cannot work, or the version is declared twice with other fields.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    check_event_name(name, version)
    if not isinstance(fields, Mapping):
        msg = f"Event type {name!r}: fields must be a dict of names and types, not {fields!r}."
        raise DefinitionError(msg)
    check_kinds(fields, name=name)
    declared = EventType(name=name, version=version, fields=dict(fields))
    with _lock:
        other = _types.setdefault((name, version), declared)
    if other.fields != declared.fields:
        msg = f"Event type {declared} is declared twice with different fields; declare another version."
        raise DefinitionError(msg)
    return declared


def check_event_name(name: object, version: object) -> None:
    """Refuse a name or a version that no event type can have.

    Raises:
        DefinitionError: The version is no whole number of at least 1, or the name has a colon or a space.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    text = check_name(name, what="event type", limit=200)
    if ":" in text or " " in text:
        msg = f"The event type {text!r} has a colon or a space; use letters, digits, dots and underscores."
        raise DefinitionError(msg)
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < VERSION_BOUND:
        msg = f"Event type {text!r}: version must be a whole number from 1 to {VERSION_BOUND - 1}, not {version!r}."
        raise DefinitionError(msg)


def find_event_type(name: str, version: int) -> EventType | None:
    """Return what is declared under this name and version, or None."""
    return _types.get((name, version)) if isinstance(name, str) and isinstance(version, int) else None


def declared_event_type(name: str, version: int) -> EventType:
    """Return what is declared under this name and version.

    Raises:
        EventError: Nothing is.
    """
    found = find_event_type(name, version)
    if found is None:
        versions = sorted(known for other, known in _types if other == name)
        which = f" Declared versions: {', '.join(map(str, versions))}." if versions else ""
        msg = (
            f"The event type {name!r} is not declared in version {version!r}.{which} Declare it with event_type() in "
            "the events module of an app."
        )
        raise EventError(msg)
    return found


def event_types() -> Iterator[EventType]:
    """Yield every declared event type, by name and version."""
    with _lock:
        known = sorted(_types.items())
    for _, declared in known:
        yield declared


def forget_event_type(name: str, version: int = 1) -> None:
    """Forget a declaration; for tests that make one."""
    with _lock:
        _types.pop((name, version), None)
