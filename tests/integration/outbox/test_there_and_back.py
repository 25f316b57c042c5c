"""From ``publish`` by a webhook into the inbox of a receiver: what is delivered twice is taken once."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

from django_jobs import receive, verify_webhook
from django_jobs.models import Delivery, DeliveryAttempt, InboxMessage, Job, JobPayload
from django_jobs.outbox.destinations import routes
from django_jobs.store.subscriptions import sync
from tests.declared_consumers import on_payment
from tests.integration.outbox.conftest import PAID, Clockwork, delivered, published
from tests.receivers import Receiver, answer, at_home

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.django_db(transaction=True)
def test_event_whose_answer_was_lost_is_one_job_at_the_receiver(paid: str, clockwork: Clockwork) -> None:
    """The receiver commits and its answer gets lost; the event comes again under its id and is a duplicate."""
    outcomes: list[str] = []

    def take(receiver: Receiver, connection: socket.socket) -> bool:
        request = receiver.requests[-1]
        try:
            message_id = verify_webhook(request.headers, request.body, secrets=SECRET)
            outcomes.append(receive("shop", message_id, request.body, consumer=on_payment).outcome)
        finally:
            connections.close_all()
        return len(outcomes) > 1 and answer(202)(receiver, connection)

    with Receiver() as receiver:
        receiver.behaviour = take
        entry: dict[str, Any] = {
            "PUBLISHER": "django_jobs.outbox.publishers.webhook.Webhook",
            "EVENTS": [f"{PAID}:1"],
            "URL": f"http://hooks.example:{receiver.port}/in",
            "SECRETS": [SECRET],
            "ALLOW_HTTP": True,
            "ALLOW_PRIVATE": True,
            "PORTS": [receiver.port],
            "RESOLVE": at_home,
        }
        with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": {"crm": entry}}):
            sync(routes(), using="default")
            event_id = published(7)
            delivered()
            clockwork.forward(seconds=60)
            delivered()

    assert outcomes == ["created", "duplicate"]
    assert list(DeliveryAttempt.objects.order_by("number").values_list("outcome", flat=True)) == [
        "timeout",
        "confirmed",
    ]
    assert Delivery.objects.get().state == "published"
    assert InboxMessage.objects.get().message_id == str(event_id)
    assert Job.objects.count() == 1
    document = json.loads(JobPayload.objects.get().arguments)["data"]
    assert (document["id"], document["data"]) == (str(event_id), {"order_id": 7})
