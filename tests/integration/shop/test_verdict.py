"""Every reason for which a run must fail, one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import transaction

from django_jobs import publish
from django_jobs.models import OutboxEvent
from testproject.demo.evidence import Evidence
from testproject.demo.figures import Figures, count
from testproject.demo.partner import Told
from testproject.demo.plan import Fault
from testproject.demo.table import evidence_list, table
from testproject.demo.verdict import reasons
from testproject.shop.models import JournalEntry, Receipt
from tests.factories import SendFactory, SideEffectFactory
from tests.factories_outbox import DeliveryAttemptFactory, DeliveryFactory
from tests.integration.shop.conftest import MakeOrder

pytestmark = pytest.mark.django_db

GOOD = Figures(
    orders={"declined": 1, "paid": 2},
    jobs={"succeeded": 6},
    attempts={"lost": 1, "succeeded": 6},
    losses={"exit": 1},
    charges={("paid", 1): 2, ("declined", 0): 1},
    receipts={("paid", 1): 2, ("declined", 0): 1},
    journal={1: 3},
    reconciled=1,
    resent=1,
    duplicates=1,
    conflicts=1,
    refused=1,
    human=0,
    events=2,
    webhooks=3,
    repeated=1,
    mails=2,
    refunds=1,
    decisions={"replay": 1},
)
NOTHING = Told(log=[], taken=frozenset(), mails={})
FIRED = Evidence(fault=Fault.KILL, fired=True, proof="attempt 1 was lost")


def judge(
    *, figures: Figures = GOOD, evidence: Evidence = FIRED, verify: str = "", applied=None, exits=None, heard=NOTHING
) -> list[str]:
    """Return the reasons of a run that is good but for what is given."""
    return reasons(
        figures=figures,
        evidence=[evidence],
        ledger={"applied_per_order": applied or {}},
        heard=heard,
        exits=exits or {"demo-south": 0},
        verify=verify,
    )


def test_good_run_has_no_reason_to_fail() -> None:
    """Each order charged once or declined, everything ended, every fault fired: nothing to say."""
    assert judge() == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"orders": {"paid": 2, "placed": 1}}, "1 orders are left open."),
        ({"jobs": {"succeeded": 5, "failed": 1}}, "Jobs are left unfinished: {'failed': 1}."),
        ({"jobs": {"succeeded": 5, "dead_lettered": 1}}, "Jobs are left unfinished: {'dead_lettered': 1}."),
        ({"attempts": {"open": 2, "succeeded": 6}}, "2 attempts are left open."),
        ({"human": 3}, "3 jobs or effects need a human."),
        ({"receipts": {("paid", 1): 1, ("paid", 2): 1}}, "1 paid orders have 2 receipts."),
        ({"receipts": {("declined", 1): 1}}, "1 declined orders have 1 receipts."),
        ({"journal": {1: 2, 2: 1}}, "1 orders have 2 journal lines."),
        ({"journal": {1: 2, 0: 1}}, "1 orders have 0 journal lines."),
    ],
)
def test_wrong_figure_is_a_reason(changes: dict[str, object], reason: str) -> None:
    """Whatever is open, lost or written twice is named."""
    assert judge(figures=replace(GOOD, **changes)) == [reason]


@pytest.mark.parametrize(
    ("status", "times", "reason"),
    [
        ("paid", 2, "Order S-1 was charged 2 times."),
        ("paid", 0, "Order S-1 is paid, but the provider never charged it."),
        ("declined", 1, "Order S-1 is declined, but the provider charged it."),
        ("placed", 2, "Order S-1 was charged 2 times."),
    ],
)
def test_ledger_that_differs_from_the_orders_is_a_reason(
    make_order: MakeOrder, status: str, times: int, reason: str
) -> None:
    """The provider's own ledger decides how often an order was charged."""
    order = make_order(status=status)

    assert judge(applied={str(order.pk): times})[0] == reason


def test_what_the_partner_and_the_customer_got_is_judged(make_order: MakeOrder) -> None:
    """A paid order is published once, reaches the partner, and is mailed as often as a mail was sent."""
    order = make_order(status="paid")
    applied = {str(order.pk): 1}

    assert judge(applied=applied) == [
        "Order S-1 was published 0 times.",
        "The receipt of order S-1 was mailed 0 times.",
    ]

    with transaction.atomic():
        event = publish(
            "shop.order.paid", {"order_id": order.pk, "number": "S-1", "ref": "ch"}, subject=f"order:{order.pk}"
        )
    effect = SideEffectFactory(name="receipt", request=f'{{"to":["customer-{order.pk}@example.com"]}}', succeeded=True)
    SendFactory(effect=effect)
    mails = {f"customer-{order.pk}@example.com": 1}

    assert judge(applied=applied, heard=replace(NOTHING, mails=mails)) == [f"Event {event} never reached the partner."]

    delivery = DeliveryFactory(event=OutboxEvent.objects.get(), destination="partner")
    twice = [{"id": str(event), "did": "taken"}, {"id": str(event), "did": "again"}]
    heard = Told(log=twice, taken=frozenset({str(event)}), mails=mails)

    assert judge(applied=applied, heard=heard) == [f"Event {event} came 2 times, and 0 attempts are on record."]

    for number in (1, 2):
        DeliveryAttemptFactory(delivery=delivery, number=number)

    assert judge(applied=applied, heard=heard) == []


def test_missing_fault_worker_exit_and_verify_are_reasons() -> None:
    """A fault that did not fire, a worker that ended badly and a broken invariant each fail the run."""
    missing = Evidence(fault=Fault.FREEZE, fired=False, proof="no worker was frozen")

    found = judge(evidence=missing, exits={"demo-south": 3}, verify="J1: job 7")

    assert found == [
        "The fault 'freeze' did not fire: no worker was frozen.",
        "Worker demo-south ended with status 3 instead of 0.",
        "jobs verify reported: J1: job 7",
    ]


def test_figures_are_counted_from_rows_and_ledger(make_order: MakeOrder) -> None:
    """Charges come from the ledger, receipts and lines from the rows, and doubles are seen."""
    paid, declined = make_order(status="paid"), make_order(status="declined")
    for order in (paid, paid):
        Receipt.objects.create(order=order, provider_ref="ch_1", amount=order.amount, currency=order.currency)
    for order in (paid, paid, paid, declined):
        JournalEntry.objects.create(order=order, text="Order placed")

    found = count({"applied_per_order": {str(paid.pk): 1}, "refunds": []}, NOTHING, conflicts=1)

    assert found.orders == {"paid": 1, "declined": 1}
    assert found.charges == {("paid", 1): 1, ("declined", 0): 1}
    assert found.receipts == {("paid", 2): 1, ("declined", 0): 1}
    assert found.journal == {3: 1, 1: 1}
    assert (found.conflicts, found.refused, found.human) == (1, 0, 0)


def test_table_shows_every_figure() -> None:
    """The table has a line per figure and tells how many orders were charged how often."""
    text = "\n".join(table(GOOD))

    assert "| orders                       | 3 (declined 1, paid 2) " in text
    assert "1 for 2 paid, 0 for 1 declined" in text
    assert text.count("\n") == 17


def test_evidence_list_says_yes_or_no_and_why() -> None:
    """Each fault has a line with its answer, and the proof below."""
    missing = Evidence(fault=Fault.FREEZE, fired=False, proof="no worker was frozen")

    lines = evidence_list([FIRED, missing])

    assert lines[0].startswith("fired: yes  kill: ")
    assert lines[2].startswith("fired: no   freeze: ")
    assert [lines[1].strip(), lines[3].strip()] == ["attempt 1 was lost", "no worker was frozen"]
