"""The run in figures, counted from the database and the provider's ledger after everything has ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Sum

from django_jobs.models import Attempt, DuplicateEnqueue, Job, OperatorAction, OutboxEvent, Send, SideEffect
from testproject.demo.partner import Told
from testproject.shop.models import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the table shows, and what the verdict looks at."""

    orders: dict[str, int]
    jobs: dict[str, int]
    attempts: dict[str, int]
    losses: dict[str, int]
    charges: dict[tuple[str, int], int]  # (status of the order, times charged) → how many orders
    receipts: dict[tuple[str, int], int]  # (status of the order, receipts) → how many orders
    journal: dict[int, int]  # lines → how many orders
    reconciled: int
    resent: int
    duplicates: int
    conflicts: int
    refused: int
    human: int
    events: int
    webhooks: int  # deliveries that came to the partner
    repeated: int  # of these, for an event that it had taken already
    mails: int
    refunds: int
    decisions: dict[str, int]


def count(ledger: dict[str, Any], heard: Told, *, conflicts: int) -> Figures:
    """Count everything once; `conflicts` were seen by the producer alone and left no row."""
    orders = Order.objects.annotate(
        receipt_count=Count("receipts", distinct=True), line_count=Count("journal", distinct=True)
    )
    found = list(orders.values_list("pk", "status", "receipt_count", "line_count"))
    applied = {int(order): times for order, times in ledger["applied_per_order"].items()}
    refused = Attempt.objects.aggregate(total=Sum("refused_count"))["total"]
    return Figures(
        orders=dict(Counter(status for _, status, _, _ in found)),
        jobs=_by("state", Job),
        attempts={outcome or "open": number for outcome, number in _by("outcome", Attempt).items()},
        losses=_by("loss_cause", Attempt, outcome="lost"),
        charges=dict(Counter((status, applied.get(pk, 0)) for pk, status, _, _ in found)),
        receipts=dict(Counter((status, receipts) for _, status, receipts, _ in found)),
        journal=dict(Counter(lines for _, _, _, lines in found)),
        reconciled=SideEffect.objects.filter(resolved_by="reconciliation").count(),
        resent=_resent(),
        duplicates=DuplicateEnqueue.objects.filter(outcome="duplicate").count(),
        conflicts=conflicts,
        refused=refused or 0,
        human=Job.objects.dead().count() + SideEffect.objects.filter(needs_review=True).count(),
        events=OutboxEvent.objects.count(),
        webhooks=len(heard.log),
        repeated=heard.repeated,
        mails=sum(heard.mails.values()),
        refunds=len(ledger["refunds"]),
        decisions=_by("action", OperatorAction),
    )


def _by(column: str, model: type[Job | Attempt | OperatorAction], **only: str) -> dict[str, int]:
    rows = model._default_manager.filter(**only).values_list(column)  # noqa: SLF001  Django documents it
    rows = rows.annotate(Count("pk")).order_by(column)
    return dict(rows)


def _resent() -> int:
    """Count the sends that repeated the key of an earlier one."""
    keys = Send.objects.values("effect_id", "provider_key").annotate(times=Count("pk"))
    return sum(row["times"] - 1 for row in keys)
