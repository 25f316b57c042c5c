"""Delivering to subscribers: their jobs are stored in the transaction that marks the deliveries as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from django_jobs import faults
from django_jobs.conf import get_settings
from django_jobs.define.definition import JobDefinition
from django_jobs.domain.event_payload import ENVELOPE_BYTES, ENVELOPE_DEPTH, to_payload
from django_jobs.domain.events import Confirmed, Nacked, Report
from django_jobs.domain.identity import canonical, fingerprint, scope_text, serial_text
from django_jobs.enqueue.enqueue import decide
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import PayloadError
from django_jobs.outbox.destinations import subscriber_of
from django_jobs.store.deliveries import ClaimedDelivery, hold_own, mark_published, one_delivery_transaction


def delivery_key(claimed: ClaimedDelivery) -> str:
    """Return the key of a subscriber's job: the event's id, and the number of the redispatch if it is one."""
    event = str(claimed.event.id)
    return f"{event}:{claimed.redispatch}" if claimed.redispatch else event


def _serial_key(claimed: ClaimedDelivery) -> str:
    """Return what keeps the jobs of ordered events in order: the subscriber and the ordering key."""
    order = claimed.event.ordering_key
    return serial_text(f"{claimed.destination}:{order}") if order else ""


def key_life(definition: JobDefinition) -> timedelta:
    """Return how long after its end a subscriber's job answers to the event's id: as long as the event may be there."""
    return max(definition.options.key_ttl, get_settings().keep_events)


def deliver(batch: Sequence[ClaimedDelivery], *, using: str) -> list[tuple[ClaimedDelivery, Report]]:
    """Store a job for each delivery and mark it, in one transaction; the queue's capacity does not matter here.

    Returns:
        What could not be delivered, with the reason. The rest is published, or belongs to another dispatcher by now.
    """
    prepared: list[tuple[ClaimedDelivery, Prepared]] = []
    refused: list[tuple[ClaimedDelivery, Report]] = []
    for claimed in batch:
        definition = subscriber_of(claimed.destination)
        try:
            if definition is None:
                refused.append((claimed, Nacked(f"This code has no subscriber {claimed.destination!r}.")))
            else:
                prepared.append((claimed, _prepared(claimed, definition, using)))
        except PayloadError as error:
            refused.append((claimed, Nacked(str(error))))
    with one_delivery_transaction(using):
        # Held first: whoever lost its lease meanwhile stores nothing, and waits here for whoever took over.
        own = hold_own([claimed for claimed, _ in prepared], using=using)
        marked = mark_published([(claimed, Confirmed("job")) for claimed in own], using=using)
        for claimed, item in prepared:
            if claimed.delivery_id in marked:
                decide(item)  # a duplicate has its job already
    faults.reached("dispatch.after_commit", using=using)
    return refused


def _prepared(claimed: ClaimedDelivery, definition: JobDefinition, using: str) -> Prepared:
    event, rules = claimed.event, get_settings()
    most = rules.event_max_bytes + ENVELOPE_BYTES
    depth = rules.payload_max_depth + ENVELOPE_DEPTH
    text = canonical({"event": to_payload(event)}, max_bytes=most, max_depth=depth)
    options = replace(definition.options, key_ttl=key_life(definition))
    return Prepared(
        options=options,
        arguments=text,
        fingerprint=fingerprint(text),
        key=delivery_key(claimed),
        key_scope=scope_text(options.tenant, options.key_scope),
        subject=event.subject,
        serial_key=_serial_key(claimed),
        using=using,
        correlation_id=event.correlation_id or str(event.id),
        traceparent=event.traceparent,
    )
