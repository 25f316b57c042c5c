"""A charge is taken back: at the real provider, through the worker's own execution, once whatever dies in between."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_jobs.domain.states import LossCause
from django_jobs.effects import record
from django_jobs.models import Attempt, Compensation, Job, OperatorAction, SideEffect
from django_jobs.store import Loss, promote, rescue
from django_jobs.store.completion import Given
from django_jobs.store.losses import counters_of_job
from testproject.payments import operations
from testproject.shop.jobs import charge_order
from testproject.shop.models import Order
from tests.factories_compensation import compensate
from tests.integration.shop.conftest import MakeOrder, RunNext

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def charged(provider, make_order: MakeOrder, run_next: RunNext) -> SideEffect:
    """The charge of an order that was paid."""
    order = make_order(amount="12.50")
    charge_order.enqueue(order_id=order.pk)
    assert run_next().state == "succeeded"
    return SideEffect.objects.get()


def test_charge_is_refunded_once_by_a_job_of_its_own(provider, charged: SideEffect, run_next: RunNext) -> None:
    """A decision, a job, a refund at the provider; of the original job and its effect only the revisions rise."""
    before = [Job.objects.values().get(pk=charged.job_id), SideEffect.objects.values().get(pk=charged.pk)]
    for row in before:
        row["revision"] += 1  # so that decisions made on an older look are refused

    done = compensate(charged.pk)
    job = run_next()

    ledger = provider.ledger()
    assert [refund["charge"] for refund in ledger["refunds"]] == [ledger["charges"][0]["id"]]
    assert (str(job.pk), job.job_type, job.state) == (done.details["job_id"], "django_jobs.compensate", "succeeded")
    assert json.loads(job.payload.result)["ref"] == ledger["refunds"][0]["id"]
    row = Compensation.objects.get()
    assert (row.outcome, row.effect_id, row.original_job_id) == ("succeeded", charged.pk, charged.job_id)
    assert (row.job_id, row.action_id) == (job.pk, OperatorAction.objects.get().pk)
    assert before == [Job.objects.values().get(pk=charged.job_id), SideEffect.objects.values().get(pk=charged.pk)]


def test_refund_goes_on_in_the_story_of_its_original(provider, charged: SideEffect) -> None:
    """Subject, owner, queue, priority and correlation are the original's; the key is its own."""
    original = Job.objects.get(pk=charged.job_id)

    job = Job.objects.get(pk=compensate(charged.pk).details["job_id"])

    assert (job.subject, job.owner, job.queue_name, job.priority) == (
        original.subject,
        "billing",
        original.queue_name,
        10,
    )
    assert job.correlation_id == str(original.pk)
    assert job.payload.key == f"compensation:{charged.pk}:1"


class DeadError(BaseException):
    """The process ends here."""


def raise_dead(*_: object, **__: object) -> None:
    """End the process."""
    raise DeadError


def test_death_between_the_refund_and_its_record_refunds_once(
    provider, charged: SideEffect, run_next: RunNext, claimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refund was applied and the worker died before it knew: the next attempt asks and sends nothing."""
    compensate(charged.pk)
    with monkeypatch.context() as patch:
        patch.setattr(operations, "_outcome", raise_dead)
        patch.setattr(record, "_described", raise_dead)
        patch.setattr("django_jobs.worker.execute.record_error", raise_dead)
        patch.setattr("django_jobs.worker.execute._record_anyway", lambda *_: None)
        assert run_next().state == "running"
    assert len(provider.ledger()["refunds"]) == 1
    _lose(Attempt.objects.get(outcome=None))

    job = run_next()

    assert (job.state, len(provider.ledger()["refunds"])) == ("succeeded", 1)
    assert Compensation.objects.get().outcome == "succeeded"
    assert [request["method"] for request in provider.ledger()["requests"]] == ["POST", "POST", "GET"]


def _lose(attempt: Attempt) -> None:
    counters = counters_of_job(attempt.job)
    loss = Loss(cause=LossCause.EXIT, counters=counters, delay=timedelta(0), dead_reason=None)
    given = Given(job_id=attempt.job_id, attempt_id=attempt.pk, number=attempt.number, using="default")
    assert rescue(given, loss=loss)


def test_refund_that_was_lost_on_the_way_is_sent_again_under_its_key(
    provider, charged: SideEffect, run_next: RunNext
) -> None:
    """The request never arrived: the next attempt asks, then sends the same key; one refund in total."""
    order = Order.objects.get()
    provider.script(order.pk, "drop_request")
    job_id = compensate(charged.pk).details["job_id"]
    assert run_next().state == "scheduled"
    Job.objects.filter(pk=job_id).update(available_at=charged.created_at)
    promote(["payments"], using="default")

    assert run_next().state == "succeeded"

    posts = [request for request in provider.requests(order.pk) if request["method"] == "POST"]
    assert len({request["key"] for request in posts if request["path"] == "/refunds"}) == 1
    assert len(provider.ledger()["refunds"]) == 1
