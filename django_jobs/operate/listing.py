"""Lists of jobs: filters, and pages that cost the same however deep they are."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import Exists, OuterRef, QuerySet

from django_jobs.domain.ids import first_id
from django_jobs.domain.states import AttemptOutcome
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload
from django_jobs.operate.wording import LOSS
from django_jobs.store.times import read_now

LIMIT = 50
LONGEST = 1000

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FIRST = datetime(1970, 1, 2, tzinfo=UTC)  # ids know no earlier time, and no job is older
_SKEW = timedelta(days=1)  # how far a producer's clock, which is in the ids, may be from the database's


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What to list: all conditions hold together; ``before`` is the id after which the page before this one ended."""

    states: Sequence[str] = ()
    job_types: Sequence[str] = ()
    queues: Sequence[str] = ()
    subject: str = ""
    key: str = ""
    lost: bool = False
    dead: bool = False
    since: datetime | None = None
    before: uuid.UUID | None = None
    limit: int = LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a list; ``last_outcome`` and ``loss`` describe the newest attempt and whether any was lost."""

    job: Job
    key: str
    last_outcome: str
    loss: str
    losses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Jobs, newest first; ``more`` says that older ones match too."""

    jobs: tuple[Listed, ...] = field(default=())
    more: bool = False


def list_jobs(filters: Filters, *, using: str) -> Page:
    """Return the newest jobs that match."""
    found = list(_matching(filters, using).order_by("-pk")[: filters.limit + 1])
    shown = found[: filters.limit]
    ids = [job.pk for job in shown]
    keys = dict(JobPayload.objects.using(using).filter(pk__in=ids).values_list("pk", "key"))
    emptied = [key for key in ids if key not in keys]
    if emptied:  # of a job without content the key is known as long as it holds it
        keys.update(IdempotencyKey.objects.using(using).filter(pk__in=emptied).values_list("pk", "key"))
    attempts: dict[uuid.UUID, list[str]] = {job.pk: [] for job in shown}
    rows = Attempt.objects.using(using).filter(job_id__in=ids).order_by("job_id", "number")
    for job_id, outcome in rows.values_list("job_id", "outcome"):
        attempts[job_id].append(outcome or "running")
    return Page(
        jobs=tuple(_listed(job, keys.get(job.pk, ""), attempts[job.pk]) for job in shown),
        more=len(found) > filters.limit,
    )


def _listed(job: Job, key: str, outcomes: Sequence[str]) -> Listed:
    losses = outcomes.count(AttemptOutcome.LOST)
    return Listed(
        job=job,
        key=key,
        last_outcome=outcomes[-1] if outcomes else "",
        loss=LOSS if losses else "",
        losses=losses,
    )


def _matching(filters: Filters, using: str) -> QuerySet[Job]:
    jobs = Job.objects.using(using).all()
    if filters.dead:
        jobs = jobs.dead()
    for column, wanted in (("state", filters.states), ("job_type", filters.job_types), ("queue_name", filters.queues)):
        if wanted:
            jobs = jobs.filter(**{f"{column}__in": list(wanted)})
    if filters.subject:
        jobs = jobs.about(filters.subject)
    if filters.key:
        # The key that it was enqueued with; without content, the key that it still holds.
        enqueued = JobPayload.objects.using(using).filter(pk=OuterRef("pk"), key=filters.key)
        holding = IdempotencyKey.objects.using(using).filter(pk=OuterRef("pk"), key=filters.key)
        jobs = jobs.filter(Exists(enqueued) | Exists(holding))
    if filters.lost:
        jobs = jobs.filter(Exists(Attempt.objects.using(using).lost().filter(job_id=OuterRef("pk"))))
    if filters.since is not None:
        # Ids sort by time, so the primary key bounds the look; the column decides.
        since = max(filters.since, _FIRST)
        jobs = jobs.filter(created_at__gte=since, pk__gte=first_id(since - _SKEW))
    if filters.before is not None:
        jobs = jobs.filter(pk__lt=filters.before)
    return jobs


def parse_span(text: str) -> timedelta:
    """Read a span of time: ``30m``, ``12h``, ``7d``.

    Raises:
        ValueError: It is none; the message says what to give.
    """
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if not found:
        msg = f"{text!r} is no span of time; give one such as 30m, 2h or 7d."
        raise ValueError(msg)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def parse_since(text: str, *, using: str) -> datetime:
    """Read an instant in ISO form (UTC unless it says otherwise), or a span back from now: ``30m``, ``12h``, ``7d``.

    Raises:
        ValueError: It is neither; the message says what to give.
    """
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    try:
        if found:
            return read_now(using) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        value = datetime.fromisoformat(text.strip())
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        msg = f"{text!r} is no time; give an instant such as 2026-11-29T18:00 (UTC), or a span such as 30m, 12h or 7d."
        raise ValueError(msg) from None
    return value
