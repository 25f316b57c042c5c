"""Into which class the replay of a dead letter falls, for many at a time: a fixed number of queries per page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from django_jobs.domain.states import JobState
from django_jobs.models import EffectAdoption, IdempotencyKey, Job, JobPayload, SideEffect
from django_jobs.operate.composition import Composition
from django_jobs.operate.history import EffectHistory, JobHistory, effects_with_rows
from django_jobs.operate.job_decision import refused_by_compensation
from django_jobs.operate.replay import refused_replay
from django_jobs.operate.replay_plan import OnReplay, ReplayPlan, plan_replay
from django_jobs.operate.selection import Selection
from django_jobs.store.decisions import standing_compensations
from django_jobs.store.times import read_now

PAGE = 500
MOST = 50_000
NOT_DEAD = "not_dead"  # named, and no dead letter (any more)
REFUSED = "refused"  # it cannot be replayed in bulk
HARMLESS = (OnReplay.SKIP, OnReplay.SEND, OnReplay.SAME_KEY, OnReplay.RECONCILE)
BULK = (*HARMLESS, OnReplay.MAY_REPEAT)  # what may be acknowledged for many at once
CLASSES = (*(item.value for item in OnReplay), REFUSED, NOT_DEAD)


def class_of(history: JobHistory, found: ReplayPlan, *, taken_back: str) -> str:
    """Return the class of one job's replay: its gravest effect's, or why it is not replayed with others."""
    if history.job.state != JobState.DEAD_LETTERED or history.job.resolution is not None:
        return NOT_DEAD
    if found.refused or taken_back:
        return REFUSED
    if found.worst is OnReplay.NEEDS_DECISION:
        return OnReplay.NEEDS_DECISION.value
    if refused_replay(history, found):
        return REFUSED
    if not found.rows_safe:
        return OnReplay.MAY_REPEAT.value
    return (found.worst or OnReplay.SKIP).value


def counted_classes(
    selection: Selection, *, using: str, dead_until: datetime | None = None
) -> tuple[Counter[str], set[str], bool]:
    """Count the jobs of a selection per class.

    Returns:
        The counts, the job types that are among them, and whether the look ended at its bound.
    """
    counts: Counter[str] = Counter()
    types: set[str] = set()
    after = None
    while page := selection.page(using=using, after=after, limit=PAGE, dead_until=dead_until):
        for job, name in classify(page, using=using):
            counts[name] += 1
            types.add(job.job_type)
        after = page[-1].pk
        if counts.total() >= MOST:
            return counts, types, True
    return counts, types, False


def classify(jobs: Sequence[Job], *, using: str) -> Iterator[tuple[Job, str]]:
    """Yield each job with the class of its replay."""
    ids = [job.pk for job in jobs]
    standing = standing_compensations(ids, using=using)
    for history in _histories(jobs, using):
        taken_back = refused_by_compensation(standing.get(history.job.pk, ()))
        yield history.job, class_of(history, plan_replay(history), taken_back=taken_back)


def _histories(jobs: Sequence[Job], using: str) -> Iterator[JobHistory]:
    """Yield of each job what its plan needs: its effects and its key, and nothing else."""
    ids, now = [job.pk for job in jobs], read_now(using)
    payloads = JobPayload.objects.using(using).filter(pk__in=ids).only("job_id", "key").in_bulk()
    keys = IdempotencyKey.objects.using(using).in_bulk(ids)
    adopted = list(EffectAdoption.objects.using(using).filter(job_id__in=ids).values_list("job_id", "effect_id"))
    rows = SideEffect.objects.using(using)
    wanted = {
        item.effect.pk: item
        for item in (
            *effects_with_rows(rows.filter(job_id__in=ids), using),
            *(effects_with_rows(rows.filter(pk__in=[effect for _, effect in adopted]), using) if adopted else ()),
        )
    }
    own: dict[object, list[EffectHistory]] = {}
    for item in wanted.values():
        own.setdefault(item.effect.job_id, []).append(item)
    for job in jobs:
        taken = [wanted[effect] for by, effect in adopted if by == job.pk and effect in wanted]
        yield JobHistory(
            using=using,
            read_at=now,
            job=job,
            payload=payloads.get(job.pk),
            key=keys.get(job.pk),
            attempts=(),
            effects=tuple(own.get(job.pk, ())),
            adopted=tuple(taken),
            steps=(),
            duplicates=(),
            cancel_requests=(),
            composition=Composition(job=job, batch=None, link=None, following=(), length=0),
        )
