"""Replay, discard and compensation of one dead letter in every order; every missing question is caught with a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.taking_back import Rules, Search

RIGHT = Rules()
FLOOR = 17_000
MUTANTS = {
    "what was acknowledged is not compared": (
        replace(RIGHT, plans_are_compared=False),
        "on a plan that nobody saw",
    ),
    "two compensations of one effect": (replace(RIGHT, one_stands=False), "two compensations of one effect stand"),
    "each try has a key of its own": (replace(RIGHT, tries_share_a_key=False), "taken back twice"),
    "replayed while a compensation is open": (
        replace(RIGHT, replay_asks_for_compensations=False),
        "runs while its effect is taken back",
    ),
    "discarded while a compensation is open": (
        replace(RIGHT, discard_asks_for_compensations=False),
        "discarded while its effect is taken back",
    ),
    "a compensation of unknown outcome is given up": (
        replace(RIGHT, void_asks_for_evidence=False),
        "a success on what was taken back",
    ),
    "a late confirmation is ignored": (replace(RIGHT, late_confirmation_counts=False), "known to be taken back"),
    "the original is settled in a transaction of its own": (
        replace(RIGHT, settles_in_the_completion=False),
        "nothing ends",
    ),
}


def test_rules_hold_in_every_order() -> None:
    """Taken back once, one compensation that stands, no success on what was taken back, and an end is in reach."""
    Search(RIGHT).run().must_hold("the rules", floor=FLOOR)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_missing_questions_are_caught(mutant: str) -> None:
    """Each missing question breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
