"""What an idempotency key decides: every row of the table, on both databases."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.define.definition import DurableJob
from django_jobs.enqueue import enqueue as room
from django_jobs.exceptions import (
    DuplicateJobError,
    DuplicateOfDeadJobError,
    EnqueueContendedError,
    IdempotencyConflictError,
)
from django_jobs.models import DuplicateEnqueue, IdempotencyKey, Job, JobPayload
from django_jobs.store.keys import DUPLICATES_PER_HOUR
from tests.databases import Server
from tests.declared import TTL, charge, charge_v2, news, plain, renamed, strict
from tests.factories import DuplicateEnqueueFactory, IdempotencyKeyFactory, JobFactory
from tests.scenes import NOON, Told

MOMENT = timedelta(milliseconds=1)
STATES = ["queued", "scheduled", "running", "failed", "succeeded", "dead_lettered", "discarded", "cancelled"]


def _held_in(state: str, declared: DurableJob[Any, Any] = charge, **values: Any) -> Job:
    """Enqueue order 1 and bring its job into a state."""
    first = declared.enqueue(order_id=1)
    made = JobFactory.build(**{state: True}, id=first.id, job_type=declared.definition.job_type, **values)
    made.payload_fingerprint = Job.objects.get(pk=first.id).payload_fingerprint
    made.save(force_update=True)
    return Job.objects.get(pk=first.id)


def _end(result: room.EnqueueResult, state: str = "succeeded") -> None:
    Job.objects.filter(pk=result.id).update(state=state, finished_at=clock.now())


def test_free_key_creates_a_job(database: Server) -> None:
    """Job, payload and key are stored as declared, and the result says so."""
    with clock.override(lambda: NOON), Told() as told:
        result = charge.enqueue(order_id=1)

    job = Job.objects.get()
    assert (result.id, result.outcome, result.state, result.created) == (job.pk, "created", "queued", True)
    assert (job.job_type, job.subject, job.owner, job.created_at) == ("tests.charge", "order:1", "billing", NOON)
    assert (job.available_at, job.generation_started_at, job.fence, job.revision) == (NOON, NOON, 0, 1)
    payload = JobPayload.objects.get()
    assert (payload.arguments, payload.key_scope, payload.key) == (
        '{"amount":1,"order_id":1}',
        "/tests.charge",
        "order:1",
    )
    key = IdempotencyKey.objects.get()
    assert (key.job_id, key.scope, key.key, key.ttl_seconds) == (job.pk, "/tests.charge", "order:1", 3600.0)
    assert (key.payload_fingerprint, key.expires_at) == (job.payload_fingerprint, None)
    assert [fields["job_id"] for fields in told.named("job.enqueue")] == [job.pk]


def test_without_a_key_nothing_is_deduplicated(database: Server) -> None:
    """Equal arguments make two jobs, and no key is stored."""
    assert plain.enqueue(number=1).id != plain.enqueue(number=1).id
    assert Job.objects.count() == 2
    assert IdempotencyKey.objects.count() == 0


@pytest.mark.parametrize("state", STATES)
def test_live_key_answers_with_its_job_in_every_state(database: Server, state: str) -> None:
    """Nothing is stored and nothing about the job changes, whatever became of it; the answer says where it stands."""
    job = _held_in(state)
    before = Job.objects.values().get()
    with Told() as told:
        result = charge.enqueue(order_id=1)

    assert (result.id, result.outcome, result.created) == (job.pk, "duplicate", False)
    assert (result.state, result.resolution, result.version_differs) == (job.state, job.resolution, False)
    assert Job.objects.values().get() == before
    assert DuplicateEnqueue.objects.get().job_id == job.pk
    assert len(told.named("enqueue.duplicate")) == 1
    assert told.named("job.enqueue") == []


@pytest.mark.parametrize("state", STATES)
def test_live_key_with_other_arguments_is_a_conflict(database: Server, state: str) -> None:
    """The error names the job that holds the key, and nothing is stored."""
    job = _held_in(state)
    with Told() as told, pytest.raises(IdempotencyConflictError, match=str(job.pk)) as caught:
        charge.enqueue(order_id=1, amount=2)

    assert caught.value.job_id == job.pk
    assert Job.objects.count() == 1
    assert DuplicateEnqueue.objects.count() == 0
    assert len(told.named("enqueue.conflict")) == 1


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "discarded"])
def test_key_expires_one_ttl_after_the_end(database: Server, state: str) -> None:
    """One millisecond before, it still answers; one after, a new job takes the key over and knows the one before."""
    with clock.override(lambda: NOON):
        job = _held_in(state, finished_at=NOON)
    with clock.override(lambda: NOON + TTL - MOMENT):
        assert charge.enqueue(order_id=1).outcome == "duplicate"
    with clock.override(lambda: NOON + TTL + MOMENT):
        result = charge.enqueue(order_id=1, amount=2)
        again = charge.enqueue(order_id=1, amount=2)

    assert (result.outcome, result.created) == ("created_after_expiry", True)
    assert (again.outcome, again.id) == ("duplicate", result.id)
    assert IdempotencyKey.objects.get().job_id == result.id
    assert JobPayload.objects.get(pk=result.id).previous_job_id == job.pk
    assert Job.objects.count() == 2


@pytest.mark.parametrize("state", ["queued", "scheduled", "running", "failed", "dead_lettered"])
def test_key_of_an_unfinished_job_never_expires(database: Server, state: str) -> None:
    """Years later it still answers: a dead letter without a resolution is unfinished too."""
    _held_in(state)
    with clock.override(lambda: NOON + timedelta(days=3000)):
        assert charge.enqueue(order_id=1).outcome == "duplicate"


def test_expiry_is_the_type_s_at_the_first_enqueue(database: Server) -> None:
    """The stored life counts, not what the code says by now."""
    with clock.override(lambda: NOON):
        _end(charge.enqueue(order_id=1))
        IdempotencyKey.objects.update(ttl_seconds=10)
    with clock.override(lambda: NOON + timedelta(seconds=9)):
        assert charge.enqueue(order_id=1).outcome == "duplicate"
    with clock.override(lambda: NOON + timedelta(seconds=10)):
        assert charge.enqueue(order_id=1).outcome == "created_after_expiry"


@pytest.mark.parametrize(("step", "outcome"), [(-MOMENT, "duplicate"), (MOMENT, "created_after_expiry")])
def test_key_of_a_pruned_job_lives_until_its_written_expiry(database: Server, step: timedelta, outcome: str) -> None:
    """The job's row is gone; what pruning wrote down decides alone, and a new job makes the key live again."""
    with clock.override(lambda: NOON):
        first = charge.enqueue(order_id=1)
        Job.objects.all().delete()
        IdempotencyKey.objects.update(expires_at=NOON)
    with clock.override(lambda: NOON + step):
        result = charge.enqueue(order_id=1)

    assert result.outcome == outcome
    if outcome == "duplicate":
        assert (result.id, result.state) == (first.id, "pruned")
    else:
        assert IdempotencyKey.objects.get().expires_at is None


def test_pruned_key_with_other_arguments_is_a_conflict(database: Server) -> None:
    """Pruning a job must not open its key to another act."""
    with clock.override(lambda: NOON):
        charge.enqueue(order_id=1)
        Job.objects.all().delete()
        IdempotencyKey.objects.update(expires_at=NOON + MOMENT)
        with pytest.raises(IdempotencyConflictError):
            charge.enqueue(order_id=1, amount=2)


def test_another_payload_version_is_a_duplicate_that_says_so(database: Server) -> None:
    """Arguments of two versions cannot be compared, so they are no conflict; the caller is told."""
    first = charge.enqueue(order_id=1)

    result = charge_v2.enqueue(order_id=1, amount=2)

    assert (result.id, result.outcome, result.version_differs) == (first.id, "duplicate", True)


def test_scope_and_tenant_keep_keys_apart(database: Server) -> None:
    """One key in two scopes is two keys; a shared scope is one."""
    outcomes = [
        charge.enqueue(order_id=1).outcome,
        charge.using(tenant="acme").enqueue(order_id=1).outcome,
        charge.using(tenant="acme/").enqueue(order_id=1).outcome,
        strict.enqueue(order_id=1).outcome,
        charge.using(tenant="acme").enqueue(order_id=1).outcome,
    ]

    assert outcomes == ["created", "created", "created", "created", "duplicate"]
    assert Job.objects.filter(tenant="acme").count() == 1


def test_renamed_type_keeps_its_keys(database: Server) -> None:
    """Keys go on answering when a type gets a new name: their scope is the first name that it ever had."""
    renamed.enqueue(order_id=1)

    assert IdempotencyKey.objects.get().scope == "/tests.first_name"
    assert Job.objects.get().job_type == "tests.new_name"


@pytest.mark.parametrize(
    ("one", "other"),
    [("1:2", "1%3A2"), ("a b", "a%20b"), ("ü", "%C3%BC"), ("1", "1:"), ("A", "a"), (1, "01"), ("x%", "x%25")],
)
def test_two_arguments_never_give_one_key(database: Server, one: Any, other: Any) -> None:
    """Values are encoded in key templates, so that nobody can be mistaken for somebody else."""
    charge.enqueue(order_id=one)

    assert charge.enqueue(order_id=other).outcome == "created"
    keys = set(IdempotencyKey.objects.values_list("key", flat=True))
    assert len(keys) == 2
    assert all(key.isascii() and ":" not in key.removeprefix("order:") for key in keys)


def test_literal_key_is_taken_as_it_is(database: Server) -> None:
    """A key given for one job is no template: braces and percent signs mean themselves."""
    charge.using(key="a:{order_id}%3A").enqueue(order_id=1)

    assert IdempotencyKey.objects.get().key == "a:{order_id}%3A"
    assert charge.using(key="a:{order_id}%3A").enqueue(order_id=1).outcome == "duplicate"


def test_literal_subject_is_taken_as_it_is(database: Server) -> None:
    """So is a subject given for one job."""
    charge.using(subject="{literal}").enqueue(order_id=1)

    assert Job.objects.get().subject == "{literal}"


def test_key_can_be_switched_off_for_one_job(database: Server) -> None:
    """``using(key=None)`` enqueues without deduplication."""
    charge.enqueue(order_id=1)

    assert charge.using(key=None).enqueue(order_id=1).outcome == "created"
    assert IdempotencyKey.objects.count() == 1


def test_reject_raises_on_a_duplicate(database: Server) -> None:
    """A type that refuses duplicates says which job holds the key; a free key is no duplicate."""
    first = strict.enqueue(order_id=1)

    with pytest.raises(DuplicateJobError, match=str(first.id)) as caught:
        strict.enqueue(order_id=1)
    assert type(caught.value) is DuplicateJobError
    assert caught.value.job_id == first.id


def test_reject_says_when_the_holder_is_dead(database: Server) -> None:
    """Nothing will happen until a human decides, so the producer hears of it by an error of its own."""
    job = _held_in("dead_lettered", strict)

    with pytest.raises(DuplicateOfDeadJobError, match="until a human") as caught:
        strict.enqueue(order_id=1)
    assert caught.value.job_id == job.pk


def test_reject_of_a_settled_dead_letter_is_an_ordinary_duplicate(database: Server) -> None:
    """A discarded job waits for nobody."""
    _held_in("discarded", strict)

    with pytest.raises(DuplicateJobError) as caught:
        strict.enqueue(order_id=1)
    assert type(caught.value) is DuplicateJobError


def test_owner_of_a_dead_letter_is_told_on_the_first_duplicate_and_then_daily(database: Server) -> None:
    """A producer that repeats itself must not flood the owner, and must not be forgotten either."""
    _held_in("dead_lettered")
    alerts = []
    for hours in (0, 1, 23.9, 24, 24.5, 47.9, 48.1):
        with clock.override(lambda hours=hours: NOON + timedelta(hours=hours)), Told() as told:
            charge.enqueue(order_id=1)
        alerts.append(len(told.named("owner.alert")))

    assert alerts == [1, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("state", ["queued", "succeeded", "discarded"])
def test_duplicate_of_a_job_that_waits_for_nobody_alerts_nobody(database: Server, state: str) -> None:
    """Only an open dead letter swallows work."""
    _held_in(state)
    with Told() as told:
        charge.enqueue(order_id=1)

    assert told.named("owner.alert") == []


def test_owner_is_told_although_many_duplicates_were_kept(database: Server) -> None:
    """The bound on kept rows does not swallow the alert."""
    job = _held_in("dead_lettered")
    for _ in range(DUPLICATES_PER_HOUR):
        DuplicateEnqueueFactory(job_id=job.pk)
    with Told() as told:
        charge.enqueue(order_id=1)

    assert len(told.named("owner.alert")) == 1


def test_kept_duplicates_are_bounded(database: Server) -> None:
    """A producer in a loop cannot fill the table; an hour later the next one is kept again."""
    with clock.override(lambda: NOON):
        charge.enqueue(order_id=1)
        with Told() as told:
            for _ in range(DUPLICATES_PER_HOUR + 10):
                charge.enqueue(order_id=1)
        assert DuplicateEnqueue.objects.count() == DUPLICATES_PER_HOUR
    with clock.override(lambda: NOON + timedelta(hours=1)):
        charge.enqueue(order_id=1)

    assert DuplicateEnqueue.objects.count() == DUPLICATES_PER_HOUR + 1
    assert len(told.named("enqueue.duplicate")) == DUPLICATES_PER_HOUR + 10


@pytest.mark.parametrize(
    ("after", "state", "due"),
    [
        (None, "queued", NOON),
        (timedelta(0), "queued", NOON),
        (timedelta(minutes=1), "scheduled", NOON + timedelta(minutes=1)),
        (NOON + timedelta(hours=1), "scheduled", NOON + timedelta(hours=1)),
        (NOON, "queued", NOON),
        (NOON - timedelta(days=9), "queued", NOON),
    ],
)
def test_run_after_sets_the_due_time(database: Server, after: Any, state: str, due: Any) -> None:
    """A delay and an instant mean the same on both databases; what is past is due now."""
    with clock.override(lambda: NOON):
        result = plain.using(run_after=after).enqueue()

    job = Job.objects.get()
    assert (result.state, job.state, job.available_at, job.generation_started_at) == (state, state, due, due)


def test_usefulness_counts_from_the_due_time(database: Server) -> None:
    """A job that waits an hour by wish is useful for its time after that hour."""
    with clock.override(lambda: NOON):
        news.using(run_after=timedelta(hours=1)).enqueue()

    job = Job.objects.get()
    assert job.useful_until == NOON + timedelta(hours=1, minutes=5)
    assert (job.queue_name, job.priority) == ("mail", -5)


def test_options_of_one_job_leave_the_others_alone(database: Server) -> None:
    """``using`` makes a copy."""
    changed = news.using(queue_name="slow", priority=100)
    changed.enqueue()
    news.enqueue()

    assert set(Job.objects.values_list("queue_name", "priority")) == {("slow", 100), ("mail", -5)}


def test_one_enqueue_is_one_query_on_postgresql(database: Server, vendor: str) -> None:
    """With or without a key it is one round trip; a duplicate is three. SQLite runs the same steps one by one."""

    def counted(call: Callable[[], object]) -> int:
        with CaptureQueriesContext(connection) as queries:
            call()
        return len(queries)

    counts = [
        counted(lambda: plain.enqueue()),
        counted(lambda: charge.enqueue(order_id=1)),
        counted(lambda: charge.enqueue(order_id=1)),
    ]

    assert counts == ([1, 1, 3] if vendor == "postgresql" else [5, 5, 7])


def test_key_that_keeps_changing_hands_is_given_up(database: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few tries the producer hears that nothing was stored."""
    IdempotencyKeyFactory(scope="/tests.charge")
    monkeypatch.setattr(room, "key_holder", lambda scope, key, using: None)

    with pytest.raises(EnqueueContendedError, match="Nothing was stored; enqueue once more"):
        charge.enqueue(order_id=1)
    assert Job.objects.count() == 0


def test_expired_key_that_somebody_else_took_is_a_duplicate_of_theirs(
    database: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stale read loses: the key is taken only from the job that it was read under."""
    winner = uuid.uuid4()
    with clock.override(lambda: NOON):
        _end(charge.enqueue(order_id=1))
    real, reads = room.key_holder, []

    def stale(scope: str, key: str, *, using: str) -> Any:
        found = real(scope, key, using=using)
        if not reads:  # between this look and the statement somebody else takes the key over
            JobFactory(id=winner, payload_fingerprint=found.payload_fingerprint)
            IdempotencyKey.objects.update(job_id=winner)
        reads.append(found)
        return found

    monkeypatch.setattr(room, "key_holder", stale)
    with clock.override(lambda: NOON + 2 * TTL):
        result = charge.enqueue(order_id=1)

    assert (result.outcome, result.id) == ("duplicate", winner)
    assert len(reads) == 2
    assert Job.objects.count() == 2
