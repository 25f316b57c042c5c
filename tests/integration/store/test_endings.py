"""What each ending writes: the job, its attempt and its payload."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone, DeadReason
from django_jobs.exceptions import EffectsOpenError, LeaseLostError
from django_jobs.models import SideEffect
from django_jobs.store import Claimed, endings
from django_jobs.store.completion import finished_step, lock_for_completion, read_back, remember_step
from tests.databases import Server
from tests.factories import JobFactory, SendFactory, SideEffectFactory
from tests.scenes import BUDGET, NOON, Told, failure, held, request

HOUR = timedelta(hours=1)


def _claimed(**values: object) -> Claimed:
    JobFactory(**values)
    return store.claim(request(1), using="default")[0]


@pytest.mark.parametrize("ending", ["succeed", "fail", "dead_letter", "snooze", "release"])
def test_ending_is_one_statement_on_postgresql(database: Server, vendor: str, ending: str) -> None:
    """Job, attempt and payload change together in one round trip; on SQLite they do in one transaction.

    What leaves the job waiting then reads whether somebody wants it cancelled.
    """
    claimed = _claimed()
    calls = {
        "succeed": lambda: store.succeed(claimed, result="1", budget=BUDGET),
        "fail": lambda: store.fail(claimed, failure=failure(), delay=HOUR, budget=BUDGET),
        "dead_letter": lambda: store.dead_letter(
            claimed, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET
        ),
        "snooze": lambda: store.snooze(claimed, delay=HOUR, counters=Counters(), message="later"),
        "release": lambda: store.release(claimed, message="stopping"),
    }
    with CaptureQueriesContext(connection) as queries:
        calls[ending]()

    looks = int(ending in {"fail", "snooze", "release"})
    assert len(queries) == 1 + looks if vendor == "postgresql" else len(queries) <= 3 + looks
    assert sum("django_jobs_cancelrequest" in query["sql"] for query in queries) == looks


def test_success_stores_result_and_clears_suspicion(database: Server) -> None:
    """Losses and isolation end with a success; the counts of errors stay for whoever reads the history."""
    job = JobFactory(running=True, isolation="worker", lost_count=2, silent_lost_count=2, unknown_count=1)
    with clock.override(lambda: NOON):
        finished = store.succeed(held(job), result='{"a":1}', budget=BUDGET)

    job.refresh_from_db()
    assert finished == NOON == job.finished_at == job.attempts.get().finished_at
    assert (job.lost_count, job.exit_lost_count, job.silent_lost_count, job.isolation) == (0, 0, 0, "")
    assert job.unknown_count == 1
    assert job.payload.result == '{"a":1}'


def test_success_without_result_stores_none(database: Server) -> None:
    """No result is not the same as the result null."""
    job = JobFactory(running=True)
    store.succeed(held(job), result=None, budget=BUDGET)

    job.payload.refresh_from_db()
    assert job.payload.result is None


@pytest.mark.parametrize(("seconds", "over"), [(60, False), (61, True)])
@pytest.mark.parametrize("ending", ["succeed", "fail", "dead_letter"])
def test_attempt_beyond_its_budget_is_marked(database: Server, ending: str, seconds: int, over: bool) -> None:
    """An attempt that ended inside its lease but after its budget is marked; at the budget it is not."""
    start = clock.now()
    job = JobFactory(running=True, last_attempt__started_at=start)
    with clock.override(lambda: start + timedelta(seconds=seconds)):
        if ending == "succeed":
            store.succeed(held(job), result=None, budget=BUDGET)
        elif ending == "fail":
            store.fail(held(job), failure=failure(), delay=HOUR, budget=BUDGET)
        else:
            store.dead_letter(held(job), failure=failure(), reason=DeadReason.AGE, budget=BUDGET)

    assert job.attempts.get().over_budget is over


@pytest.mark.parametrize("state", ["planned", "in_flight", "ambiguous", "rejected"])
def test_open_effect_stands_against_success(database: Server, state: str) -> None:
    """The job stays running and the error names the effect and its state."""
    job = JobFactory(running=True)
    SideEffectFactory(job=job, name="charge", **{state: True})

    with pytest.raises(EffectsOpenError, match=rf"charge \({state}\)"):
        store.succeed(held(job), result=None, budget=BUDGET)

    job.refresh_from_db()
    assert (job.state, job.attempts.get().outcome) == ("running", None)


@pytest.mark.parametrize("values", [{"succeeded": True}, {"abandoned": True}, {"rejected": True, "required": False}])
def test_settled_effect_lets_the_job_succeed(database: Server, values: dict[str, bool]) -> None:
    """So does a refusal that the handler declared acceptable; effects of other jobs do not matter."""
    job = JobFactory(running=True)
    SideEffectFactory(job=job, **values)
    SideEffectFactory(ambiguous=True)

    store.succeed(held(job), result=None, budget=BUDGET)

    job.refresh_from_db()
    assert job.state == "succeeded"


def test_late_holder_hears_of_the_lease_not_of_the_effects(database: Server) -> None:
    """Who does not own the job any more is told that, even if an effect is open too."""
    job = JobFactory(succeeded=True)
    SideEffectFactory(job=job, ambiguous=True)

    with pytest.raises(LeaseLostError):
        store.succeed(held(job), result=None, budget=BUDGET)


def test_late_success_is_tried_once(database: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No evidence gives the job back to a former owner, so its statement is not sent a second time."""
    job = JobFactory(succeeded=True)
    sent: list[str] = []
    real = endings.run
    monkeypatch.setattr(endings, "run", lambda name, *rest, **more: (sent.append(name), real(name, *rest, **more))[1])

    with pytest.raises(LeaseLostError):
        store.succeed(held(job), result=None, budget=BUDGET)

    assert sent == ["succeed"]


@pytest.mark.parametrize(("delay", "state"), [(0, "queued"), (1, "queued"), (1.001, "failed"), (600, "failed")])
def test_failure_that_is_due_within_a_second_is_queued_at_once(database: Server, delay: float, state: str) -> None:
    """Promotion would only cost time; a later one waits as failed."""
    job = JobFactory(running=True, waiting_since=clock.now())
    with clock.override(lambda: NOON):
        due = store.fail(held(job), failure=failure(unknown=2), delay=timedelta(seconds=delay), budget=BUDGET)

    job.refresh_from_db()
    assert (job.state, job.available_at) == (state, due)
    assert due == NOON + timedelta(seconds=delay)
    assert (job.unknown_count, job.waiting_since) == (2, None)


@pytest.mark.parametrize("ending", ["fail", "dead_letter"])
def test_error_is_kept_on_job_attempt_and_payload(database: Server, ending: str) -> None:
    """The job has class, type and group; the attempt has all of it; the payload row has the last message."""
    job = JobFactory(running=True)
    if ending == "fail":
        store.fail(held(job), failure=failure(), delay=HOUR, budget=BUDGET)
    else:
        store.dead_letter(held(job), failure=failure(), reason=DeadReason.UNCHANGED, budget=BUDGET)

    job.refresh_from_db()
    attempt = job.attempts.get()
    for row in (job, attempt):
        assert (row.error_class, row.error_type, row.error_fingerprint) == ("unknown", "ValueError", "v1:" + "f" * 64)
    assert (attempt.outcome, attempt.message, attempt.traceback) == ("failed", "no", "Traceback …")
    assert job.payload.error_text == "no"
    assert job.dead_reason == ("" if ending == "fail" else "unchanged")


def test_counters_and_isolation_are_written_as_given(database: Server) -> None:
    """What the rules counted is what the next attempt reads; isolation follows from the losses."""
    counters = Counters(unknown=1, transient=2, lost=3, exit_lost=1, silent_lost=2, free=4, unchanged=5)
    job = JobFactory(running=True)
    store.snooze(held(job), delay=timedelta(0), counters=counters, message="later")
    job.refresh_from_db()
    assert job.isolation == "worker"

    job.state = "queued"
    job.save()
    (found,) = store.claim(request(1, suspects=True, alone=Alone.WORKER), using="default")
    assert found.counters == counters


def test_wait_for_evidence_counts_from_its_beginning(database: Server) -> None:
    """A second wait keeps the start of the first; another kind of ending forgets it."""
    start = NOON
    job = JobFactory(running=True, now=start)
    with clock.override(lambda: start):
        due = store.snooze(held(job), delay=HOUR, counters=Counters(), message="asks again", for_evidence=True)
    job.refresh_from_db()
    assert (job.state, job.waiting_since, due) == ("scheduled", start, start + HOUR)

    with clock.override(lambda: start + HOUR):
        store.promote(["default"], using="default")
        (second,) = store.claim(request(1), using="default")
        assert second.waiting_since == start
        store.snooze(second, delay=HOUR, counters=Counters(), message="asks again", for_evidence=True)
    job.refresh_from_db()
    assert job.waiting_since == start

    with clock.override(lambda: start + 2 * HOUR):
        store.promote(["default"], using="default")
        (third,) = store.claim(request(1), using="default")
        store.snooze(third, delay=HOUR, counters=Counters(), message="the handler's own wish")
    job.refresh_from_db()
    assert job.waiting_since is None


def test_release_counts_a_free_move_and_nothing_else(database: Server) -> None:
    """The job is due as before, suspicion and budgets stay, and the attempt says why."""
    job = JobFactory(running=True, suspect=True, unknown_count=1, free_count=2)
    due = job.available_at

    assert store.release(held(job), message="stopping") is True

    job.refresh_from_db()
    assert (job.state, job.available_at) == ("queued", due)
    assert (job.free_count, job.unknown_count, job.lost_count, job.isolation) == (3, 1, 1, "child")
    attempt = job.attempts.get()
    assert (attempt.outcome, attempt.message) == ("released", "stopping")


@pytest.mark.parametrize(
    ("trait", "released"), [({}, False), ({"late": True}, True), ({"unknown": True}, True), ({"confirmed": True}, True)]
)
def test_release_waits_for_an_open_send(database: Server, trait: dict[str, bool], released: bool) -> None:
    """While a request may still reach the provider its attempt is not given back; a settled or late one is no obstacle."""
    job = JobFactory(running=True)
    SendFactory(effect__job=job, attempt=job.attempts.get(), **trait)

    assert store.release(held(job), message="stopping") is released

    job.refresh_from_db()
    assert job.state == ("queued" if released else "running")


def test_send_of_an_earlier_attempt_does_not_hold_this_one(database: Server) -> None:
    """Only what this attempt itself sends can keep it."""
    job = JobFactory(running=True)
    SendFactory(effect__job=job, attempt__number=7)

    assert store.release(held(job), message="stopping") is True


def test_dead_letter_is_told(database: Server) -> None:
    """Telemetry hears of the transition and of the reason."""
    job = JobFactory(running=True)
    with Told() as told:
        store.dead_letter(held(job), failure=failure(), reason=DeadReason.POISON, budget=BUDGET)

    assert [(dead["job_id"], dead["reason"]) for dead in told.named("job.dead")] == [(job.pk, "poison")]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [("succeed", "succeeded"), ("fail", "failed"), ("snooze", "snoozed"), ("release", "released"), ("none", None)],
)
def test_read_back_tells_what_became_of_an_attempt(database: Server, ending: str, outcome: str | None) -> None:
    """After a lost reply the database says how the attempt ended, or that it still owns the job."""
    claimed = _claimed()
    if ending == "succeed":
        store.succeed(claimed, result=None, budget=BUDGET)
    elif ending == "fail":
        store.fail(claimed, failure=failure(), delay=HOUR, budget=BUDGET)
    elif ending == "snooze":
        store.snooze(claimed, delay=HOUR, counters=Counters(), message="later")
    elif ending == "release":
        store.release(claimed, message="stopping")

    truth = read_back(claimed)

    assert (truth.outcome, truth.owns) == (outcome, outcome is None)


def test_read_back_of_a_vanished_job_owns_nothing(database: Server) -> None:
    """Neither job nor attempt is there any more: the holder must stop."""
    job = JobFactory(running=True)
    proof = held(job)
    job.attempts.all().delete()
    type(job).objects.filter(pk=job.pk).delete()

    truth = read_back(proof)

    assert (truth.outcome, truth.owns) == (None, False)


@pytest.mark.django_db(transaction=True)
def test_lock_for_completion_refuses_who_lost_the_job(server: Server) -> None:
    """The first statement of a completion finds out, before any row of the handler is written."""
    from django.db import transaction

    job = JobFactory(running=True)
    with transaction.atomic():
        lock_for_completion(held(job), idle=timedelta(seconds=5))
    store.succeed(held(job), result=None, budget=BUDGET)

    with pytest.raises(LeaseLostError, match="'complete' was refused"), transaction.atomic():
        lock_for_completion(held(job), idle=timedelta(seconds=5))


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("idle", "limit"), [(0.1, "1s"), (7, "7s"), (60, "15s")])
def test_lock_for_completion_bounds_idling_in_its_transaction(server: Server, idle: float, limit: str) -> None:
    """A host that vanishes there holds the row for the rest of its lease, never above 15 s, and only there."""
    from django.db import transaction

    def shown() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            return str(cursor.fetchone()[0])

    job = JobFactory(running=True)
    before = shown()
    with transaction.atomic():
        lock_for_completion(held(job), idle=timedelta(seconds=idle))
        assert shown() == limit
    assert shown() == before


def test_step_is_remembered_with_its_attempt(database: Server) -> None:
    """A step that finished gives its stored result to every later attempt; another step has none."""
    job = JobFactory(running=True)
    proof = held(job)
    remember_step(proof, "mail", '{"sent":true}')

    assert finished_step(proof, "mail") == '{"sent":true}'
    assert finished_step(proof, "bill") is None
    assert job.steps.get().fence == 1


def test_effect_that_is_settled_at_the_same_moment_lets_the_job_succeed(
    database: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that comes between the refusal and the look at its reason: the owner succeeds, and hears of no lost lease."""
    job = JobFactory(running=True)
    effect = SideEffectFactory(job=job, ambiguous=True)
    real = endings.run

    def then_settled(name: str, params: Any, *, using: str) -> Any:
        rows = real(name, params, using=using)
        SideEffect.objects.filter(pk=effect.pk).update(
            state="succeeded", resolved_at=effect.created_at, resolved_by="send"
        )
        return rows

    monkeypatch.setattr(endings, "run", then_settled)

    store.succeed(held(job), result=None, budget=BUDGET)

    job.refresh_from_db()
    assert job.state == "succeeded"
