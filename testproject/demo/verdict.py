"""Every reason why a run has failed; none means that the promise was kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from testproject.demo.evidence import Evidence
from testproject.demo.figures import Figures
from testproject.demo.partner import Told, wrong_with
from testproject.shop.models import Order

SETTLED_JOBS = {"succeeded"}


def reasons(
    *,
    figures: Figures,
    evidence: Iterable[Evidence],
    ledger: Mapping[str, Any],
    heard: Told,
    exits: Mapping[str, int],
    verify: str,
) -> list[str]:
    """Return what is wrong, in plain English; `verify` is what `jobs verify` reported, empty if nothing."""
    return [
        *(f"The fault '{item.fault}' did not fire: {item.proof}." for item in evidence if not item.fired),
        *_money(ledger),
        *_left_open(figures),
        *_written_twice(figures),
        *wrong_with(heard),
        *(f"Worker {name} ended with status {status} instead of 0." for name, status in exits.items() if status),
        *([f"jobs verify reported: {verify}"] if verify else []),
    ]


def _money(ledger: Mapping[str, Any]) -> list[str]:
    applied = {int(order): int(times) for order, times in ledger["applied_per_order"].items()}
    found = []
    for pk, number, status in Order.objects.values_list("pk", "number", "status"):
        times = applied.get(pk, 0)
        if times > 1:
            found.append(f"Order {number} was charged {times} times.")
        elif status == Order.Status.PAID and not times:
            found.append(f"Order {number} is paid, but the provider never charged it.")
        elif status == Order.Status.DECLINED and times:
            found.append(f"Order {number} is declined, but the provider charged it.")
    return found


def _left_open(figures: Figures) -> list[str]:
    found = []
    if left := figures.orders.get(Order.Status.PLACED, 0):
        found.append(f"{left} orders are left open.")
    if unsettled := {state: number for state, number in figures.jobs.items() if state not in SETTLED_JOBS}:
        found.append(f"Jobs are left unfinished: {unsettled}.")
    if "open" in figures.attempts:
        found.append(f"{figures.attempts['open']} attempts are left open.")
    if figures.human:
        found.append(f"{figures.human} jobs or effects need a human.")
    return found


def _written_twice(figures: Figures) -> list[str]:
    expected = {(Order.Status.PAID.value, 1), (Order.Status.DECLINED.value, 0), (Order.Status.PLACED.value, 0)}
    found = [
        f"{orders} {status} orders have {receipts} receipts."
        for (status, receipts), orders in figures.receipts.items()
        if (status, receipts) not in expected
    ]
    found += [f"{orders} orders have {lines} journal lines." for lines, orders in figures.journal.items() if lines != 1]
    return found
