"""What one run of a matrix left behind: the state of the job, of its attempts and effects, and what can be counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from django_jobs.models import Attempt, Job, Send, SideEffect
from django_jobs.operate.verify import verify
from django_jobs.testing.downstream import Applied, Call, FakeDownstream
from django_jobs.testing.tables import Tables, Values, look_at_events, look_at_tables

FINISHED = ("succeeded", "cancelled", "dead_lettered")
REQUEST = "request "  # begins the name of what the provider was asked for, among the values of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there after a run. ``counted`` is what ``effects()`` grew by; ``keys`` are those of the effects.

    ``values`` says of each column, and of each field of the requests that the provider applied, how often it has which
    value. ``events`` counts what was published, by type.
    """

    counted: int | None
    rows: Any
    values: Values = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
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
    def operations(self) -> Counter[str]:
        """How often the provider applied each operation."""
        return Counter(entry.operation for entry in self.applied)

    @property
    def requests(self) -> set[tuple[str, str]]:
        """What the provider applied: operation and body, whatever the key."""
        return {(entry.operation, _text(entry.body)) for entry in self.applied}

    def unlike(self, dry: Seen) -> set[str]:
        """The names of the values that are others than in another run."""
        return {name for name in {*self.values, *dry.values} if self.values.get(name) != dry.values.get(name)}


class Eye:
    """Looks at the state before a run and after it."""

    def __init__(
        self,
        *,
        using: str,
        databases: Collection[str],
        effects: Callable[[], int] | None,
        rows: Callable[[], Any] | None,
        downstream: FakeDownstream | None,
    ) -> None:
        self._using, self._databases = using, databases
        self._effects, self._rows, self._downstream = effects, rows, downstream
        self._before = effects() if effects else 0
        self._jobs = set(Job.objects.using(using).values_list("pk", flat=True))
        self._applied = len(downstream.ledger) if downstream else 0
        self._calls = len(downstream.calls) if downstream else 0
        self._violated = set(_violated(using))
        self._events = look_at_events(using, databases)

    def look(self, lines: tuple[str, ...] = ()) -> Seen:
        """Return what came to be since the first look."""
        jobs = list(Job.objects.using(self._using).exclude(pk__in=self._jobs).order_by("created_at", "pk"))
        attempts = list(Attempt.objects.using(self._using).filter(job__in=jobs).order_by("job_id", "number"))
        effects = list(SideEffect.objects.using(self._using).filter(job__in=jobs).order_by("created_at", "pk"))
        downstream = self._downstream
        applied = tuple(downstream.ledger[self._applied :]) if downstream else ()
        tables = Tables() if self._rows else look_at_tables(self._using, self._databases)
        return Seen(
            counted=self._effects() - self._before if self._effects else (len(applied) if downstream else None),
            rows=self._rows() if self._rows else tables.rows,
            values={**tables.values, **_fields(applied)},
            events=look_at_events(self._using, self._databases) - self._events,
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


def _fields(applied: tuple[Applied, ...]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for entry in applied:
        for name, value in entry.body.items():
            found.setdefault(f"{REQUEST}{entry.operation}.{name}", Counter())[_text(value)] += 1
    return found


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True, default=str)
