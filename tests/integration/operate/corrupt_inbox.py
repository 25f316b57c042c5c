"""Messages that would be forgotten too soon, or whose job is not theirs; each returns the ids that must be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import receive
from django_jobs.domain.ids import uuid7
from django_jobs.models import IdempotencyKey, InboxMessage, JobPayload
from tests.declared_consumers import on_payment
from tests.integration.operate.corruptions import corrupts, unguard


def _message(message_id: str = "evt_1", source: str = "payments") -> InboxMessage:
    assert receive(source, message_id, {"order": 7}, consumer=on_payment).outcome == "created"
    return InboxMessage.objects.get(source=source, message_id=message_id)


@corrupts("N1")
def message_forgotten_at_once() -> set[Any]:
    message = _message()
    InboxMessage.objects.update(keep_until=message.received_at + timedelta(minutes=59))
    return {message.pk}


@corrupts("N1")
def key_that_dies_before_the_row() -> set[Any]:
    message = _message()
    IdempotencyKey.objects.update(ttl_seconds=34 * 86400.0)
    return {message.pk}


@corrupts("N2")
def message_taken_twice() -> set[Any]:
    message = _message()
    unguard(InboxMessage)
    twin = InboxMessage.objects.get()
    twin.pk = uuid7()
    twin.save(force_insert=True)
    return {message.pk, twin.pk}


@corrupts("N2")
def message_whose_job_vanished() -> set[Any]:
    message = _message()
    InboxMessage.objects.update(job_id=uuid7())
    return {message.pk}


@corrupts("N2")
def message_whose_job_has_another_key() -> set[Any]:
    message = _message()
    _message("x" * 255, source="a:b%c")  # healthy, with a key that is a digest
    _message("evt_2", source="a:b%c")
    JobPayload.objects.filter(pk=message.job_id).update(key="inbox:payments:evt_2")
    return {message.pk}
