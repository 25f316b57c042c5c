"""What ``jobs contract`` says about events, where they go, and who consumes messages."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.domain.events import Guarantee
from django_jobs.operate.contract_events import IN_ORDER
from tests import declared_consumers, publishers
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.outbox.conftest import CRM, PAID, SETTINGS, Subscribe
from tests.publishers import RECORDING, Desk

pytestmark = pytest.mark.django_db(transaction=True)


def told(*names: str) -> dict[str, Any]:
    """Return the contract as programs get it."""
    found: dict[str, Any] = json.loads(jobs("contract", *names, "--json")[0])
    return found


def test_event_names_its_fields_and_its_ways(subscriber: Subscribe, crm: Desk) -> None:
    """A subscriber and a destination, each with what it promises."""
    subscriber(lambda event: None, owner="shop")

    found = told(PAID)

    (event,) = found["events"]
    to_crm, to_subscriber = event.pop("routes")
    assert event == {
        "event_type": PAID, "version": 1, "is_declared": True, "fields": ["order_id: int", "note: str | None"],
    }  # fmt: skip
    assert to_crm == {
        "destination": CRM,
        "is_subscriber": False,
        "by": RECORDING,
        "owner": "",
        "confirmed": "kept in memory",
        "duplicate_window_seconds": None,
        "order": f"{IN_ORDER}; others arrive in the order in which they were sent",
        "docs": "https://example.com/recording",
    }
    assert (to_subscriber["destination"], to_subscriber["by"], to_subscriber["owner"]) == (
        "local:tests.receipt", "tests.receipt", "shop",
    )  # fmt: skip
    assert to_subscriber["is_subscriber"] is True
    assert (found["jobs"], found["operations"], found["consumers"]) == ([], [], [])


def test_job_of_a_subscriber_has_the_events_id_as_its_key(subscriber: Subscribe) -> None:
    """It is deduplicated, at least as long as events are kept."""
    subscriber(lambda event: None, key_ttl=timedelta(hours=1))
    (found,) = told("tests.receipt")["jobs"]
    assert (found["key"], found["key_scope"], found["key_ttl_seconds"]) == ("{event.id}", "tests.receipt", 90 * 86400)

    with override_settings(DJANGO_JOBS={"KEEP_EVENTS": timedelta(minutes=1)}):
        assert told("tests.receipt")["jobs"][0]["key_ttl_seconds"] == 3600


def test_event_for_people(subscriber: Subscribe, crm: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part per event type, one block per way; what the destination recognises is told."""
    promised = Guarantee(
        semantics="The stream has it.", duplicate_window=timedelta(minutes=2), keeps_order=False, docs="docs/stream.md"
    )
    monkeypatch.setattr(publishers.RecordingPublisher, "guarantee", promised)
    subscriber(lambda event: None, owner="shop")

    lines = [" ".join(line.split()) for line in jobs("contract", PAID)[0].splitlines()]

    assert lines[:11] == [
        f"EVENT {PAID} v1",
        "fields order_id: int, note: str | None",
        f"goes to crm (publisher {RECORDING})",
        "confirmed The stream has it.",
        "duplicates recognised by the destination for 2 min: the receiver looks at the event's id",
        f"order {IN_ORDER}; others arrive in any order",
        "documented docs/stream.md",
        "goes to local:tests.receipt (job tests.receipt, owner shop)",
        "confirmed Its job is stored, in the transaction that says so: one job for each event.",
        "order jobs of one ordering key are stored one after another; they may run at the same time",
        "documented docs/how-to/publish-events.md",
    ]


def test_event_that_goes_nowhere_is_told(paid: str) -> None:
    """It is legal, and seen."""
    assert "nobody; it is kept, and can be sent later" in jobs("contract", paid)[0]


@pytest.mark.parametrize("publisher", ["tests.publishers.NoSuch", "tests.publishers.Desk"])
def test_destination_that_promises_nothing_is_told(paid: str, publisher: str) -> None:
    """The contract is printed all the same; what is wrong with it, a system check says."""
    with override_settings(
        DJANGO_JOBS={"DESTINATIONS": {CRM: {**SETTINGS["DESTINATIONS"][CRM], "PUBLISHER": publisher}}}
    ):
        (event,) = told(paid)["events"]

    assert event["routes"][0]["confirmed"] == "Unknown: its publisher does not say."


def test_event_that_only_others_declare_is_told() -> None:
    """A destination wants it; this code cannot publish it."""
    with override_settings(DJANGO_JOBS={"DESTINATIONS": {CRM: {"PUBLISHER": RECORDING, "EVENTS": ["tests.other:2"]}}}):
        (event,) = told("tests.other")["events"]
        text = jobs("contract", "tests.other")[0]

    assert (event["event_type"], event["version"], event["is_declared"], event["fields"]) == (
        "tests.other",
        2,
        False,
        [],
    )
    assert "not declared in this code" in text


def test_consumers_are_the_jobs_that_can_take_messages() -> None:
    """By their name in the inbox, the oldest one; a job that needs more than a message has is none."""
    consumers = {item["job_type"]: item for item in told()["consumers"]}
    renamed = declared_consumers.renamed_consumer.definition.job_type

    assert consumers[renamed]["consumer"] == "tests.first_consumer"
    assert consumers["tests.on_anything"]["takes"] == ["data"]
    assert consumers["tests.on_anything"]["keep_seconds"] == 35 * 86400
    assert not {"tests.no_data", "tests.needs_more", "shop.send_receipt"} & set(consumers)
    assert told(renamed)["consumers"] == [consumers[renamed]]
    text = jobs("contract", renamed)[0]
    assert "CONSUMER tests.first_consumer\n" in text
    assert "is a duplicate for 35 d, or as long as receive() is told" in text
