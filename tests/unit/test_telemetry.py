"""Events reach every receiver, and no receiver can do harm."""

from __future__ import annotations

import logging
import uuid

import pytest

from django_jobs import telemetry


@pytest.fixture
def event() -> str:
    """An event that no other test tells."""
    return f"tests.{uuid.uuid4().hex}"


def test_receiver_hears_until_it_unsubscribes(event: str) -> None:
    """It gets the event's name and fields; to end twice is harmless."""
    heard: list[tuple[str, dict[str, object]]] = []
    end = telemetry.subscribe(lambda name, fields: heard.append((name, fields)))
    telemetry.emit(event, number=1)
    end()
    end()
    telemetry.emit(event, number=2)

    assert heard == [(event, {"number": 1})]
    assert telemetry.counts[event] == 2


def test_failing_receiver_harms_nobody(event: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged once per event, and the receivers after it hear the event all the same."""
    heard: list[str] = []

    def broken(name: str, fields: dict[str, object]) -> None:
        raise RuntimeError("no metrics today")

    ends = [telemetry.subscribe(broken), telemetry.subscribe(lambda name, fields: heard.append(name))]
    with caplog.at_level(logging.ERROR, logger="django_jobs.telemetry"):
        telemetry.emit(event)
        telemetry.emit(event)
    for end in ends:
        end()

    assert heard == [event, event]
    assert [record.getMessage() for record in caplog.records if event in record.getMessage()] != []
    assert len([record for record in caplog.records if event in record.getMessage()]) == 1


def test_receiver_may_end_itself_while_it_hears(event: str) -> None:
    """The others of the same event are still told."""
    heard: list[str] = []

    def once(name: str, fields: dict[str, object]) -> None:
        heard.append("once")
        ends[0]()

    ends = [telemetry.subscribe(once), telemetry.subscribe(lambda name, fields: heard.append("always"))]
    telemetry.emit(event)
    telemetry.emit(event)
    ends[1]()

    assert heard == ["once", "always", "always"]
