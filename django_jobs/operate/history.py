"""Everything that is stored about one job, read in a fixed number of queries and redacted before it is shown."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from django.db.models import Model

from django_jobs.domain.compensation import COMPENSATION_TYPE
from django_jobs.domain.redaction import MASK, Redactor
from django_jobs.domain.states import CompensationOutcome
from django_jobs.masking import redactor
from django_jobs.models import (
    Attempt,
    CancelRequest,
    Compensation,
    DuplicateEnqueue,
    EffectAdoption,
    IdempotencyKey,
    Job,
    JobPayload,
    JobStep,
    OperatorAction,
    Reconciliation,
    Send,
    SideEffect,
)
from django_jobs.operate.cancel_requests import fates
from django_jobs.operate.composition import Composition, composition_of
from django_jobs.operate.wording import duration, instant
from django_jobs.store.compensations import applied_anyway
from django_jobs.store.times import read_now


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectHistory:
    """One side effect: its sends by number, the questions asked about it, and who took over its receipt."""

    effect: SideEffect
    sends: tuple[Send, ...]
    reconciliations: tuple[Reconciliation, ...]
    adoptions: tuple[EffectAdoption, ...]
    content_removed_at: datetime | None = None  # of the job that caused it
    compensations: tuple[Compensation, ...] = ()
    is_taken_back_anyway: bool = False  # by a job that had been given up

    def is_compared(self, adoption: EffectAdoption) -> bool:
        """Whether what the adopter asked for was compared with what had been applied: afterwards nobody can tell."""
        return self.content_removed_at is None or adoption.created_at < self.content_removed_at

    @property
    def compensation(self) -> Literal["none", "open", "succeeded"]:
        """Whether the effect is being, or has been, taken back."""
        standing = next((row.outcome for row in self.compensations if row.outcome != CompensationOutcome.VOID), "none")
        if standing == "none" and self.is_taken_back_anyway:
            return "succeeded"
        return cast('Literal["none", "open", "succeeded"]', standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """One job with all that belongs to it; ``adopted`` are effects of other jobs whose receipts it took.

    ``takes_back`` is set for a job that takes an effect of another one back, with the ``decision`` that asked for it.
    """

    using: str
    read_at: datetime
    job: Job
    payload: JobPayload | None
    key: IdempotencyKey | None
    attempts: tuple[Attempt, ...]
    effects: tuple[EffectHistory, ...]
    adopted: tuple[EffectHistory, ...]
    steps: tuple[JobStep, ...]
    duplicates: tuple[DuplicateEnqueue, ...]
    cancel_requests: tuple[CancelRequest, ...]
    composition: Composition
    takes_back: Compensation | None = None
    decision: OperatorAction | None = None
    actions: tuple[OperatorAction, ...] = ()

    @property
    def content_removed(self) -> str:
        """When and how long after its end the job's content was removed, as part of a sentence; empty if it was not."""
        removed, finished = self.job.content_removed_at, self.job.finished_at
        if removed is None or finished is None:
            return ""
        return f"removed at {instant(removed)}, {duration(removed - finished)} after its end"

    def attempt_number(self, attempt_id: uuid.UUID | None) -> int | None:
        """Return the number of an attempt of this job, None for another job's."""
        return next((attempt.number for attempt in self.attempts if attempt.pk == attempt_id), None)


def history_of(job: Job, *, using: str) -> JobHistory:
    """Read all rows of a job."""
    effects = SideEffect.objects.using(using)
    takes_back = _taking_back(job, using)
    payload = JobPayload.objects.using(using).filter(pk=job.pk).first()
    taken = EffectAdoption.objects.using(using).filter(job_id=job.pk).values_list("effect_id", flat=True)
    return JobHistory(
        using=using,
        read_at=read_now(using),
        job=job,
        payload=payload,
        key=IdempotencyKey.objects.using(using).filter(pk=job.pk).first(),
        attempts=tuple(Attempt.objects.using(using).filter(job_id=job.pk).order_by("number")),
        effects=effects_with_rows(effects.filter(job_id=job.pk), using),
        adopted=effects_with_rows(effects.filter(pk__in=list(taken)), using),
        steps=tuple(JobStep.objects.using(using).filter(job_id=job.pk).order_by("created_at", "id")),
        duplicates=tuple(DuplicateEnqueue.objects.using(using).filter(job_id=job.pk).order_by("created_at", "id")),
        cancel_requests=tuple(CancelRequest.objects.using(using).filter(job_id=job.pk).order_by("generation")),
        composition=composition_of(job, payload, using=using),
        takes_back=takes_back,
        decision=OperatorAction.objects.using(using).filter(pk=takes_back.action_id).first() if takes_back else None,
        actions=tuple(OperatorAction.objects.using(using).filter(job_id=job.pk).order_by("id")),
    )


def _taking_back(job: Job, using: str) -> Compensation | None:
    if job.job_type != COMPENSATION_TYPE:
        return None
    return Compensation.objects.using(using).select_related("effect").filter(job_id=job.pk).first()


def effects_with_rows(effects: Iterable[SideEffect], using: str) -> tuple[EffectHistory, ...]:
    """Return effects with their sends, questions, adoptions and compensations, oldest first, in four queries."""
    found = sorted(effects, key=lambda effect: (effect.created_at, effect.pk))
    if not found:
        return ()
    ids = [effect.pk for effect in found]
    sends = _by_effect(Send.objects.using(using).filter(effect_id__in=ids).order_by("number"))
    asked = _by_effect(Reconciliation.objects.using(using).filter(effect_id__in=ids).order_by("created_at", "id"))
    adoptions = _by_effect(EffectAdoption.objects.using(using).filter(effect_id__in=ids).order_by("created_at", "id"))
    emptied = {effect.job_id for effect in found if not effect.request_digest and adoptions[effect.pk]}
    jobs = Job.objects.using(using).filter(pk__in=emptied) if emptied else Job.objects.none()
    removed = dict(jobs.values_list("pk", "content_removed_at"))
    owners = {effect.job_id for effect in found}
    taken = Compensation.objects.using(using).filter(original_job_id__in=owners, effect_id__in=ids)
    compensations = _by_effect(taken.select_related("effect").order_by("created_at", "id"))
    void = (row for rows in compensations.values() for row in rows if row.outcome == CompensationOutcome.VOID)
    anyway = applied_anyway(void, using=using)
    return tuple(
        EffectHistory(
            effect=effect,
            sends=tuple(sends[effect.pk]),
            reconciliations=tuple(asked[effect.pk]),
            adoptions=tuple(adoptions[effect.pk]),
            content_removed_at=removed.get(effect.job_id),
            compensations=tuple(compensations[effect.pk]),
            is_taken_back_anyway=effect.pk in anyway,
        )
        for effect in found
    )


def effect_history(effect: SideEffect, *, using: str) -> EffectHistory:
    """Read the rows of one effect."""
    return effects_with_rows([effect], using)[0]


def _by_effect(rows: Iterable[Any]) -> dict[uuid.UUID, list[Any]]:
    grouped: dict[uuid.UUID, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.effect_id].append(row)
    return grouped


def shown_json(text: str | None, mask: Redactor) -> Any:
    """Return stored JSON with its secrets masked, None for none; a text that is no JSON is hidden whole."""
    if not text:  # empty: pruning removed it
        return None
    try:
        return mask.value(json.loads(text))
    except ValueError:
        return MASK


# Stored as JSON text, and as free text that may quote anything.
_JSON = frozenset(
    {"arguments", "context", "data", "evidence", "plan", "request", "result", "retry_policy", "selection"}
)
_CALLS = frozenset({"call", "callback"})  # what is enqueued later: its arguments are shown as those of its job
_TEXT = frozenset(
    {
        "detail",
        "error_text",
        "last_error",
        "message",
        "reason",
        "review_reason",
        "stopped_because",
        "traceback",
        "why",
    }
)


def as_dict(history: JobHistory) -> dict[str, Any]:
    """Return everything as JSON values, secrets masked: what ``jobs show --json`` prints."""
    mask = redactor()

    def rows(found: Iterable[Model]) -> list[dict[str, Any]]:
        return [row_as_dict(row, mask) for row in found]

    def effects(found: Iterable[EffectHistory]) -> list[dict[str, Any]]:
        return [
            {
                **row_as_dict(item.effect, mask),
                "sends": rows(item.sends),
                "reconciliations": rows(item.reconciliations),
                "adoptions": rows(item.adoptions),
                "compensations": rows(item.compensations),
            }
            for item in found
        ]

    return {
        "database": history.using,
        "read_at": plain(history.read_at),
        "job": row_as_dict(history.job, mask),
        "content_removed": history.content_removed,
        "payload": row_as_dict(history.payload, mask) if history.payload else None,
        "key": row_as_dict(history.key, mask) if history.key else None,
        "attempts": rows(history.attempts),
        "effects": effects(history.effects),
        "adopted": effects(history.adopted),
        "steps": rows(history.steps),
        "duplicates": rows(history.duplicates),
        "decisions": rows(history.actions),
        "cancel_requests": [
            {**row_as_dict(told.request, mask), "fate": told.fate.value, "told": told.text} for told in fates(history)
        ],
        "takes_back": row_as_dict(history.takes_back, mask) if history.takes_back else None,
    }


def row_as_dict(row: Model, mask: Redactor) -> dict[str, Any]:
    """Return the columns of a row as JSON values, secrets masked."""
    return {
        field.attname: _shown(field.attname, getattr(row, field.attname), mask)
        for field in row._meta.concrete_fields  # noqa: SLF001
    }


def _shown(column: str, value: Any, mask: Redactor) -> Any:
    if column in _CALLS and value:
        return MASK
    if column in _JSON:
        return shown_json(value, mask)
    if column in _TEXT and value:
        return mask.text(value)
    return plain(value)


def plain(value: Any) -> Any:
    """Return a column's value as a JSON value: ids as text, instants in UTC as ISO text with microseconds."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value
