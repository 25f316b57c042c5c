"""Where events go: the destinations that this process can serve, and the routes that its code declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.module_loading import import_string

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.define.definition import JobDefinition
from django_jobs.define.subscribe import LOCAL, subscribers
from django_jobs.domain.events import Guarantee
from django_jobs.exceptions import DefinitionError
from django_jobs.outbox.publisher import Publisher
from django_jobs.store.subscriptions import Route

_OWN = frozenset({"PUBLISHER", "EVENTS"})


def routes() -> list[Route]:
    """Return what subscribers and settings declare."""
    return sorted({*_local_routes(), *_remote_routes()})


def _local_routes() -> Iterator[Route]:
    for destination, definition in subscribers():
        if definition.source is not None:
            yield Route(definition.source.event_type, definition.source.version, destination)


def _remote_routes() -> Iterator[Route]:
    for name, entry in get_settings().destinations.items():
        for event in entry.get("EVENTS", ()):
            event_type, _, version = event.rpartition(":")
            yield Route(event_type, int(version), name)


def known_destinations() -> list[str]:
    """Return the names of the destinations that this process can deliver to, older names of subscribers included."""
    older = {LOCAL + name for name, definition in registry.definitions() if definition.source is not None}
    return sorted({*older, *get_settings().destinations})


def is_local(destination: str) -> bool:
    """Say whether a destination is a subscriber in this code, whose jobs are stored in the same database."""
    return destination.startswith(LOCAL)


def subscriber_of(destination: str) -> JobDefinition | None:
    """Return the subscriber behind a destination, or None when this code has none."""
    found = registry.find(destination.removeprefix(LOCAL))
    return found if found is not None and found.source is not None else None


def guarantee_of(name: str) -> tuple[str, Guarantee | None]:
    """Return the publisher class of a destination as the settings name it, and what it promises, if it says so."""
    path: str = get_settings().destinations[name]["PUBLISHER"]
    try:
        promised = getattr(import_string(path), "guarantee", None)
    except ImportError:
        promised = None  # a system check tells why
    return path, promised if isinstance(promised, Guarantee) else None


def make_publisher(name: str) -> Publisher:
    """Make the publisher of a destination, with its entries in lower case as arguments.

    Raises:
        DefinitionError: The settings have no such destination, or its class cannot be made.
    """
    entry: Mapping[str, Any] | None = get_settings().destinations.get(name)
    if entry is None:
        msg = f"DJANGO_JOBS['DESTINATIONS'] has no destination {name!r}."
        raise DefinitionError(msg)
    options = {key.lower(): value for key, value in entry.items() if key not in _OWN}
    try:
        made: Publisher = import_string(entry["PUBLISHER"])(**options)
    except Exception as error:
        msg = f"The publisher of the destination {name!r} could not be made: {type(error).__name__}: {error}"
        raise DefinitionError(msg) from error
    return made
