"""Which orders take part, and which of them meets which fault."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

ORDERS = Path(__file__).resolve().parent.parent / "shop" / "data" / "orders.csv"
DECLINED_CARD_ENDS = "0002"  # the number that providers give out for tests of a declined card
RETRY_AFTER = 2.0  # seconds that the provider asks for with its 429


class Fault(StrEnum):
    """What goes wrong on purpose; the values are what `--without` takes."""

    KILL = "kill"
    LOST_RESPONSE = "lost-response"
    RATE_LIMIT = "rate-limit"
    DECLINE = "decline"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    FREEZE = "freeze"
    PARTNER = "partner"
    DEAD_LETTER = "dead-letter"
    REFUND = "refund"


TITLES = {
    Fault.KILL: "worker process killed after the provider charged, before that was recorded",
    Fault.LOST_RESPONSE: "response lost after the provider charged",
    Fault.RATE_LIMIT: "429 with Retry-After",
    Fault.DECLINE: "card declined",
    Fault.DUPLICATE: "one payload sent twice",
    Fault.CONFLICT: "one key with another payload",
    Fault.FREEZE: "worker frozen during its provider call, past its lease",
    Fault.PARTNER: "a partner's webhook receiver that fails, answers too late, and hangs up after it took the event",
    Fault.DEAD_LETTER: "order without a customer: dead letter, corrected, replayed on the admin's page",
    Fault.REFUND: "goods sent back: the charge is taken back by a job of its own",
}


# What the provider does to the first charge of such an order, with the seconds it needs for that.
SCRIPTS: dict[Fault, tuple[str, float | None]] = {
    Fault.KILL: ("hold_after_apply", None),
    Fault.LOST_RESPONSE: ("drop_response", None),
    Fault.RATE_LIMIT: ("rate_limited", RETRY_AFTER),
    Fault.DECLINE: ("declined", None),
    Fault.FREEZE: ("hold_after_apply", None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRow:
    """One line of the CSV file."""

    number: str
    customer: str
    amount: Decimal
    currency: str
    card: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All orders, and by fault the number of the order that meets it."""

    rows: list[OrderRow]
    numbers: dict[Fault, str]
    without: frozenset[Fault]

    def meets(self, fault: Fault) -> bool:
        """Whether the fault is to happen in this run."""
        return fault not in self.without

    def row(self, fault: Fault) -> OrderRow:
        """Return the order that meets a fault."""
        return next(row for row in self.rows if row.number == self.numbers[fault])

    def halves(self) -> tuple[list[OrderRow], list[OrderRow]]:
        """
        Return the orders placed before the kill and those after it; the frozen and the killed one are in neither.

        Whatever else is scripted meets an order of the second half, so that the killed process cannot take it along.
        """
        apart = {self.numbers[Fault.FREEZE], self.numbers[Fault.KILL]}
        rows = [row for row in self.rows if row.number not in apart]
        middle = len(rows) // 2
        return rows[:middle], rows[middle:]


def read_orders(path: Path = ORDERS) -> list[OrderRow]:
    """Read the orders of a CSV file with the columns number, customer, amount, currency and card."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            OrderRow(
                number=line["number"],
                customer=line["customer"],
                amount=Decimal(line["amount"]),
                currency=line["currency"],
                card=line["card"],
            )
            for line in csv.DictReader(file)
        ]


def make_plan(*, without: frozenset[Fault] = frozenset()) -> Plan:
    """Give each fault an order of its own: the declined one is told by its card, the others by their place."""
    rows = read_orders()
    accepted = [row.number for row in rows if not row.card.endswith(DECLINED_CARD_ENDS)]
    declined = next(row.number for row in rows if row.card.endswith(DECLINED_CARD_ENDS))
    late = len(accepted) * 3 // 4
    numbers = {
        Fault.FREEZE: accepted[0],
        Fault.KILL: accepted[1],
        Fault.DECLINE: declined,
        Fault.LOST_RESPONSE: accepted[late],
        Fault.RATE_LIMIT: accepted[late + 1],
        Fault.DUPLICATE: accepted[late + 2],
        Fault.CONFLICT: accepted[late + 3],
        Fault.DEAD_LETTER: accepted[late + 4],
        Fault.REFUND: accepted[late + 5],
        Fault.PARTNER: accepted[late + 6],  # any paid order would do: the first events meet it
    }
    return Plan(rows=rows, numbers=numbers, without=without)
