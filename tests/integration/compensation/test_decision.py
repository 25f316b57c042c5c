"""The decision to take an effect back: what it refuses, what it writes, and what its job then does."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs import Rejected, Unknown
from django_jobs.define import registry
from django_jobs.exceptions import ActionChangedError, ActionRefusedError
from django_jobs.models import Compensation, EffectAdoption, Job, JobPayload, OperatorAction, SideEffect
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.resolve import Resolve
from django_jobs.operate.verify import verify
from tests.factories_compensation import compensate
from tests.factories_decisions import decided, operator
from tests.integration.compensation.conftest import Booked, RunNext
from tests.integration.compensation.trips import Agency, effect_of, untouched
from tests.integration.operate.stories import later
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)


def refused(effect: SideEffect, *, by_hand: bool = False) -> str:
    """Return why the effect cannot be taken back, and see that nothing is written."""
    with pytest.raises(ActionRefusedError) as caught:
        compensate(effect.pk, by_hand=by_hand)
    return str(caught.value)


def discard(job_id: Any) -> None:
    """Settle the dead letter of a compensation job."""
    decision = Discard(uuid.UUID(str(job_id)), using="default")
    decision.submit(operator(), digest=decision.plan().digest)


def sound() -> None:
    """See that every invariant holds."""
    assert [item.invariant.name for item in verify(using="default").violated] == []


def test_effect_of_a_success_is_taken_back(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """One request with the receipt and the stored arguments; nothing of the original is rewritten."""
    effect = effect_of(booked("hotel"), "hotel")
    before = untouched()

    job_id = compensate(effect.pk).details["job_id"]
    assert (run_next().state, str(Job.objects.latest("pk").pk)) == ("succeeded", job_id)

    assert agency.applied == [("hotel", "Oslo"), ("cancel hotel", ("hotel-1", "Oslo"))]
    assert untouched() == before
    row = Compensation.objects.get()
    assert (row.outcome, row.closed_at is not None) == ("succeeded", True)
    own = SideEffect.objects.get(job_id=job_id)
    assert (own.name, own.business_key, own.operation) == (
        "compensation",
        f"compensate:{effect.pk}",
        "trip.hotel.compensation",
    )
    sound()


def test_dead_letter_is_settled_by_its_last_compensation(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """In the reverse of the order in which they were applied; only the last one resolves the original."""
    job_id = booked("hotel", "flight", dies=True)
    hotel, flight = effect_of(job_id, "hotel"), effect_of(job_id, "flight")
    assert "flight" in refused(hotel)

    compensate(flight.pk)
    assert "flight" in refused(hotel), "while it is only asked for, it has not been done"
    run_next()
    assert Job.objects.get(pk=job_id).resolution is None
    compensate(hotel.pk)
    with Told() as told:
        run_next()

    original = Job.objects.get(pk=job_id)
    assert (original.state, original.resolution) == ("dead_lettered", "compensated")
    assert original.finished_at is not None
    assert [what for what, _ in agency.applied] == ["hotel", "flight", "cancel flight", "cancel hotel"]
    assert [fields["job_id"] for fields in told.named("job.compensated")] == [job_id]
    sound()


def test_effect_without_a_compensation_is_taken_back_by_hand(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """The refusal says how; a job that sends nothing records it, and the dead letter is settled."""
    job_id = booked("hotel", "mail", dies=True)
    mail = effect_of(job_id, "mail")
    assert "by hand" in refused(mail)
    compensate(effect_of(job_id, "hotel").pk)
    run_next()
    assert Job.objects.get(pk=job_id).resolution is None

    compensate(mail.pk, by_hand=True)
    run_next()

    assert Job.objects.get(pk=job_id).resolution == "compensated"
    assert [what for what, _ in agency.applied] == ["hotel", "mail", "cancel hotel"]
    sound()


def test_second_decision_is_refused_while_one_is_open_and_after_it(booked: Booked, run_next: RunNext) -> None:
    """At most one that is not void; the refusal names its job."""
    effect = effect_of(booked("hotel"), "hotel")
    job_id = compensate(effect.pk).details["job_id"]
    assert job_id in refused(effect)
    run_next()

    assert job_id in refused(effect)
    assert job_id in refused(effect, by_hand=True)
    assert OperatorAction.objects.count() == 1


def test_discarded_compensation_does_not_block_a_new_one(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """The first one is refused by the provider and discarded; the second one has a key of its own and succeeds."""
    effect = effect_of(booked("hotel"), "hotel")
    agency.answers["cancel hotel"] = [Rejected("too late")]
    first = compensate(effect.pk).details["job_id"]
    assert run_next().state == "dead_lettered"
    discard(first)

    second = compensate(effect.pk).details["job_id"]
    assert run_next().state == "succeeded"

    assert [Job.objects.get(pk=job_id).payload.key.rpartition(":")[2] for job_id in (first, second)] == ["1", "2"]
    assert list(Compensation.objects.order_by("pk").values_list("outcome", flat=True)) == ["void", "succeeded"]
    assert SideEffect.objects.get(name="compensation").job_id == uuid.UUID(second)
    sound()


def test_refund_that_was_applied_by_a_discarded_job_is_not_repeated(
    booked: Booked, run_next: RunNext, agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job refunded, failed to complete, and was given up past all advice: the second one adopts its receipt."""
    from django_jobs.exceptions import PermanentError

    effect = effect_of(booked("hotel"), "hotel")
    first = compensate(effect.pk).details["job_id"]

    def fail(*_: Any, **__: Any) -> None:
        raise PermanentError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.worker.compensating.succeed_for", fail)
        assert run_next().state == "dead_lettered"
    with pytest.raises(ActionRefusedError, match="taken back already"):
        discard(first)
    monkeypatch.setattr("django_jobs.operate.discard.why_not_void", lambda *_, **__: "")
    discard(first)
    compensate(effect.pk)

    assert run_next().state == "succeeded"
    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]
    assert EffectAdoption.objects.get().effect.name == "compensation"


def test_unclear_effect_is_resolved_first(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """What may or may not have been applied is not taken back, nor is anything beside it."""
    from tests.integration.compensation.trips import book

    agency.answers["mail"] = [Unknown("time-out")]
    job_id = book.enqueue(city="Bergen", steps=["hotel", "mail"]).id
    assert run_next().state == "dead_lettered"

    assert "ambiguous" in refused(effect_of(job_id, "mail"))
    assert "mail" in refused(effect_of(job_id, "hotel"))


def test_effect_that_was_not_applied_has_nothing_to_take_back(
    booked: Booked, run_next: RunNext, agency: Agency
) -> None:
    """Rejected: nothing to do."""
    from tests.integration.compensation.trips import book

    agency.answers["hotel"] = [Rejected("full")]
    job_id = book.enqueue(city="Bergen", steps=["hotel"]).id
    run_next()

    assert "nothing to take back" in refused(effect_of(job_id, "hotel"))


def test_unfinished_job_is_refused(booked: Booked) -> None:
    """While the job may act, nothing of it is taken back."""
    job_id = booked("hotel", dies=True)
    Job.objects.filter(pk=job_id).update(state="queued", dead_at=None, dead_reason="")

    assert "may still act" in refused(effect_of(job_id, "hotel"))


def test_compensation_is_not_compensated(booked: Booked, run_next: RunNext) -> None:
    """A refund is not taken back: the act is done anew instead."""
    compensate(effect_of(booked("hotel"), "hotel").pk)
    job = run_next()

    assert "cannot be compensated" in refused(effect_of(job.pk, "compensation"))
    assert "cannot be compensated" in refused(effect_of(job.pk, "compensation"), by_hand=True)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"operation": ""}, "older version"),
        ({"operation": "trip.gone"}, "declares no operation 'trip.gone'"),
        ({"request": ""}, "removed by pruning"),
        ({"request": '{"town":"Oslo"}'}, "does not fit"),
    ],
)
def test_what_this_code_cannot_take_back_says_why(booked: Booked, columns: dict[str, str], said: str) -> None:
    """The refusal says what is missing, and that it can be done by hand."""
    effect = effect_of(booked("hotel"), "hotel")
    SideEffect.objects.filter(pk=effect.pk).update(**columns)

    why = refused(effect)

    assert said in why
    assert "--by-hand" in why


def test_adopter_is_part_of_the_plan(booked: Booked) -> None:
    """Whoever relied on the effect too is named, and one more since the look changes the plan."""
    effect = effect_of(booked("hotel"), "hotel")
    decision = Compensate(effect.pk, using="default")
    seen = decision.plan()
    adopter = booked("hotel")
    assert EffectAdoption.objects.get().job_id == adopter

    with pytest.raises(ActionChangedError) as caught:
        decision.submit(operator(), digest=seen.digest)

    assert str(adopter) in " ".join(caught.value.plan.lines)  # type: ignore[attr-defined]
    assert Compensation.objects.count() == OperatorAction.objects.count() == 0


def test_user_without_the_permission_is_refused_and_nothing_written(booked: Booked, django_user_model: Any) -> None:
    """Asked again under the lock."""
    user = django_user_model.objects.create_user("eve")
    decision = Compensate(effect_of(booked("hotel"), "hotel").pk, using="default")

    with pytest.raises(PermissionDenied, match="compensate_sideeffect"):
        decision.submit(operator(user=user), digest=decision.plan().digest)

    assert OperatorAction.objects.count() == 0
    assert Job.objects.count() == 1


def test_full_queue_does_not_refuse_a_compensation(booked: Booked, settings: Any, run_next: RunNext) -> None:
    """It is exempt from back-pressure, and counted."""
    effect = effect_of(booked("hotel"), "hotel")
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "QUEUES": {"default": {"capacity": 1}}}
    registry.get("tests.trip").using(run_after=None).enqueue(city="Rome", steps=[])

    with Told() as told:
        compensate(effect.pk)

    assert [fields["count"] for fields in told.named("enqueue.exempt")] == [1]


def test_job_of_a_compensation_that_nobody_decided_sends_nothing(
    booked: Booked, run_next: RunNext, agency: Agency
) -> None:
    """Enqueued past the decision it is a dead letter at once."""
    effect = effect_of(booked("hotel"), "hotel")
    registry.get("django_jobs.compensate").enqueue(effect_id=effect.pk)

    job = run_next()

    assert (job.state, job.dead_reason) == ("dead_lettered", "permanent")
    assert [what for what, _ in agency.applied] == ["hotel"]


def test_dead_letter_of_a_compensation_is_critical(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """Its owner is told with the higher severity, and that it is a compensation."""
    agency.answers["cancel hotel"] = [Rejected("no")]
    compensate(effect_of(booked("hotel"), "hotel").pk)
    with Told() as told:
        run_next()

    (alert,) = told.named("owner.alert")
    assert (alert["severity"], alert["owner"]) == ("critical", "shop")
    assert "compensation" in str(alert["reason"])


def test_unclear_compensation_without_keys_goes_to_a_human(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """It was declared with a promise of its own: a repeated request would be a second one, so it is not sent again."""
    effect = effect_of(booked("flight"), "flight")
    agency.answers["cancel flight"] = [Unknown("time-out")]
    compensate(effect.pk)

    job = run_next()

    assert (job.state, job.dead_reason) == ("dead_lettered", "effect_review")
    assert Compensation.objects.get().outcome == "open"
    with pytest.raises(ActionRefusedError, match="not known"):
        discard(job.pk)


def test_given_up_without_knowing_is_no_success(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """Nobody will find out: the job does not say that the flight was given back; it is discarded, then recorded by hand."""
    job_id = booked("flight", dies=True)
    agency.answers["cancel flight"] = [Unknown("time-out")]
    first = uuid.UUID(compensate(effect_of(job_id, "flight").pk).details["job_id"])
    run_next()
    with later(hours=1):
        own = effect_of(first, "compensation").pk
        decided(Resolve(own, "abandon", evidence="nobody answers the telephone", using="default"))
        decided(Replay(first, using="default"))
        job = run_next()

        assert (job.state, job.dead_reason) == ("dead_lettered", "permanent")
        assert "given up by hand" in JobPayload.objects.get(pk=first).error_text
        assert Job.objects.get(pk=job_id).resolution is None
        discard(first)
        compensate(effect_of(job_id, "flight").pk, by_hand=True)
        assert run_next().state == "succeeded"
    assert Job.objects.get(pk=job_id).resolution == "compensated"
    assert [what for what, _ in agency.applied] == ["flight"]


@pytest.mark.parametrize("outcome", ["open", "succeeded"])
def test_original_is_neither_replayed_nor_discarded(booked: Booked, run_next: RunNext, outcome: str) -> None:
    """While its compensation is open, and after that has succeeded."""
    job_id = booked("hotel", "mail", dies=True)
    compensate(effect_of(job_id, "hotel").pk)
    if outcome == "succeeded":
        run_next()

    for decision in (Discard(job_id, using="default"), Replay(job_id, using="default")):
        with pytest.raises(ActionRefusedError, match="taken back"):
            decision.submit(operator(), digest=decision.plan().digest)
    assert Compensation.objects.get().outcome == outcome


def test_dead_compensation_is_replayed_to_its_end(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """The cause is gone: the same job goes on, and refunds once."""
    effect = effect_of(booked("hotel"), "hotel")
    agency.answers["cancel hotel"] = [Rejected("closed today", key_is_burnt=False)]
    job_id = uuid.UUID(compensate(effect.pk).details["job_id"])
    assert run_next().state == "dead_lettered"

    decision = Replay(job_id, using="default")
    decision.submit(operator(), digest=decision.plan().digest)
    assert run_next().state == "succeeded"

    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]
    assert Compensation.objects.get().outcome == "succeeded"
    sound()


def test_waiting_compensation_is_cancelled_and_another_one_asked_for(booked: Booked, run_next: RunNext) -> None:
    """Nothing was sent: the row is void in the same transaction, and the effect can be taken back anew."""
    effect = effect_of(booked("hotel"), "hotel")
    first = uuid.UUID(compensate(effect.pk).details["job_id"])
    decision = Cancel(first, using="default")
    decision.submit(operator(), digest=decision.plan().digest)
    assert (Job.objects.get(pk=first).state, Compensation.objects.get().outcome) == ("cancelled", "void")

    compensate(effect.pk)

    assert run_next().state == "succeeded"
    sound()


def test_unclear_compensation_is_not_cancelled(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """Whether the hotel was given back is not known; the job that finds out is not taken away."""
    agency.answers["cancel hotel"] = [Unknown("time-out")]
    job_id = uuid.UUID(compensate(effect_of(booked("hotel"), "hotel").pk).details["job_id"])
    assert run_next().state == "scheduled"

    decision = Cancel(job_id, using="default")
    with pytest.raises(ActionRefusedError, match="not known"):
        decision.submit(operator(), digest=decision.plan().digest)
