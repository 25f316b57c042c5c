"""Rows of decisions, events and the inbox that must not be storable: what is wrong with each, and its constraint."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.db import models

from django_jobs import clock
from django_jobs.models import (
    CancelRequest,
    Compensation,
    Delivery,
    DeliveryAttempt,
    InboxMessage,
    OperatorAction,
    OutboxEvent,
    Quarantine,
    ReplayItem,
    ReplayRequest,
    Subscription,
)
from tests.factories import SideEffectFactory

Write = Callable[[], object]


def row(model: type[models.Model], **given: Any) -> Any:
    """Store a row of a model with its defaults and the given values."""
    return model._default_manager.create(**{**_defaults(model), **given})


def _defaults(model: type[models.Model]) -> dict[str, Any]:
    now, some = clock.now(), uuid.uuid4
    return {
        CancelRequest: {"job_id": some(), "generation": 1, "action_id": some(), "created_at": now},
        Compensation: {
            "effect_id": some(), "original_job_id": some(), "job_id": some(), "action_id": some(), "created_at": now,
        },
        Delivery: {
            "event_id": some(), "destination": "crm", "state": "pending", "available_at": now, "created_at": now,
        },
        DeliveryAttempt: {
            "id": some(), "delivery_id": some(), "number": 1, "worker_id": some(), "started_at": now,
        },
        InboxMessage: {
            "consumer": "c", "source": "s", "message_id": "m", "data_digest": "v1:a", "received_at": now,
            "keep_until": now,
        },
        OperatorAction: {
            "action": "discard", "actor": "ada", "owner": "billing", "reason": "because", "created_at": now,
        },
        OutboxEvent: {
            "type": "shop.order.paid", "version": 1, "source": "shop", "data": "{}", "data_digest": "v1:a",
            "created_at": now,
        },
        Quarantine: {
            "consumer": "c", "source": "s", "message_id": "m", "data_digest": "v1:a", "reason": "odd",
            "created_at": now,
        },
        ReplayItem: {"request_id": some(), "job_id": some(), "outcome": "queued", "created_at": now},
        ReplayRequest: {
            "actor": "ada", "owner": "billing", "reason_code": "other", "reason": "because", "selection": "{}",
            "total": 1, "next_at": now, "created_at": now,
        },
        Subscription: {
            "event_type": "shop.order.paid", "version": 1, "destination": "crm", "active_from": now, "created_at": now,
        },
    }[model]  # fmt: skip


def twice(model: type[models.Model], **given: Any) -> Write:
    """Return what stores two rows that agree in the given columns."""

    def write() -> None:
        row(model, **given)
        row(model, **given)

    return write


def _twice_compensated() -> None:
    effect = SideEffectFactory(succeeded=True).pk
    row(Compensation, effect_id=effect, outcome="void", closed_at=clock.now())  # does not count
    row(Compensation, effect_id=effect)
    row(Compensation, effect_id=effect, outcome="succeeded", closed_at=clock.now())


ID = uuid.UUID(int=7)
LEASE: dict[str, Any] = {"attempt_id": ID, "lease_owner": ID, "lease_expires_at": None}

CHECKS: list[tuple[str, str, Write]] = [
    ("action_says_who_and_why", "nobody decided", lambda: row(OperatorAction, actor="")),
    ("action_says_who_and_why", "nobody answers", lambda: row(OperatorAction, owner="")),
    ("action_says_who_and_why", "for no reason", lambda: row(OperatorAction, reason="")),
    ("action_acknowledged", "another plan", lambda: row(OperatorAction, given_digest="v1:a", plan_digest="v1:b")),
    ("compensation_closed_once", "succeeded at no time", lambda: row(Compensation, outcome="succeeded")),
    ("compensation_closed_once", "open and closed", lambda: row(Compensation, closed_at=clock.now())),
    ("compensation_closed_once", "invented outcome", lambda: row(Compensation, outcome="odd", closed_at=clock.now())),
    ("replay_state_known", "invented state", lambda: row(ReplayRequest, state="odd")),
    ("event_numbered", "key without number", lambda: row(OutboxEvent, ordering_key="order:7")),
    ("event_numbered", "number without key", lambda: row(OutboxEvent, key_seq=1)),
    ("event_of_attempt", "job without attempt", lambda: row(OutboxEvent, job_id=ID)),
    ("event_of_attempt", "attempt without job", lambda: row(OutboxEvent, fence=1)),
    ("delivery_state_known", "invented state", lambda: row(Delivery, state="odd", available_at=None)),
    ("delivery_leased", "claimed by nobody", lambda: row(Delivery, state="claimed", available_at=None)),
    (
        "delivery_leased",
        "claimed without end",
        lambda: row(Delivery, state="claimed", available_at=None, **LEASE),
    ),
    ("delivery_leased", "pending with owner", lambda: row(Delivery, lease_owner=ID)),
    ("delivery_published", "published at no time", lambda: row(Delivery, state="published", available_at=None)),
    ("delivery_published", "pending and published", lambda: row(Delivery, published_at=clock.now())),
    (
        "delivery_dead",
        "dead without reason",
        lambda: row(Delivery, state="dead_lettered", available_at=None, dead_at=clock.now()),
    ),
    (
        "delivery_dead",
        "dead at no time",
        lambda: row(Delivery, state="dead_lettered", available_at=None, dead_reason="returned"),
    ),
    ("delivery_dead", "pending with reason", lambda: row(Delivery, dead_reason="returned")),
    ("delivery_due", "pending, never due", lambda: row(Delivery, available_at=None)),
    ("delivery_due", "waiting, but due", lambda: row(Delivery, state="waiting")),
    ("delivery_attempt_closed", "end without outcome", lambda: row(DeliveryAttempt, finished_at=clock.now())),
    ("delivery_attempt_closed", "outcome without end", lambda: row(DeliveryAttempt, outcome="confirmed")),
    (
        "delivery_attempt_closed",
        "invented outcome",
        lambda: row(DeliveryAttempt, outcome="odd", finished_at=clock.now()),
    ),
]

UNIQUE: list[tuple[str, Write]] = [
    ("cancel_once", twice(CancelRequest, job_id=ID, generation=2)),
    ("compensation_once", _twice_compensated),
    ("compensation_job", twice(Compensation, job_id=ID)),
    ("replay_item_once", twice(ReplayItem, request_id=ID, job_id=ID)),
    ("event_in_order", twice(OutboxEvent, ordering_key="order:7", key_seq=1)),
    ("subscription_once", twice(Subscription)),
    ("delivery_once", twice(Delivery, event_id=ID)),
    ("delivery_attempt_number", twice(DeliveryAttempt, delivery_id=ID)),
    ("inbox_once", twice(InboxMessage)),
    ("quarantine_once", twice(Quarantine)),
]
