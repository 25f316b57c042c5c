"""Progress renews a lease, standing still does not, and nothing renews for ever; every wrong rule is caught."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.model.progress import LEASE, Rules, Search

RIGHT = Rules()
FLOOR = 1700
MUTANTS = {
    "the claim keeps the progress of before": (
        replace(RIGHT, claim_forgets_progress=False),
        "an attempt that grows may not renew",
    ),
    "a renewal without growth": (
        replace(RIGHT, may_renew=lambda stored, value: stored is None or value >= stored),
        "stands still",
    ),
    "any word renews": (replace(RIGHT, may_renew=lambda stored, value: True), "stands still"),
    "renewals have no end": (
        replace(RIGHT, lease_at_renewal=lambda terms, *, elapsed: timedelta(seconds=LEASE)),
        "beyond the longest run",
    ),
    "renewed after it was taken back": (replace(RIGHT, renewal_is_guarded=False), "taken back renewed"),
    "a holder may renew only while its lease holds": (
        replace(RIGHT, renews_until_taken_back=False),
        "an attempt that grows may not renew",
    ),
}


def test_rules_hold_in_every_order() -> None:
    """Who grows keeps its lease, who does not loses it, and the longest run ends both."""
    Search(RIGHT).run().must_hold("the rules", floor=FLOOR)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    Search(rules).run().must_break(mutant, problem)
