"""Every built transition in every state: the table of transitions is what the database does."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import BY_NAME, NOT_BUILT, TRANSITIONS, DeadReason, JobState
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Job
from tests.databases import Server
from tests.factories import QUEUE, IdempotencyKeyFactory, JobFactory
from tests.factories_compensation import CompensationFactory
from tests.scenes import BUDGET, Told, everything, failure, held, loss, new_job, request

BUILT = [transition.name for transition in TRANSITIONS if transition.name not in NOT_BUILT]
FENCED = [name for name in BUILT if BY_NAME[name].fenced]
STATES = [*(state.value for state in JobState), "discarded"]
Proof = Any


def _enqueue(proof: Proof) -> bool:
    return store.enqueue(new_job(key="order:1", key_scope="/tests.work"), using="default") is not None


def _revision(proof: Proof) -> int:
    return Job.objects.get(pk=proof.job_id).revision


def _raising(call: Callable[[], object]) -> bool:
    try:
        call()
    except LeaseLostError:
        return False
    return True


ACTIONS: dict[str, Callable[[Proof], bool]] = {
    "enqueue": _enqueue,
    "promote": lambda proof: store.promote([QUEUE], using="default") == [proof.job_id],
    "defer": lambda proof: store.defer([QUEUE], runnable=[], using="default") == 1,
    "claim": lambda proof: [job.job_id for job in store.claim(request(), using="default")] == [proof.job_id],
    "expire": lambda proof: [row["id"] for row in store.expire(using="default")] == [proof.job_id],
    "renew": lambda proof: _raising(
        lambda: store.renew(proof, progress=1, total=2, lease=BUDGET, ends_at=clock.now() + timedelta(hours=1))
    ),
    "succeed": lambda proof: _raising(lambda: store.succeed(proof, result="1", budget=BUDGET)),
    "fail": lambda proof: _raising(
        lambda: store.fail(proof, failure=failure(unknown=1), delay=timedelta(minutes=1), budget=BUDGET)
    ),
    "dead_letter": lambda proof: _raising(
        lambda: store.dead_letter(proof, failure=failure(unknown=1), reason=DeadReason.PERMANENT, budget=BUDGET)
    ),
    "snooze": lambda proof: _raising(
        lambda: store.snooze(proof, delay=timedelta(minutes=1), counters=Counters(), message="later")
    ),
    "release": lambda proof: store.release(proof, message="stopping"),
    "cancel": lambda proof: store.cancel(proof.job_id, using="default") is not None,
    "cancel_running": lambda proof: _raising(lambda: store.cancel_running(proof, message="no", budget=BUDGET)),
    "rescue": lambda proof: store.rescue(proof, loss=loss()),
    "replay": lambda proof: store.replay(proof.job_id, revision=_revision(proof), using="default") is not None,
    "discard": lambda proof: store.discard(proof.job_id, revision=_revision(proof), using="default") is not None,
    "run_now": lambda proof: store.run_now(proof.job_id, revision=_revision(proof), using="default"),
    "compensated": lambda proof: store.compensated(proof.job_id, using="default"),
}


def _job(name: str, state: str) -> Job:
    """Make a job in this state for which nothing but its state can stand against the transition."""
    values: dict[str, Any] = {state: True}
    if name == "promote":
        values["available_at"] = clock.now() - timedelta(seconds=1)
    if name == "expire":
        values["useful_until"] = clock.now() - timedelta(seconds=1)
    job: Job = JobFactory(**values)
    if name == "compensated":
        CompensationFactory(succeeded=True, effect__job=job)
    IdempotencyKeyFactory(job_id=job.pk)
    return job


def test_every_built_transition_is_tried() -> None:
    """The actions of this file are the built transitions, no more and no fewer."""
    assert sorted(ACTIONS) == sorted(BUILT)


def test_nothing_leaves_succeeded() -> None:
    """No transition, built or not, has a succeeded or cancelled job as its source."""
    finished = {JobState.SUCCEEDED, JobState.CANCELLED}

    assert [transition.name for transition in TRANSITIONS if transition.sources & finished] == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", BUILT)
def test_transition_changes_exactly_its_sources(database: Server, name: str, state: str) -> None:
    """A source state reaches a target with one telemetry event; in any other state every column stays as it was."""
    job = _job(name, state)
    proof, before = held(job), everything()
    with Told() as told:
        changed = ACTIONS[name](proof)

    assert changed is (state in BY_NAME[name].sources)
    if changed:
        job.refresh_from_db()
        assert job.state in BY_NAME[name].targets
        assert job.revision == before["Job"][0]["revision"] + (name != "renew")
        assert len(told.named(BY_NAME[name].event)) == 1
    else:
        assert everything() == before
        assert told.named(BY_NAME[name].event) == []


@pytest.mark.parametrize("name", FENCED)
def test_fenced_transition_refuses_another_attempt(database: Server, name: str) -> None:
    """Running is not enough: without the id of the attempt that holds the job, nothing changes."""
    job = _job(name, "running")
    before = everything()
    with Told() as told:
        changed = ACTIONS[name](held(job, attempt_id=uuid.uuid4()))

    assert changed is False
    assert everything() == before
    assert told.named(BY_NAME[name].event) == []


@pytest.mark.parametrize("name", [name for name in FENCED if name not in {"release", "rescue"}])
def test_refused_write_is_counted_and_told(database: Server, name: str) -> None:
    """A holder that comes back too late gets an error that names the operation, and telemetry tells of it once."""
    job = _job(name, "running")
    late = held(job, attempt_id=uuid.uuid4())
    with Told() as told:
        ACTIONS[name](late)

    refusals = told.named("lease.refused")
    assert [(fields["operation"], fields["attempt_id"]) for fields in refusals] == [(name, late.attempt_id)]


@pytest.mark.parametrize("name", [name for name in FENCED if name != "renew"])
def test_ending_closes_its_attempt_and_the_lease(database: Server, name: str) -> None:
    """Every way out of running closes exactly the attempt that held the job, and a second try is refused."""
    job = _job(name, "running")
    proof = held(job)

    assert ACTIONS[name](proof) is True
    job.refresh_from_db()
    assert (job.attempt_id, job.lease_owner, job.lease_child, job.lease_expires_at) == (None, None, None, None)
    attempt = job.attempts.get()
    assert attempt.outcome is not None
    assert attempt.finished_at >= attempt.started_at
    after = everything()
    assert ACTIONS[name](proof) is False
    assert everything() == after


def test_refusal_is_noted_on_the_late_attempt(database: Server) -> None:
    """Evidence needs no ownership: the attempt that lost its job keeps what it tried, and how often."""
    job = JobFactory(succeeded=True)
    proof = held(job)

    store.note_refusal(proof, "succeed")
    store.note_refusal(proof, "fail")

    attempt = job.attempts.get()
    assert (attempt.refused_count, attempt.refused_operation) == (2, "fail")
    assert attempt.refused_at is not None
