"""Cancelling by hand: what becomes of a waiting job, of a running one, and who is refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs import clock, store
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import ActionChangedError, ActionRefusedError
from django_jobs.models import Attempt, CancelRequest, Job, OperatorAction
from django_jobs.operate.action import Done
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.cancel_requests import Fate, fates
from django_jobs.operate.explain import explain
from django_jobs.operate.history import as_dict, history_of
from django_jobs.operate.verify import verify
from django_jobs.store.keys import key_holder
from tests.databases import Server
from tests.factories import IdempotencyKeyFactory, JobFactory, SideEffectFactory
from tests.factories_compensation import CompensationFactory
from tests.factories_decisions import Person, operator
from tests.factories_decisions import decided as submitted
from tests.integration.operate.stories import Story
from tests.scenes import BUDGET, Told, everything, failure, held, loss

pytestmark = pytest.mark.django_db

HOUR = BUDGET * 60
WAITING = ["scheduled", "queued", "failed"]


def decided(job: Job, **changes: Any) -> Done:
    """Cancel a job as somebody who has just looked does."""
    return submitted(Cancel(job.pk, using="default"), **{"reason": "the order was withdrawn", **changes})


def healthy() -> dict[str, tuple[str, ...]]:
    """Return what verify finds, by name."""
    return {item.invariant.name: item.ids for item in verify(using="default").violated}


@pytest.mark.parametrize("state", WAITING)
def test_waiting_job_without_effects_is_cancelled(database: Server, state: str) -> None:
    """It ends cancelled in one move, with its audit, and its key lives on for its time after the end."""
    key = IdempotencyKeyFactory()
    job = JobFactory(pk=key.job_id, payload__key=key.key, payload__key_scope=key.scope, **{state: True})
    with Told() as told:
        done = decided(job)

    job.refresh_from_db()
    assert (job.state, job.dead_reason, job.lane) == ("cancelled", "", "")
    assert job.finished_at is not None
    action = OperatorAction.objects.get()
    assert (action.action, action.job_id, action.from_state, action.from_generation) == ("cancel", job.pk, state, 1)
    assert done.details == {"state": "cancelled", "requested": False}
    assert len(told.named("job.cancel")) == 1
    holder = key_holder(key.scope, key.key, using="default")
    assert holder is not None
    assert (holder.state, holder.is_live, holder.waits_for_human) == ("cancelled", True, False)
    with clock.override(lambda: job.finished_at + timedelta(days=7, seconds=1)):
        expired = key_holder(key.scope, key.key, using="default")
    assert expired is not None
    assert expired.is_live is False
    assert healthy() == {}


@pytest.mark.parametrize(
    ("effect", "ends"),
    [
        ("planned", "cancelled"),
        ("rejected", "cancelled"),
        ("in_flight", "dead_lettered"),
        ("ambiguous", "dead_lettered"),
        ("succeeded", "dead_lettered"),
        ("abandoned", "dead_lettered"),
    ],
)
def test_what_may_have_been_applied_is_left_to_a_human(database: Server, effect: str, ends: str) -> None:
    """Only a job of which nothing can stand in the world ends cancelled; the plan says so before."""
    job = JobFactory(failed=True)
    SideEffectFactory(job=job, **{effect: True})
    plan = Cancel(job.pk, using="default").plan()

    decided(job)

    job.refresh_from_db()
    assert job.state == plan.facts["ends"] == ends
    assert job.dead_reason == ("cancelled" if ends == "dead_lettered" else "")
    assert (job.finished_at is None, job.dead_at is None) == (ends == "dead_lettered", ends == "cancelled")
    assert bool(plan.acknowledge) == (ends == "dead_lettered")


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "dead_lettered", "discarded"])
def test_ended_job_is_not_cancelled(database: Server, state: str) -> None:
    """What has ended is refused with the reason, and nothing is written."""
    job = JobFactory(**{state: True})
    before = everything()

    with pytest.raises(ActionRefusedError):
        decided(job)

    assert everything() == before
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize("outcome", ["open", "succeeded"])
def test_compensated_job_is_not_cancelled(database: Server, outcome: str) -> None:
    """While an effect of it is being taken back, or was, the job stays as it is."""
    job = JobFactory(failed=True)
    effect = SideEffectFactory(job=job, succeeded=True)
    CompensationFactory(effect=effect, **({outcome: True} if outcome != "open" else {}))

    with pytest.raises(ActionRefusedError, match="taken back by job"):
        decided(job)


@pytest.mark.parametrize("touched", [False, True])
def test_cancelled_compensation_makes_room_for_another(database: Server, touched: bool) -> None:
    """A compensation job that ends cancelled is void; one that may have sent something stays open."""
    job = JobFactory()
    if touched:
        SideEffectFactory(job=job, ambiguous=True)
    effect = SideEffectFactory(job=JobFactory(succeeded=True), succeeded=True)
    row = CompensationFactory(effect=effect, job_id=job.pk)

    decided(job)

    row.refresh_from_db()
    assert row.outcome == ("open" if touched else "void")
    assert (row.closed_at is None) is touched


@pytest.mark.parametrize("state", ["queued", "running"])
def test_user_without_the_right_writes_nothing(database: Server, state: str) -> None:
    """The permission is asked under the lock; a refusal leaves no row behind."""
    job = JobFactory(**{state: True})
    before = everything()

    with pytest.raises(PermissionDenied, match="cancel_job"):
        decided(job, actor="eve", user=Person())

    assert everything() == before
    assert not OperatorAction.objects.exists()
    assert not CancelRequest.objects.exists()


def test_plan_of_another_moment_is_refused(database: Server) -> None:
    """An effect that was sent after the look changes what the cancel means, so it must be looked at again."""
    job = JobFactory(failed=True)
    digest = Cancel(job.pk, using="default").plan().digest
    SideEffectFactory(job=job, ambiguous=True)

    with pytest.raises(ActionChangedError):
        Cancel(job.pk, using="default").submit(operator(), digest=digest)

    job.refresh_from_db()
    assert job.state == "failed"


def test_running_job_gets_a_request_once(database: Server) -> None:
    """Of the running job only the revision rises; a second request for the same generation is refused."""
    job = JobFactory(running=True)
    before = everything()
    before["Job"][0]["revision"] += 1

    done = decided(job)

    assert everything() == before
    request = CancelRequest.objects.get()
    assert (request.job_id, request.generation, request.action_id) == (job.pk, 1, done.action.pk)
    assert store.cancels_asked([(job.pk, 1), (uuid.uuid4(), 1)], using="default") == {job.pk}
    assert store.cancels_asked([(job.pk, 2)], using="default") == set()
    with pytest.raises(ActionRefusedError, match="already"):
        decided(job)


ENDINGS: dict[str, Callable[[Any], object]] = {
    "fail": lambda proof: store.fail(proof, failure=failure(unknown=1), delay=HOUR, budget=BUDGET),
    "fail at once": lambda proof: store.fail(proof, failure=failure(unknown=1), delay=HOUR * 0, budget=BUDGET),
    "snooze": lambda proof: store.snooze(proof, delay=HOUR, counters=failure().counters, message="later"),
    "release": lambda proof: store.release(proof, message="stopping"),
    **{f"loss: {cause.value}": lambda proof, cause=cause: store.rescue(proof, loss=loss(cause)) for cause in LossCause},
}


@pytest.mark.parametrize("touched", [False, True], ids=["nothing sent", "sent"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_request_is_heeded_however_the_attempt_ends(database: Server, ending: str, touched: bool) -> None:
    """A job with a request never waits for another attempt: failed, snoozed, given back or lost, it is cancelled."""
    story = Story(lease_expires_at=None).claim()
    job = story.job
    if touched:
        story.effect().send().answer("unknown")
    decided(job)
    late = story.pass_time() - HOUR * 2
    Job.objects.filter(pk=job.pk).update(lease_expires_at=late)

    ENDINGS[ending](held(job))

    job.refresh_from_db()
    assert job.state == ("dead_lettered" if touched else "cancelled")
    assert job.dead_reason == ("cancelled" if touched else "")
    assert Attempt.objects.get(job_id=job.pk).outcome in {"failed", "snoozed", "released", "lost"}
    assert fates(history_of(job, using="default"))[0].fate is Fate.HEEDED
    assert "J15" not in healthy()


def test_request_of_an_older_generation_is_forgotten(database: Server) -> None:
    """It held for its generation; after a replay the job runs, and fails, like any other."""
    story = Story().claim()
    decided(story.job)
    story.fail(error_class="permanent", dead="permanent").replay().claim()

    store.fail(held(story.job), failure=failure(unknown=1), delay=HOUR, budget=BUDGET)

    story.job.refresh_from_db()
    assert story.job.state == "failed"
    assert fates(history_of(story.job, using="default"))[0].fate is Fate.TOO_LATE


@pytest.mark.parametrize("end", ["succeed", "dead"])
def test_request_that_came_too_late_is_told_as_such(database: Server, end: str) -> None:
    """Whoever commits first wins; explain and show say that the request was too late."""
    story = Story().claim()
    decided(story.job)
    story.succeed() if end == "succeed" else story.fail(error_class="permanent", dead="permanent")

    history = history_of(story.job, using="default")
    text = "\n".join(line for section in explain(story.job, using="default").sections for line in section.lines)
    assert fates(history)[0].fate is Fate.TOO_LATE
    assert as_dict(history)["cancel_requests"][0]["fate"] == "too_late"
    assert "too late: attempt 1" in text


def test_heard_request_is_told(database: Server) -> None:
    """The attempt that heard it is named, and who wanted it."""
    story = Story().claim()
    decided(story.job)
    state = store.cancel_running(held(story.job), message="asked to", budget=BUDGET)

    story.job.refresh_from_db()
    text = "\n".join(line for section in explain(story.job, using="default").sections for line in section.lines)
    assert state == story.job.state == "cancelled"
    assert Attempt.objects.get().outcome == "cancelled"
    assert "attempt 1 heard it and ended" in text
    assert "on the word of ada: the order was withdrawn" in text
    assert healthy() == {}
