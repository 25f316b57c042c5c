"""What the store's functions of decisions and events answer when somebody else was first."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from django_jobs import faults
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import ReplayState
from django_jobs.exceptions import JobsError
from django_jobs.models import Delivery, Destination, Job, ReplayRequest
from django_jobs.store import (
    breakers,
    cancels,
    compensations,
    decisions,
    groups,
    outbox,
    redispatching,
    replay_requests,
)
from tests.factories import JobFactory
from tests.factories_compensation import CompensationFactory
from tests.factories_decisions import ReplayRequestFactory
from tests.factories_outbox import DeliveryFactory, DestinationFactory

MINUTE = timedelta(minutes=1)


@pytest.mark.django_db
def test_breaker_counts_an_outage_once_and_closes_once() -> None:
    """Two dispatchers that saw the same number of failures raise it by one; who is up already is not closed again."""
    first = breakers.note_down("crm", pause=MINUTE, seen=0, error="refused", using="default")
    second = breakers.note_down("crm", pause=MINUTE, seen=0, error="refused", using="default")
    assert (first, second, Destination.objects.get().failures) == (1, 0, 1)

    breakers.note_up("crm", using="default")
    breakers.note_up("crm", using="default")
    row = Destination.objects.get()
    assert (row.failures, row.open_until) == (0, None)


@pytest.mark.django_db
def test_probe_that_found_nothing_is_given_back() -> None:
    """The next dispatcher may try at once, instead of waiting for the pause of the first."""
    DestinationFactory(name="bank", failures=2, open_until=breakers.read_now("default") - MINUTE)

    assert breakers.take_probe("bank", pause=MINUTE, using="default")
    assert not breakers.take_probe("bank", pause=MINUTE, using="default")
    breakers.give_probe_back("bank", using="default")
    assert breakers.take_probe("bank", pause=MINUTE, using="default")


@pytest.mark.django_db(transaction=True)
def test_job_that_ended_meanwhile_is_not_cancelled() -> None:
    """Whoever cancels in a transaction of its own, too late, changes nothing, and no commit of it is told."""
    job = JobFactory(succeeded=True)
    before = Job.objects.values().get()

    with faults.recorded() as reached:
        assert cancels.cancel(job.pk, using="default") is None

    assert Job.objects.values().get() == before
    assert [point for point in reached if point.startswith("cancel.")] == ["cancel.before"]


@pytest.mark.django_db
def test_compensation_ends_once_and_only_where_it_was_decided() -> None:
    """A job about which nobody decided, and a compensation that is closed, are refused."""
    with pytest.raises(JobsError, match="no decision about it is recorded"):
        compensations.succeed_for(uuid7(), using="default")

    row = CompensationFactory(outcome="void", closed_at=breakers.read_now("default"))
    with pytest.raises(JobsError, match="is closed already"):
        compensations.succeed_for(row.job_id, using="default")


@pytest.mark.django_db
def test_lease_that_changed_hands_is_not_ended() -> None:
    """Another attempt, or another revision, keeps its lease."""
    job = JobFactory(running=True)
    attempt = job.attempt_id

    assert not decisions.expire_lease(job.pk, attempt_id=uuid.uuid4(), revision=job.revision, using="default")
    assert not decisions.expire_lease(job.pk, attempt_id=attempt, revision=job.revision + 1, using="default")
    assert decisions.expire_lease(job.pk, attempt_id=attempt, revision=job.revision, using="default")
    assert not decisions.expire_lease(job.pk, attempt_id=attempt, revision=job.revision + 1, using="default")


@pytest.mark.django_db
def test_group_is_not_given_what_does_not_exist() -> None:
    """A permission that no migration has made yet is named, and no group is left behind."""
    from django.contrib.auth.models import Group

    with pytest.raises(LookupError, match="'fly'"):
        groups.grant("Jobs: pilots", ["fly", "replay_job"], using="default")
    assert not Group.objects.filter(name="Jobs: pilots").exists()


@pytest.mark.django_db(transaction=True)
def test_event_outside_a_transaction_is_refused() -> None:
    """Number and event would not commit together."""
    new = outbox.NewEvent(
        event_id=uuid7(),
        type="shop.order.paid",
        version=1,
        source="shop",
        subject="",
        tenant="",
        data="{}",
        data_digest="v1:a",
        dataref="",
        ordering_key="",
        job_id=None,
        attempt_id=None,
        fence=None,
        correlation_id="",
        causation_id="",
        traceparent="",
    )

    with pytest.raises(RuntimeError, match="in a transaction"):
        outbox.emit(new, using="default")


@pytest.mark.django_db
def test_delivery_is_discarded_once() -> None:
    """The second hand, and one that looked at an older revision, change nothing."""
    dead = DeliveryFactory(dead_lettered=True)

    assert not redispatching.discard_delivery(dead.pk, revision=dead.revision + 1, using="default")
    assert redispatching.discard_delivery(dead.pk, revision=dead.revision, using="default")
    assert not redispatching.discard_delivery(dead.pk, revision=dead.revision, using="default")
    assert Delivery.objects.get().state == "discarded"


@pytest.mark.django_db
def test_replay_request_is_taken_by_one_and_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that another worker took in between is passed over; the end of an ended one changes nothing."""
    row = ReplayRequestFactory()
    monkeypatch.setattr(replay_requests, "keep", lambda *args, **kwargs: False)
    assert replay_requests.take(uuid.uuid4(), lease=MINUTE, using="default") is None
    monkeypatch.undo()

    mine = replay_requests.take(uuid.uuid4(), lease=MINUTE, using="default")
    assert mine is not None
    assert mine.pk == row.pk
    assert replay_requests.finish(row.pk, ReplayState.DONE, using="default")
    assert not replay_requests.finish(row.pk, ReplayState.CANCELLED, using="default")
    assert ReplayRequest.objects.get().state == "done"
