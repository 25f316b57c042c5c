"""The end of a batch: every order of its last members and of those who close it, and every wrong rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.closing import Rules, Search

RIGHT = Rules()
MUTANTS = {
    "the batch is committed before its members": (replace(RIGHT, made_at_once=False), "before the end of a member"),
    "a member is added after the end of who adds it": (
        replace(RIGHT, child_joins_before=False),
        "before the end of a member",
    ),
    "last members look before they commit": (
        replace(RIGHT, looks_after_commit=False, maintenance=False, crashes=0),
        "nothing ends any more",
    ),
    "nobody looks for what a crash left": (replace(RIGHT, maintenance=False), "nothing ends any more"),
    "closing is not guarded": (replace(RIGHT, closes_once=False), "the callback comes twice"),
}


@pytest.mark.parametrize(
    "rules",
    [
        RIGHT,
        replace(RIGHT, crashes=3),
        replace(RIGHT, maintenance=False, crashes=0),
        replace(RIGHT, looks_after_commit=False),
    ],
    ids=["one crash", "three crashes", "no crash and no maintenance", "maintenance alone finds it"],
)
def test_callback_comes_once_after_the_last_end(rules: Rules) -> None:
    """In every order the batch is closed, once, after all of its members have ended."""
    Search(rules).run().must_hold("closing a batch", floor=40)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
