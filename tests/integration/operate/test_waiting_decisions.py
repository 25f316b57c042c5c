"""Running now what waits, and ending a wrong lease."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs import clock, store
from django_jobs.conf import get_settings
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import ActionChangedError, ActionRefusedError
from django_jobs.models import Attempt, Job, OperatorAction, Worker
from django_jobs.operate.expire_lease import ExpireLease
from django_jobs.operate.run_now import RunNow
from django_jobs.operate.verify import verify
from django_jobs.store.pauses import pause
from tests.factories import JobFactory, WorkerFactory
from tests.factories_decisions import Person, decided, operator
from tests.integration.operate.stories import WORKER, Story, later
from tests.scenes import Told, everything, held, loss, request

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "tell",
    [lambda: Story().claim().snooze(), lambda: Story().claim().snooze(for_evidence=True)],
    ids=["own", "evidence"],
)
def test_waiting_job_is_queued_now(tell: Callable[[], Story]) -> None:
    """It is due at once, no counter moves, and the audit says who wanted it."""
    story = tell()
    before = Job.objects.values().get()
    with Told() as told:
        decided(RunNow(story.job.pk, using="default"))

    after = Job.objects.values().get()
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == {"state", "revision", "available_at"}
    assert (after["state"], after["revision"]) == ("queued", before["revision"] + 1)
    assert OperatorAction.objects.get().action == "run_now"
    assert len(told.named("job.run_now")) == 1
    assert verify(using="default").violated == ()


def test_job_of_the_future_ages_from_now() -> None:
    """Its generation begins when it may run, not at the time that was meant before."""
    job = JobFactory(scheduled=True, generation_started_at=clock.now() + timedelta(hours=1))

    decided(RunNow(job.pk, using="default"))

    job.refresh_from_db()
    assert job.generation_started_at == job.available_at <= clock.now()
    assert [claimed.job_id for claimed in store.claim(request(), using="default")] == [job.pk]


@pytest.mark.parametrize("state", ["queued", "running", "succeeded", "dead_lettered", "cancelled", "discarded"])
def test_only_what_waits_is_run_now(state: str) -> None:
    """Everything else is refused and stays as it is."""
    job = JobFactory(**{state: True})
    before = everything()

    with pytest.raises(ActionRefusedError, match="Only a job that waits"):
        decided(RunNow(job.pk, using="default"))

    assert everything() == before


def test_job_that_nobody_may_run_is_not_run_now() -> None:
    """A set-aside job would be set aside again; a useless one is left to its end."""
    with pytest.raises(ActionRefusedError, match="resume its type"):
        decided(RunNow(JobFactory(scheduled=True, lane="!tests.work 1").pk, using="default"))
    with pytest.raises(ActionRefusedError, match="useful until"):
        decided(RunNow(JobFactory(failed=True, useful_until=clock.now()).pk, using="default"))


def test_pause_of_the_queue_is_told() -> None:
    """A queued job of a paused queue still waits: the plan says so."""
    job = JobFactory(scheduled=True)
    pause("queue", job.queue_name, actor="ann", reason="provider down", using="default")

    assert any("paused by ann" in line for line in RunNow(job.pk, using="default").plan().lines)


def test_promotion_between_look_and_yes_changes_the_plan() -> None:
    """What moved on by itself is not moved again."""
    job = JobFactory(scheduled=True)
    digest = RunNow(job.pk, using="default").plan().digest
    Job.objects.update(revision=2)

    with pytest.raises(ActionChangedError):
        RunNow(job.pk, using="default").submit(operator(), digest=digest)


def test_expired_lease_lets_a_reaper_take_the_job() -> None:
    """After the patience of the settings the job is found, and its loss is charged to nothing."""
    WorkerFactory(id=WORKER)
    story = Story(ago=timedelta(minutes=1)).claim(lease=timedelta(days=1))
    assert store.abandoned(using="default") == []

    decided(ExpireLease(story.job.pk, using="default"))

    assert verify(using="default").violated == ()
    assert store.abandoned(using="default") == []
    with later(seconds=get_settings().expired_patience.total_seconds() + 1):
        Worker.objects.update(heartbeat_at=clock.now())
        (found,) = store.abandoned(using="default")
        assert found.cause is LossCause.EXPIRED
        assert store.rescue(found, loss=loss(LossCause.EXPIRED))
    assert Attempt.objects.get().loss_cause == "expired"
    assert Job.objects.get().state == "queued"


def test_holder_may_still_finish() -> None:
    """Ending the lease takes nothing from an attempt that comes to its end in time."""
    story = Story().claim(lease=timedelta(days=1))
    decided(ExpireLease(story.job.pk, using="default"))

    store.succeed(held(story.job), result=None, budget=timedelta(minutes=1))

    assert Job.objects.get().state == "succeeded"


def test_lease_that_is_over_or_nobody_s_is_refused() -> None:
    """There is nothing to shorten."""
    with pytest.raises(ActionRefusedError, match="ended at"):
        decided(ExpireLease(JobFactory(running=True, lease_expires_at=clock.now()).pk, using="default"))
    with pytest.raises(ActionRefusedError, match="Only a running job"):
        decided(ExpireLease(JobFactory().pk, using="default"))


def test_next_attempt_keeps_its_lease() -> None:
    """A look at one attempt is no yes about the next."""
    story = Story().claim(lease=timedelta(days=1))
    digest = ExpireLease(story.job.pk, using="default").plan().digest
    story.release().claim(lease=timedelta(days=1))

    with pytest.raises(ActionChangedError):
        ExpireLease(story.job.pk, using="default").submit(operator(), digest=digest)


@pytest.mark.parametrize(("decision", "permission"), [(RunNow, "reschedule_job"), (ExpireLease, "expire_job_lease")])
def test_each_decision_needs_its_permission(decision: type[RunNow | ExpireLease], permission: str) -> None:
    """Another permission is none, and nothing is written."""
    job = JobFactory(**({"scheduled": True} if decision is RunNow else {"running": True}))
    before = everything()

    with pytest.raises(PermissionDenied, match=permission):
        decided(decision(job.pk, using="default"), user=Person(holds={"django_jobs.replay_job"}))
    assert everything() == before
    decided(decision(job.pk, using="default"), user=Person(holds={f"django_jobs.{permission}"}))
