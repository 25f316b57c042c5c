"""What every publisher must keep to, whatever carries its events.

A subclass gives a ``site``: the destination under the control of the test, and how a publisher to it is made. Then all
tests below run against it. They know nothing of HTTP, of a database or of this package's publishers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import pytest

from django_jobs.domain.events import Confirmed, Error, Guarantee, Nacked, Parcel, Report, Returned, Timeout
from django_jobs.outbox.publisher import Publisher
from tests.parcels import parcel

Manner = Literal["takes", "has_nowhere", "refuses", "is_out_of_order", "never_answers", "breaks_off", "talks_nonsense"]

PATIENCE = 0.6  # seconds for a destination that never answers
GRACE = 2.0  # seconds by which a busy machine may be late


class Site(Protocol):
    """A destination that does as the test says."""

    secrets: Sequence[str]  # texts that must never be told

    def behave(self, manner: Manner) -> None:
        """Answer so from now on."""

    def arrived(self) -> list[str]:
        """Return the ids of the events that arrived, in their order, repeated ones repeated."""

    def vanish(self) -> None:
        """Refuse every connection from now on."""

    def publisher(self) -> Publisher:
        """Make a publisher to it."""


def publish(publisher: Publisher, parcels: Sequence[Parcel], seconds: float = 10.0) -> list[Report]:
    """Publish, and check what holds for every answer: one report per parcel, and in time."""
    started = time.monotonic()
    reports = publisher.publish_batch(parcels, seconds=seconds)

    assert time.monotonic() - started < seconds + GRACE
    assert len(reports) == len(parcels)
    assert all(isinstance(report, Confirmed | Returned | Nacked | Timeout | Error) for report in reports)
    return reports


def ids(parcels: Sequence[Parcel]) -> list[str]:
    """Return the ids of the events."""
    return [str(item.event.id) for item in parcels]


class PublisherConformance:
    """The tests. A subclass overrides the fixture ``site``."""

    @pytest.fixture
    def site(self) -> Iterator[Site]:
        """Return the destination of one test."""
        raise NotImplementedError

    @pytest.fixture
    def publisher(self, site: Site) -> Iterator[Publisher]:
        """A publisher to the site, closed after the test."""
        made = site.publisher()
        yield made
        made.close()

    def test_guarantee_is_declared(self, publisher: Publisher) -> None:
        """What "confirmed" means is said in words, with the page that says so."""
        assert isinstance(publisher.guarantee, Guarantee)
        assert publisher.guarantee.semantics
        assert publisher.guarantee.docs

    def test_what_is_taken_is_confirmed(self, site: Site, publisher: Publisher) -> None:
        """Every parcel of a batch has arrived when it is confirmed; an order that is promised is kept."""
        parcels = [parcel() for _ in range(5)]

        reports = publish(publisher, parcels)

        assert all(isinstance(report, Confirmed) for report in reports)
        assert sorted(site.arrived()) == sorted(ids(parcels))
        if publisher.guarantee.keeps_order:
            assert site.arrived() == ids(parcels)

    def test_empty_batch_is_no_work(self, site: Site, publisher: Publisher) -> None:
        """No parcels, no reports."""
        assert publish(publisher, []) == []
        assert site.arrived() == []

    def test_repeated_event_is_published_again_under_its_id(self, site: Site, publisher: Publisher) -> None:
        """A second attempt carries the same id, so that the destination can tell."""
        first = parcel()
        second = Parcel(delivery_id=first.delivery_id, destination="crm", number=2, event=first.event)

        reports = [*publish(publisher, [first]), *publish(publisher, [second])]

        assert all(isinstance(report, Confirmed) for report in reports)
        assert set(site.arrived()) == set(ids([first]))

    def test_no_place_for_the_event_speaks_against_the_event(self, site: Site, publisher: Publisher) -> None:
        """Unroutable is not confirmed, and is no outage."""
        site.behave("has_nowhere")

        (report,) = publish(publisher, [parcel()])

        assert isinstance(report, Returned)
        assert report.reason

    def test_refusal_speaks_against_the_event(self, site: Site, publisher: Publisher) -> None:
        """The next event goes through: a refusal blames the right message, and breaks nothing."""
        site.behave("refuses")
        (refused,) = publish(publisher, [parcel()])
        site.behave("takes")
        (taken,) = publish(publisher, [parcel()])

        assert isinstance(refused, Nacked)
        assert isinstance(taken, Confirmed)

    def test_destination_out_of_order_speaks_against_the_destination(self, site: Site, publisher: Publisher) -> None:
        """It is there, and cannot."""
        site.behave("is_out_of_order")

        (report,) = publish(publisher, [parcel()])

        assert isinstance(report, Error)

    def test_no_answer_is_a_timeout_and_no_false_confirm(self, site: Site, publisher: Publisher) -> None:
        """The late answer of one event is never taken for the answer of the next."""
        site.behave("never_answers")
        (late,) = publish(publisher, [parcel()], seconds=PATIENCE)
        site.behave("refuses")
        (next_one,) = publish(publisher, [parcel()])

        assert isinstance(late, Timeout)
        assert isinstance(next_one, Nacked)

    def test_connection_that_breaks_off_may_have_carried_the_event(self, site: Site, publisher: Publisher) -> None:
        """It is not confirmed, and not said to be unsent; the next event gets a new connection."""
        site.behave("breaks_off")
        (broken,) = publish(publisher, [parcel()])
        site.behave("takes")
        (taken,) = publish(publisher, [parcel()])

        assert isinstance(broken, Timeout)
        assert isinstance(taken, Confirmed)

    def test_nonsense_is_an_error_and_no_exception(self, site: Site, publisher: Publisher) -> None:
        """What cannot be understood confirms nothing and ends no dispatcher."""
        site.behave("talks_nonsense")
        (report,) = publish(publisher, [parcel()])
        site.behave("takes")
        (taken,) = publish(publisher, [parcel()])

        assert isinstance(report, Error)
        assert isinstance(taken, Confirmed)

    def test_destination_that_is_gone_is_an_error(self, site: Site, publisher: Publisher) -> None:
        """Nothing was sent, for none of the parcels."""
        site.vanish()

        reports = publish(publisher, [parcel(), parcel()])

        assert all(isinstance(report, Error) for report in reports)
        assert site.arrived() == []

    def test_batch_ends_in_time_and_tells_what_was_not_begun(self, site: Site, publisher: Publisher) -> None:
        """The first one takes all the time; the others are reported as not reached, not as lost."""
        site.behave("never_answers")

        reports = publish(publisher, [parcel() for _ in range(20)], seconds=PATIENCE)

        assert isinstance(reports[0], Timeout)
        assert all(isinstance(report, Error | Timeout) for report in reports)
        assert len(site.arrived()) < 20

    def test_no_time_is_no_request(self, site: Site, publisher: Publisher) -> None:
        """A batch without time is reported, not begun."""
        (report,) = publish(publisher, [parcel()], seconds=0)

        assert isinstance(report, Error)
        assert site.arrived() == []

    def test_closing_twice_is_no_error(self, site: Site, publisher: Publisher) -> None:
        """Before the first batch, and again; nothing is sent by it."""
        publisher.close()
        publisher.close()

        assert site.arrived() == []

    @pytest.mark.parametrize("manner", ["has_nowhere", "refuses", "is_out_of_order", "breaks_off", "talks_nonsense"])
    def test_no_report_tells_a_secret(self, site: Site, publisher: Publisher, manner: Manner) -> None:
        """Reports are stored and shown; what authorises the publisher is not."""
        site.behave(manner)

        (report,) = publish(publisher, [parcel()])

        assert not [secret for secret in site.secrets if secret in repr(report) or secret in repr(publisher)]
