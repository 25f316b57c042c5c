"""A destination that keeps what it gets, in the place of one that events would be sent to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from django_jobs.domain.events import Confirmed, Event, Guarantee, Parcel, Report


class FakeReceiver:
    """Takes events as a publisher does. It confirms each, unless it was told what to answer next.

    Args:
        name: The destination in ``DJANGO_JOBS["DESTINATIONS"]`` whose place it takes.
    """

    guarantee = Guarantee(
        semantics="The test has it.", duplicate_window=None, keeps_order=True, docs="reference/test-kit.md"
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []
        self.parcels: list[Parcel] = []
        self._answers: deque[Report] = deque()

    def answer_next(self, *reports: Report) -> None:
        """Give these answers to the next parcels, one each: ``Nacked``, ``Returned``, ``Timeout`` or ``Error``."""
        self._answers.extend(reports)

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:  # noqa: ARG002  the port's
        """Answer each parcel; those that are confirmed are kept as ``events``, all of them as ``parcels``."""
        reports: list[Report] = []
        for parcel in parcels:
            report: Report = self._answers.popleft() if self._answers else Confirmed("kept by the test")
            self.parcels.append(parcel)
            if isinstance(report, Confirmed):
                self.events.append(parcel.event)
            reports.append(report)
        return reports

    def close(self) -> None:
        """Have nothing to let go of."""
