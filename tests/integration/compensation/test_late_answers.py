"""A refund that was judged not applied, and given up, turns out to be applied: nobody acts as if it were not."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from django_jobs import Confirmed, Rejected
from django_jobs.domain.states import DeadReason, JobState
from django_jobs.exceptions import ActionRefusedError, RowBusyError
from django_jobs.models import CancelRequest, Compensation, EffectAdoption, Job, OperatorAction, Send, SideEffect
from django_jobs.operate.action import Decision
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.discard import Discard
from django_jobs.operate.doctor import diagnose
from django_jobs.operate.explain import explain
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_many import ReplayMany
from django_jobs.operate.selection import Selection
from django_jobs.operate.verify import verify
from django_jobs.store.cancels import cancel_running
from django_jobs.store.claims import Claimed
from django_jobs.store.compensations import taking_back_row
from django_jobs.store.effects import record
from django_jobs.store.endings import dead_letter, fail
from django_jobs.worker.execute import execute
from tests.crowd import meanwhile
from tests.factories_compensation import compensate
from tests.factories_decisions import decided, operator
from tests.integration.compensation import trips
from tests.integration.compensation.conftest import Booked, RunNext
from tests.integration.compensation.trips import Agency, effect_of
from tests.integration.worker.conftest import claimer
from tests.scenes import BUDGET, Told, failure

pytestmark = pytest.mark.django_db(transaction=True)


class GivenUp:
    """A dead letter with a hotel, and its first compensation: rejected by the provider and discarded."""

    def __init__(self, booked: Booked, run_next: RunNext, agency: Agency) -> None:
        self.original = booked("hotel", dies=True)
        self.effect = effect_of(self.original, "hotel")
        agency.answers["cancel hotel"] = [Rejected("too late")]
        compensate(self.effect.pk)
        (self.first,) = claimer().take(1, 0)
        execute(self.first)
        decided(Discard(self.first.job_id, using="default"))

    def second(self) -> Claimed:
        """Ask for another compensation, and let a worker claim its job."""
        compensate(self.effect.pk)
        (claimed,) = claimer().take(1, 0)
        return claimed

    def applied_after_all(self) -> None:
        """Let the provider's answer to the first request arrive: it was applied."""
        record(self.first, Send.objects.get(job_id=self.first.job_id).pk, Confirmed("refund-1"))


@pytest.fixture
def given_up(booked: Booked, run_next: RunNext, agency: Agency) -> GivenUp:
    """The hotel of a dead trip, whose first compensation was given up."""
    return GivenUp(booked, run_next, agency)


def sound() -> None:
    """See that every invariant holds."""
    assert [item.invariant.name for item in verify(using="default").violated] == []


def cancelled_while_it_runs(second: Claimed, late: Callable[[], None]) -> None:
    """Ask the running job to end; the answer arrives before it hears that."""
    decided(Cancel(second.job_id, using="default"))
    late()
    cancel_running(second, message="asked to", budget=BUDGET)


def cancelled_after_a_failure(second: Claimed, late: Callable[[], None]) -> None:
    """Ask the running job to end; the answer arrives, and its attempt fails."""
    decided(Cancel(second.job_id, using="default"))
    late()
    fail(second, failure=failure(), delay=timedelta(0), budget=BUDGET)


@pytest.mark.parametrize("end", [cancelled_while_it_runs, cancelled_after_a_failure])
def test_cancelled_second_compensation_is_not_void_when_the_first_was_applied(
    given_up: GivenUp, run_next: RunNext, agency: Agency, end: Callable[[Claimed, Callable[[], None]], None]
) -> None:
    """It is left to a human, who can only have it recorded; the original is not replayed as if it were paid."""
    second = given_up.second()

    end(second, given_up.applied_after_all)

    job = Job.objects.get(pk=second.job_id)
    assert (job.state, job.dead_reason) == (JobState.DEAD_LETTERED, "cancelled")
    assert Compensation.objects.get(job_id=second.job_id).outcome == "open"
    sound()
    with pytest.raises(ActionRefusedError, match="taken back already"):
        decided(Discard(second.job_id, using="default"))
    with pytest.raises(ActionRefusedError, match="is being taken back"):
        decided(Replay(given_up.original, using="default"))
    decided(Replay(second.job_id, using="default"))
    assert run_next().state == "succeeded"
    assert Job.objects.get(pk=given_up.original).resolution == "compensated"
    assert [what for what, _ in agency.applied] == ["hotel"], "nothing was sent a second time"
    sound()


def test_cancelled_second_compensation_is_void_when_nothing_was_applied(given_up: GivenUp) -> None:
    """Known not applied by any job: it is given up, and another one may be asked for."""
    second = given_up.second()

    decided(Cancel(second.job_id, using="default"))
    cancel_running(second, message="asked to", budget=BUDGET)

    assert Job.objects.get(pk=second.job_id).state == "cancelled"
    assert set(Compensation.objects.values_list("outcome", flat=True)) == {"void"}
    assert CancelRequest.objects.count() == 1
    sound()


@pytest.mark.parametrize("make", [Replay, Discard])
def test_original_is_left_alone_when_its_effect_was_taken_back_anyway(
    given_up: GivenUp, run_next: RunNext, agency: Agency, make: Callable[..., Decision]
) -> None:
    """Nothing stands open, and yet the money went back: everybody says so, until somebody has it recorded."""
    with Told() as told:
        given_up.applied_after_all()

    (alert,) = told.named("owner.alert")
    assert (alert["severity"], alert["reason"]) == ("critical", "an effect that was judged not applied was applied")
    with pytest.raises(ActionRefusedError, match="although that was given up"):
        decided(make(given_up.original, using="default"))
    assert "taken back" in explain(Job.objects.get(pk=given_up.original), using="default").replay.refused
    assert ReplayMany(Selection(queue="default"), using="default").plan().facts["counts"] == {"refused": 1}
    assert [item.id for item in diagnose(using="default").findings if "taken" in item.id] == ["taken-back-anyway"]
    sound()

    plan = Compensate(given_up.effect.pk, using="default").plan()
    assert any("sends nothing, and records that" in line for line in plan.lines)
    compensate(given_up.effect.pk)
    assert run_next().state == "succeeded"
    assert Job.objects.get(pk=given_up.original).resolution == "compensated"
    assert [what for what, _ in agency.applied] == ["hotel"]
    assert [item.id for item in diagnose(using="default").findings if "taken" in item.id] == []
    sound()


def test_receipt_of_what_was_taken_back_anyway_is_adopted_by_nobody(given_up: GivenUp, run_next: RunNext) -> None:
    """Another job for the same trip does not succeed on a hotel that was given back."""
    given_up.applied_after_all()
    trips.book.enqueue(city="Oslo", steps=["hotel"])

    job = run_next()

    assert (job.state, job.error_type.rpartition(".")[2]) == ("dead_lettered", "EffectKeyReusedError")
    assert not EffectAdoption.objects.exists()


def test_late_answer_changes_the_plan(given_up: GivenUp) -> None:
    """Whoever saw that a refund will be sent did not agree to record one."""
    seen = Compensate(given_up.effect.pk, using="default").plan()

    given_up.applied_after_all()

    assert Compensate(given_up.effect.pk, using="default").plan().digest != seen.digest


def test_nobody_is_told_to_take_back_by_hand_what_was_taken_back_anyway(
    given_up: GivenUp, run_next: RunNext, agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has to be sent, so it does not matter that this code could send nothing: the money goes back once."""
    given_up.applied_after_all()
    monkeypatch.setattr(trips.hotel, "_compensation", None)

    plan = Compensate(given_up.effect.pk, using="default").plan()
    assert (plan.refused, "by hand" in " ".join(plan.lines)) == ("", False)
    compensate(given_up.effect.pk)

    assert run_next().state == "succeeded"
    assert Job.objects.get(pk=given_up.original).resolution == "compensated"
    assert [what for what, _ in agency.applied] == ["hotel"]
    sound()


@pytest.mark.postgres
@pytest.mark.parametrize("make", [Cancel, Discard])
def test_answer_that_arrives_during_the_decision_is_waited_for(
    given_up: GivenUp, make: Callable[..., Decision]
) -> None:
    """Whoever writes down a late answer holds what takes the effect back, and nobody gives that up meanwhile."""
    job_id = compensate(given_up.effect.pk).details["job_id"]
    if make is Discard:
        (second,) = claimer().take(1, 0)
        dead_letter(second, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
    decision = make(uuid.UUID(job_id), using="default")
    digest = decision.plan().digest
    row = taking_back_row(given_up.effect, using="default")
    assert row is not None

    def arrive(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            SideEffect.objects.select_for_update(no_key=True).get(pk=row.pk)
            pause()
            given_up.applied_after_all()

    with meanwhile(arrive) as go_on:
        with pytest.raises(RowBusyError):
            decision.submit(operator(), digest=digest)
        go_on()
        with pytest.raises(ActionRefusedError, match="taken back already") as caught:
            decision.submit(operator(), digest=digest)
        # A dead letter does not run by itself, and a waiting job cannot be replayed.
        assert ("Replay it: " if make is Discard else "Let it run: ") in str(caught.value)

    assert Compensation.objects.get(job_id=job_id).outcome == "open"
    assert not OperatorAction.objects.filter(job_id=job_id).exists()
