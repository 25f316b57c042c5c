"""The orders file, and which order meets which fault."""

from __future__ import annotations

from decimal import Decimal

import pytest

from testproject.demo.plan import SCRIPTS, Fault, make_plan, read_orders


def test_orders_file_holds_at_least_two_hundred_orders() -> None:
    """The file's orders have numbers of their own and amounts that a card can be charged with."""
    rows = read_orders()

    assert len(rows) >= 200
    assert len({row.number for row in rows}) == len(rows)
    assert all(row.amount > 0 and row.amount == row.amount.quantize(Decimal("0.01")) for row in rows)
    assert {len(row.currency) for row in rows} == {3}


def test_each_fault_meets_an_order_of_its_own() -> None:
    """No order meets two faults, so that each one's evidence stands alone."""
    numbers = make_plan().numbers

    assert set(numbers) == set(Fault)
    assert len(set(numbers.values())) == len(numbers)


def test_declined_order_is_the_one_with_the_declined_card() -> None:
    """The card in the file says which order is declined."""
    plan = make_plan()

    assert plan.row(Fault.DECLINE).card == "visa 0002"


def test_every_order_is_placed_once_and_scripted_ones_after_the_kill() -> None:
    """The two halves and the two orders that go first are all orders; what the kill could take along comes later."""
    plan = make_plan()
    before, after = ([row.number for row in half] for half in plan.halves())
    first = [plan.numbers[Fault.FREEZE], plan.numbers[Fault.KILL]]

    assert sorted([*first, *before, *after]) == sorted(row.number for row in plan.rows)
    assert {plan.numbers[fault] for fault in SCRIPTS} - set(first) <= set(after)


@pytest.mark.parametrize("fault", list(Fault))
def test_fault_that_is_left_out_is_not_met(fault: Fault) -> None:
    """A plan without a fault meets all others."""
    plan = make_plan(without=frozenset({fault}))

    assert [other for other in Fault if not plan.meets(other)] == [fault]
