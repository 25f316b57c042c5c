"""What the built-in job does that takes an effect of another job back."""

from __future__ import annotations

import uuid

from django_jobs import faults
from django_jobs.domain.compensation import COMPENSATION_EFFECT, Agreed, taken_back_key
from django_jobs.domain.states import CompensationOutcome, EffectState
from django_jobs.effects.compensation import TakingBack, taking_back_of
from django_jobs.exceptions import DefinitionError, PayloadError, PermanentError
from django_jobs.models import Compensation, SideEffect
from django_jobs.store.compensations import compensation_by, succeed_for, taking_back_row
from django_jobs.worker.context import JobContext


def take_back(context: JobContext, effect_id: uuid.UUID, *, agreed: Agreed | None) -> None:
    """Send what takes the effect back, once whatever crashes, and close the compensation together with the success.

    Args:
        context: The attempt's.
        effect_id: The effect to take back.
        agreed: What the decision said would be sent; None: nothing is, it was done by hand.

    Raises:
        PermanentError: Nobody decided this, the decision does not stand any more, or this code would do something else
            than was agreed to; this attempt sent nothing.
    """
    row = _decided(context, effect_id)
    faults.reached("compensate.before", using=context.database)
    result: dict[str, object] = {"effect_id": str(effect_id), "job_id": str(row.original_job_id)}
    if agreed is not None:
        result["ref"] = _sent(context, SideEffect.objects.using(context.database).get(pk=effect_id), agreed)
    faults.reached("compensate.after_call", using=context.database)
    with context.complete() as done:
        result["resolved"] = succeed_for(context.job_id, using=context.database)
        faults.reached("compensate.after_update", using=context.database)
        done.result = result


def _sent(context: JobContext, effect: SideEffect, agreed: Agreed) -> str:
    """Take the effect back as was agreed, and return the provider's reference; what was applied is only recorded."""
    found, otherwise = _as_agreed(effect, agreed)
    done = taking_back_row(effect, using=context.database)
    if done is not None and done.state == EffectState.SUCCEEDED:
        if found is None or found.request_digest != done.request_digest:
            return done.provider_ref  # whatever would be sent now: it has been taken back
    elif found is None:
        msg = (
            f"{otherwise} This attempt sent nothing. When workers run the code that was decided about, replay this "
            "job; if the other way is wanted, discard it and decide again."
        )
        raise PermanentError(msg)
    receipt = context.effect(COMPENSATION_EFFECT, found.operation, key=taken_back_key(effect.pk), **found.request)
    if receipt.abandoned:
        msg = (
            f"Whether effect {effect.pk} was taken back was given up by hand, so this is no success. Discard this "
            "job, and record what is known by other means with --by-hand."
        )
        raise PermanentError(msg)
    return receipt.provider_ref


def _as_agreed(effect: SideEffect, agreed: Agreed) -> tuple[TakingBack | None, str]:
    """Return how this code takes the effect back; None, and why, if that is not what was agreed to."""
    try:
        found = taking_back_of(effect)
    except (DefinitionError, PayloadError) as error:
        return None, f"The code of this worker cannot take effect {effect.pk} back: {error}"
    how = agreed.differs_from(found.agreed)
    return (None, f"The code of this worker would take effect {effect.pk} back {how}.") if how else (found, "")


def _decided(context: JobContext, effect_id: uuid.UUID) -> Compensation:
    row = compensation_by(context.job_id, using=context.database)
    if row is None or row.effect_id != effect_id or row.outcome != CompensationOutcome.OPEN:
        msg = (
            f"No open compensation of effect {effect_id} names this job; nothing was sent. Ask for one with "
            f"'manage.py jobs compensate {effect_id}'."
        )
        raise PermanentError(msg)
    return row
