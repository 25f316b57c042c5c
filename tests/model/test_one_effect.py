"""An effect between its intent and the job's success, in every order of events; every wrong protocol is caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.one_effect import Rules, Search

ASKS = Rules()
MUTE = replace(ASKS, can_be_asked=False)
# A provider with keys needs neither the deadline nor the wait.
KEYS = replace(ASKS, keys=True, can_be_asked=False, looks_at_deadline=False, waits_until_settled=False)
CACHES = replace(ASKS, keys=True, caches_failures=True, takes_new_keys=True)
HASTY = replace(ASKS, keys=True, looks_at_deadline=False, waits_until_settled=False)
HELD = {
    "no keys, can be asked": (ASKS, 14_000),
    "no keys, cannot be asked": (MUTE, 5400),
    "keys: the same request again": (KEYS, 30_900),
    "keys that remember rejections: a new one then": (CACHES, 39_500),
    "no keys, a replay": (replace(ASKS, replay="keeps"), 13_800),
    "keys, a replay": (replace(KEYS, replay="keeps"), 30_100),
}
MUTANTS = {
    "a replay is a fresh copy": (replace(ASKS, replay="forgets"), "applied it twice"),
    "a replay is a fresh copy with a key of its own": (
        replace(KEYS, replay="forgets", key_is_the_effect_s=False),
        "applied it twice",
    ),
    "keys, and nobody waits until it is settled": (HASTY, "nothing was applied, and it was"),
    "a late confirmation is not taken": (
        replace(HASTY, late_confirmation_counts=False),
        "nothing was applied, and it was",
    ),
    "a new key before it is settled": (
        replace(HASTY, caches_failures=True, takes_new_keys=True),
        "applied it twice",
    ),
    "the last send decides": (replace(KEYS, takes_new_keys=True, all_sends_count=False), "applied it twice"),
    "a failure is not fenced": (replace(ASKS, failure_is_fenced=False), "a success was left"),
    "a success is not fenced": (replace(ASKS, success_is_fenced=False), "rows were committed twice"),
    "rows and success in two transactions": (
        replace(ASKS, rows_commit_with_success=False),
        "rows were committed twice",
    ),
    "the request comes before its intent": (replace(ASKS, intent_comes_first=False), "applied it twice"),
    "'not found' is final at once": (replace(ASKS, waits_until_settled=False), "applied it twice"),
    "nobody looks at the deadline": (replace(ASKS, looks_at_deadline=False), "applied it twice"),
    "the key is the attempt's": (replace(KEYS, key_is_the_effect_s=False), "applied it twice"),
}


@pytest.mark.parametrize("case", HELD)
def test_protocol_holds_in_every_order(case: str) -> None:
    """Applied once, rows once, no success without evidence, no dead letter that lies, and an end is always in reach."""
    rules, floor = HELD[case]

    Search(rules).run().must_hold(case, floor=floor)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_protocols_are_caught(mutant: str) -> None:
    """Each wrong step breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
