"""The port that a destination is reached through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from django_jobs.domain.events import Guarantee, Parcel, Report


class Publisher(Protocol):
    """Carries events to one destination; made once per dispatcher, used by one thread at a time."""

    guarantee: Guarantee

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:
        """Carry the parcels, in this order where the guarantee says so; one report each, in the same order.

        It returns within ``seconds`` and never raises for what a destination answers or fails to answer. What it could
        not even begin in time is reported as ``Error``. It does not retry: every request is an attempt on record.
        """

    def close(self) -> None:
        """Let go of connections."""
