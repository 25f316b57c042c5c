"""What an operation is told about the one request that it is to make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_jobs import clock
from django_jobs.domain.effects import PastSend
from django_jobs.exceptions import EffectError


class DeadlinePassedError(EffectError):
    """The deadline of the call was over before its first byte, so nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCall:
    """One request to a provider, or one question about earlier ones.

    ``key`` is the provider's idempotency key: it stays the same over attempts, replays and code versions.
    ``operation_id`` is the id of the job that sent first, for the provider's metadata, so that the operation can be
    found again. ``deadline`` is the hard end on the database's clock, ``ends_at`` the same in seconds of the process's
    own clock; ``sends`` are the earlier requests, oldest first; ``first_sent_at`` is when the first of all was made
    (for the first one: now).
    """

    key: str
    operation_id: str
    effect_name: str
    business_key: str
    send_number: int
    first_sent_at: datetime
    deadline: datetime
    ends_at: float
    sends: tuple[PastSend, ...] = ()
    provider_ref: str = ""
    traceparent: str = ""

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never below zero: the TOTAL time-out of the call, not one per phase."""
        return max(0.0, self.ends_at - clock.boot_seconds())

    def check_deadline(self) -> None:
        """Refuse to begin after the deadline; call it right before the first byte, never later.

        Raises:
            DeadlinePassedError: Too late. Let it pass: the request is then recorded as not sent.
        """
        if self.remaining <= 0:
            msg = f"Not sent: the deadline of {self.effect_name!r} had passed before its first byte."
            raise DeadlinePassedError(msg)
