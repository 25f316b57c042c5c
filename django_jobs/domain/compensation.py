"""What belongs to compensations: the built-in job type, its key, the effect that it causes, and what was agreed to."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

COMPENSATION_TYPE = "django_jobs.compensate"
COMPENSATION_EFFECT = "compensation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What was acknowledged with a compensation, and goes with its job: the code that runs it may be another one.

    All three are empty when nothing is sent.
    """

    operation: str
    dedupe: str
    request_digest: str

    def differs_from(self, present: Agreed) -> str:
        """Say in plain English how this code would do something else; empty: it would not."""
        if self.operation != present.operation:
            return f"with {present.operation!r} instead of {self.operation!r}"
        if self.dedupe != present.dedupe:
            return f"under the promise {present.dedupe!r} instead of {self.dedupe!r}"
        if self.request_digest != present.request_digest:
            return f"with another request ({present.request_digest} instead of {self.request_digest})"
        return ""


def compensation_key(effect_id: uuid.UUID, number: int) -> str:
    """Return the idempotency key of the job that is the ``number``-th try (from 1) to take an effect back."""
    return f"compensation:{effect_id}:{number}"


def taken_back_key(effect_id: uuid.UUID) -> str:
    """Return the business key of what takes an effect back: one for all jobs that try it, so that it happens once."""
    return f"compensate:{effect_id}"
