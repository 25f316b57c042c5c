"""Who takes an effect back, who relies on it and who ends meanwhile: exactly one of them wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_jobs.exceptions import ActionChangedError, RowBusyError
from django_jobs.models import Compensation, EffectAdoption, Job, OperatorAction
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.verify import verify
from django_jobs.store.compensations import hold_job, succeed_for
from django_jobs.worker.execute import execute
from tests.crowd import meanwhile, together
from tests.factories_compensation import compensate
from tests.factories_decisions import operator
from tests.integration.compensation import trips
from tests.integration.compensation.conftest import Booked, RunNext
from tests.integration.compensation.trips import Agency, effect_of

pytestmark = pytest.mark.django_db(transaction=True)


def sound() -> None:
    """See that every invariant holds."""
    assert [item.invariant.name for item in verify(using="default").violated] == []


def test_adoption_between_the_decision_and_its_job_is_refused(
    booked: Booked, run_next: RunNext, agency: Agency
) -> None:
    """The compensation is only asked for: another job for the same trip gets no receipt and sends nothing."""
    compensate(effect_of(booked("hotel"), "hotel").pk)
    run_next_trip = trips.book.using(priority=50).enqueue(city="Oslo", steps=["hotel"])

    job = run_next()

    assert (job.pk, job.state) == (run_next_trip.id, "dead_lettered")
    assert job.error_type.endswith("EffectKeyReusedError")
    assert [what for what, _ in agency.applied] == ["hotel"]
    assert run_next().state == "succeeded"
    sound()


def test_adoption_after_it_was_taken_back_is_refused(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """What was given back is no receipt, and no reason to book again without a human."""
    compensate(effect_of(booked("hotel"), "hotel").pk)
    run_next()
    trips.book.enqueue(city="Oslo", steps=["hotel"])

    job = run_next()

    assert (job.state, job.error_type.rpartition(".")[2]) == ("dead_lettered", "EffectKeyReusedError")
    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]
    sound()


def test_adopter_does_not_complete_on_what_was_taken_back_meanwhile(booked: Booked, run_next: RunNext) -> None:
    """It adopted in time, and completes too late: a human looks at both jobs."""
    effect = effect_of(booked("hotel"), "hotel")
    trips.book.enqueue(city="Oslo", steps=["hotel", "flight"])
    act = trips.agency.act

    def decide_first(what: str, call: Any, about: Any) -> Any:
        compensate(effect.pk)
        return act(what, call, about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trips.Agency, "act", lambda _, *args: decide_first(*args))
        job = run_next()

    assert EffectAdoption.objects.get().job_id == job.pk
    assert (job.state, job.error_type.rpartition(".")[2]) == ("dead_lettered", "EffectKeyReusedError")
    sound()


def test_twenty_decisions_at_once_are_one(booked: Booked, run_next: RunNext, agency: Agency) -> None:
    """Of all who acknowledged one plan, one carries it out; the others hear why not."""
    decision = Compensate(effect_of(booked("hotel"), "hotel").pk, using="default")
    digest = decision.plan().digest

    def submit() -> object:
        try:
            return Compensate(decision.effect_id, using="default").submit(operator(), digest=digest)
        except RowBusyError:
            return submit()

    results = together(*[submit] * 20)

    errors = [result for result in results if isinstance(result, Exception)]
    assert len(errors) == 19
    assert all(isinstance(error, ActionChangedError) for error in errors), errors
    assert Compensation.objects.count() == OperatorAction.objects.count() == 1
    assert run_next().state == "succeeded"
    assert [what for what, _ in agency.applied] == ["hotel", "cancel hotel"]


@pytest.mark.parametrize("turn", range(5))
def test_completion_of_an_adopter_meets_the_decision(
    booked: Booked, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one moment: either the adopter succeeds and the plan has changed, or it is left to a human. Never both."""
    from django_jobs.domain.ids import uuid7
    from django_jobs.worker.claiming import Claimer
    from django_jobs.worker.config import WorkerConfig

    effect = effect_of(booked("hotel"), "hotel")
    trips.book.enqueue(city="Oslo", steps=["hotel", "flight"])
    config = WorkerConfig(
        worker_id=str(uuid7()), name="t", database="default", queues=(), threads=1, processes=1, grace=30.0, poll=1.0
    )
    (attempt,) = Claimer(config).take(1, 0)
    digests: list[str] = []
    at_flight, decided = _gates()
    act = trips.agency.act

    def pause(_: Any, what: str, call: Any, about: Any) -> Any:
        if what == "flight":
            digests.append(Compensate(effect.pk, using="default").plan().digest)
            at_flight.wait()
            decided.wait()
        return act(what, call, about)

    monkeypatch.setattr(trips.Agency, "act", pause)

    def submit() -> object:
        at_flight.wait()
        decided.wait()
        for _ in range(50):
            try:
                return Compensate(effect.pk, using="default").submit(operator(), digest=digests[0])
            except RowBusyError:
                continue
        raise AssertionError("busy for ever")

    _, outcome = together(lambda: execute(attempt), submit)

    adopter = Job.objects.get(pk=attempt.job_id)
    if adopter.state == "succeeded":
        assert isinstance(outcome, ActionChangedError), outcome
        assert Compensation.objects.count() == 0
    else:
        assert adopter.error_type.endswith("EffectKeyReusedError")
        assert Compensation.objects.get().outcome == "open"
    sound()


def _gates() -> tuple[Any, Any]:
    import threading

    return threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)


def test_last_two_compensations_at_once_settle_the_original(
    booked: Booked, run_next: RunNext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that end at one moment: whoever comes second sees the other one and resolves the dead letter."""
    job_id = booked("hotel", "mail", dies=True)
    first = compensate(effect_of(job_id, "hotel").pk).details["job_id"]
    second = compensate(effect_of(job_id, "mail").pk, by_hand=True).details["job_id"]

    def close(job: str) -> Callable[[], bool]:
        def run() -> bool:
            with transaction.atomic():
                hold_job(job, using="default")  # type: ignore[arg-type]
                return succeed_for(job, using="default")  # type: ignore[arg-type]

        return run

    assert sorted(together(close(first), close(second))) == [False, True]
    assert Job.objects.get(pk=job_id).resolution == "compensated"


@pytest.mark.postgres
def test_decision_does_not_wait_long_for_a_row_that_is_held(booked: Booked) -> None:
    """Whoever replays the original holds it: the decision gives up after a second and says so."""
    job_id = booked("hotel", dies=True)
    decision = Compensate(effect_of(job_id, "hotel").pk, using="default")
    digest = decision.plan().digest

    def hold(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            hold_job(job_id, using="default")
            pause()

    with meanwhile(hold), pytest.raises(RowBusyError):
        decision.submit(operator(), digest=digest)

    assert Compensation.objects.count() == 0
