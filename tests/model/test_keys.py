"""Keys between producers, a completion and time, in every order; every wrong statement is caught with a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.keys import Rules, Search

RIGHT = Rules()
CROSSED = replace(RIGHT, asks=((0, 1), (1, 0)), held=(True, True), expires=False)  # of live keys only
SORTED = replace(RIGHT, asks=((0, 1), (0, 1)), held=(True, False))
HELD = {
    "two producers of one key": (RIGHT, 140),
    "a free key": (replace(RIGHT, held=(False,)), 22),
    "duplicates of two keys in opposite order": (CROSSED, 140),
    "two keys in the same order": (SORTED, 350),
}
MUTANTS = {
    "a look decides, not the insert": (
        replace(RIGHT, insert_decides=False, held=(False,)),
        "a second job under a key",
    ),
    "a duplicate locks the key": (replace(CROSSED, duplicates_lock=True), "wait for each other"),
    "a duplicate locks, and the completion writes the key": (
        replace(RIGHT, duplicates_lock=True, completion_writes_key=True),
        "a completion waits for a producer",
    ),
    "the expiry is written at the completion, after it": (replace(RIGHT, expiry_comes_later=True), "nothing ends"),
    "an expired key is taken over without another look": (
        replace(RIGHT, take_over_asks_again=False),
        "a second job under a key",
    ),
    "a dead letter holds no key": (replace(RIGHT, dead_letters_hold_keys=False), "a second job under a key"),
    "a key ends with its job": (replace(RIGHT, lifetime_counts=False), "a second job under a key whose job is done"),
    "keys are taken in any order": (
        replace(SORTED, asks=((0, 1), (1, 0)), held=(False, False)),
        "wait for each other",
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_rules_hold_in_every_order(case: str) -> None:
    """One unfinished job per key, nobody waits for ever, no completion waits for a producer."""
    rules, floor = HELD[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_statements_are_caught(mutant: str) -> None:
    """Each wrong statement breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
