"""Decisions in a transaction of the caller that reads an older snapshot: what was committed since is never missed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs.exceptions import ActionChangedError
from django_jobs.models import CancelRequest, Compensation, Delivery, EffectAdoption, Job, OperatorAction, SideEffect
from django_jobs.operate.action import Decision
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.discard import Discard
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.replay import Replay
from django_jobs.operate.reroute import Reroute
from django_jobs.operate.resolve import Resolve
from django_jobs.operate.verify import verify
from django_jobs.store.adoptions import recheck_adopted
from tests.factories import JobFactory, SendFactory, SideEffectFactory
from tests.factories_compensation import compensate
from tests.factories_decisions import decided, operator
from tests.factories_outbox import DeliveryFactory, OutboxEventFactory, SubscriptionFactory
from tests.integration.compensation import trips
from tests.integration.compensation.conftest import Booked, RunNext, agency, booked, run_next  # noqa: F401  fixtures
from tests.integration.compensation.test_late_answers import GivenUp
from tests.integration.compensation.trips import effect_of
from tests.integration.worker.conftest import claimer

pytestmark = pytest.mark.django_db(transaction=True)

LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]
Make = Callable[[], Decision]


@contextmanager
def old_snapshot(level: str = "REPEATABLE READ") -> Iterator[None]:
    """Open a transaction that sees what is committed now, and nothing later.

    On SQLite that is one that does not begin as a writer, as in a project that has not set IMMEDIATE.
    """
    with pytest.MonkeyPatch.context() as patch:
        if connection.vendor == "sqlite":
            connection.ensure_connection()
            patch.setattr(connections["default"], "transaction_mode", "DEFERRED")
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            Job.objects.exists()
            yield


def elsewhere(act: Callable[[], object]) -> None:
    """Do something on a connection of its own, and commit it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert errors == []


def overtaken(make: Make, act: Callable[[], object], *, level: str = "REPEATABLE READ") -> None:
    """Look at a decision, let somebody act, and decide in a transaction that began before: it is refused."""
    digest = make().plan().digest
    with old_snapshot(level):
        elsewhere(act)
        before = sorted(OperatorAction.objects.values_list("action", flat=True))
        with pytest.raises(ActionChangedError, match="in a new transaction"):
            make().submit(operator(), digest=digest)
        assert sorted(OperatorAction.objects.values_list("action", flat=True)) == before, "the transaction goes on"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", [Replay, Discard])
def test_job_is_left_alone_when_an_effect_is_taken_back_meanwhile(
    booked: Booked,  # noqa: F811
    kind: Callable[..., Decision],
    level: str,
) -> None:
    """The original would run again, or be settled, beside a refund that is under way."""
    job_id = booked("hotel", dies=True)
    effect = effect_of(job_id, "hotel")

    overtaken(lambda: kind(job_id, using="default"), lambda: compensate(effect.pk), level=level)

    job = Job.objects.get(pk=job_id)
    assert (job.state, job.generation, job.resolution) == ("dead_lettered", 1, None)
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", [Replay, Discard])
def test_job_is_left_alone_when_it_is_learned_meanwhile_that_its_effect_was_taken_back(
    booked: Booked,  # noqa: F811
    run_next: RunNext,  # noqa: F811
    agency: trips.Agency,  # noqa: F811
    kind: Callable[..., Decision],
    level: str,
) -> None:
    """A late confirmation of a refund that was given up counts as much as a decision."""
    late = GivenUp(booked, run_next, agency)

    overtaken(lambda: kind(late.original, using="default"), late.applied_after_all, level=level)

    job = Job.objects.get(pk=late.original)
    assert (job.state, job.generation, job.resolution) == ("dead_lettered", 1, None)


@pytest.mark.postgres
def test_completion_on_a_receipt_that_was_taken_back_anyway_is_undone(
    booked: Booked,  # noqa: F811
    run_next: RunNext,  # noqa: F811
    agency: trips.Agency,  # noqa: F811
) -> None:
    """What is learned late keeps an adopter of a stricter level from succeeding, as a decision does."""
    late = GivenUp(booked, run_next, agency)
    adopter = booked("hotel")
    (claimed,) = (trips.book.enqueue(city="Oslo", steps=[]) and claimer().take(1, 0)) or ()
    EffectAdoption.objects.filter(job_id=adopter).update(job_id=claimed.job_id)

    with old_snapshot():
        elsewhere(late.applied_after_all)
        with pytest.raises(OperationalError, match="could not serialize"), transaction.atomic():
            recheck_adopted(claimed)


@pytest.mark.parametrize("level", LEVELS)
def test_effect_is_taken_back_by_one_decision(booked: Booked, level: str) -> None:  # noqa: F811
    """The second of two hears that it was overtaken, not an error of the database."""
    effect = effect_of(booked("hotel"), "hotel")

    overtaken(lambda: Compensate(effect.pk, using="default"), lambda: compensate(effect.pk), level=level)

    assert Compensation.objects.count() == 1


def test_who_took_the_receipt_meanwhile_is_seen(booked: Booked) -> None:  # noqa: F811
    """A job that adopted it, and one that completed on it, are part of the plan of a compensation."""
    effect = effect_of(booked("hotel"), "hotel")

    overtaken(lambda: Compensate(effect.pk, using="default"), lambda: booked("hotel"))

    assert EffectAdoption.objects.count() == 1
    assert Compensation.objects.count() == 0


def test_who_completed_on_the_receipt_meanwhile_is_seen(booked: Booked) -> None:  # noqa: F811
    """The adopter was at work when it was looked at, and has succeeded since."""
    effect = effect_of(booked("hotel"), "hotel")
    adopter = booked("hotel")
    (claimed,) = (trips.book.enqueue(city="Oslo", steps=[]) and claimer().take(1, 0)) or ()
    EffectAdoption.objects.filter(job_id=adopter).update(job_id=claimed.job_id)

    def complete() -> None:
        with transaction.atomic():
            recheck_adopted(claimed)

    overtaken(lambda: Compensate(effect.pk, using="default"), complete)

    assert Compensation.objects.count() == 0


@pytest.mark.postgres
def test_completion_on_a_receipt_that_is_taken_back_meanwhile_is_undone(booked: Booked) -> None:  # noqa: F811
    """A handler's transaction of a stricter level is refused by the effect's row; its job is run again."""
    effect = effect_of(booked("hotel"), "hotel")
    adopter = booked("hotel")
    (claimed,) = (trips.book.enqueue(city="Oslo", steps=[]) and claimer().take(1, 0)) or ()
    EffectAdoption.objects.filter(job_id=adopter).update(job_id=claimed.job_id)

    with old_snapshot():
        elsewhere(lambda: compensate(effect.pk))
        with pytest.raises(OperationalError, match="could not serialize"), transaction.atomic():
            recheck_adopted(claimed)


def test_running_job_is_asked_once_to_end() -> None:
    """Two people cancel it at once."""
    job = JobFactory(running=True)

    overtaken(lambda: Cancel(job.pk, using="default"), lambda: decided(Cancel(job.pk, using="default")))

    assert CancelRequest.objects.get().job_id == job.pk


def test_effect_is_judged_once() -> None:
    """Two people found out different things."""
    job = JobFactory(dead_lettered=True)
    effect = SideEffectFactory(job=job, ambiguous=True, needs_review=True, review_reason="nobody knows")
    SendFactory(effect=effect, job=job, attempt=job.attempts.get(), unknown=True)

    def judge(reference: str) -> Resolve:
        return Resolve(effect.pk, "applied", provider_ref=reference, using="default")

    overtaken(lambda: judge("ch_2"), lambda: decided(judge("ch_1")))

    assert SideEffect.objects.get().provider_ref == "ch_1"


def test_event_is_dispatched_again_once() -> None:
    """Two people want the same delivery once more."""
    delivery = DeliveryFactory(dead_lettered=True)

    overtaken(
        lambda: Redispatch(delivery.pk, using="default"), lambda: decided(Redispatch(delivery.pk, using="default"))
    )

    assert Delivery.objects.count() == 2


def test_event_gets_its_route_once() -> None:
    """Two people give routes to the same events."""
    event = OutboxEventFactory(routed_count=0)
    SubscriptionFactory(event_type=event.type, version=event.version)

    def reroute() -> Reroute:
        return Reroute(event.type, version=event.version, using="default")

    overtaken(reroute, lambda: decided(reroute()))

    assert Delivery.objects.count() == 1


@pytest.mark.postgres
def test_decision_leaves_the_limits_of_the_callers_transaction(booked: Booked) -> None:  # noqa: F811
    """How long a decision waits for a row is no limit of what the caller does after it."""
    job_id = booked("hotel", dies=True)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        decided(Replay(job_id, using="default"))
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)


def test_snapshot_of_now_is_decided_in(booked: Booked) -> None:  # noqa: F811
    """A stricter level alone refuses nothing."""
    job_id = booked("hotel", dies=True)

    with old_snapshot():
        decided(Replay(job_id, using="default"))

    assert Job.objects.get(pk=job_id).generation == 2
    assert isinstance(job_id, uuid.UUID)
