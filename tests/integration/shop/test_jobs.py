"""The shop's jobs, each with one attempt in this process and a real provider."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_jobs.domain.states import LossCause
from django_jobs.exceptions import IdempotencyConflictError
from django_jobs.models import Job, SideEffect
from django_jobs.store import Loss, rescue
from django_jobs.store.losses import counters_of_job
from django_jobs.worker.execute import execute
from testproject.payments.client import PaymentsClient
from testproject.shop.jobs import charge_order, note_order
from testproject.shop.models import JournalEntry, Order, Receipt
from tests.integration.shop.conftest import MakeOrder, RunNext

pytestmark = pytest.mark.django_db(transaction=True)


def test_charge_marks_the_order_paid_with_one_receipt(provider, make_order: MakeOrder, run_next: RunNext) -> None:
    """A charge that succeeds leaves a paid order, one receipt and the provider's reference as the job's result."""
    order = make_order(amount="12.50")
    charge_order.enqueue(order_id=order.pk)

    job = run_next()

    order.refresh_from_db()
    charge = provider.ledger()["charges"][0]
    assert (job.state, order.status, order.provider_ref) == ("succeeded", "paid", charge["id"])
    assert json.loads(job.payload.result) == {"ref": charge["id"]}
    assert (charge["amount"], charge["currency"]) == ("12.50", "EUR")
    assert [receipt.provider_ref for receipt in Receipt.objects.all()] == [charge["id"]]


def test_charge_in_another_currency_reaches_the_provider(provider, make_order: MakeOrder, run_next: RunNext) -> None:
    """The order's own currency is charged."""
    order = make_order(currency="SEK")
    charge_order.enqueue(order_id=order.pk)

    run_next()

    assert provider.ledger()["charges"][0]["currency"] == "SEK"


def test_declined_card_is_a_business_result(provider, make_order: MakeOrder, run_next: RunNext) -> None:
    """A declined card ends the job in its first attempt: the order is declined, nothing charged, no receipt written."""
    order = make_order()
    provider.script(order.pk, "declined")
    charge_order.enqueue(order_id=order.pk)

    job = run_next()

    order.refresh_from_db()
    assert (job.state, job.fence) == ("succeeded", 1)
    assert (order.status, order.decline_reason) == ("declined", "card_declined")
    assert provider.applied(order.pk) == 0
    assert not Receipt.objects.exists()


def test_order_that_is_gone_is_left_to_a_human_at_once(provider, make_order: MakeOrder, run_next: RunNext) -> None:
    """A charge for an order that no longer exists is dead-lettered without a second try, and nothing is charged."""
    order = make_order()
    charge_order.enqueue(order_id=order.pk)
    Order.objects.all().delete()

    job = run_next()

    assert (job.state, job.dead_reason) == ("dead_lettered", "permanent")
    assert provider.ledger()["charges"] == []


def test_lost_attempt_is_continued_from_the_provider_s_answer(
    provider, make_order: MakeOrder, claimer, run_next: RunNext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the answer to a charge was never recorded, the next attempt asks, sends nothing and pays the order once."""
    order = make_order()
    charge_order.enqueue(order_id=order.pk)
    _lose_after_the_charge(claimer, monkeypatch)

    job = run_next()

    order.refresh_from_db()
    assert (job.state, job.fence, order.status) == ("succeeded", 2, "paid")
    assert provider.applied(order.pk) == 1
    assert [request["method"] for request in provider.requests(order.pk)] == ["POST", "GET"]
    assert SideEffect.objects.get().resolved_by == "reconciliation"
    assert Receipt.objects.count() == 1


def test_same_payload_twice_is_one_job(make_order: MakeOrder) -> None:
    """The second enqueue of one order's charge is answered with the first one's job."""
    order = make_order()
    first = charge_order.enqueue(order_id=order.pk)

    second = charge_order.enqueue(order_id=order.pk)

    assert (second.outcome, second.id) == ("duplicate", first.id)
    assert Job.objects.count() == 1


def test_key_with_another_order_is_refused(make_order: MakeOrder) -> None:
    """A key that stands for one order cannot be used for another one; nothing is stored."""
    order, other = make_order(), make_order()
    first = charge_order.enqueue(order_id=order.pk)

    with pytest.raises(IdempotencyConflictError) as refusal:
        charge_order.using(key=f"order:{order.pk}").enqueue(order_id=other.pk)

    assert refusal.value.job_id == first.id
    assert Job.objects.count() == 1


def test_note_writes_its_line_with_the_success(make_order: MakeOrder, run_next: RunNext) -> None:
    """The plain job writes one line and is found under its order."""
    order = make_order()
    note_order.enqueue(order_id=order.pk)

    job = run_next()

    assert job.state == "succeeded"
    assert [(entry.order_id, entry.text) for entry in JournalEntry.objects.all()] == [(order.pk, "Order placed")]
    assert list(Job.objects.about(f"order:{order.pk}")) == [job]


def test_note_of_a_lost_attempt_leaves_no_line(make_order: MakeOrder, claimer) -> None:
    """A plain handler whose attempt was taken away before its success commits nothing: its line goes with it."""
    order = make_order()
    note_order.enqueue(order_id=order.pk)
    (attempt,) = claimer.take(1, 0)
    _take_away(attempt)

    execute(attempt)

    assert not JournalEntry.objects.exists()
    assert Job.objects.get().state == "queued"


def _lose_after_the_charge(claimer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one attempt charge and die before it records the answer."""

    class DiedError(BaseException):
        """Stands for the end of the process."""

    charge = PaymentsClient.charge

    def charge_and_die(self, **request):
        charge(self, **request)
        raise DiedError

    (attempt,) = claimer.take(1, 0)
    with monkeypatch.context() as patch:
        patch.setattr(PaymentsClient, "charge", charge_and_die)
        patch.setattr("django_jobs.worker.execute._after_error", lambda attempt, error: None)
        patch.setattr("django_jobs.worker.execute._finish_plain", lambda attempt, result: None)
        execute(attempt)
    _take_away(attempt)


def _take_away(attempt) -> None:
    job = Job.objects.get(pk=attempt.job_id)
    loss = Loss(
        cause=LossCause.EXIT, counters=counters_of_job(job), delay=timedelta(0), dead_reason=None, exit_status=-9
    )
    assert rescue(attempt, loss=loss)
