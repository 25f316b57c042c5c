"""Claim, finish, rescue, replay and cancellation in every order, and every wrong statement is caught with a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.lease import Rules, Search

RIGHT = Rules()
HELD = {
    "two workers": (RIGHT, 1900),
    "a replay": (replace(RIGHT, replays=1), 28_000),
    "a restored backup": (replace(RIGHT, restores=True), 33_000),
}
HELD_LONG = {
    "three workers, a replay": (replace(RIGHT, workers=3, replays=1), 67_000),
    "three workers, a restored backup": (replace(RIGHT, workers=3, restores=True), 78_000),
}
AGAIN = replace(RIGHT, replays=1)
MUTANTS = {
    "a success asks for nothing": (replace(RIGHT, success_is_guarded=False), "job became succeeded"),
    "a late failure hides a success": (
        replace(RIGHT, failure_is_guarded=False, operators=False),
        "a succeeded job became waiting",
    ),
    "the number is the guard": (replace(RIGHT, guard_is_the_id=False, restores=True), "two workers hold"),
    "the guard does not ask for the state": (
        replace(RIGHT, guard_asks_for_the_state=False),
        "job became",
    ),
    "rows and success in two transactions": (
        replace(RIGHT, rows_commit_with_success=False),
        "rows were committed twice",
    ),
    "nobody reaps": (replace(RIGHT, somebody_reaps=False), "nothing ends"),
    "the reaper takes back whatever runs": (replace(RIGHT, rescue_is_guarded=False), "whose lease holds"),
    "the reaper does not look again": (replace(RIGHT, rescue_asks_again=False), "whose lease holds"),
    "a death is not counted": (replace(RIGHT, losses_count=False), "again and again"),
    "a snooze resets what was counted": (replace(RIGHT, snooze_keeps_counters=False), "again and again"),
    "releases are free for ever": (replace(RIGHT, releases_count=False), "again and again"),
    "a replay begins with number one": (replace(AGAIN, replay_keeps_numbers=False), "number was given twice"),
    "a replay keeps what was used up": (replace(AGAIN, replay_zeroes_counters=False), "no more than one failure"),
    "a success can be replayed": (replace(AGAIN, replay_asks_for_the_state=False), "a succeeded job became waiting"),
    "a cancellation overrules a success": (
        replace(RIGHT, cancel_asks_for_the_state=False),
        "a succeeded job became cancelled",
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_rules_hold_in_every_order(case: str) -> None:
    """Rows once, nothing leaves a success, one holder, bounded attempts, and an end is always in reach."""
    rules, floor = HELD[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.long
@pytest.mark.parametrize("case", HELD_LONG)
def test_rules_hold_in_larger_worlds(case: str) -> None:
    """The same with a third worker."""
    rules, floor = HELD_LONG[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_statements_are_caught(mutant: str) -> None:
    """Each wrong statement breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
