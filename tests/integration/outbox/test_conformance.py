"""The conformance suite, on the webhook publisher over HTTP and TLS, and on one that keeps events in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from django_jobs.domain.events import Confirmed, Error, Guarantee, Nacked, Parcel, Report, Returned, Timeout
from django_jobs.outbox.publisher import Publisher
from tests.integration.outbox.conformance import Manner, PublisherConformance, Site
from tests.receivers import Receiver, answer, hang_up, raw, silence, webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "Bearer tok_canary_4711"
ECHO = f"{SECRET} {TOKEN} password=canary".encode()

MANNERS = {
    "takes": answer(202),
    "has_nowhere": answer(404, body=ECHO),
    "refuses": answer(422, body=ECHO),
    "is_out_of_order": answer(503, body=ECHO),
    "never_answers": silence,
    "breaks_off": hang_up,
    "talks_nonsense": raw(b"220 " + ECHO + b"\r\n\r\n"),
}


class WebhookSite:
    """A receiver on a real socket."""

    secrets = (SECRET, SECRET.removeprefix("whsec_"), "tok_canary_4711", "canary")

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.behave("takes")

    def behave(self, manner: Manner) -> None:
        """Answer so from now on."""
        self.receiver.behaviour = MANNERS[manner]

    def arrived(self) -> list[str]:
        """Return the ids of the events."""
        return [request.headers["webhook-id"] for request in self.receiver.requests]

    def vanish(self) -> None:
        """Refuse connections."""
        self.receiver.stop()

    def publisher(self) -> Publisher:
        """Return a webhook publisher."""
        made: Publisher = webhook(self.receiver, headers={"Authorization": TOKEN})
        return made


class TestWebhook(PublisherConformance):
    """Over plain HTTP."""

    @pytest.fixture
    def site(self) -> Iterator[Site]:
        """A receiver."""
        with Receiver() as receiver:
            yield WebhookSite(receiver)


class TestWebhookOverTls(PublisherConformance):
    """Over TLS, with a certificate of the tests' own authority."""

    @pytest.fixture
    def site(self) -> Iterator[Site]:
        """A receiver that speaks TLS."""
        with Receiver("hooks") as receiver:
            yield WebhookSite(receiver)


class MemorySite:
    """A list; it shows that the suite needs no network, and that a publisher of another kind can pass it."""

    secrets: Sequence[str] = ("canary",)

    def __init__(self) -> None:
        self.manner: Manner = "takes"
        self.gone = False
        self.ids: list[str] = []

    def behave(self, manner: Manner) -> None:
        """Answer so from now on."""
        self.manner = manner

    def arrived(self) -> list[str]:
        """Return the ids of the events."""
        return self.ids

    def vanish(self) -> None:
        """Take nothing any more."""
        self.gone = True

    def publisher(self) -> Publisher:
        """Return the publisher to it."""
        return MemoryPublisher(self)


class MemoryPublisher:
    """Puts ids into the list of its site."""

    guarantee = Guarantee(semantics="It is in the list.", duplicate_window=None, keeps_order=True, docs="this file")

    def __init__(self, site: MemorySite) -> None:
        self.site = site

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:
        """Answer in the site's manner."""
        return [self._one(item, late=seconds <= 0 or (place > 0 and self.site.manner == "never_answers")) for place, item in enumerate(parcels)]  # fmt: skip

    def _one(self, item: Parcel, *, late: bool) -> Report:
        if self.site.gone or late:
            return Error("not begun")
        self.site.ids.append(str(item.event.id))
        reports: dict[Manner, Report] = {
            "takes": Confirmed(),
            "has_nowhere": Returned("no place"),
            "refuses": Nacked("no"),
            "is_out_of_order": Error("broken"),
            "never_answers": Timeout("late"),
            "breaks_off": Timeout("broken off"),
            "talks_nonsense": Error("nonsense"),
        }
        return reports[self.site.manner]

    def close(self) -> None:
        """Hold nothing."""


class TestMemory(PublisherConformance):
    """In memory."""

    @pytest.fixture
    def site(self) -> Site:
        """A list."""
        return MemorySite()
