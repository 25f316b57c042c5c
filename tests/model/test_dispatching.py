"""Dispatchers, a destination that loses confirmations, and a consumer: every order of events, and every wrong rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.dispatching import Rules, Search

pytestmark = pytest.mark.usefixtures("untraced")

RIGHT = Rules()
MUTANTS = {
    "marked before it is confirmed": (replace(RIGHT, marks_after_confirmation=False), "never arrived"),
    "another event's confirmation is taken": (replace(RIGHT, confirmations_match=False), "never arrived"),
    "the second event does not wait": (replace(RIGHT, heads_go_alone=False), "order"),
    "a late confirmation is kept and nothing else": (replace(RIGHT, late_answers_count=False), "sent again"),
    "no inbox": (replace(RIGHT, keeps_inbox=False), "acted twice"),
    "inbox and effect in two transactions": (replace(RIGHT, inbox_commits_with_effect=False), "acted twice"),
    "inbox emptied while events may come again": (replace(RIGHT, inbox_outlives_redelivery=False), "acted twice"),
    "acknowledged before anything is done": (replace(RIGHT, acknowledges_after_effect=False), "nobody acted"),
}


def test_rules_hold_in_every_order() -> None:
    """Nothing is lost, order is kept, and the consumer acts once; searched to the end."""
    found = Search(replace(RIGHT, attempts=2, arrivals=2)).run()

    assert (found.problem, found.trace) == ("", ())
    assert found.worlds > 1000


@pytest.mark.long
def test_rules_hold_with_repeated_attempts() -> None:
    """The same with three arrivals."""
    found = Search(RIGHT).run()

    print(f"\n{found.worlds} worlds")
    assert (found.problem, found.trace) == ("", ())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    found = Search(rules).run()

    print(f"\n{mutant}: {found.problem} after {'; '.join(found.trace)}")
    assert problem in found.problem
    assert found.problem
