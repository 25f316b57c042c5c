"""What is promised about events and messages: who gets which event, when it counts as there, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_jobs.define import registry
from django_jobs.define.events import event_types, find_event_type
from django_jobs.outbox.consumers import GIVEN, takes_messages
from django_jobs.outbox.destinations import guarantee_of, is_local, routes, subscriber_of
from django_jobs.outbox.inbox import KEEP
from django_jobs.store.subscriptions import Route

STORED = "Its job is stored, in the transaction that says so: one job for each event."
IN_ORDER = "events of one ordering key go one after another, each when the one before is confirmed"
JOBS_IN_ORDER = "jobs of one ordering key are stored one after another; they may run at the same time"
BATCH_IN_ORDER = "others arrive in the order in which they were sent"
ANY_ORDER = "others arrive in any order"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteContract:
    """One way of an event.

    ``confirmed`` says when the event counts as there. ``duplicate_window`` is how long the other side itself recognises
    an event that comes again; None: it does not, unless it looks at the id. ``by`` is the job type of a subscriber, or
    the class of a publisher.
    """

    destination: str
    is_subscriber: bool
    by: str
    owner: str
    confirmed: str
    duplicate_window: timedelta | None
    order: str
    docs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContract:
    """One version of an event type. Without ``is_declared`` this code only receives it."""

    event_type: str
    version: int
    is_declared: bool
    fields: tuple[str, ...]
    routes: tuple[RouteContract, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContract:
    """A job type that can work on messages of ``receive()``: each message of a source once, by its id.

    ``consumer`` is its name in the inbox. An id is remembered for ``keep``, unless the call says otherwise.
    """

    consumer: str
    job_type: str
    takes: tuple[str, ...]
    owner: str
    keep: timedelta


def event_contracts() -> Iterator[EventContract]:
    """Yield what is declared or subscribed to, by type and version."""
    found: dict[tuple[str, int], list[Route]] = {(item.name, item.version): [] for item in event_types()}
    for route in routes():
        found.setdefault((route.event_type, route.version), []).append(route)
    for (name, version), ways in sorted(found.items()):
        declared = find_event_type(name, version)
        fields = {} if declared is None else declared.fields
        yield EventContract(
            event_type=name,
            version=version,
            is_declared=declared is not None,
            fields=tuple(f"{field}: {_kind(kind)}" for field, kind in fields.items()),
            routes=tuple(_local(way) if is_local(way.destination) else _remote(way) for way in ways),
        )


def _kind(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _local(route: Route) -> RouteContract:
    definition = subscriber_of(route.destination)
    return RouteContract(
        destination=route.destination,
        is_subscriber=True,
        by=definition.job_type if definition else "",
        owner=definition.options.owner if definition else "",
        confirmed=STORED,
        duplicate_window=None,
        order=JOBS_IN_ORDER,
        docs="docs/how-to/publish-events.md",
    )


def _remote(route: Route) -> RouteContract:
    path, promised = guarantee_of(route.destination)
    order = BATCH_IN_ORDER if promised is not None and promised.keeps_order else ANY_ORDER
    return RouteContract(
        destination=route.destination,
        is_subscriber=False,
        by=path,
        owner="",
        confirmed=promised.semantics if promised else "Unknown: its publisher does not say.",
        duplicate_window=promised.duplicate_window if promised else None,
        order=f"{IN_ORDER}; {order}",
        docs=promised.docs if promised else "",
    )


def consumer_contracts() -> Iterator[ConsumerContract]:
    """Yield each job type whose handler can take a message, by name."""
    for name, definition in registry.definitions():
        if name == definition.job_type and takes_messages(definition):
            yield ConsumerContract(
                consumer=definition.names[-1],
                job_type=name,
                takes=tuple(given for given in GIVEN if given in definition.signature.parameters),
                owner=definition.options.owner,
                keep=KEEP,
            )
