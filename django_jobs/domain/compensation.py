"""Names that belong to compensations: the built-in job type, its key, and the effect that it causes."""

from __future__ import annotations

import uuid

COMPENSATION_TYPE = "django_jobs.compensate"
COMPENSATION_EFFECT = "compensation"


def compensation_key(effect_id: uuid.UUID, number: int) -> str:
    """Return the idempotency key of the job that is the ``number``-th try (from 1) to take an effect back."""
    return f"compensation:{effect_id}:{number}"


def taken_back_key(effect_id: uuid.UUID) -> str:
    """Return the business key of what takes an effect back: one for all jobs that try it, so that it happens once."""
    return f"compensate:{effect_id}"
