"""Rows for the pages of the admin: one of each model that has a page, and people with the rights of each role."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import factory
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import models
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.models import (
    Attempt,
    Batch,
    Chain,
    ChainLink,
    Delivery,
    DeliveryAttempt,
    InboxMessage,
    Job,
    JobPayload,
    OperatorAction,
    OutboxEvent,
    Pause,
    Quarantine,
    Reconciliation,
    ReplayItem,
    ReplayRequest,
    Resource,
    Schedule,
    ScheduleTick,
    Send,
    SideEffect,
    Worker,
)
from tests.factories import (
    AttemptFactory,
    DuplicateEnqueueFactory,
    IdempotencyKeyFactory,
    JobFactory,
    PauseFactory,
    SendFactory,
    SideEffectFactory,
    WorkerFactory,
    at,
)
from tests.factories_decisions import OperatorActionFactory, ReplayRequestFactory
from tests.factories_outbox import DeliveryAttemptFactory, DeliveryFactory, OutboxEventFactory

DIGEST = fingerprint("{}")


class InboxMessageFactory(DjangoModelFactory):
    """A message that was taken a moment ago."""

    class Meta:
        model = InboxMessage

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    consumer = "shop.on_payment"
    source = "payments"
    message_id = factory.Sequence(lambda number: f"evt_{number}")
    data_digest = DIGEST
    received_at = at(seconds=4)
    keep_until = at(days=-35)


class ScheduleFactory(DjangoModelFactory):
    """A schedule that ticks in a minute."""

    class Meta:
        model = Schedule

    class Params:
        now = factory.LazyFunction(clock.now)

    name = "shop.report"
    job_type = "shop.report"
    rule = "every 60 s"
    missed = "coalesce"
    settled_at = at()
    next_tick = at(minutes=-1)
    declared_at = at(days=1)


class ResourceFactory(DjangoModelFactory):
    """A resource that a person has bounded, and whose downstream asked to wait."""

    class Meta:
        model = Resource

    class Params:
        now = factory.LazyFunction(clock.now)
        held = factory.Trait(paused_until=at(minutes=-1), paused_by=factory.LazyFunction(uuid7))

    name = "payments-api"
    max_running = 3
    max_rate = "10/s"


class ScheduleTickFactory(DjangoModelFactory):
    """A tick so many minutes ago."""

    class Meta:
        model = ScheduleTick

    class Params:
        now = factory.LazyFunction(clock.now)
        minutes = 0

    schedule_name = "shop.report"
    tick = factory.LazyAttribute(lambda row: row.now - timedelta(minutes=row.minutes))
    outcome = "enqueued"
    job_id = factory.LazyFunction(uuid7)
    created_at = at()


class BatchFactory(DjangoModelFactory):
    """An open batch with a callback; ``closed`` had one member, which succeeded."""

    class Meta:
        model = Batch

    class Params:
        now = factory.LazyFunction(clock.now)
        closed = factory.Trait(closed_at=at(seconds=1), callback="", succeeded=1, cancelled=0, resolved=0, dead=0)

    id = factory.LazyFunction(uuid7)
    on_dead = "block"
    owner = "billing"
    callback_type = "shop.notify"
    callback = "{}"
    created_at = at(minutes=1)


class ChainFactory(DjangoModelFactory):
    """A chain of one link that is not enqueued."""

    class Meta:
        model = Chain
        skip_postgeneration_save = True

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    length = 1
    created_at = at(minutes=1)

    @factory.post_generation
    def link(chain: Chain, create: bool, extracted: Any, **values: Any) -> ChainLink | None:  # noqa: N805
        """Store its link."""
        row = {"position": 1, "job_type": "shop.charge", "call": "{}", **values}
        return ChainLink.objects.create(chain=chain, **row) if create else None


class QuarantineFactory(DjangoModelFactory):
    """A message that came twice with different content."""

    class Meta:
        model = Quarantine

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    consumer = "shop.on_payment"
    source = "payments"
    message_id = factory.Sequence(lambda number: f"evt_{number}")
    data = '{"paid": true}'
    data_digest = DIGEST
    reason = "the same id came before with other content"
    created_at = at(seconds=4)


class ReplayItemFactory(DjangoModelFactory):
    """A job that a replay of many refused."""

    class Meta:
        model = ReplayItem

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    request = factory.SubFactory(ReplayRequestFactory)
    job_id = factory.LazyFunction(uuid7)
    outcome = "refused"
    why = "it needs a decision"
    created_at = at(seconds=1)


def one_of_each() -> dict[type[models.Model], Any]:
    """Store a dead letter with all that can belong to a job, and one row of everything else that has a page."""
    job = JobFactory(dead_lettered=True, subject="order:1", owner="billing", payload__error_text="ValueError: no")
    IdempotencyKeyFactory(job_id=job.pk)
    DuplicateEnqueueFactory(job_id=job.pk)
    attempt = Attempt.objects.get(job_id=job.pk)
    Attempt.objects.filter(pk=attempt.pk).update(message="no", traceback="Traceback …", worker_name="worker")
    AttemptFactory(job=job, number=0, lost=True)
    effect = SideEffectFactory(job=job, ambiguous=True, needs_review=True, review_reason="nobody knows")
    send = SendFactory(effect=effect, job=job, attempt=attempt, unknown=True, reason="time-out")
    asked = Reconciliation.objects.create(effect=effect, created_at=clock.now(), verdict="unavailable")
    event = OutboxEventFactory(job_id=job.pk, fence=1, subject="order:1", routed_count=1)
    delivery = DeliveryFactory(event=event, dead_lettered=True, attempts=False)
    request = ReplayRequestFactory(running=True, total=2)
    return {
        Job: job,
        JobPayload: JobPayload.objects.get(pk=job.pk),
        Attempt: attempt,
        SideEffect: effect,
        Send: send,
        Reconciliation: asked,
        OutboxEvent: event,
        Delivery: delivery,
        DeliveryAttempt: DeliveryAttemptFactory(delivery=delivery, outcome="error", status=503, detail="not reached"),
        InboxMessage: InboxMessageFactory(job_id=job.pk),
        Schedule: ScheduleFactory(),
        Resource: ResourceFactory(held=True),
        Batch: BatchFactory(),
        Chain: (chain := ChainFactory()),
        ChainLink: ChainLink.objects.get(chain=chain),
        Quarantine: QuarantineFactory(),
        Worker: WorkerFactory(),
        Pause: PauseFactory(),
        OperatorAction: OperatorActionFactory(job_id=job.pk, effect_id=effect.pk),
        ReplayRequest: request,
        ReplayItem: ReplayItemFactory(request=request, job_id=job.pk),
    }


def text_columns(model: type[models.Model]) -> Iterator[models.Field[Any, Any]]:
    """Yield the columns of a model that hold free text: not those that a constraint binds to a few words."""
    for field in model._meta.concrete_fields:
        free = isinstance(field, models.CharField | models.TextField) and not field.choices
        if free and field.name not in BOUND.get(model, set()):
            yield field


# What a constraint or a rule of the package binds to a few words.
BOUND: dict[type[models.Model], set[str]] = {
    Job: {"state", "dead_reason", "resolution", "error_class", "isolation"},
    Attempt: {"outcome"},
    SideEffect: {"state", "on_ambiguous", "resolved_by", "key_alphabet"},
    Send: {"outcome"},
    OutboxEvent: {"ordering_key"},
    Delivery: {"ordering_key"},
    Worker: {"queues", "job_types", "kinds"},
    DeliveryAttempt: {"outcome"},
    OperatorAction: {"given_digest", "plan_digest"},
}


def person(*roles: str, name: str = "", **columns: Any) -> Any:
    """Store somebody with the rights of these groups, without a password: to hash one costs more than a whole test."""
    user = get_user_model().objects.create_user(username=name or f"person-{uuid.uuid4().hex[:8]}", **columns)
    user.groups.set(Group.objects.filter(name__in=roles))
    return user
