"""Impossible rows cannot be stored, whoever writes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.apps import apps
from django.db import IntegrityError, models, transaction

from django_jobs import clock
from django_jobs.domain.states import TickOutcome
from django_jobs.models import EffectAdoption, EffectStake, Installation, JobStep, ScheduleTick
from tests.databases import Server
from tests.factories import (
    AttemptFactory,
    IdempotencyKeyFactory,
    JobFactory,
    PauseFactory,
    SendFactory,
    SideEffectFactory,
)
from tests.integration.store import impossible_composition, impossible_events

Write = Callable[[], object]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _soon() -> object:
    return clock.now() + timedelta(minutes=1)


CHECKS: list[tuple[str, str, Write]] = [
    ("job_state_known", "invented state", lambda: JobFactory(state="sleeping")),
    ("job_leased_while_running", "running without lease", lambda: JobFactory(running=True, lease_expires_at=None)),
    ("job_leased_while_running", "running without attempt", lambda: JobFactory(running=True, attempt_id=None, fence=0)),
    ("job_leased_while_running", "running without owner", lambda: JobFactory(running=True, lease_owner=None)),
    ("job_leased_while_running", "running without child", lambda: JobFactory(running=True, lease_child=None)),
    ("job_leased_while_running", "queued with attempt", lambda: JobFactory(attempt_id=uuid.uuid4())),
    ("job_leased_while_running", "queued with lease", lambda: JobFactory(lease_expires_at=_soon())),
    ("job_leased_while_running", "queued with owner", lambda: JobFactory(lease_owner=uuid.uuid4())),
    ("job_leased_while_running", "queued with child", lambda: JobFactory(lease_child=1)),
    ("job_dead_with_reason", "dead without reason", lambda: JobFactory(dead_lettered=True, dead_reason="")),
    ("job_dead_with_reason", "dead for no known reason", lambda: JobFactory(dead_lettered=True, dead_reason="bored")),
    ("job_dead_with_reason", "dead at no time", lambda: JobFactory(dead_lettered=True, dead_at=None)),
    ("job_dead_with_reason", "queued with dead reason", lambda: JobFactory(dead_reason="age")),
    ("job_dead_with_reason", "queued with dead time", lambda: JobFactory(dead_at=_soon())),
    ("job_resolution_of_dead", "succeeded and discarded", lambda: JobFactory(succeeded=True, resolution="discarded")),
    ("job_resolution_of_dead", "unknown resolution", lambda: JobFactory(discarded=True, resolution="forgotten")),
    ("job_finished_when_done", "succeeded at no time", lambda: JobFactory(succeeded=True, finished_at=None)),
    ("job_finished_when_done", "discarded at no time", lambda: JobFactory(discarded=True, finished_at=None)),
    ("job_finished_when_done", "queued and finished", lambda: JobFactory(finished_at=_soon())),
    (
        "job_finished_when_done",
        "open dead letter, finished",
        lambda: JobFactory(dead_lettered=True, finished_at=_soon()),
    ),
    ("job_priority_range", "priority 101", lambda: JobFactory(priority=101)),
    ("job_priority_range", "priority -101", lambda: JobFactory(priority=-101)),
    ("job_losses_add_up", "loss of no kind", lambda: JobFactory(lost_count=1)),
    ("job_error_class", "invented error class", lambda: JobFactory(error_class="odd")),
    ("job_isolation_known", "invented isolation", lambda: JobFactory(isolation="island")),
    ("attempt_closed_once", "end without outcome", lambda: AttemptFactory(finished_at=_soon())),
    ("attempt_closed_once", "outcome without end", lambda: AttemptFactory(outcome="failed")),
    ("attempt_closed_once", "invented outcome", lambda: AttemptFactory(released=True, outcome="bored")),
    ("attempt_loss_has_cause", "lost for no cause", lambda: AttemptFactory(lost=True, loss_cause="")),
    ("attempt_loss_has_cause", "lost for an unknown cause", lambda: AttemptFactory(lost=True, loss_cause="luck")),
    ("attempt_loss_has_cause", "failed with a loss", lambda: AttemptFactory(failed=True, loss_cause="exit")),
    ("attempt_loss_has_cause", "open with a loss", lambda: AttemptFactory(loss_cause="exit")),
    ("attempt_alone_known", "invented company", lambda: AttemptFactory(alone="moon")),
    ("effect_state_known", "invented state", lambda: SideEffectFactory(state="odd")),
    ("effect_resolved", "succeeded by nobody", lambda: SideEffectFactory(succeeded=True, resolved_by="")),
    ("effect_resolved", "succeeded at no time", lambda: SideEffectFactory(succeeded=True, resolved_at=None)),
    ("effect_resolved", "abandoned at no time", lambda: SideEffectFactory(abandoned=True, resolved_at=None)),
    ("effect_resolved", "planned and resolved", lambda: SideEffectFactory(resolved_by="send", resolved_at=_soon())),
    ("effect_on_ambiguous", "invented policy", lambda: SideEffectFactory(on_ambiguous="hope")),
    ("send_outcome_known", "invented outcome", lambda: SendFactory(outcome="maybe")),
    ("send_times_in_order", "deadline before start", lambda: SendFactory(deadline_at=clock.now() - timedelta(hours=1))),
    ("send_times_in_order", "settled before deadline", lambda: SendFactory(settled_at=clock.now())),
    ("pause_kind_known", "pause of no known kind", lambda: PauseFactory(kind="mood")),
    ("tick_outcome_known", "tick with an invented outcome", lambda: _tick("slept")),
    (
        "installation_single",
        "second installation",
        lambda: Installation.objects.create(id=2, namespace="other", created_at=clock.now()),
    ),
    *impossible_composition.CHECKS,
    *impossible_events.CHECKS,
]


def _twice_a_number() -> None:
    job = JobFactory()
    AttemptFactory(job=job, number=1)
    AttemptFactory(job=job, number=1)


def _twice_a_key() -> None:
    IdempotencyKeyFactory(key="order:7")
    IdempotencyKeyFactory(key="order:7")


def _twice_a_step() -> None:
    job = JobFactory()
    for _ in range(2):
        JobStep.objects.create(
            job=job, name="mail", result="null", attempt_id=uuid.uuid4(), fence=1, created_at=clock.now()
        )


def _twice_an_effect() -> None:
    SideEffectFactory(business_key="order:7")
    SideEffectFactory(business_key="order:7")


def _twice_a_send() -> None:
    effect = SideEffectFactory()
    SendFactory(effect=effect, number=1)
    SendFactory(effect=effect, number=1, attempt__number=2)


def _twice_an_adoption() -> None:
    effect, job = SideEffectFactory(), JobFactory()
    for _ in range(2):
        EffectAdoption.objects.create(effect=effect, job=job, attempt_id=uuid.uuid4(), created_at=clock.now())


def _twice_a_stake() -> None:
    effect, job = SideEffectFactory(), JobFactory()
    for _ in range(2):
        EffectStake.objects.create(effect=effect, job=job, attempt_id=uuid.uuid4(), created_at=clock.now())


def _twice_a_pause() -> None:
    PauseFactory(of_queue=True)
    PauseFactory(of_queue=True)


def _tick(outcome: str = TickOutcome.ENQUEUED.value) -> None:
    ScheduleTick.objects.create(schedule_name="report", tick=NOON, outcome=outcome, created_at=NOON)


def _twice_a_tick() -> None:
    _tick()
    _tick()


UNIQUE: list[tuple[str, Write]] = [
    ("attempt_number", _twice_a_number),
    ("key_once", _twice_a_key),
    ("step_once", _twice_a_step),
    ("effect_once", _twice_an_effect),
    ("send_number", _twice_a_send),
    ("adoption_once", _twice_an_adoption),
    ("stake_once", _twice_a_stake),
    ("pause_once", _twice_a_pause),
    ("tick_once", _twice_a_tick),
    *impossible_composition.UNIQUE,
    *impossible_events.UNIQUE,
]


def test_every_constraint_is_tried() -> None:
    """A constraint without a row that it refuses is not known to work."""
    declared = {
        constraint.name.removeprefix("django_jobs_")
        for model in apps.get_app_config("django_jobs").get_models()
        for constraint in model._meta.constraints
    }

    assert {name for name, _, _ in CHECKS} | {name for name, _ in UNIQUE} == declared


@pytest.mark.parametrize(
    ("name", "write"), [pytest.param(name, write, id=f"{name}: {what}") for name, what, write in CHECKS]
)
def test_check_refuses_impossible_row(database: Server, name: str, write: Write) -> None:
    """The row is refused, and by the constraint that is meant to."""
    with pytest.raises(IntegrityError, match=f"django_jobs_{name}"), transaction.atomic():
        write()


@pytest.mark.parametrize(("name", "write"), UNIQUE, ids=[name for name, _ in UNIQUE])
def test_unique_constraint_refuses_second_row(database: Server, name: str, write: Write) -> None:
    """What exists once cannot be stored twice."""
    with pytest.raises(IntegrityError, match=r"(?i)unique"), transaction.atomic():
        write()


@pytest.mark.parametrize(
    "state", ["queued", "scheduled", "running", "failed", "succeeded", "dead_lettered", "discarded", "cancelled"]
)
def test_every_state_can_be_stored(database: Server, state: str) -> None:
    """The constraints leave room for each state as the transitions write it."""
    job = JobFactory(**{state: True})

    assert type(job).objects.filter(pk=job.pk).exists()


def test_hot_tables_keep_few_indexes() -> None:
    """Jobs, keys and attempts have ten indexes together at most, primary keys included: each one costs every job.

    The index of members has no entry for a job that is in no batch, whatever becomes of the job.
    """
    counted = 0
    for name in ("Job", "IdempotencyKey", "Attempt"):
        model = apps.get_model("django_jobs", name)
        unique = [item for item in model._meta.constraints if isinstance(item, models.UniqueConstraint)]
        single = [item for item in model._meta.concrete_fields if item.db_index or item.unique]
        every = [
            item for item in model._meta.indexes if item.name not in {"django_jobs_job_batch", "django_jobs_job_serial"}
        ]
        counted += len(unique) + len(every) + len(single)

    assert counted == 10


def test_no_index_or_key_binds_rows_that_are_kept_apart() -> None:
    """No foreign key of the package is enforced by the database: pruning a job needs no lock on its evidence."""
    keys = [
        field
        for model in apps.get_app_config("django_jobs").get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, models.ForeignKey)
    ]

    assert keys
    assert [str(field) for field in keys if field.db_constraint] == []
