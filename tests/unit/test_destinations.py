"""Destinations in the settings: what is said about wrong ones, and what is made of right ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from django_jobs import checks, event_type, subscribe
from django_jobs.conf import problems
from django_jobs.define.events import forget_event_type
from django_jobs.define.registry import unregister
from django_jobs.outbox.destinations import known_destinations, make_publisher, routes
from tests.publishers import RECORDING, RecordingPublisher

CRM = {"PUBLISHER": RECORDING, "EVENTS": ["tests.checked:1"], "DESK": "checks"}


@pytest.mark.parametrize(
    ("destinations", "said"),
    [
        ({"crm": {}}, "['PUBLISHER'] must be the dotted path of a class"),
        ({"crm": {"PUBLISHER": "Publisher"}}, "['PUBLISHER'] must be the dotted path of a class"),
        ({"crm": {**CRM, "EVENTS": ["shop.order.paid"]}}, "['EVENTS'] must be a list of types with versions"),
        ({"crm": {**CRM, "EVENTS": ["shop.order.paid:0"]}}, "['EVENTS'] must be a list of types with versions"),
        ({"crm": {**CRM, "EVENTS": "shop.order.paid:1"}}, "['EVENTS'] must be a list of types with versions"),
        ({"crm": {**CRM, "url": "https://x"}}, "has the entry 'url'; names are in upper case"),
        ({"local:x": CRM}, "the name may have no colon"),
        ({"": CRM}, "The name of the destination is empty"),
    ],
)
def test_wrong_destination_is_named(destinations: dict[str, Any], said: str) -> None:
    """The message has the place and the mend."""
    (found,) = problems({"DESTINATIONS": destinations})

    assert "DJANGO_JOBS['DESTINATIONS']" in found
    assert said in found


def test_source_must_be_storable() -> None:
    """Spaces at its ends and other scripts are refused."""
    assert problems({"SOURCE": "https://shop.example.com"}) == []
    assert "DJANGO_JOBS['SOURCE']" in problems({"SOURCE": " x"})[0]


@pytest.fixture
def crm() -> Iterator[None]:
    """A project with one destination."""
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": {"crm": CRM}}):
        yield


def test_publisher_gets_its_entries_in_lower_case(crm: None) -> None:
    """PUBLISHER and EVENTS are ours, the rest is the publisher's."""
    made = make_publisher("crm")

    assert isinstance(made, RecordingPublisher)
    assert "crm" in known_destinations()


def test_undeclared_event_of_a_route_is_an_error(crm: None) -> None:
    """A destination or a subscriber that would never get anything is found at start."""
    subscribe("tests.unheard", version=3, type="tests.listener")(lambda event: None)
    try:
        found = checks.check_routes()
        assert {message.id for message in found} == {"django_jobs.E103"}
        assert len([message for message in found if "tests." in message.msg]) == 2
        event_type("tests.checked", fields={})
        event_type("tests.unheard", version=3, fields={})
        assert checks.check_routes() == []
        assert [route.destination for route in routes() if "tests." in route.event_type] == [
            "crm",
            "local:tests.listener",
        ]
    finally:
        forget_event_type("tests.checked")
        forget_event_type("tests.unheard", 3)
        unregister("tests.listener")


@pytest.mark.parametrize("entry", [{"PUBLISHER": "nowhere.Publisher"}, {**CRM, "COLOUR": "red"}])
def test_publisher_that_cannot_be_made_is_an_error(entry: dict[str, Any]) -> None:
    """The class is not there, or does not take an entry."""
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": {"crm": entry}}):
        (found,) = checks.check_publishers()

    assert found.id == "django_jobs.E104"
    assert found.hint


def test_renamed_subscriber_keeps_its_destination() -> None:
    """The destination is named after the oldest name; deliveries to every older name are served."""
    subscribe("tests.renamed", type="tests.new_listener", aliases=("tests.old_listener",))(lambda event: None)
    try:
        (destination,) = [route.destination for route in routes() if route.event_type == "tests.renamed"]
        assert destination == "local:tests.old_listener"
        assert {"local:tests.new_listener", "local:tests.old_listener"} <= set(known_destinations())
    finally:
        unregister("tests.new_listener")
