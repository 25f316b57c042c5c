"""What the built-in job does that takes an effect of another job back."""

from __future__ import annotations

import uuid

from django_jobs.domain.compensation import COMPENSATION_EFFECT, taken_back_key
from django_jobs.domain.states import CompensationOutcome
from django_jobs.effects.compensation import taking_back_of
from django_jobs.exceptions import PermanentError
from django_jobs.models import Compensation, SideEffect
from django_jobs.store.compensations import compensation_by, succeed_for
from django_jobs.worker.context import JobContext


def take_back(context: JobContext, effect_id: uuid.UUID, *, by_hand: bool) -> None:
    """Send what takes the effect back, once whatever crashes, and close the compensation together with the success.

    Raises:
        PermanentError: Nobody decided this, or the decision does not stand any more; nothing was sent.
    """
    row = _decided(context, effect_id)
    result: dict[str, object] = {"effect_id": str(effect_id), "job_id": str(row.original_job_id)}
    if not by_hand:
        effect = SideEffect.objects.using(context.database).get(pk=effect_id)
        taking_back = taking_back_of(effect)
        receipt = context.effect(
            COMPENSATION_EFFECT, taking_back.operation, key=taken_back_key(effect_id), **taking_back.request
        )
        if receipt.abandoned:
            msg = (
                f"Whether effect {effect_id} was taken back was given up by hand, so this is no success. Discard this "
                "job, and record what is known by other means with --by-hand."
            )
            raise PermanentError(msg)
        result["ref"] = receipt.provider_ref
    with context.complete() as done:
        result["resolved"] = succeed_for(context.job_id, using=context.database)
        done.result = result


def _decided(context: JobContext, effect_id: uuid.UUID) -> Compensation:
    row = compensation_by(context.job_id, using=context.database)
    if row is None or row.effect_id != effect_id or row.outcome != CompensationOutcome.OPEN:
        msg = (
            f"No open compensation of effect {effect_id} names this job; nothing was sent. Ask for one with "
            f"'manage.py jobs compensate {effect_id}'."
        )
        raise PermanentError(msg)
    return row
