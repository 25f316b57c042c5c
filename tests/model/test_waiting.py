"""Deliveries that wait for their key: every order of events is tried, and every wrong rule is caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.waiting import QUIET, Rules, Search

pytestmark = pytest.mark.usefixtures("untraced")

RIGHT = Rules()
HELD = {
    "two producers": replace(RIGHT, producers=2),
    "two producers, three dispatchers": replace(RIGHT, producers=2, dispatchers=3, faults=1),
    "sweep without the producers' promotion": replace(RIGHT, promotes_after_commit=False, producers=2),
    "discard without promotion, repaired by the sweep": replace(RIGHT, discard_promotes=False, producers=2),
    "promotion in a transaction of its own, repaired by the sweep": replace(
        RIGHT, marks_and_promotes_at_once=False, producers=2
    ),
    "no sweep, where nobody dies and statements are instant": QUIET,
}
HELD_LONG = {
    "three producers, two dispatchers, two faults": RIGHT,
    "two producers, three dispatchers, three faults": replace(RIGHT, producers=2, dispatchers=3, faults=3),
    "four producers, one fault": replace(RIGHT, producers=4, faults=1),
}
SMALL = replace(RIGHT, producers=2)
MUTANTS = {
    "no sweep and no promotion after the commit": (
        replace(SMALL, sweeps=False, promotes_after_commit=False),
        "for ever",
    ),
    "no sweep, and a producer dies": (
        replace(SMALL, sweeps=False, statements_are_slow=False, faults=0, dispatchers=1),
        "for ever",
    ),
    "no sweep, and nobody dies": (
        replace(SMALL, sweeps=False, producers_die=False, faults=0, dispatchers=1),
        "for ever",
    ),
    "a claimed predecessor is overlooked": (replace(SMALL, claimed_is_unfinished=False), "order"),
    "promotion in a transaction of its own, without sweep": (
        replace(QUIET, marks_and_promotes_at_once=False),
        "for ever",
    ),
    "discard does not promote, without sweep": (replace(QUIET, discard_promotes=False), "for ever"),
    "the look is older than the lock": (replace(SMALL, looks_under_lock=False), "order"),
    "numbers from a sequence": (replace(SMALL, holds_counter=False), "order"),
    "promotion does not ask for the state": (replace(SMALL, promotes_only_waiting=False), "left"),
    "promotion does not hang on the mark": (replace(SMALL, promotes_only_if_marked=False), "order"),
    "a producer promotes without asking": (replace(SMALL, asks_before_own_promotion=False), "order"),
    "marks are not fenced": (replace(SMALL, marks_are_fenced=False), ""),
}


@pytest.mark.parametrize("case", HELD)
def test_rules_hold_in_every_order(case: str) -> None:
    """Small worlds, searched to their end: order is kept, and everything arrives or stands behind a dead one."""
    found = Search(HELD[case]).run()

    assert (found.problem, found.trace) == ("", ())
    assert found.worlds > 500


@pytest.mark.long
@pytest.mark.parametrize("case", HELD_LONG)
def test_rules_hold_in_larger_worlds(case: str) -> None:
    """More producers, dispatchers and faults."""
    found = Search(HELD_LONG[case]).run()

    print(f"\n{case}: {found.worlds} worlds")
    assert (found.problem, found.trace) == ("", ())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    found = Search(rules).run()

    print(f"\n{mutant}: {found.problem} after {'; '.join(found.trace)}")
    assert problem in found.problem
    assert found.problem
