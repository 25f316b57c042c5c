"""Looks at stored jobs and effects: past their lease, of unknown type, long in one transaction, waiting for a human."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta

from django.db.models import F, QuerySet

from django_jobs.define import registry
from django_jobs.domain.lanes import kind_in
from django_jobs.domain.states import CompensationOutcome
from django_jobs.models import Attempt, Compensation, Job, SideEffect
from django_jobs.operate.doctor_workers import alive
from django_jobs.operate.finding import NAMES_SHOWN, Finding, Look, Surroundings, info, some, warning
from django_jobs.operate.wording import counted, duration
from django_jobs.store.compensations import applied_anyway
from django_jobs.store.pauses import paused, pauses
from django_jobs.store.waiting import known_queues, set_aside

LOOK_BACK = 10_000  # newest jobs whose attempts and owners are looked at


def job_looks() -> tuple[Look, ...]:
    """Return the looks at jobs and effects."""
    return (
        _past_lease,
        _unknown_types,
        _types_without_worker,
        _long_atomic,
        _stored_owners,
        _reviews,
        _taken_back_anyway,
        _dead_letters,
        _paused,
        _set_aside,
    )


def _past_lease(around: Surroundings) -> Iterator[Finding]:
    late = Job.objects.using(around.using).filter(
        state="running", lease_expires_at__lt=around.now - around.rules.expired_patience
    )
    ids = list(late.order_by("pk").values_list("pk", flat=True))
    if ids:
        yield warning(
            "past-lease",
            f"{counted(len(ids), 'job')} in state running past the lease: {some(ids)}.",
            "A live worker takes them back within seconds; if none does, start one and see 'manage.py jobs explain'.",
        )


def _unfinished(around: Surroundings) -> QuerySet[Job]:
    return Job.objects.using(around.using).unfinished()


def _unknown_types(around: Surroundings) -> Iterator[Finding]:
    known: dict[str, set[int]] = {}
    for name, definition in registry.definitions():
        known.setdefault(name, set()).update(definition.versions)
    stored = _unfinished(around).order_by().values_list("job_type", "payload_version").distinct()
    strange = sorted(job_type for job_type, _ in set(stored) if job_type not in known)
    if strange:
        yield warning(
            "unknown-job-type",
            f"Unfinished jobs of types that this code does not know: {some(dict.fromkeys(strange))}.",
            "Deploy the code that has them, keep the old name in aliases=, or install the app.",
        )
    versions = sorted(
        f"{name} version {version}" for name, version in set(stored) if version not in known.get(name, {version})
    )
    if versions:
        yield warning(
            "unknown-payload-version",
            f"Unfinished jobs with payload versions that this code does not know: {some(versions)}.",
            "Keep a worker with the older code until they have ended, or give the job type upcasters=.",
        )


def _types_without_worker(around: Surroundings) -> Iterator[Finding]:
    workers = alive(around)
    if not workers:
        return
    announced = {name for worker in workers for name in json.loads(worker.job_types)}
    waiting = (
        _unfinished(around).exclude(state="dead_lettered").order_by().values_list("job_type", flat=True).distinct()
    )
    left = sorted(name for name in set(waiting) if name not in announced and registry.find(name) is not None)
    if left:
        yield warning(
            "type-without-worker",
            f"Jobs of {some(left)} wait, and no live worker knows these types.",
            "Restart the workers with the present code.",
        )


def _newest(around: Surroundings) -> uuid.UUID | None:
    ids = Job.objects.using(around.using).order_by("-pk").values_list("pk", flat=True)
    return next(iter(ids[LOOK_BACK - 1 : LOOK_BACK]), None)


def _long_atomic(around: Surroundings) -> Iterator[Finding]:
    atomic = {name for name, definition in registry.definitions() if definition.atomic}
    attempts = Attempt.objects.using(around.using).filter(outcome__in=["succeeded", "failed"], job__job_type__in=atomic)
    oldest = _newest(around)
    if oldest is not None:
        attempts = attempts.filter(job_id__gte=oldest)
    longest: dict[str, timedelta] = {}
    for name, started, ended in attempts.values_list("job__job_type", "started_at", F("finished_at")).iterator():
        took = ended - started
        if took > around.long:
            longest[name] = max(took, longest.get(name, took))
    if longest:
        told = [f"{name} ({duration(longest[name])})" for name in sorted(longest)]
        yield warning(
            "long-atomic",
            f"Atomic job types ran longer than {duration(around.long)} in one transaction: {some(told)}.",
            "Declare them with atomic=False or takes_context=True and complete(), or split the work.",
        )


def _stored_owners(around: Surroundings) -> Iterator[Finding]:
    declared = {definition.options.owner for _, definition in registry.definitions()}
    stored = _unfinished(around).exclude(owner="").order_by().values_list("owner", flat=True).distinct()
    effects = SideEffect.objects.using(around.using).filter(needs_review=True).exclude(owner="")
    unresolved = effects.order_by().values_list("owner", flat=True).distinct()
    left = sorted(({*stored, *unresolved}) - set(around.rules.owners) - declared)
    if left:
        yield warning(
            "stored-owner-unknown",
            f"Unfinished jobs or effects name owners without an entry in DJANGO_JOBS['OWNERS']: {some(left)}.",
            "Add an entry for each, so that somebody is told.",
        )


def _reviews(around: Surroundings) -> Iterator[Finding]:
    effects = SideEffect.objects.using(around.using).filter(needs_review=True)
    jobs = list(effects.order_by("job_id").values_list("job_id", flat=True)[: 10 * NAMES_SHOWN])
    if jobs:
        many = effects.count()
        yield warning(
            "effect-needs-review",
            f"{counted(many, 'effect')} of unknown outcome {'waits' if many == 1 else 'wait'} for a human; jobs: "
            f"{some(dict.fromkeys(jobs))}.",
            "See 'manage.py jobs explain' for each, and look at the provider what happened.",
        )


def _taken_back_anyway(around: Surroundings) -> Iterator[Finding]:
    rows = Compensation.objects.using(around.using).select_related("effect").order_by("-pk")
    found = applied_anyway(rows.filter(outcome=CompensationOutcome.VOID.value)[:LOOK_BACK], using=around.using)
    recorded = rows.filter(effect_id__in=found).exclude(outcome=CompensationOutcome.VOID.value)
    left = sorted(found - set(recorded.values_list("effect_id", flat=True)))
    if left:
        yield warning(
            "taken-back-anyway",
            f"{counted(len(left), 'effect')} taken back by a job that had been given up: {some(left)}.",
            "Ask for each with 'manage.py jobs compensate' once more: that sends nothing and records it.",
        )


def _dead_letters(around: Surroundings) -> Iterator[Finding]:
    many = Job.objects.using(around.using).dead().count()
    if many:
        yield info(
            "dead-letters", f"{counted(many, 'dead letter')} wait for a human.", "See 'manage.py jobs list --dead'."
        )


def _paused(around: Surroundings) -> Iterator[Finding]:
    told = [f"{row.kind} {row.name} (by {row.actor}: {row.reason})" for row in pauses(using=around.using)]
    if told:
        yield info("paused", f"Held back: {some(told)}.", "See 'manage.py jobs pauses', and 'jobs resume' to go on.")


def _set_aside(around: Surroundings) -> Iterator[Finding]:
    held = paused(using=around.using)
    lanes = set_aside(known_queues(using=around.using), using=around.using)
    lost = sorted({kind_in(lane) for _, lane in lanes if held.allows(kind_in(lane))})
    if lost:
        yield warning(
            "set-aside",
            f"Due jobs are set aside because no live worker can run them (type and payload version): {some(lost)}.",
            "Start workers with the code that has them. After "
            f"{duration(around.rules.unknown_type_grace)} without one they are dead-lettered.",
        )
