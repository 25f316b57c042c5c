"""Rows of subscriptions: which events go where. Workers add; only a person's command ends one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.models import Subscription
from django_jobs.store.brief import briefly
from django_jobs.store.times import database_now, read_now


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """Events of this type and version go to this destination."""

    event_type: str
    version: int
    destination: str


def route_of(row: Subscription) -> Route:
    """Return what a row says."""
    return Route(row.event_type, row.version, row.destination)


def subscriptions(*, using: str) -> list[Subscription]:
    """Return all rows, those that have ended too, by type, version and destination."""
    return list(Subscription.objects.using(using).order_by("event_type", "version", "destination"))


def announce(routes: Iterable[Route], *, using: str) -> list[Route]:
    """Add what has no row yet; returns the routes whose row was ended by somebody.

    A worker does this when it starts. It takes nothing away and wakes nothing that was ended: its code may be older
    than that of others.
    """
    known = {route_of(row): row for row in subscriptions(using=using)}
    wanted = sorted(set(routes))
    _add([route for route in wanted if route not in known], using=using)
    return [route for route in wanted if route in known and known[route].ended_at is not None]


def _add(routes: list[Route], *, using: str) -> None:
    now = read_now(using)
    rows = [
        Subscription(
            id=uuid7(),
            event_type=route.event_type,
            version=route.version,
            destination=route.destination,
            active_from=now,
            created_at=now,
        )
        for route in routes
    ]
    if rows:
        Subscription.objects.using(using).bulk_create(rows, ignore_conflicts=True)
    for route in routes:
        telemetry.emit("subscription.add", event_type=route.event_type, destination=route.destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What a sync changed."""

    added: tuple[Route, ...]
    renewed: tuple[Route, ...]
    ended: tuple[Route, ...]


def sync(routes: Iterable[Route], *, using: str) -> Synced:
    """Make the rows say what the code declares: add, renew what had ended, and end what is declared no more.

    Events that were routed before keep their deliveries.
    """
    wanted = set(routes)
    with briefly(using):
        rows = {route_of(row): row for row in subscriptions(using=using)}
        added = sorted(wanted - set(rows))
        renewed = sorted(route for route in wanted & set(rows) if rows[route].ended_at is not None)
        ended = sorted(route for route in set(rows) - wanted if rows[route].ended_at is None)
        _add(added, using=using)
        table, now = Subscription.objects.using(using), database_now(using)
        for route in renewed:
            table.filter(pk=rows[route].pk).update(ended_at=None, active_from=now)
        for route in ended:
            table.filter(pk=rows[route].pk, ended_at__isnull=True).update(ended_at=now)
            telemetry.emit("subscription.end", event_type=route.event_type, destination=route.destination)
    return Synced(added=tuple(added), renewed=tuple(renewed), ended=tuple(ended))


def active_destinations(event_type: str, version: int, *, using: str) -> list[str]:
    """Return where events of this type and version go now."""
    now = read_now(using)
    rows = Subscription.objects.using(using).filter(event_type=event_type, version=version, active_from__lte=now)
    active = rows.filter(Q(ended_at__isnull=True) | Q(ended_at__gt=now))
    return sorted(active.values_list("destination", flat=True))
