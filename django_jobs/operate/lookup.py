"""Finding one job or side effect by its id or by the first digits of it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from django_jobs.domain.states import Pruning
from django_jobs.exceptions import JobsError
from django_jobs.models import IdempotencyKey, Job, PrunedStretch, SideEffect
from django_jobs.operate.wording import instant

SHORTEST = 8
_DIGITS = 32
_SHOWN = 5


class JobNotFoundError(JobsError, LookupError):
    """No job has this id, or more than one begins with these digits, or it is no id at all."""


class EffectNotFoundError(JobsError, LookupError):
    """No side effect has this id, or more than one begins with these digits, or it is no id at all."""


def find_job(text: str, *, using: str) -> Job:
    """Return the job with this id, or the only one whose id begins with it (8 hexadecimal digits at least).

    Raises:
        JobNotFoundError: The message says what to give instead.
    """
    lowest, highest = _range(text, "job", JobNotFoundError)
    found = list(Job.objects.using(using).filter(pk__gte=lowest, pk__lte=highest).order_by("pk")[: _SHOWN + 1])
    if not found:
        msg = f"There is no job {text!r} in database {using!r}.{_pruned(lowest, highest, using)}"
        raise JobNotFoundError(msg)
    if len(found) > 1:
        raise JobNotFoundError(_several(text, "job", [job.pk for job in found]))
    return found[0]


def find_effect(text: str, *, using: str) -> SideEffect:
    """Return the side effect with this id, or the only one whose id begins with it (8 hexadecimal digits at least).

    Raises:
        EffectNotFoundError: The message says what to give instead.
    """
    lowest, highest = _range(text, "side effect", EffectNotFoundError)
    rows = SideEffect.objects.using(using).filter(pk__gte=lowest, pk__lte=highest).order_by("pk")
    found = list(rows[: _SHOWN + 1])
    if not found:
        msg = f"There is no side effect {text!r} in database {using!r}; 'manage.py jobs show JOB' prints their ids."
        raise EffectNotFoundError(msg)
    if len(found) > 1:
        raise EffectNotFoundError(_several(text, "side effect", [effect.pk for effect in found]))
    return found[0]


def _range(text: str, what: str, error: type[JobsError]) -> tuple[uuid.UUID, uuid.UUID]:
    digits = text.strip().replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]+", digits) or not SHORTEST <= len(digits) <= _DIGITS:
        msg = f"{text!r} is no {what} id; give the whole UUID, or its first {SHORTEST} hexadecimal digits or more."
        raise error(msg)
    return uuid.UUID(digits.ljust(_DIGITS, "0")), uuid.UUID(digits.ljust(_DIGITS, "f"))


def _several(text: str, what: str, ids: Sequence[uuid.UUID]) -> str:
    some = ", ".join(map(str, ids[:_SHOWN]))
    more = " and more" if len(ids) > _SHOWN else ""
    return f"More than one {what} begins with {text!r}: {some}{more}. Give more digits."


def _pruned(lowest: uuid.UUID, highest: uuid.UUID, using: str) -> str:
    """Say what pruning left of a job, or that it took jobs of this age."""
    key = IdempotencyKey.objects.using(using).filter(pk__gte=lowest, pk__lte=highest, expires_at__isnull=False).first()
    if key is not None:
        end = f"{key.final_state} ({key.final_resolution})" if key.final_resolution else key.final_state
        return (
            f" Job {key.pk} ended {end} and was pruned; its idempotency key {key.key} in scope {key.scope} answers "
            f"until {instant(key.expires_at)}."
        )
    stretches = PrunedStretch.objects.using(using).filter(
        kind=Pruning.JOBS, last_job_id__gte=lowest, first_job_id__lte=highest
    )
    newest = stretches.order_by("-created_at").first()
    if newest is None:
        return ""
    return f" Finished jobs with ids near it were pruned, the last of them at {instant(newest.created_at)}."
