"""The pages about webhooks: the view takes and refuses what the text says, and the destination can be made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.test import RequestFactory

from django_jobs import clock
from django_jobs.define import registry
from django_jobs.models import InboxMessage, Job, JobPayload, Quarantine
from django_jobs.outbox import signing
from django_jobs.outbox.publishers.webhook import Webhook
from tests.docs.test_operations_pages import blocks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"type": "payment.settled", "sent_at": 1}'


def python(page: str) -> list[str]:
    """Return the blocks of Python on a page."""
    return [body for name, body in blocks("python") if name == page]


@pytest.fixture
def page(settings: Any) -> Iterator[dict[str, Any]]:
    """The names that the view's block declares."""
    settings.PAYMENTS_WEBHOOK_SECRETS = [SECRET]
    names: dict[str, Any] = {"__name__": "payments.views"}
    exec(compile(python("receive-webhooks.md")[0], "receive-webhooks.md", "exec"), names)
    yield names
    registry.unregister("payments.on_event")


def call(page: dict[str, Any], body: bytes = BODY, message_id: str = "evt_1", secret: str = SECRET) -> tuple[int, str]:
    """Call the view with a signed request; returns status and text."""
    timestamp = int(clock.now().timestamp())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signing.sign(signing.keys_of(secret), message_id, timestamp, body),
    }
    request = RequestFactory().post("/in", data=body, content_type="application/json", headers=headers)
    response = page["payment_webhook"](request)
    return response.status_code, response.content.decode()


@pytest.mark.django_db
def test_view_takes_a_message_once(page: dict[str, Any]) -> None:
    """Again, changed, unreadable: each gets the outcome that the page tells."""
    assert call(page) == (202, "created")
    assert call(page) == (202, "duplicate")
    assert call(page, b'{"type": "other"}') == (202, "quarantined")
    assert call(page, b"no json", "evt_2") == (202, "quarantined")
    assert (Job.objects.count(), InboxMessage.objects.count(), Quarantine.objects.count()) == (1, 1, 2)
    assert json.loads(JobPayload.objects.get().arguments) == {"data": json.loads(BODY), "message_id": "evt_1"}


@pytest.mark.django_db
def test_view_refuses_what_is_not_signed(page: dict[str, Any]) -> None:
    """A wrong secret and an id that cannot be stored are told to the sender; nothing is written."""
    assert call(page, secret=signing.new_secret())[0] == 400
    assert call(page, message_id="x" * 256)[0] == 400
    assert page["payment_webhook"](RequestFactory().post("/in")).status_code == 400
    assert page["payment_webhook"](RequestFactory().get("/in")).status_code == 405
    assert Job.objects.count() == 0


@pytest.mark.django_db
def test_view_asks_to_come_again_when_the_queue_is_full(page: dict[str, Any], settings: Any) -> None:
    """Nothing is stored, and the sender hears when."""
    call(page, message_id="evt_0")
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"default": {"capacity": 1}}}

    assert call(page)[0] == 503
    assert InboxMessage.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_other_blocks_of_the_page_run(page: dict[str, Any]) -> None:
    """The function for ``same_as`` and the consumer that is no job do what they are shown for."""
    _, same_as, once = python("receive-webhooks.md")
    done: list[str] = []
    for sent_at in (1, 2):
        names = {**page, "message_id": "evt_1", "request": SimpleNamespace(body=b'{"n":1,"sent_at":%d}' % sent_at)}
        exec(compile(same_as, "receive-webhooks.md", "exec"), names)
        given = {"event_id": "e1", "event": {"n": 1}, "reserve_stock": done.append, "acknowledge": done.append}
        exec(compile(once, "receive-webhooks.md", "exec"), given)

    assert (Job.objects.count(), Quarantine.objects.count()) == (1, 0)
    assert done == [{"n": 1}, "e1", "e1"]
    assert not transaction.get_connection().in_atomic_block


def test_destination_of_the_page_can_be_made() -> None:
    """Its entries in lower case are arguments of the publisher."""
    (body,) = python("send-webhooks.md")
    names: dict[str, Any] = {
        "DJANGO_JOBS": {},
        "os": SimpleNamespace(environ={"CRM_WEBHOOK_SECRET": SECRET}),
        "timedelta": timedelta,
    }
    exec(compile(body, "send-webhooks.md", "exec"), names)
    entry = names["DJANGO_JOBS"]["DESTINATIONS"]["crm"]

    made = Webhook(**{key.lower(): value for key, value in entry.items() if key not in {"PUBLISHER", "EVENTS"}})

    assert entry["PUBLISHER"] == f"{Webhook.__module__}.{Webhook.__qualname__}"
    assert repr(made) == "<webhook hooks.crm.example:443>"
    made.close()
