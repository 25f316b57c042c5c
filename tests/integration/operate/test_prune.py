"""Pruning: what is taken, what never is, and that everything still adds up and is still answered afterwards."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, models
from django.test import override_settings

from django_jobs import clock
from django_jobs.domain.identity import scope_text
from django_jobs.exceptions import DefinitionError
from django_jobs.models import (
    Attempt,
    DuplicateEnqueue,
    EffectAdoption,
    IdempotencyKey,
    Job,
    JobPayload,
    JobStep,
    PrunedStretch,
    Reconciliation,
    Send,
    SideEffect,
    Worker,
)
from django_jobs.operate.prune import Pruned, prune
from django_jobs.operate.verify import verify
from django_jobs.store import prune as store_prune
from django_jobs.store.keys import key_holder
from tests.databases import Server
from tests.factories import WorkerFactory
from tests.integration.operate.healthy import healthy
from tests.integration.operate.stories import Story, later

CANARY = "canary-4111111111111111"
TABLES: tuple[type[models.Model], ...] = (
    Job, JobPayload, JobStep, Attempt, SideEffect, Send, Reconciliation, EffectAdoption, IdempotencyKey,
    DuplicateEnqueue,
)  # fmt: skip


def run(days: float, **options: Any) -> Pruned:
    """Prune so many days from now."""
    with later(days=days):
        return prune(using="default", **options)


def violated() -> dict[str, tuple[str, ...]]:
    """Return what does not add up."""
    return {item.invariant.name: item.ids for item in verify(using="default").violated}


def told() -> Story:
    """A job that leaves the canary everywhere that content can stand, and succeeds."""
    story = Story(arguments={"card": CANARY}, key="order:1").claim().fail(message=CANARY).claim().step()
    Attempt.objects.filter(number=1).update(traceback=CANARY)
    JobStep.objects.update(result=f'{{"card":"{CANARY}"}}')
    effect = story.effect("order:1", dedupe="none", can_reconcile=True, request=f'{{"card":"{CANARY}"}}')
    effect.send().answer("unknown", reason=CANARY).ask("pending").ask("succeeded")
    Reconciliation.objects.update(evidence=f'{{"card":"{CANARY}"}}')
    SideEffect.objects.update(result=f'{{"card":"{CANARY}"}}')
    given_up = story.effect("order:2", dedupe="none", on_ambiguous="accept").send().answer("unknown").abandon()
    SideEffect.objects.filter(pk=given_up.row.pk).update(review_reason=CANARY)
    return story.succeed({"card": CANARY})


def readable() -> set[str]:
    """Return every table and column in which the canary can be read."""
    return {
        f"{model.__name__}.{field.name}"
        for model in TABLES
        for field in model._meta.concrete_fields
        if isinstance(field, models.CharField | models.TextField)
        and model._default_manager.filter(**{f"{field.name}__contains": CANARY}).exists()
    }


@pytest.mark.django_db
def test_content_goes_first_and_rows_stay() -> None:
    """After 30 days nothing that the job held can be read or guessed; what happened and when can still be told."""
    story = told()
    assert len(readable()) >= 10
    before = {model: model._default_manager.count() for model in TABLES}

    assert run(29).content == 0
    found = run(31)

    assert (found.content, found.jobs, found.kept) == (1, 0, {})
    assert readable() == set()
    after = {model: model._default_manager.count() for model in TABLES}
    assert {model.__name__ for model in TABLES if after[model] != before[model]} == {"JobPayload", "IdempotencyKey"}
    job = Job.objects.get(pk=story.job.pk)
    digests = [job.payload_fingerprint, *SideEffect.objects.values_list("request_digest", flat=True)]
    assert set(digests) | set(Send.objects.values_list("request_digest", flat=True)) == {""}
    assert violated() == {}
    assert run(32).content == 0


@pytest.mark.django_db
def test_rows_go_later_and_leave_a_record() -> None:
    """After 400 days nothing is left of the job but the records of both batches."""
    told()
    run(31)
    assert run(399).jobs == 0

    found = run(401)

    assert (found.content, found.jobs) == (0, 1)
    assert {model.__name__ for model in TABLES if model._default_manager.exists()} == set()
    assert list(PrunedStretch.objects.order_by("created_at").values_list("kind", "rows")) == [
        ("content", 1),
        ("jobs", 1),
    ]
    assert violated() == {}


@pytest.mark.django_db
def test_rows_can_go_in_the_first_run_ever() -> None:
    """A first run after years takes content and rows of the same job, each with its record."""
    story = told()

    found = run(1000)

    assert (found.content, found.jobs, found.keys, found.complete) == (1, 1, 0, True)
    assert not Job.objects.filter(pk=story.job.pk).exists()
    assert violated() == {}


@pytest.mark.django_db
def test_settled_dead_letter_keeps_its_content_longer() -> None:
    """90 days by default, counted from when it was settled."""
    Story().claim().fail(error_class="permanent", dead="permanent").discard()

    assert [run(days).content for days in (31, 89, 91)] == [0, 0, 1]


@pytest.mark.django_db
@override_settings(
    DJANGO_JOBS={
        name: timedelta(seconds=60) for name in ("KEEP_CONTENT", "KEEP_DEAD_CONTENT", "KEEP_ROWS", "KEEP_WORKERS")
    }
)
def test_settings_decide_and_unfinished_work_is_never_taken() -> None:
    """With the shortest times that can be set, years later, every unfinished or unresolved story is whole."""
    healthy()
    kept = Job.objects.unfinished() | Job.objects.filter(
        pk__in=SideEffect.objects.filter(needs_review=True).values("job_id")
    )
    ids = set(kept.values_list("pk", flat=True))
    payloads = dict(JobPayload.objects.filter(pk__in=ids).values_list("pk", "arguments"))

    found = run(3000)

    assert found.jobs > 10
    assert set(Job.objects.values_list("pk", flat=True)) >= ids
    assert dict(JobPayload.objects.filter(pk__in=ids).values_list("pk", "arguments")) == payloads
    assert violated() == {}


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["planned", "in_flight", "ambiguous", "review"])
def test_job_with_an_unresolved_effect_is_kept(state: str) -> None:
    """A discarded dead letter whose effect is open is kept whole, for ever, and the run says why."""
    story = Story().claim()
    effect = story.effect("order:1", dedupe="none")
    if state != "planned":
        effect.send()
    if state in ("ambiguous", "review"):
        effect.answer("unknown")
    if state == "review":
        effect.review()
    story.fail(error_class="permanent", dead="effect_review").discard()

    found = run(3000)

    assert (found.content, found.jobs, dict(found.kept)) == (0, 0, {"unresolved": 1})
    assert JobPayload.objects.count() == 1


@pytest.mark.django_db
def test_send_is_kept_while_the_provider_may_remember_its_key() -> None:
    """A key that the provider keeps for two years keeps everything about its send for two years."""
    story = Story().claim()
    story.effect(key_lifetime_seconds=700 * 86400.0).send().answer("confirmed")
    story.succeed()

    assert dict(run(600).kept) == {"provider_key": 1}
    assert (run(701).content, Job.objects.count()) == (1, 0)


@pytest.mark.django_db
def test_effect_is_kept_for_the_jobs_that_rely_on_it() -> None:
    """Neither content nor rows of an effect go while an unfinished job has its receipt; rows go after the adopter's."""
    owner, adopter = Story().claim(), Story().claim()
    effect = owner.effect().send().answer("confirmed")
    adopter.adopt(effect.row)
    owner.succeed()

    found = run(3000)
    assert (found.content, found.jobs, dict(found.kept)) == (0, 0, {"needed": 1})

    adopter.now = owner.now
    adopter.succeed()
    assert run(500).jobs == 1  # the adopter; the owner's look came before it
    assert violated() == {}
    assert run(501).jobs == 1
    assert Job.objects.count() == SideEffect.objects.count() == EffectAdoption.objects.count() == 0


@pytest.mark.django_db
def test_effect_that_went_over_outlives_the_job_that_sent_first() -> None:
    """The first sender can be pruned; its sends stay with the effect, and that is no contradiction."""
    first, second = Story().claim(), Story().claim()
    shared = first.effect("shared", can_reconcile=True).send().answer("unknown").ask("not_found", final=True)
    first.fail(error_class="permanent", dead="permanent").discard()
    second.pass_time(timedelta(days=200))
    shared.send(second)

    found = run(450)

    assert (found.content, found.jobs) == (1, 1)
    assert Send.objects.filter(job_id=first.job.pk).count() == 1
    assert violated() == {}


@pytest.mark.django_db
def test_effect_is_kept_while_an_earlier_sender_may_come_back() -> None:
    """A dead letter that sent first may be replayed, and then has to find what became of the effect."""
    first, second = Story().claim(), Story().claim()
    shared = first.effect("shared").send().answer("rejected")
    first.fail(error_class="permanent", dead="permanent")
    second.pass_time(timedelta(seconds=30))
    shared.send(second).answer("confirmed")
    second.now = shared.story.now
    second.succeed()

    found = run(3000)

    assert (found.content, found.jobs, dict(found.kept)) == (0, 0, {"needed": 1})


@pytest.mark.django_db
def test_late_judgement_keeps_the_rows() -> None:
    """A year later somebody found out about an effect: the rows stay for the whole time after that."""
    story = Story().claim()
    effect = story.effect(dedupe="none", can_reconcile=True).send().answer("rejected")
    story.fail(error_class="permanent", dead="permanent").discard()
    story.pass_time(timedelta(days=365))
    effect.ask("not_found", actor="anna")

    assert dict(run(500).kept) == {"audit": 1}
    assert run(800).jobs == 1


def outcome_of(key: str, at: datetime) -> tuple[Any, ...] | None:
    """Return what the key answers at that time; None when nobody holds it or it has expired."""
    with clock.override(lambda: at):
        holder = key_holder(scope_text("", "shop.charge_order"), key, using="default")
    if holder is None or not holder.is_live:
        return None
    return holder.job_id, holder.state, holder.resolution, holder.payload_fingerprint


@pytest.mark.django_db
@pytest.mark.parametrize("end", ["succeeded", "cancelled", "discarded"])
def test_key_answers_after_its_job_as_before(end: str) -> None:
    """With content, without it and without the job's row: the same id, the same end, until the same instant."""
    story = Story(key="order:1")
    if end == "cancelled":
        story.cancel()
    elif end == "succeeded":
        story.claim().succeed()
    else:
        story.claim().fail(error_class="permanent", dead="permanent").discard()
    IdempotencyKey.objects.update(ttl_seconds=500 * 86400.0)
    expiry = story.now + timedelta(days=500)
    times = [story.now, expiry - timedelta(microseconds=1), expiry]
    before = [outcome_of("order:1", at) for at in times]
    assert before[0] is not None
    assert before[2] is None

    for days in (100, 450):
        run(days)
        assert [outcome_of("order:1", at) for at in times] == before
        assert violated() == {}

    assert Job.objects.count() == 0
    assert run(499).keys == 0
    assert run(501).keys == 1
    assert IdempotencyKey.objects.count() == 0
    assert violated() == {}


@pytest.mark.django_db
def test_key_that_outlived_the_content_goes_when_it_expires() -> None:
    """Its digest could be guessed; the job's rows stay."""
    Story(key="order:1").claim().succeed()
    IdempotencyKey.objects.update(ttl_seconds=60 * 86400.0)

    assert (run(40).content, IdempotencyKey.objects.count()) == (1, 1)
    assert (run(61).keys, IdempotencyKey.objects.count(), Job.objects.count()) == (1, 0, 1)
    assert violated() == {}


@pytest.mark.django_db
def test_old_duplicates_and_workers_go_too() -> None:
    """What was answered long ago, and workers that ended or fell silent; not the one that holds a job."""
    story = Story().duplicate()
    stopped, silent, holder = WorkerFactory(stopped=True), WorkerFactory(silent=True), WorkerFactory(silent=True)
    story.claim()
    Job.objects.update(lease_owner=holder.pk)
    Attempt.objects.update(worker_id=holder.pk)
    alive = WorkerFactory()

    with later(days=29):
        Worker.objects.filter(pk=alive.pk).update(heartbeat_at=clock.now())
    assert run(29).workers == 0
    found = run(31)

    assert (found.workers, found.duplicates) == (2, 0)
    assert set(Worker.objects.values_list("pk", flat=True)) == {holder.pk, alive.pk}
    assert not {stopped.pk, silent.pk} & set(Worker.objects.values_list("pk", flat=True))
    assert run(402).duplicates == 1


@pytest.mark.django_db
def test_dry_run_says_the_same_and_changes_nothing() -> None:
    """Every table is as it was, and the real run then takes what the dry one named."""
    healthy()
    before = {model: list(model._default_manager.order_by("pk").values()) for model in (*TABLES, PrunedStretch)}

    promised = run(100, dry_run=True)

    assert before == {model: list(model._default_manager.order_by("pk").values()) for model in before}
    done = run(100)
    assert (promised.content, promised.jobs, promised.keys) == (done.content, done.jobs, done.keys)
    assert done.content > 10


@pytest.mark.django_db
def test_time_is_up_and_the_next_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cut short says so and has taken whole batches; the next one takes the rest, and counts add up."""
    for _ in range(5):
        Story().claim().succeed()
    ticks = iter(range(100))
    monkeypatch.setattr("django_jobs.operate.prune.time.monotonic", lambda: float(next(ticks)))

    first = run(31, batch=1, max_seconds=3)
    monkeypatch.undo()
    second = run(31, batch=2)

    assert (first.complete, second.complete) == (False, True)
    assert 0 < first.content < 5
    assert first.content + second.content == 5
    assert sum(PrunedStretch.objects.values_list("rows", flat=True)) == 5


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 10_001}, {"max_seconds": 0}, {"max_seconds": float("nan")}]
)
def test_options_that_cannot_be_are_refused(database: Server, options: dict[str, Any]) -> None:
    """Before anything is looked at."""
    with pytest.raises(DefinitionError):
        prune(using="default", **options)


class InterruptedRunError(Exception):
    """Stands for whatever ends a run in the middle."""


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_any_interruption_leaves_everything_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories of every kind, random batches, a random statement that fails: clean after each run, nothing twice."""
    dice = random.Random(seed)
    healthy()
    keys = list(IdempotencyKey.objects.exclude(expires_at__isnull=False).values_list("key", "job_id"))
    story_time = clock.now()
    real, left = store_prune.run, [0]

    def fails_some_time(name: str, params: Any, *, using: str) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise InterruptedRunError
        rows = real(name, params, using=using)
        if left[0] == -1:
            raise InterruptedRunError  # after the statement, before the commit
        return rows

    monkeypatch.setattr(store_prune, "run", fails_some_time)
    total = Job.objects.count()
    interrupted = 0
    for days in (31, 60, 95, 200, 399, 402, 403, 800):
        at = story_time + timedelta(days=days)
        answers = {key: outcome_of(key, at) for key, _ in keys}
        for left[0] in (dice.randrange(1, 12), dice.choice([2, 4, 6]), 10**6):
            with clock.override(lambda at=at: at):  # type: ignore[misc]
                try:
                    prune(using="default", batch=dice.randrange(1, 9))
                except InterruptedRunError:
                    interrupted += 1
            assert violated() == {}
            assert {key: outcome_of(key, at) for key, _ in keys} == answers
    taken = PrunedStretch.objects.filter(kind="jobs").aggregate(many=models.Sum("rows"))["many"] - 1

    assert interrupted >= 3
    assert total - Job.objects.count() == taken > 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("deferred", [True, False])
def test_rows_of_the_project_that_refer_to_a_job_keep_it(server: Server, deferred: bool) -> None:
    """A foreign key with a constraint stops the deletion of its job alone; the others of the batch go."""
    stories = [Story().claim().succeed() for _ in range(5)]
    kind = "uuid" if server.vendor == "postgresql" else "char(32)"
    later_check = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
    held = stories[2].job.pk
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE invoice (job_id {kind} NOT NULL REFERENCES django_jobs_job (id) {later_check})")
        cursor.execute("INSERT INTO invoice VALUES (%s)", [held if kind == "uuid" else held.hex])
    try:
        found = run(500)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE invoice")

    assert (found.jobs, dict(found.kept)) == (4, {"referred": 1})
    assert Job.objects.get().pk == held
    assert violated() == {}


@pytest.mark.django_db
def test_other_errors_of_the_database_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a lock that was not to be had is waited for until the next run."""
    Story().claim().succeed()

    def fail(*_: Any, **__: Any) -> Any:
        raise DatabaseError("no such column")

    monkeypatch.setattr(store_prune, "_held_jobs", fail)

    with pytest.raises(DatabaseError):
        run(31)
