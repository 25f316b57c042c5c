"""What one run of a matrix left behind: the state of the job, of its attempts and effects, and what can be counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import connections

from django_jobs.models import Attempt, Job, Send, SideEffect
from django_jobs.operate.verify import verify
from django_jobs.testing.downstream import Applied, Call, FakeDownstream

FINISHED = ("succeeded", "cancelled", "dead_lettered")
_OURS = "django_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there after a run. ``counted`` is what ``effects()`` grew by; ``keys`` are those of the effects."""

    counted: int | None
    rows: Any
    jobs: tuple[tuple[str, str, str], ...]  # type, state, reason of a dead letter
    keys: tuple[tuple[str, str], ...]  # business key and name of each effect of the job
    errors: tuple[tuple[str, str], ...]  # type and message, of each attempt that failed
    table: str
    needs_review: bool = False
    applied: tuple[Applied, ...] = ()
    calls: tuple[Call, ...] = ()
    violated: tuple[tuple[str, str, str], ...] = field(default=())  # invariant, meaning, id
    lines: tuple[str, ...] = ()  # of the handler, that wrote rows which do not commit with the success
    refused: int = 0

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The types of the jobs that did not come to an end."""
        return tuple(kind for kind, state, _ in self.jobs if state not in FINISHED)

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """What the provider applied: operation and body, whatever the key."""
        return Counter((entry.operation, _text(entry.body)) for entry in self.applied)


class Eye:
    """Looks at the state before a run and after it."""

    def __init__(
        self,
        *,
        using: str,
        effects: Callable[[], int] | None,
        rows: Callable[[], Any] | None,
        downstream: FakeDownstream | None,
    ) -> None:
        self._using = using
        self._effects, self._rows, self._downstream = effects, rows, downstream
        self._before = effects() if effects else 0
        self._jobs = set(Job.objects.using(using).values_list("pk", flat=True))
        self._applied = len(downstream.ledger) if downstream else 0
        self._calls = len(downstream.calls) if downstream else 0
        self._violated = set(_violated(using))

    def look(self, lines: tuple[str, ...] = ()) -> Seen:
        """Return what came to be since the first look."""
        jobs = list(Job.objects.using(self._using).exclude(pk__in=self._jobs).order_by("created_at", "pk"))
        attempts = list(Attempt.objects.using(self._using).filter(job__in=jobs).order_by("job_id", "number"))
        effects = list(SideEffect.objects.using(self._using).filter(job__in=jobs).order_by("created_at", "pk"))
        downstream = self._downstream
        applied = tuple(downstream.ledger[self._applied :]) if downstream else ()
        return Seen(
            counted=self._effects() - self._before if self._effects else (len(applied) if downstream else None),
            rows=self._rows() if self._rows else count_rows(self._using),
            jobs=tuple(sorted((job.job_type, job.state, job.dead_reason) for job in jobs)),
            keys=tuple((effect.business_key, effect.name) for effect in effects),
            errors=tuple((item.error_type, item.message) for item in attempts if item.error_type),
            table=table_of(jobs, attempts, effects, self._using),
            needs_review=any(effect.needs_review for effect in effects),
            applied=applied,
            calls=tuple(downstream.calls[self._calls :]) if downstream else (),
            violated=tuple(found for found in _violated(self._using) if found not in self._violated),
            lines=lines,
            refused=sum(item.refused_count for item in attempts),
        )


def count_rows(using: str) -> dict[str, int]:
    """Count the rows of each table that a model of the project has in this database; ours are left out."""
    connection = connections[using]
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
    found = {}
    for model in apps.get_models(include_auto_created=True):
        name = model._meta.db_table  # noqa: SLF001  Django's public door
        if model._meta.app_label != _OURS and name in existing:  # noqa: SLF001
            found[name] = model._base_manager.using(using).count()  # noqa: SLF001
    return found


def table_of(jobs: list[Job], attempts: list[Attempt], effects: list[SideEffect], using: str) -> str:
    """Write the state of jobs, attempts and effects, one line each."""
    lines = []
    for job in jobs:
        why = f" ({job.dead_reason})" if job.dead_reason else ""
        lines.append(f"job      {job.job_type} {str(job.pk)[-8:]}: {job.state}{why}")
        lines += [f"attempt    {_attempt(item)}" for item in attempts if item.job_id == job.pk]
        for effect in (effect for effect in effects if effect.job_id == job.pk):
            sends = Send.objects.using(using).filter(effect=effect).order_by("number")
            told = ", ".join(f"send {send.number} {send.outcome or 'open'}" for send in sends) or "never sent"
            lines.append(f"effect     {effect.name} ({effect.business_key}): {effect.state}; {told}")
    return "\n".join(lines) or "no job"


def _attempt(item: Attempt) -> str:
    text = f"{item.number}: {item.outcome or 'open'}"
    if item.error_type:
        text += f", {item.error_type.rpartition('.')[2]}: {item.message.partition(chr(10))[0][:120]}"
    return text + (f", refused {item.refused_count} times" if item.refused_count else "")


def _violated(using: str) -> list[tuple[str, str, str]]:
    return [
        (item.invariant.name, item.invariant.meaning, identity)
        for item in verify(using=using).violated
        for identity in item.ids
    ]


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True, default=str)
