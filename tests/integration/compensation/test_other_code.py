"""A rolling deploy: the worker that carries a compensation out runs other code than the one that was decided about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from django_jobs import Confirmed
from django_jobs.domain.effects import Dedupe, Outcome
from django_jobs.effects.adapter import EffectOperation
from django_jobs.exceptions import PermanentError
from django_jobs.models import Compensation, Job, JobPayload, SideEffect
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.verify import verify
from tests.factories_compensation import compensate
from tests.factories_decisions import decided
from tests.integration.compensation import trips
from tests.integration.compensation.conftest import Booked, RunNext
from tests.integration.compensation.trips import Agency, effect_of

pytestmark = pytest.mark.django_db(transaction=True)


def other_function(call: Any, confirmed: Confirmed, *, city: str) -> Outcome:
    """Charge for a changed booking instead of giving it back."""
    return trips.agency.act("fine", call, (confirmed.provider_ref, city))


def another_name() -> EffectOperation:
    """Take hotels back by an operation of another name."""
    renamed = replace(trips.cancel_hotel.declared, name="trip.hotel.fine", send=other_function)
    return EffectOperation(other_function, renamed)


def another_promise() -> EffectOperation:
    """Take hotels back by a request that the hotel does not recognise when it comes twice."""
    declared = trips.cancel_hotel.declared
    weaker = replace(declared.guarantees, dedupe=Dedupe.NONE, key_lifetime=None)
    return EffectOperation(trips.cancel_hotel.function, replace(declared, guarantees=weaker))


def another_request() -> EffectOperation:
    """Take hotels back with one more value in the request."""

    def with_fee(call: Any, confirmed: Confirmed, *, city: str, fee: int = 100) -> Outcome:
        return trips.agency.act("cancel hotel", call, (confirmed.provider_ref, city, fee))

    return EffectOperation(with_fee, replace(trips.cancel_hotel.declared, send=with_fee))


def nothing() -> None:
    """Declare no compensation."""


@contextmanager
def deployed(make: Callable[[], EffectOperation | None]) -> Iterator[None]:
    """Let the workers' code declare this in the place of the hotel's compensation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trips.hotel, "_compensation", make())
        yield


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (another_name, "with 'trip.hotel.fine' instead of 'trip.hotel.compensation'"),
        (another_promise, "under the promise 'none' instead of 'key'"),
        (another_request, "with another request"),
        (nothing, "No compensation is declared"),
    ],
)
def test_other_code_sends_nothing_and_leaves_a_dead_letter(
    booked: Booked, run_next: RunNext, agency: Agency, make: Callable[[], EffectOperation | None], said: str
) -> None:
    """What was not acknowledged is not done; with the right code a replay does what was."""
    effect = effect_of(booked("hotel"), "hotel")
    compensate(effect.pk)

    with deployed(make):
        job = run_next()

    told = JobPayload.objects.get(pk=job.pk).error_text
    assert (job.state, job.dead_reason) == ("dead_lettered", "permanent")
    assert said in told
    assert "This attempt sent nothing." in told
    assert [what for what, _ in agency.applied] == ["hotel"]
    assert not SideEffect.objects.filter(name="compensation").exists()
    decided(Replay(job.pk, using="default"))
    assert run_next().state == "succeeded"
    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]
    assert verify(using="default").violated == ()


def test_the_other_way_needs_a_decision_of_its_own(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """The dead letter is discarded, and what the new code does is decided about as such."""
    effect = effect_of(booked("hotel"), "hotel")
    before = Compensate(effect.pk, using="default").plan()
    compensate(effect.pk)

    with deployed(another_name):
        job = run_next()
        decided(Discard(job.pk, using="default"))
        after = Compensate(effect.pk, using="default").plan()
        compensate(effect.pk)
        assert run_next().state == "succeeded"

    assert (before.facts["operation"], after.facts["operation"]) == ("trip.hotel.compensation", "trip.hotel.fine")
    assert [what for what, _ in agency.applied] == ["hotel", "fine"]


def test_request_of_a_decision_is_part_of_its_plan(booked: Booked) -> None:
    """Whoever acknowledges a plan acknowledges the amount: another request is another digest."""
    effect = effect_of(booked("hotel"), "hotel")
    seen = Compensate(effect.pk, using="default").plan()

    with deployed(another_request):
        found = Compensate(effect.pk, using="default").plan()

    assert seen.facts["request_digest"] != found.facts["request_digest"]
    assert seen.digest != found.digest


def test_what_was_taken_back_is_recorded_by_any_code(
    booked: Booked, run_next: RunNext, agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refund was applied and its job died before it completed: code without the operation still closes it."""
    effect = effect_of(booked("hotel"), "hotel")
    compensate(effect.pk)

    def fail(*_: Any, **__: Any) -> None:
        raise PermanentError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.worker.compensating.succeed_for", fail)
        job = run_next()
    decided(Replay(job.pk, using="default"))
    with deployed(nothing):
        assert run_next().state == "succeeded"

    assert Compensation.objects.get().outcome == "succeeded"
    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]
    assert verify(using="default").violated == ()


def test_job_by_hand_asks_no_code(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """What nothing is sent for is recorded whatever the code declares."""
    effect = effect_of(booked("hotel"), "hotel")
    compensate(effect.pk, by_hand=True)

    with deployed(nothing):
        assert run_next().state == "succeeded"

    assert Job.objects.filter(state="dead_lettered").count() == 0
    assert [what for what, _ in agency.applied] == ["hotel"]
