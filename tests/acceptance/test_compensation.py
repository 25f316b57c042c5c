"""kill -9 between a refund and its record: the customer gets the money back once."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from django_jobs.models import Compensation, Job, SideEffect
from testproject.payments.process import ProviderProcess
from testproject.shop.jobs import charge_order
from testproject.shop.models import Order
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.workers import wait_for
from tests.factories_compensation import compensate

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def provider() -> Iterator[ProviderProcess]:
    """A provider of this test's own."""
    with ProviderProcess(start_timeout=60) as running:
        yield running


@pytest.mark.parametrize("fault", ["hold_before_apply", "hold_after_apply"])
def test_worker_killed_while_it_refunds(make_worker: MakeWorker, provider: ProviderProcess, fault: str) -> None:
    """The call was under way, applied or not, when its process died; the next attempt finds out, and refunds once."""
    order = Order.objects.create(number="S-1", customer="S", amount=Decimal("12.50"), currency="EUR", card="visa")
    charge_order.enqueue(order_id=order.pk)
    worker = make_worker(env={"PAYMENTS_URL": provider.url}, threads=1).start()
    wait_for(lambda: states() == {"succeeded": 2}, seconds=60, what="the charge and its receipt")
    provider.script(order.pk, fault)

    compensate(SideEffect.objects.get(name="charge").pk)
    provider.wait_kind(order.pk, "held", 30)
    for pid in worker.child_pids:
        worker.kill_child(pid)
    wait_for(lambda: not Job.objects.filter(state="running").exists(), seconds=30, what="the loss")
    provider.release(order.pk)
    wait_until_done(seconds=60)

    assert states() == {"succeeded": 3}
    ledger = provider.ledger()
    assert [refund["charge"] for refund in ledger["refunds"]] == [ledger["charges"][0]["id"]]
    assert Compensation.objects.get().outcome == "succeeded"
    assert Job.objects.get(job_type="django_jobs.compensate").attempts.filter(outcome="lost").count() >= 1
