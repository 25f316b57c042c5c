"""The turns of a serial key: every order of producers, workers, deaths and decisions, and every wrong rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.turns import QUIET, Rules, Search

RIGHT = Rules()
SKIPS = replace(RIGHT, skips=True)
CALM = replace(RIGHT, faults=0, orders=0)  # nobody dies or decides, but two workers and maintenance meet
HELD = {
    "one worker that never dies, without sweep": (QUIET, 3_000),
    "a worker dies, or the clock steps back": (replace(RIGHT, orders=0), 45_000),
    "people cancel, replay and discard": (replace(RIGHT, faults=0), 55_000),
    "who lets others stand behind takes the head along, and the sweep sees it": (
        replace(CALM, spares_the_head=False),
        15_000,
    ),
}
HELD_LONG = {
    "a fault and a decision": (RIGHT, 180_000),
    "a fault and a decision, dead letters are skipped": (SKIPS, 340_000),
    "two faults": (replace(RIGHT, faults=2, orders=0), 90_000),
    "two decisions": (replace(RIGHT, faults=0, orders=2), 130_000),
    "three jobs": (replace(CALM, delays=(1, 0, 0)), 300_000),
}
MUTANTS = {
    "no sweep, and a worker dies": (replace(RIGHT, sweeps=False, workers=1, orders=0), "nothing ends any more"),
    "no sweep, and the end of a job meets an arrival": (replace(CALM, sweeps=False), "nothing ends any more"),
    "nobody passes the turn on": (replace(QUIET, passes_on=False), "nothing ends any more"),
    "the turn is passed on before the end has committed": (
        replace(QUIET, passes_after_commit=False),
        "nothing ends any more",
    ),
    "two settle a key at once": (replace(CALM, settles_under_lock=False), "without the turn"),
    "the look is older than the lock": (replace(CALM, looks_under_lock=False), "without the turn"),
    "the turn goes by the order of the enqueues": (replace(QUIET, by_due_time=False), "order"),
    "the turn goes to a job that is not due": (replace(QUIET, only_due=False), "order"),
    "a job that waits for its retry loses its turn": (replace(QUIET, retry_keeps_turn=False), "has begun has ended"),
    "a dead letter does not block": (replace(QUIET, dead_keeps_turn=False), "has begun has ended"),
    "who has the turn is put behind itself, and nobody sees it": (
        replace(CALM, spares_the_head=False, sees_who_waits=False),
        "nothing ends any more",
    ),
    "a key is forgotten while jobs stand behind": (
        replace(RIGHT, orders=0, keeps_key_of_ready=False),
        "nothing ends any more",
    ),
    "a claim does not ask for the lane again": (
        replace(SKIPS, faults=0, claim_asks_for_lane=False),
        "without the turn",
    ),
    "a promoted job may run at once": (replace(QUIET, arrives_when_due=False), "without the turn"),
    "a replayed job may run at once": (
        replace(QUIET, skips=True, orders=1, arrives_when_replayed=False),
        "without the turn",
    ),
    "a producer that sees no turn takes it": (
        replace(QUIET, producer_settles=True, delays=(0, 0)),
        "without the turn",
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_turns_hold_in_every_order(case: str) -> None:
    """One job of the key at a time, in the order of due times, and none waits for ever but behind a dead letter."""
    rules, floor = HELD[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.long
@pytest.mark.parametrize("case", HELD_LONG)
def test_turns_hold_in_larger_worlds(case: str) -> None:
    """Faults and decisions together, several of each, and a third job."""
    rules, floor = HELD_LONG[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
