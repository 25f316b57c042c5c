"""Effects in the kit: recorded, reconciled and never repeated blindly, against a provider in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Confirmed, JobContext, Rejected, Unknown, effect
from django_jobs.domain.effects import Dedupe, Guarantees, Reconciliation, Verdict
from django_jobs.effects import adapter
from django_jobs.effects.adapters.http import HttpJson
from django_jobs.models import SideEffect
from django_jobs.testing import Answer, FakeDownstream, JobsClock, JobsKit
from django_jobs.testing.transport import carried
from tests.integration.testing.conftest import Declare


@pytest.fixture
def downstream(jobs_clock: JobsClock) -> FakeDownstream:
    """The provider."""
    return FakeDownstream(now=jobs_clock.now)


@pytest.fixture
def charge(downstream: FakeDownstream) -> Iterator[Any]:
    """An operation that asks the provider, and finds out there what became of a request."""

    @effect("kit.charge", dedupe="key", key_lifetime=timedelta(hours=24), requires_key=True)
    def charge(call: Any, *, order_id: int) -> Any:
        answer = downstream.send("charge", key=call.key, body={"order_id": order_id})
        if answer.ok:
            return Confirmed(answer.body["id"])
        return Rejected(answer.body["error"]) if answer.status == 402 else Unknown(f"answered {answer.status}")

    @charge.reconcile
    def find(call: Any, *, order_id: int) -> Any:
        answer = downstream.find("charge", key=call.key)
        return Reconciliation(Verdict.SUCCEEDED, provider_ref=answer.body["id"]) if answer.ok else Verdict.NOT_FOUND

    yield charge
    adapter._declared.pop("kit.charge", None)


@pytest.fixture
def pay(declare: Declare, charge: Any) -> Any:
    """A job that charges an order and completes with the receipt."""

    def pay(context: JobContext, order_id: int) -> None:
        receipt = context.effect("charge", charge, key=f"order:{order_id}", order_id=order_id)
        with context.complete() as done:
            done.result = receipt.provider_ref

    return declare(pay, takes_context=True)


def test_r68_an_effect_is_sent_once(jobs: JobsKit, downstream: FakeDownstream, pay: Any) -> None:
    """R68: one request, one entry in the ledger, the receipt in the result and the record settled."""
    pay.enqueue(order_id=7)

    report = jobs.run_until_idle().assert_succeeded()

    assert report.attempts[0].result == "charge_1"
    assert [entry.body for entry in downstream.applied("charge")] == [{"order_id": 7}]
    assert SideEffect.objects.get().state == "succeeded"


@pytest.mark.parametrize(("applied", "sends"), [(True, 1), (False, 2)])
def test_r68_a_timeout_is_asked_about(
    jobs: JobsKit, downstream: FakeDownstream, pay: Any, applied: bool, sends: int
) -> None:
    """R68: after no answer the next attempt asks the provider, and sends again only if nothing was applied."""
    downstream.on("charge").timeout(applied=applied)
    pay.enqueue(order_id=7)

    report = jobs.run_until_idle()

    assert report.attempts[-1].succeeded
    assert (len(downstream.calls), len(downstream.applied("charge"))) == (sends, 1)
    assert downstream.lookups
    downstream.assert_each_applied_once()


def test_r68_a_request_that_arrives_late_is_not_doubled(jobs: JobsKit, downstream: FakeDownstream, pay: Any) -> None:
    """R68: a request that was still on its way is found later, or repeated under its key: once in the ledger."""
    downstream.on("charge").late(after=timedelta(minutes=3))
    pay.enqueue(order_id=7)

    report = jobs.run_until_idle()
    jobs.clock.tick(timedelta(hours=1))

    assert report.attempts[-1].succeeded
    assert len(downstream.applied("charge")) == 1


def test_r68_a_provider_that_is_down_is_tried_again(jobs: JobsKit, downstream: FakeDownstream, pay: Any) -> None:
    """R68: two failures for now, then it is applied once."""
    downstream.on("charge").unavailable().then.unavailable().then.ok(id="ch_9")
    pay.enqueue(order_id=7)

    report = jobs.run_until_idle()

    assert report.attempts[-1].result == "ch_9"
    downstream.assert_each_applied_once()


def test_r68_a_refusal_is_told(jobs: JobsKit, downstream: FakeDownstream, pay: Any) -> None:
    """R68: a required effect that the provider declines makes a dead letter that says why."""
    downstream.on("charge").declined("no money")
    pay.enqueue(order_id=7)

    (dead,) = jobs.run_until_idle().dead_letters

    assert "no money" in dead.error


def test_r68_keys_are_a_ledger(downstream: FakeDownstream, jobs_clock: JobsClock) -> None:
    """R68: a key is answered again, refused with another body, and applied anew once its lifetime is over."""
    first = downstream.send("charge", key="k", body={"amount": 1})

    again = downstream.send("charge", key="k", body={"amount": 1})
    other = downstream.send("charge", key="k", body={"amount": 2})
    jobs_clock.tick(timedelta(hours=24))
    anew = downstream.send("charge", key="k", body={"amount": 1})

    downstream.forget_keys()
    forgotten = downstream.send("charge", key="k", body={"amount": 1})

    assert forgotten == Answer(200, {"id": "charge_3"})
    assert first == Answer(200, {"id": "charge_1"})
    assert again == Answer(200, {"id": "charge_1"}, replayed=True)
    assert other.status == 409
    assert anew == Answer(200, {"id": "charge_2"})
    with pytest.raises(AssertionError, match="charge under k: charge_1, charge_2, charge_3"):
        downstream.assert_each_applied_once()


def test_r68_what_is_late_is_ledgered_when_it_arrives(downstream: FakeDownstream, jobs_clock: JobsClock) -> None:
    """R68: a late request is in the ledger from its arrival on and not before, and its key is known then."""
    downstream.on("charge").late(after=timedelta(minutes=3))
    with pytest.raises(TimeoutError):
        downstream.send("charge", key="k", body={"amount": 1})

    assert downstream.find("charge", key="k").status == 404
    jobs_clock.tick(timedelta(minutes=3))
    assert downstream.find("charge", key="k") == Answer(200, {"id": "charge_1", "amount": 1})
    assert downstream.send("charge", key="k", body={"amount": 1}).replayed


def test_r68_an_http_operation_is_carried(jobs: JobsKit, downstream: FakeDownstream, declare: Declare) -> None:
    """R68: an operation made by HttpJson talks to the provider in memory, a time-out included."""
    create = HttpJson(
        "kit.create",
        "POST",
        "https://crm.example/contacts",
        guarantees=Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(hours=24), can_reconcile=True),
        reconcile_url=lambda call, **request: f"https://crm.example/contacts/{call.key}",
    )

    def contact(context: JobContext) -> None:
        receipt = context.effect("create", create, full_name="Ada")
        with context.complete() as done:
            done.result = receipt.provider_ref

    declare(contact, takes_context=True).enqueue()
    downstream.on("contacts").timeout(applied=True)

    with carried(create, downstream):
        report = jobs.run_until_idle()

    assert report.attempts[-1].result == "contacts_1"
    assert len(downstream.applied("contacts")) == 1
