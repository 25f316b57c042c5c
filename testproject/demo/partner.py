"""The partner's side of the run: which paid orders it heard of, how often, and what went wrong on the way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django_jobs.models import Delivery, DeliveryAttempt, OutboxEvent, Send
from testproject.shop.models import Order

DESTINATION = "partner"
FAULTS = ("fail", "late", "hang-up")
LATE_SECONDS = 3.0
DELIVERY_SECONDS = 2.0  # less than a late answer takes
SPLIT = b"-" * 79


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the partner and the customers got."""

    log: list[Mapping[str, Any]]  # what came to the partner, in order
    taken: frozenset[str]  # ids of the events that it took
    mails: Mapping[str, int]  # receipts by address

    @property
    def repeated(self) -> int:
        """How many deliveries came for an event that the partner had taken already."""
        return sum(entry["did"] == "again" for entry in self.log)

    def faulty(self) -> dict[str, list[str]]:
        """Return, by the fault that its first delivery met, what became of each delivery of that event."""
        found: dict[str, list[str]] = {}
        for fault in FAULTS:
            ids = [entry["id"] for entry in self.log if entry["did"] == fault]
            if ids:
                found[fault] = [entry["did"] for entry in self.log if entry["id"] == ids[0]]
        return found


def told(report: Mapping[str, Any], mails: Path) -> Told:
    """Gather the partner's log and the mails that were written as files."""
    return Told(log=report["log"], taken=frozenset(report["taken"]), mails=dict(_mails(mails)))


def _mails(folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in folder.iterdir():
        for text in file.read_bytes().split(SPLIT):
            if text.strip():
                found[str(message_from_bytes(text.lstrip(), policy=default)["To"])] += 1
    return found


def all_delivered() -> bool:
    """Say whether every event has arrived wherever it was routed to."""
    return not Delivery.objects.exclude(state="published").exists()


def environment(url: str, secret: str) -> str:
    """Return the value of JOBS_DESTINATIONS for a partner at a URL."""
    entry = {
        "PUBLISHER": "django_jobs.outbox.publishers.webhook.Webhook",
        "EVENTS": ["shop.order.paid:1"],
        "URL": url,
        "SECRETS": secret,
        "ALLOW_HTTP": True,  # it runs on this machine
        "ALLOW_PRIVATE": True,
        "PORTS": [urlsplit(url).port],
    }
    return json.dumps({DESTINATION: entry})


def wrong_with(found: Told) -> list[str]:
    """Return why events, webhooks and mails do not agree with what was paid; empty when they do."""
    paid = dict(Order.objects.filter(status=Order.Status.PAID).values_list("pk", "number"))
    events = {str(event.pk): event.subject for event in OutboxEvent.objects.filter(type="shop.order.paid")}
    subjects = Counter(events.values())
    wrong = [f"Order {number} was published {subjects[f'order:{pk}']} times." for pk, number in paid.items()
             if subjects[f"order:{pk}"] != 1]  # fmt: skip
    wrong += [f"Event {pk} never reached the partner." for pk in set(events) - found.taken]
    wrong += [f"The partner took event {pk}, which was never published." for pk in found.taken - set(events)]
    wrong += _unexplained(found)
    for pk, number in paid.items():
        times = found.mails.get(f"customer-{pk}@example.com", 0)
        if not 1 <= times <= _mails_sent(pk):
            wrong.append(f"The receipt of order {number} was mailed {times} times.")
    return wrong


def _unexplained(found: Told) -> list[str]:
    """A repeated delivery is fine where the history shows the attempts, and only there."""
    attempts = Counter(
        str(pk)
        for pk in DeliveryAttempt.objects.filter(delivery__destination=DESTINATION).values_list(
            "delivery__event_id", flat=True
        )
    )
    came = Counter(entry["id"] for entry in found.log)
    return [
        f"Event {pk} came {times} times, and {attempts[pk]} attempts are on record."
        for pk, times in came.items()
        if times > attempts[pk]
    ]


def _mails_sent(order: int) -> int:
    sends = Send.objects.filter(effect__name="receipt", effect__request__contains=f"customer-{order}@example.com")
    return sends.count()
